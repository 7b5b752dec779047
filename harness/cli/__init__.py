"""The commands of the harness, a module each."""
