"""Everything that touches a device: power modes, control, telemetry, workloads, the measured loop and its records."""

__version__ = "1.0.0"
