"""The vendor's power estimator as a baseline: power from the module's data sheet and the power mode, without profiles.

001 sec. 1.2 and 1.4 compare with NVIDIA's PowerEstimator (NPE), a web page that takes the module and the clocks but not
the workload. Its tables are not public; this replacement uses the data sheet and assumes that every unit is fully
loaded:

    power = peak (BASE + MEMORY m + CPU n v(c) + GPU v(g)),     v(f) = f (LEAST_VOLTAGE + (1 - LEAST_VOLTAGE) f)^2

with the peak power of the module, and the cores n and clocks m, c, g over the greatest ones. Dynamic power is clock
times voltage squared, and voltage rises with the clock; the greatest mode has the peak power. Like NPE, it is close for
ResNet-18 at 12 cores and 1651/625/3199 MHz on an Orin AGX (6 % too much; NPE was 4 % off, F197) and overestimates
workloads that load the board less (F198): by 73 % there for YOLOv8n, and by 149 % at the greatest mode.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Dict

import numpy as np

from harness.core.boards import BoardSpec, board_names, load_board
from harness.core.errors import CannotRunError, UnknownNameError
from harness.core.terminal import available_hint
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.settings import Settings

# Shares of the peak power at full load and greatest clocks, set by hand. Users' load tests of an Orin AGX measured 40 W
# for the GPU and 15 W for the CPU (forums.developer.nvidia.com, topic 323456), of a module of 60 W.
BASE = 0.10
MEMORY = 0.08
CPU = 0.25
GPU = 0.57
LEAST_VOLTAGE = 0.6  # over the greatest; such chips run from some 0.6 to 1 V


@dataclass(eq=False)
class VendorPower(Predictor):
    """Power only, independent of the workload; it can predict unfitted, and `fit` changes nothing."""

    name = "npe"
    least_modes = 0
    board: str  # as in the corpus: `orin-agx`

    @property
    def is_fitted(self) -> bool:
        return True

    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        estimated_board(self.board)

    def _infer(self, rows: Settings) -> Forecast:
        unknown = np.full(len(rows.modes), np.nan)
        power_mw = estimated_power_mw(estimated_board(self.board), rows.modes)
        return Forecast.of_medians(rows, unknown, power_mw, unknown, unknown)


def estimated_power_mw(board: BoardSpec, modes: np.ndarray) -> np.ndarray:
    """Power of modes, shape (n, 4), clocks in kHz, with every unit loaded, by the formula above."""
    shares = np.asarray(modes, dtype=float) / np.asarray(board.power_mode_space().greatest)
    cores, _, _, memory = shares.T
    _, cpu, gpu, _ = (shares * (LEAST_VOLTAGE + (1 - LEAST_VOLTAGE) * shares) ** 2).T
    return board.peak_power_mw * (BASE + MEMORY * memory + CPU * cores * cpu + GPU * gpu)


@functools.lru_cache(maxsize=None)
def estimated_boards() -> Dict[str, BoardSpec]:
    """The Jetsons with a known peak power and known clocks."""
    boards = {}
    for name in board_names():
        board = load_board(name)
        with contextlib.suppress(CannotRunError):
            board.power_mode_space()
            if board.is_jetson:
                boards[name] = board
    return boards


def estimated_board(name: str) -> BoardSpec:
    boards = estimated_boards()
    if name not in boards:
        raise UnknownNameError(f"the vendor's estimate does not cover {name!r}", available_hint(name, boards))
    return boards[name]
