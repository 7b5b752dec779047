"""Subsystems of Linux and L4T: what reads each, and what sets it."""
