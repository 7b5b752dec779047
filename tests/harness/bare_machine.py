"""This machine without clocks to set and sensors to read, as most virtual machines are.

Where a test is about something else, it must not depend on whether the machine under it has RAPL, cpufreq or a battery.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import host
from harness.devices.nvidia_gpu import NvidiaGpuDevice

OF_ANY_MACHINE = ("cpu", "memory", "diskstats")


def make_bare(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let `host`, and a GPU beside it, look for the sensors and clocks of the CPU below an empty folder."""
    folder.mkdir()
    (folder / "proc").symlink_to("/proc")
    real_frequency = host.CpuFrequency
    monkeypatch.setattr(host, "CpuFrequency", lambda root: real_frequency(str(folder) if root == "/" else root))
    for kind in (host.HostDevice, NvidiaGpuDevice):
        real_sources = kind.__dict__["telemetry_sources"]

        def sources(device, data_directory, real_sources=real_sources):
            listed = real_sources(device, data_directory)
            return [
                spec if spec.root or spec.name in OF_ANY_MACHINE else spec._replace(root=str(folder)) for spec in listed
            ]

        monkeypatch.setattr(kind, "telemetry_sources", sources)
