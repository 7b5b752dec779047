"""What a board is told while a power mode is applied and while it is put back, on emulated boards.

The one place here that imports the suite's own modules; everything else goes through its commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

Trace = List[List[str]]
"""Path and value of each write that the kernel took, the oldest first."""


def build(root: Path, board: str, l4t: str) -> None:
    """Write the tree of a board under a release of L4T."""
    from tests.boards.tree import build_board

    build_board(root, board, l4t)


def trace(root: Path, power_mode: str, clocks: str) -> Dict[str, Trace]:
    """What is written on the board at `root` by a session that applies a mode: to begin, to apply, to put back.

    Args:
        root: what `build` wrote.
        power_mode: as `--power-mode` takes it; one of the board's own goes through nvpmodel.
        clocks: `static` or `dvfs`.
    """
    from harness.core.configuration import Configuration
    from harness.devices.jetson import JetsonDevice
    from harness.devices.jetson_board import read_board
    from tests.boards.emulator import intercepted
    from tests.boards.kernel import Kernel
    from tests.boards.tools_in_process import tools_in_process

    kernel = Kernel(str(root))
    kernel.forget_record()
    with intercepted(kernel), tools_in_process(str(root)):
        device = JetsonDevice(read_board(root), Configuration(), root)
        [(name, mode)] = device.power_modes(power_mode)
        with device.session():
            begun = list(kernel.writes)
            device._apply(name, mode, clocks)
            applied = list(kernel.writes)
    ended = list(kernel.writes)
    return {"session": begun, "apply": applied[len(begun) :], "restore": ended[len(applied) :]}
