"""What simulated boards answer where the papers have a figure, and the quantities that it is made of."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import load_board
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.units import MS_PER_S, MW_PER_W, MWH_PER_WH, S_PER_HOUR, S_PER_MINUTE, ms_to_s, mws_to_mwh, w_to_mw
from harness.judge.published_figures import CHANGE, Condition, PublishedFigure
from harness.simulation import parameters as simulated
from harness.simulation.model import PAPERS_INSTANCES, Load, Response, cached_share, idle_power_mw, simulate
from harness.simulation.parameters import BoardParameters, WorkloadParameters

DEFAULT = "default"  # the power mode that the papers take as a board's default
PROFILED_MINIBATCHES = 41  # the first is discarded, 40 are kept (001 sec. 2.5)
SETTLING_MS = 2_500.0  # power settles in 2-3 s after a change of mode (001 sec. 2.5)
INTERNAL = {
    "s": MS_PER_S,
    "min": MS_PER_S * S_PER_MINUTE,
    "h": MS_PER_S * S_PER_HOUR,
    "ms": 1.0,
    "W": MW_PER_W,
    "Wh": MWH_PER_WH,
    "%": 0.01,
    "x": 1.0,
}
"""What one of a printed unit is inside the suite: in ms, mW, mWh or a share."""

BOARD, WORKLOAD = "board", "workload"
Owner = Tuple[str, str]  # what parameters belong to: a kind and a name
PHYSICS: Owner = ("physics", "physics")
Parameters = Mapping[Owner, Any]  # a whole set: the parameters of physics, of each board and of each workload


def fitted_parameters() -> Dict[Owner, Any]:
    return {
        PHYSICS: simulated.load_physics(),
        **{(BOARD, name): simulated.load_board_parameters(name) for name in simulated.SIMULATED_BOARDS},
        **{(WORKLOAD, name): simulated.load_workload_parameters(name) for name in simulated.SIMULATED_WORKLOADS},
    }


class Modes(NamedTuple):
    table: np.ndarray  # shape (n, 4), kHz
    profiled: int  # how many are profiled, drawn from the table
    budget_mw: float  # the most that one of them may draw


@functools.lru_cache(maxsize=None)
def find_modes(device: str, text: str) -> Modes:
    """The power modes that a condition names.

    - `default`: the papers' default of the board;
    - `a,b,c`: names, presets, grids or modes in full, each as `--power-mode` takes it;
    - `30 of grid:paper`: so many, drawn from a grid;
    - `grid:paper within 30 W`: those of a grid that draw no more.
    """
    spec = load_board(device)
    count, of, rest = text.rpartition(" of ")
    names, within, budget = rest.partition(" within ")
    found: List[PowerMode] = []
    for name in names.split(","):
        found += [mode for _, mode in spec.power_modes(spec.papers_mode if name == DEFAULT else name)]
    try:
        budget_mw = w_to_mw(float(budget[: -len(" W")])) if within else float("inf")
        return Modes(np.array(found, dtype=float), int(count) if of else len(found), budget_mw)
    except ValueError:
        raise InvalidValueError(f"power modes {text!r}", "write 30 of grid:paper, or grid:paper within 30 W") from None


class State(NamedTuple):
    """A board under a load in some power modes, and what it answers; arrays have a value per mode."""

    board: BoardParameters
    workload: WorkloadParameters
    condition: Condition
    modes: Modes
    response: Response
    of_instances: Callable[[], List[Response]]

    @property
    def minibatches(self) -> float:
        return float(np.ceil(self.workload.samples * self.condition.data_scale / self.condition.batch_size))

    @property
    def epoch_ms(self) -> np.ndarray:
        """Time of an epoch: minibatch time x minibatches (001 sec. 2.1)."""
        return self.response.minibatch_time_ms * self.minibatches

    @property
    def best(self) -> int:
        within = self.response.power_mw <= self.modes.budget_mw
        if not within.any():
            raise InvalidValueError(f"no mode of {self.condition.power_mode} on {self.board.name} meets the budget")
        return int(np.where(within, self.response.minibatch_time_ms, np.inf).argmin())


def _spread_of_instances(of: Callable[[Response], np.ndarray]) -> Callable[[State], np.ndarray]:
    """Greatest less least of several copies of a board, over their median."""

    def spread(state: State) -> np.ndarray:
        values = np.array([of(response) for response in state.of_instances()])
        return np.ptp(values, axis=0) / np.median(values, axis=0)

    return spread


METRICS: Dict[str, Callable[[State], np.ndarray]] = {
    "epoch_time": lambda state: state.epoch_ms,
    "stall_time": lambda state: state.response.stall_ms * state.minibatches,
    "compute_time": lambda state: state.response.compute_ms * state.minibatches,
    "minibatch_time": lambda state: state.response.minibatch_time_ms,
    "minibatch_stall": lambda state: state.response.stall_ms,
    "minibatch_compute": lambda state: state.response.compute_ms,
    "power": lambda state: state.response.power_mw,
    # power x time (001 sec. 1.1)
    "energy": lambda state: mws_to_mwh(state.response.power_mw * ms_to_s(state.epoch_ms)),
    "gpu_utilisation": lambda state: state.response.gpu_utilisation,
    "cpu_utilisation": lambda state: state.response.cpu_utilisation,
    "stall_share": lambda state: state.response.stall_ms / state.response.minibatch_time_ms,
    "busy_share": lambda state: (
        (state.response.stall_ms + state.response.compute_ms) / state.response.minibatch_time_ms
    ),
    "cached_share": lambda state: np.array([share_in_cache(state.board, state.workload, state.condition)]),
    # of the idle board with telemetry (004 sec. 5.6.2)
    "baseload_share": lambda state: (
        np.array([idle_power_mw(state.board, mode) for mode in state.modes.table]) / state.response.power_mw
    ),
    "best_epoch_time": lambda state: state.epoch_ms[[state.best]],
    "best_power": lambda state: state.response.power_mw[[state.best]],
    # of each mode that is profiled, on average over those they are drawn from
    "profiling_time": lambda state: np.array(
        [state.modes.profiled * np.mean(PROFILED_MINIBATCHES * state.response.minibatch_time_ms + SETTLING_MS)]
    ),
    # The greatest deviation of some hundred epochs on one board: three standard deviations.
    "epoch_time_deviation": lambda state: np.array([3.0 * state.board.time_noise]),
    "epoch_time_of_instances": _spread_of_instances(lambda response: response.minibatch_time_ms),
    "energy_of_instances": _spread_of_instances(lambda response: response.minibatch_time_ms * response.power_mw),
}
"""Of a board that trains: values per power mode, in ms, mW, mWh or a share."""

IDLE_METRICS: Dict[str, Callable[[BoardParameters, PowerMode], float]] = {
    "baseload_power": idle_power_mw,
    "wol_power": lambda board, mode: idle_power_mw(board, mode, "wol"),
}
"""Of a board that trains nothing."""


class Boards:
    """Simulated boards that are asked for quantities, smooth or `rough`; what was simulated once is kept."""

    def __init__(self, parameters: Optional[Parameters] = None, *, rough: bool = True) -> None:
        self.parameters = fitted_parameters() if parameters is None else parameters
        self._rough = rough
        self._simulated: Dict[Tuple[Condition, int], Response] = {}

    def of(self, kind: str, name: str) -> Any:
        if (kind, name) not in self.parameters:
            there = ", ".join(known for other, known in self.parameters if other == kind)
            raise UnknownNameError(f"{kind} {name!r} is not simulated", f"there are {there}")
        return self.parameters[kind, name]

    def values(self, condition: Condition, metric: str) -> np.ndarray:
        board = self.of(BOARD, condition.device)
        modes = find_modes(condition.device, condition.power_mode)
        if metric in IDLE_METRICS:
            return np.array([IDLE_METRICS[metric](board, mode) for mode in modes.table])
        if metric not in METRICS:
            raise UnknownNameError(f"metric {metric!r} is not simulated", f"there are {', '.join(METRICS)}")
        workload = self.of(WORKLOAD, condition.workload)

        def of_instances() -> List[Response]:
            return [self.response(condition, instance) for instance in range(PAPERS_INSTANCES)]

        return METRICS[metric](State(board, workload, condition, modes, self.response(condition), of_instances))

    def response(self, condition: Condition, instance: int = 0) -> Response:
        if (condition, instance) not in self._simulated:
            board, workload = self.of(BOARD, condition.device), self.of(WORKLOAD, condition.workload)
            load = Load(
                batch_size=condition.batch_size,
                workers=condition.workers,
                storage=condition.storage,
                cached_share=share_in_cache(board, workload, condition),
                task=condition.task,
                clocks=condition.clocks,
            )
            table, physics = find_modes(condition.device, condition.power_mode).table, self.parameters[PHYSICS]
            self._simulated[condition, instance] = simulate(
                board, workload, table, load, instance=instance, rough=self._rough, physics=physics
            )
        return self._simulated[condition, instance]


def share_in_cache(board: BoardParameters, workload: WorkloadParameters, condition: Condition) -> float:
    if condition.cache == "cold":
        return 0.0
    return cached_share(board, workload, condition.data_scale, workers=condition.workers)


def answers(
    figures: Sequence[PublishedFigure], parameters: Optional[Parameters] = None, *, rough: bool = True
) -> List[float]:
    """What simulated boards answer to each figure, in the figure's unit; a figure of several devices is their mean."""
    boards = Boards(parameters, rough=rough)
    return [
        float(np.mean([_answer(figure, device, boards) for device in figure.condition.device.split(",")]))
        / INTERNAL[figure.unit]
        for figure in figures
    ]


def _answer(figure: PublishedFigure, device: str, boards: Boards) -> float:
    """A figure of one device, in ms, mW, mWh or a share."""
    values = boards.values(figure.condition._replace(device=device), figure.metric)
    if figure.relation == "least":
        return float(values.min())
    if figure.relation == "greatest":
        return float(values.max())
    if figure.relation == "spread":
        return float(np.ptp(values) / values.max())
    if figure.versus is None:
        return float(values[0])
    is_same = figure.versus.device == figure.condition.device
    versus = figure.versus._replace(device=device) if is_same else figure.versus
    ratio = float(values[0] / boards.values(versus, figure.metric)[0])
    return ratio - 1.0 if figure.relation == CHANGE else ratio
