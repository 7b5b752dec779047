"""Which devices there are, by name, and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

from harness.core.boards import BOARDS, load_board
from harness.core.configuration import Configuration
from harness.core.device import Device
from harness.core.errors import UnknownNameError
from harness.devices.absent import AbsentBoard
from harness.devices.host import HostDevice
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_identity import read_board
from harness.devices.replay import PREFIX as REPLAY
from harness.devices.replay import ReplayDevice
from harness.devices.simulated import PREFIX as SIMULATED
from harness.devices.simulated import SimulatedDevice
from harness.simulation.parameters import SIMULATED_BOARDS


def known_devices() -> List[str]:
    """Every name that `open_device` takes, and the form of those that name a file."""
    return ["host", *BOARDS, *(SIMULATED + board for board in SIMULATED_BOARDS), f"{REPLAY}CORPUS.csv"]


def local_board(configuration: Configuration, root: Path = Path("/")) -> Optional[JetsonDevice]:
    """The Jetson board whose `/sys`, `/proc` and `/etc` are below `root`; None where that is none."""
    board = read_board(root)
    return None if board is None else JetsonDevice(board, configuration, root)


def open_device(name: str, configuration: Configuration, root: Path = Path("/")) -> Device:
    """A device by its name; touches nothing yet.

    Args:
        name: `host`, a board, what the board below `root` calls itself, `sim:BOARD`, or `replay:CORPUS.csv`.
        configuration: where storage media and data sets lie.
        root: where the machine's, or an emulated board's, `/sys`, `/proc` and `/etc` are.

    Raises:
        UnknownNameError: lists the known devices.
        HarnessError: the corpus to replay cannot be read, or is none.
    """
    if name.startswith(SIMULATED):
        return SimulatedDevice(name[len(SIMULATED) :])
    if name.startswith(REPLAY):
        return ReplayDevice(name[len(REPLAY) :])
    if name == "host":
        return HostDevice(configuration, root)
    board = local_board(configuration, root)
    if board is not None and board.name == name:
        return board
    if name in BOARDS:
        return AbsentBoard(load_board(name), root)
    here = [board.name] if board is not None and board.name not in BOARDS else []
    raise UnknownNameError(f"device {name!r} is unknown", f"known: {', '.join([*known_devices(), *here])}")
