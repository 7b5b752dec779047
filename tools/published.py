"""What simulated boards answer where the papers have a figure, and the quantities that it is made of."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.boards import load_board as load_spec
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.units import MS_PER_S, MW_PER_W, MWH_PER_WH, S_PER_HOUR, S_PER_MINUTE, ms_to_s, mws_to_mwh, w_to_mw
from harness.judge.published_figures import CHANGE, Condition, PublishedFigure
from harness.simulation.model import Load, Response, cached_share, idle_power_mw, simulate
from harness.simulation.parameters import (
    SIMULATED_BOARDS,
    SIMULATED_WORKLOADS,
    BoardParameters,
    PhysicsParameters,
    WorkloadParameters,
    load_board,
    load_physics,
    load_workload,
)

DEFAULT = "default"
"""The power mode that the papers take as a board's default."""

INSTANCES = 5
"""Boards of a type that the papers compare (004 sec. 5.4)."""

PROFILED_MINIBATCHES = 41
"""The first is discarded, 40 are kept (001 sec. 2.5)."""

SETTLING_MS = 2_500.0
"""Power settles in 2-3 s after a change of mode (001 sec. 2.5)."""


class Parameters(NamedTuple):
    """A whole set of parameters: of physics, boards and workloads, the latter two by name."""

    physics: PhysicsParameters
    boards: Mapping[str, BoardParameters]
    workloads: Mapping[str, WorkloadParameters]

    @classmethod
    def fitted(cls) -> Parameters:
        """Those of the suite's own files."""
        return cls(
            load_physics(),
            {name: load_board(name) for name in SIMULATED_BOARDS},
            {name: load_workload(name) for name in SIMULATED_WORKLOADS},
        )


class Modes(NamedTuple):
    """The power modes of a condition."""

    table: np.ndarray  # shape (n, 4), kHz
    count: int  # how many are profiled, drawn from the table
    budget_mw: float  # the most that one of them may draw


@functools.lru_cache(maxsize=None)
def find_modes(device: str, text: str) -> Modes:
    """The power modes that a condition names.

    - `default`: the papers' default of the board;
    - `a,b,c`: names, presets, grids or modes in full, each as `--power-mode` takes it;
    - `30 of grid:paper`: so many, drawn from a grid;
    - `grid:paper within 30 W`: those of a grid that draw no more.
    """
    spec = load_spec(device)
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
        """Minibatches of an epoch."""
        return float(np.ceil(self.workload.samples * self.condition.data_scale / self.condition.batch_size))

    @property
    def epoch_ms(self) -> np.ndarray:
        """Time of an epoch: minibatch time x minibatches (001 sec. 2.1)."""
        return self.response.minibatch_time_ms * self.minibatches

    @property
    def energy_mwh(self) -> np.ndarray:
        """Energy of an epoch: power x time (001 sec. 1.1)."""
        return mws_to_mwh(self.response.power_mw * ms_to_s(self.epoch_ms))

    @property
    def baseload_mw(self) -> np.ndarray:
        """Power of the idle board with telemetry, in each of the modes (004 sec. 5.6.2)."""
        return np.array([idle_power_mw(self.board, mode) for mode in _power_modes(self.modes)])

    @property
    def profiling_ms(self) -> float:
        """Minibatches and settling of each mode that is profiled, on average over those they are drawn from."""
        return self.modes.count * float(np.mean(PROFILED_MINIBATCHES * self.response.minibatch_time_ms + SETTLING_MS))

    @property
    def best(self) -> int:
        """The fastest mode within the budget."""
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
    "minibatch_fetch": lambda state: state.response.fetch_ms,
    "power": lambda state: state.response.power_mw,
    "energy": lambda state: state.energy_mwh,
    "gpu_utilisation": lambda state: state.response.gpu_utilisation,
    "cpu_utilisation": lambda state: state.response.cpu_utilisation,
    "stall_share": lambda state: state.response.stall_ms / state.response.minibatch_time_ms,
    "busy_share": lambda state: (
        (state.response.stall_ms + state.response.compute_ms) / state.response.minibatch_time_ms
    ),
    "cached_share": lambda state: np.array([share_in_cache(state.board, state.workload, state.condition)]),
    "baseload_share": lambda state: state.baseload_mw / state.response.power_mw,
    "best_epoch_time": lambda state: state.epoch_ms[[state.best]],
    "best_power": lambda state: state.response.power_mw[[state.best]],
    "profiling_time": lambda state: np.array([state.profiling_ms]),
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


class Plan:
    """Which power modes each load is asked for, so that one simulation answers for all of them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._slices: Dict[Condition, Dict[str, slice]] = {}
        self._tables: Dict[Condition, List[np.ndarray]] = {}

    def add(self, condition: Condition) -> None:
        """Ask for the power modes of a condition."""
        load = _without_mode(condition)
        slices, tables = self._slices.setdefault(load, {}), self._tables.setdefault(load, [])
        if condition.power_mode not in slices:
            table = find_modes(condition.device, condition.power_mode).table
            start = sum(map(len, tables))
            slices[condition.power_mode] = slice(start, start + len(table))
            tables.append(table)

    def part(self, condition: Condition) -> Optional[slice]:
        """Which of all power modes of a condition's load are the condition's; None where nobody asked for them."""
        return self._slices.get(_without_mode(condition), {}).get(condition.power_mode)

    def table(self, condition: Condition) -> np.ndarray:
        """All power modes of a condition's load, shape (n, 4)."""
        return np.vstack(self._tables[_without_mode(condition)])


