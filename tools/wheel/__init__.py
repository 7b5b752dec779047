"""How the wheel is built and tried."""
