"""Power modes by their names on a board or on this machine, for cases that tests make by hand."""

from __future__ import annotations

import functools

from harness.core.boards import is_board, load_board
from harness.core.cases import INSTANCE_MARK
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.device_types import EMULATED
from harness.core.mode_texts import MAXN, only_mode
from harness.core.power_modes import NamedMode
from harness.devices.registry import open_device


@functools.lru_cache(maxsize=None)
def mode_on(device: str = "host", text: str = MAXN) -> NamedMode:
    """The mode that a text names on a board, also a simulated or emulated one, or on this machine."""
    board = device.split(":")[-1].partition(INSTANCE_MARK)[0].split(EMULATED)[-1]
    if is_board(board):
        return only_mode(text, load_board(board).power_modes(text))
    return named_mode(open_device("host", Configuration()), text)
