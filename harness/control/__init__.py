"""Control: one module per knob, each applied, read back and put back; and the lock and saved state around them."""
