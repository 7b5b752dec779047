"""Everything that touches a device: power modes, control, telemetry, workloads, the measured loop and its records."""

__version__ = "0.2.0.dev0"