class Boards:
    """Simulated boards that are asked for quantities; what was simulated once is kept.

    Args:
        parameters: the suite's own where None.
        rough: whether they deviate from the smooth model, as `harness.simulation.terms` makes them.
        plan: what will be asked for, if that is known.
    """

    def __init__(
        self, parameters: Optional[Parameters] = None, *, rough: bool = True, plan: Optional[Plan] = None
    ) -> None:
        """Simulate nothing yet."""
        self.parameters = Parameters.fitted() if parameters is None else parameters
        self._rough, self._plan = rough, Plan() if plan is None else plan
        self._simulated: Dict[Any, Response] = {}

    def values(self, condition: Condition, metric: str) -> np.ndarray:
        """A quantity per power mode of a condition, in ms, mW, mWh or a share."""
        board = _known(self.parameters.boards, condition.device, "board")
        modes = find_modes(condition.device, condition.power_mode)
        if metric in IDLE_METRICS:
            return np.array([IDLE_METRICS[metric](board, mode) for mode in _power_modes(modes)])
        formula = _known(METRICS, metric, "metric")
        workload = _known(self.parameters.workloads, condition.workload, "workload")

        def of_instances() -> List[Response]:
            return [self.response(condition, instance) for instance in range(INSTANCES)]

        return formula(State(board, workload, condition, modes, self.response(condition), of_instances))

    def response(self, condition: Condition, instance: int = 0) -> Response:
        """All that a board answers in the power modes of a condition."""
        part = self._plan.part(condition)
        key = (condition if part is None else _without_mode(condition), instance)
        if key not in self._simulated:
            table = self._plan.table(condition) if part else find_modes(condition.device, condition.power_mode).table
            self._simulated[key] = self._simulate(condition, table, instance)
        response = self._simulated[key]
        if part is None:
            return response
        names = [name for name in response.__dataclass_fields__ if name != "rails_mw"]
        rails = {rail: values[part] for rail, values in response.rails_mw.items()}
        return Response(**{name: getattr(response, name)[part] for name in names}, rails_mw=rails)

    def _simulate(self, condition: Condition, table: np.ndarray, instance: int) -> Response:
        board = _known(self.parameters.boards, condition.device, "board")
        workload = _known(self.parameters.workloads, condition.workload, "workload")
        load = Load(
            batch_size=condition.batch_size,
            workers=condition.workers,
            storage=condition.storage,
            cached_share=share_in_cache(board, workload, condition),
            task=condition.task,
            clocks=condition.clocks,
        )
        physics = self.parameters.physics
        return simulate(board, workload, table, load, instance=instance, rough=self._rough, physics=physics)


def share_in_cache(board: BoardParameters, workload: WorkloadParameters, condition: Condition) -> float:
    """Share of the data set that the page cache holds: none of it in a cold epoch."""
    if condition.cache == "cold":
        return 0.0
    return cached_share(board, workload, condition.data_scale, workers=condition.workers)


def _without_mode(condition: Condition) -> Condition:
    return condition._replace(power_mode="")


def _power_modes(modes: Modes) -> List[PowerMode]:
    return [PowerMode(*map(int, mode)) for mode in modes.table]


def _known(known: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in known:
        raise UnknownNameError(f"{kind} {name!r} is not simulated", f"there are {', '.join(known)}")
    return known[name]


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


class Evaluator:
    """Answers figures, many times over: which power modes go into one simulation is planned once."""

    def __init__(self, figures: Sequence[PublishedFigure]) -> None:
        """Collect the power modes that each load is asked for."""
        self.figures = list(figures)
        self._plan = Plan()
        for figure in self.figures:
            for condition in filter(None, (figure.condition, figure.versus)):
                for one in _devices(condition) if condition.workload else []:
                    self._plan.add(one)

    def answers(self, parameters: Optional[Parameters] = None, *, rough: bool = True) -> List[float]:
        """What simulated boards answer to each figure, in the figure's unit."""
        boards = Boards(parameters, rough=rough, plan=self._plan)
        return [_answer(figure, boards) for figure in self.figures]


def answer(figure: PublishedFigure, parameters: Optional[Parameters] = None, *, rough: bool = True) -> float:
    """What simulated boards answer to one figure; arguments and errors as of `Evaluator.answers`."""
    return Evaluator([figure]).answers(parameters, rough=rough)[0]


def _devices(condition: Condition) -> List[Condition]:
    return [condition._replace(device=device) for device in condition.device.split(",")]


def _answer(figure: PublishedFigure, boards: Boards) -> float:
    answers = [_answer_of(figure, one, boards) for one in _devices(figure.condition)]
    return float(np.mean(answers)) / INTERNAL[figure.unit]


def _answer_of(figure: PublishedFigure, condition: Condition, boards: Boards) -> float:
    """A figure of one device, in ms, mW, mWh or a share."""
    values = boards.values(condition, figure.metric)
    if figure.relation == "least":
        return float(values.min())
    if figure.relation == "greatest":
        return float(values.max())
    if figure.relation == "spread":
        return float(np.ptp(values) / values.max())
    if figure.versus is None:
        return float(values[0])
    is_same = figure.versus.device == figure.condition.device
    versus = figure.versus._replace(device=condition.device) if is_same else figure.versus
    ratio = float(values[0] / boards.values(versus, figure.metric)[0])
    return ratio - 1.0 if figure.relation == CHANGE else ratio
