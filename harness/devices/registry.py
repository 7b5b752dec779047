"""Which devices there are, by name, and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

from harness.configuration import Configuration
from harness.devices.absent import AbsentBoard
from harness.devices.host import HostDevice
from harness.devices.protocol import Device
from harness.errors import UnknownNameError

BOARDS: Dict[str, str] = {
    "orin-agx": "NVIDIA Jetson AGX Orin",
    "orin-nx": "NVIDIA Jetson Orin NX",
    "orin-nano": "NVIDIA Jetson Orin Nano",
    "xavier-agx": "NVIDIA Jetson AGX Xavier",
    "xavier-nx": "NVIDIA Jetson Xavier NX",
    "tx2": "NVIDIA Jetson TX2",
    "nano": "NVIDIA Jetson Nano",
}
"""Boards by the name they have in the corpus schema."""


def known_devices() -> List[str]:
    """Every name that `open_device` takes."""
    return ["host", *BOARDS]


def open_device(name: str, configuration: Configuration, root: Path = Path("/")) -> Device:
    """A device by its name; touches nothing yet.

    Raises:
        UnknownNameError: lists the known devices.
    """
    if name == "host":
        return HostDevice(configuration, root)
    if name in BOARDS:
        return AbsentBoard(name, BOARDS[name], root)
    raise UnknownNameError(f"device {name!r} is unknown", f"known: {', '.join(known_devices())}")
