"""Which devices there are, by name, and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import List

from harness.configuration import Configuration
from harness.devices.absent import AbsentBoard
from harness.devices.boards import BOARDS, load_board
from harness.devices.host import HostDevice
from harness.devices.protocol import Device
from harness.errors import UnknownNameError


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
        return AbsentBoard(load_board(name), root)
    raise UnknownNameError(f"device {name!r} is unknown", f"known: {', '.join(known_devices())}")
