"""The vendor's power estimator as a baseline: power from the module's data sheet and the power mode, no profile at all.

001 sec. 1.2 and 1.4 compare with NVIDIA's PowerEstimator (NPE), a web page that knows the module and the clocks but not
the workload. Its tables are not public; this stands in for it with what a data sheet says, every unit being taken to be
fully loaded:

    power = peak (BASE + MEMORY m + CPU n v(c) + GPU v(g)),     v(f) = f (LEAST_VOLTAGE + (1 - LEAST_VOLTAGE) f)^2

with the peak power of the module, and the cores n and clocks m, c, g over the greatest ones. Dynamic power is clock
times voltage squared, and voltage rises with the clock; the greatest mode has the peak power.

Like NPE, it is close for ResNet-18 at 12 cores and 1651/625/3199 MHz on an Orin AGX (6 % too much; NPE was 4 % off,
F197) and says too much for workloads that load the board less (F198): 73 % there for YOLOv8n, and 149 % at the greatest
mode. Over the measured tables of that board its MAPE is 34 % for ResNet-18, 70 % for YOLOv8n and 31 % for LSTM.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from predictors.models.protocol import Inputs, Prediction, Predictor, State

# Shares of the peak power at full load and greatest clocks, set by hand. Load tests of an Orin AGX by its users found
# 40 W for the GPU and 15 W for the CPU (forums.developer.nvidia.com, topic 323456), of a module of 60 W.
BASE = 0.10
MEMORY = 0.08
CPU = 0.25
GPU = 0.57
LEAST_VOLTAGE = 0.6  # over the greatest; such chips run from some 0.6 to 1 V


class Module(NamedTuple):
    """What the data sheet says.

    Attributes:
        peak_mw: the greatest power.
        greatest: the greatest mode.
    """

    peak_mw: float
    greatest: PowerMode


# 001 Table 2 and 004 Table 1, data sheets where these have none; clocks as the boards list them.
MODULES: Dict[str, Module] = {
    "nano": Module(10_000, PowerMode(4, 1_479_000, 921_600, 1_600_000)),
    "orin-agx": Module(60_000, PowerMode(12, 2_201_600, 1_300_500, 3_199_000)),
    "orin-nano": Module(15_000, PowerMode(6, 1_510_400, 624_750, 2_133_000)),
    "orin-nx": Module(25_000, PowerMode(8, 1_984_000, 918_000, 3_199_000)),
    "tx2": Module(15_000, PowerMode(6, 2_035_200, 1_300_500, 1_866_000)),
    "xavier-agx": Module(65_000, PowerMode(8, 2_265_600, 1_377_000, 2_133_000)),
    "xavier-nx": Module(15_000, PowerMode(6, 1_907_200, 1_109_250, 1_866_000)),
}


class VendorEstimate(Predictor):
    """Power by `estimated_power_mw`; time is unknown, NaN, and so is how sure either is.

    It can be asked before it was fitted, and `fit` changes nothing. Batch size and task are not looked at.

    Args:
        board: as in the corpus: `orin-agx`.
    """

    name = "npe"

    def __init__(self, board: str) -> None:
        """Keep the parameters."""
        self.board = board

    @property
    def is_fitted(self) -> bool:
        """True: there is nothing to learn."""
        return True

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        module_of(self.board)

    def _infer(self, rows: Inputs) -> Prediction:
        unknown = np.full(len(rows.modes), np.nan)
        return Prediction(unknown, estimated_power_mw(module_of(self.board), rows.modes), unknown, unknown)

    def state(self) -> State:
        """What was learned."""
        return State({"board": self.board}, {})

    def restore(self, state: State) -> None:
        """Take what `state` gave."""
        if state.values.get("board") != self.board:
            raise InvalidValueError(f"what was saved is not of {self.name} for {self.board}: {state.values}")


def estimated_power_mw(module: Module, modes: np.ndarray) -> np.ndarray:
    """Power of modes with every unit loaded, by the formula above.

    Args:
        module: of the board.
        modes: shape (n, 4), clocks in kHz.
    """
    cores, cpu, gpu, memory = (np.asarray(modes, dtype=float) / np.asarray(module.greatest)).T
    return module.peak_mw * (BASE + MEMORY * memory + CPU * cores * _dynamic(cpu) + GPU * _dynamic(gpu))


def module_of(board: str) -> Module:
    """What is known of a board's module.

    Raises:
        UnknownNameError: nothing; lists the known ones.
    """
    if board not in MODULES:
        raise UnknownNameError(f"the vendor's estimate knows no board {board!r}", f"known: {', '.join(MODULES)}")
    return MODULES[board]


def _dynamic(clock: np.ndarray) -> np.ndarray:
    """Clock times voltage squared, both over their greatest."""
    return clock * (LEAST_VOLTAGE + (1 - LEAST_VOLTAGE) * clock) ** 2
