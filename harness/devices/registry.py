"""Which devices there are, by name, and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

from harness.configuration import Configuration
from harness.devices.absent import AbsentBoard
from harness.devices.boards import BOARDS, load_board
from harness.devices.host import HostDevice
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_identity import read_board
from harness.devices.protocol import Device
from harness.errors import UnknownNameError


def known_devices() -> List[str]:
    """Every name that `open_device` takes."""
    return ["host", *BOARDS]


def local_board(configuration: Configuration, root: Path = Path("/")) -> Optional[JetsonDevice]:
    """The Jetson board whose `/sys`, `/proc` and `/etc` are below `root`; None where that is none."""
    board = read_board(root)
    return None if board is None else JetsonDevice(board, configuration, root)


def open_device(name: str, configuration: Configuration, root: Path = Path("/")) -> Device:
    """A device by its name; touches nothing yet.

    Args:
        name: `host`, a board, or what the board below `root` calls itself.
        configuration: where storage media and data sets lie.
        root: where the machine's, or an emulated board's, `/sys`, `/proc` and `/etc` are.

    Raises:
        UnknownNameError: lists the known devices.
    """
    if name == "host":
        return HostDevice(configuration, root)
    board = local_board(configuration, root)
    if board is not None and board.name == name:
        return board
    if name in BOARDS:
        return AbsentBoard(load_board(name), root)
    here = [board.name] if board is not None and board.name not in BOARDS else []
    raise UnknownNameError(f"device {name!r} is unknown", f"known: {', '.join([*known_devices(), *here])}")
