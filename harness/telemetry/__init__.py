"""Telemetry: one module per source, and the sampler that reads them beside a profile."""
