"""What makes the project and is not installed: fit and validation of the simulation."""
