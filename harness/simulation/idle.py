"""Power of a simulated board that trains nothing: the four idle states of SIGMETRICS 2023 sec. 5.6.1."""

from __future__ import annotations

import numpy as np

from harness.errors import UnknownNameError
from harness.power_modes import PowerMode
from harness.simulation import terms
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
    clocked = clocked_idle_mw(board, mode)
    power = board.base_mw + clocked * (board.idle_dvfs_share if state == "dvfs" else 1.0)
    power += board.idle_logging_mw if state == "logging" else 0.0
    return power + (board.carrier_mw if socket else 0.0)


def clocked_idle_mw(board: BoardParameters, mode: PowerMode) -> float:
    """What the clocks of a mode draw while nothing runs."""
    cores = np.minimum(mode.cpu_cores, board.cpu_cores) / board.cpu_cores
    cpu = board.cpu_mw * cores * board.cpu_idle * terms.switching(mode.cpu_khz, board.cpu_khz, board.cpu_voltage, board.cpu_curve)
    gpu = board.gpu_mw * board.gpu_idle * terms.switching(mode.gpu_khz, board.gpu_khz, board.gpu_voltage, board.gpu_curve)
    return float(cpu + gpu + board.mem_mw * mode.mem_khz / board.mem_khz)
