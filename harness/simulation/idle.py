"""Power of a simulated board that trains nothing: the four idle states of SIGMETRICS 2023 sec. 5.6.1."""

from __future__ import annotations

import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.power_modes import PowerMode
from harness.simulation.model import idle_mw
from harness.simulation.parameters import BoardParameters

IDLE_STATES = ("logging", "clean", "dvfs", "wol")
"""After a clean start with telemetry; without it; with DVFS on as well; suspended, waiting for a network packet."""


def idle_power_mw(board: BoardParameters, mode: PowerMode, state: str = "logging", *, socket: bool = False) -> float:
    """Power of an idle board.

    Args:
        board: which.
        mode: the power mode it stands in; a suspended board has none.
        state: one of `IDLE_STATES`.
        socket: at the socket, with carrier board and adapter, as the papers' meter sees it, instead of at the module.

    Raises:
        UnknownNameError: there is no such state, or the board cannot be suspended so; lists those that it has.
    """
    states = [name for name in IDLE_STATES if name != "wol" or board.wol_mw > 0]
    if state not in states:
        raise UnknownNameError(f"idle state {state!r} is unknown of {board.name}", f"it has {', '.join(states)}")
    if state == "wol":
        return board.wol_mw  # measured at the socket; the module's sensors are off
    clocked = float(idle_mw(board, np.array([mode], dtype=float))[0])
    power = board.base_mw + clocked * (board.idle_dvfs_share if state == "dvfs" else 1.0)
    power += board.idle_logging_mw if state == "logging" else 0.0
    return power + (board.carrier_mw if socket else 0.0)
