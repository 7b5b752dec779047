"""Estimates with intervals: pure functions of arrays."""
