"""How far simulated boards are from measured tables: errors, ranks, Pareto front, and how hard they are to learn."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import Row
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w, share_to_percent, w_to_mw
from harness.simulation.model import Load, cached_share, simulate
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS, load_board, load_workload
from tools.published import Parameters

BUDGETS_W = tuple(range(17, 51))
"""The papers' power budgets (001 sec. 5.2)."""

FEWEST_BUDGETS = 5
TOLERANCE_W = 1.0
"""A budget is broken by more than this (001 sec. 1.4: A/L+1)."""

DEFECT = {"orin-agx": (2, 576_000)}
"""Core count and CPU clock in kHz up to which the public tables behind 001 have rows of other measuring sessions."""


class MeasuredTable(NamedTuple):
    """Measured rows of one device, workload and task; arrays have a value per row."""

    device: str  # as in the corpus
    workload: str
    task: str
    modes: np.ndarray  # shape (n, 4), kHz
    batch_sizes: np.ndarray  # samples per minibatch
    time_ms: np.ndarray  # minibatch times
    power_mw: np.ndarray  # module power, NaN where there is none

    @property
    def sound(self) -> np.ndarray:
        """Which rows lie outside of the slice that is known to be odd."""
        cores, cpu_khz = DEFECT.get(self.device, (0, 0))
        return (self.modes[:, 0] > cores) | (self.modes[:, 1] > cpu_khz)

    def rows(self, which: np.ndarray) -> MeasuredTable:
        """Some of the rows."""
        return self._replace(**{name: getattr(self, name)[which] for name in _ARRAYS})


_ARRAYS = ("modes", "batch_sizes", "time_ms", "power_mw")


def split_tables(rows: Sequence[Row]) -> Tuple[List[MeasuredTable], List[str]]:
    """The tables of a corpus that simulated boards can be compared with.

    Returns:
        The tables, in the corpus' order; and a sentence for whatever is left out.
    """
    groups: Dict[Tuple[str, str, str], List[Row]] = {}
    left_out: Dict[str, int] = {}
    for row in rows:
        name = row["device"], row["workload"], row["task"]
        if row["provenance"] == "simulated":
            reason = "they are simulated"
        elif row["device"] not in SIMULATED_BOARDS or row["workload"] not in SIMULATED_WORKLOADS:
            reason = f"{row['device']} with {row['workload']} is not simulated"
        else:
            groups.setdefault(name, []).append(row)
            continue
        left_out[reason] = left_out.get(reason, 0) + 1
    return [_table(name, group) for name, group in groups.items()], [
        f"{count} rows left out: {reason}" for reason, count in left_out.items()
    ]


def _table(name: Tuple[str, str, str], rows: Sequence[Row]) -> MeasuredTable:
    return MeasuredTable(
        *name,
        np.array([[row[field] for field in PowerMode._fields] for row in rows], dtype=float),
        np.array([row["batch_size"] for row in rows]),
        np.array([row["minibatch_time_ms"] for row in rows], dtype=float),
        np.array([np.nan if row["power_mw"] is None else row["power_mw"] for row in rows], dtype=float),
    )


def simulated_like(
    table: MeasuredTable, parameters: Optional[Parameters] = None, *, rough: bool = True
) -> MeasuredTable:
    """The same rows as a simulated board has them: data set on an SSD and cached, workers as in the papers.

    The parameters are the suite's own where None; how the board is loaded follows from those in any case.
    """
    own, workload = load_board(table.device), load_workload(table.workload)
    used = (
        (own, workload)
        if parameters is None
        else (parameters.boards[table.device], parameters.workloads[table.workload])
    )
    physics = None if parameters is None else parameters.physics
    workers = workload.default_workers
    share = cached_share(own, workload, workers=workers)
    time_ms, power_mw = np.empty(len(table.modes)), np.empty(len(table.modes))
    for batch_size in np.unique(table.batch_sizes):
        which = table.batch_sizes == batch_size
        load = Load(batch_size=int(batch_size), workers=workers, cached_share=share, task=table.task)
        response = simulate(*used, table.modes[which], load, rough=rough, physics=physics)
        time_ms[which], power_mw[which] = response.minibatch_time_ms, response.power_mw
    return table._replace(time_ms=time_ms, power_mw=power_mw)


class Choices(NamedTuple):
    """What comes of choosing power modes from one table while another one is true."""

    budgets_w: np.ndarray  # power budgets
    # time of the chosen mode over that of the best mode within the budget, less one, per budget
    penalty_pct: np.ndarray
    excess_w: np.ndarray  # power of the chosen mode over the budget, 0 where it is met, per budget


def choose(believed: MeasuredTable, true: MeasuredTable) -> Choices:
    """For each budget, choose the fastest mode that is believed to meet it, and look at what it truly does.

    The budgets are the papers' 17 to 50 W that some mode meets truly and believedly and not all do; on a small board,
    where these are fewer than five, 34 spread evenly over its range of power.
    """
    powers_w = mw_to_w(true.power_mw)
    least = max(powers_w.min(), mw_to_w(believed.power_mw.min()))
    budgets = np.array([budget for budget in BUDGETS_W if least <= budget < powers_w.max()], dtype=float)
    if len(budgets) < FEWEST_BUDGETS:
        budgets = np.linspace(least, powers_w.max(), len(BUDGETS_W))
    chosen = [_fastest(believed, budget) for budget in budgets]
    best = [_fastest(true, budget) for budget in budgets]
    penalty = true.time_ms[chosen] / true.time_ms[best] - 1.0
    return Choices(budgets, share_to_percent(penalty), np.maximum(powers_w[chosen] - budgets, 0.0))


def _fastest(table: MeasuredTable, budget_w: float) -> int:
    return int(np.where(table.power_mw <= w_to_mw(budget_w), table.time_ms, np.inf).argmin())


def compare(measured: MeasuredTable, simulated: MeasuredTable) -> Dict[str, Any]:
    """How far a simulated table is from a measured one with the same rows.

    Returns:
        In %: `time_median_ape`, `time_p90_ape`, `power_median_ape`, `power_p90_ape`, absolute errors relative to the
        measured value; `time_median_bias`, `power_median_bias`, with sign. From -1 to 1: `time_rank_correlation`,
        `power_rank_correlation` (Spearman's). Of choosing by the simulated table, as `choose` does, where all rows have
        power and one batch size: `front_median_penalty_pct`, `front_worst_penalty_pct`, `front_median_excess_w`, and
        `front_over_budget_pct`, the share of budgets broken by more than 1 W. And `rows`.
    """
    from scipy.stats import spearmanr

    found: Dict[str, Any] = {"rows": len(measured.modes)}
    has_power = ~np.isnan(measured.power_mw)
    quantities = {
        "time": (measured.time_ms, simulated.time_ms),
        "power": (measured.power_mw[has_power], simulated.power_mw[has_power]),
    }
    for name, (true, said) in quantities.items():
        if len(true) == 0:
            continue
        errors = share_to_percent(said / true - 1.0)
        found[f"{name}_median_ape"] = float(np.median(np.abs(errors)))
        found[f"{name}_p90_ape"] = float(np.percentile(np.abs(errors), 90))
        found[f"{name}_median_bias"] = float(np.median(errors))
        found[f"{name}_rank_correlation"] = float(spearmanr(true, said)[0])
    if has_power.all() and len(np.unique(measured.batch_sizes)) == 1:
        choices = choose(simulated, measured)
        found["front_median_penalty_pct"] = float(np.median(choices.penalty_pct))
        found["front_worst_penalty_pct"] = float(choices.penalty_pct.max())
        found["front_median_excess_w"] = float(np.median(choices.excess_w))
        found["front_over_budget_pct"] = share_to_percent(float(np.mean(choices.excess_w > TOLERANCE_W)))
    return found


def validate_table(measured: MeasuredTable) -> Dict[str, Any]:
    """`compare` with the simulated board.

    `sound` holds the same without the slice that is known to be odd, `smooth` the same of the smooth model: the
    deviations that make a simulated board as hard to predict as a real one are no part of it.
    """
    simulated = simulated_like(measured)
    smooth = simulated_like(measured, rough=False)
    named = {name: getattr(measured, name) for name in ("device", "workload", "task")}
    found = {**named, **compare(measured, simulated), "smooth": compare(measured, smooth)}
    if not measured.sound.all() and measured.sound.any():
        found["sound"] = compare(measured.rows(measured.sound), simulated.rows(measured.sound))
    return found


def keys_of(tables: Sequence[MeasuredTable]) -> List[str]:
    """A key for each table: its workload, with device and task only where a workload comes more than once."""
    names = [table.workload for table in tables]
    return [
        table.workload if names.count(table.workload) == 1 else f"{table.workload}/{table.device}/{table.task}"
        for table in tables
    ]


COUNTS = (10, 50, 100)
REPEATS = 10
FACTOR = 1.5
"""As hard means: errors differ by no more than this factor."""

FEWEST_MODES = 1_000
RIDGE = 0.1
SEED = 0

Learner = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From power modes (n, 4), values (n,) and other power modes (m, 4) to the values expected there (m,)."""


def ridge(modes: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Ridge regression of the logarithm on the logarithms of cores and clocks, their squares and products."""
    inputs, unseen = _standard(modes, modes), _standard(others, modes)
    x, unseen_x = _quadratic(inputs), _quadratic(unseen)
    logarithms = np.log(values)
    mean_x, mean = x.mean(axis=0), logarithms.mean()
    centred = x - mean_x
    weights = np.linalg.solve(centred.T @ centred + RIDGE * np.eye(centred.shape[1]), centred.T @ (logarithms - mean))
    return np.exp(mean + (unseen_x - mean_x) @ weights)


def gaussian_process(modes: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A Gaussian process with a log-linear mean: a squared exponential of log clocks, with a length for each dimension.

    Lengths, size and noise are the most likely ones, with log-normal priors that steady them where modes are few.
    """
    from scipy.optimize import minimize

    x, unseen, logarithms = _standard(modes, modes), _standard(others, modes), np.log(values)
    trend, unseen_trend = _linear(x), _linear(unseen)
    scale = max(float(np.std(logarithms)), 1e-9)
    target = logarithms / scale
    squares = (x[:, None, :] - x[None, :, :]) ** 2

    def solve(logs: np.ndarray) -> tuple:
        lengths, size, noise = np.exp(logs[:4]), np.exp(logs[4]), np.exp(logs[5])
        near = size * np.exp(-0.5 * squares @ (1.0 / lengths**2))
        factor = np.linalg.cholesky(near + (noise + 1e-8) * np.eye(len(x)) + trend @ (_WIDE * trend.T))
        return near, factor, np.linalg.solve(factor.T, np.linalg.solve(factor, target))

    def unlikelihood(logs: np.ndarray) -> tuple:
        near, factor, alpha = solve(logs)
        inverse = np.linalg.inv(factor)
        slack = inverse.T @ inverse - np.outer(alpha, alpha)
        weighted = slack * near
        lengths = np.exp(logs[:4])
        slopes = [0.5 * np.sum(weighted * squares[:, :, axis]) / lengths[axis] ** 2 for axis in range(4)]
        slopes += [0.5 * np.sum(weighted), 0.5 * np.exp(logs[5]) * np.trace(slack)]
        likely = 0.5 * target @ alpha + np.sum(np.log(np.diag(factor)))
        return likely + 0.5 * np.sum(((logs - start) / spread) ** 2), np.array(slopes) + (logs - start) / spread**2

    start, spread = np.log([2.0, 2.0, 2.0, 2.0, 0.1, 1e-3]), np.array([1.0, 1.0, 1.0, 1.0, 1.5, 1.5])
    bounds = [(-2.0, 4.0)] * 4 + [(-7.0, 3.0), (-12.0, 0.0)]
    found = minimize(unlikelihood, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 40}).x
    _, _, alpha = solve(found)
    distance = np.sum(((unseen[:, None, :] - x[None, :, :]) / np.exp(found[:4])) ** 2, axis=2)
    expected = np.exp(found[4] - 0.5 * distance) @ alpha + unseen_trend @ (_WIDE * (trend.T @ alpha))
    return np.exp(scale * expected)


_WIDE = 10.0
"""Prior variance of the coefficients of the log-linear mean, with values scaled to a variance of 1."""

LEARNERS: Dict[str, Learner] = {"ridge": ridge, "gaussian-process": gaussian_process}


def _standard(modes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Logarithms of cores and clocks, by mean and deviation of those that were seen."""
    logs, known = np.log(modes), np.log(seen)
    deviation = known.std(axis=0)
    return (logs - known.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def _linear(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x])


def _quadratic(x: np.ndarray) -> np.ndarray:
    """The inputs, their squares and their products: 14 columns for 4 inputs."""
    one, other = np.triu_indices(x.shape[1])
    return np.column_stack([x, x[:, one] * x[:, other]])


class Point(NamedTuple):
    """One point of a learning curve."""

    workload: str  # of the table
    target: str  # `time` or `power`
    learner: str  # a key of `LEARNERS`
    count: int  # power modes that it was trained on
    measured_mape_pct: float  # error on all other modes of either table, median over the repeats
    simulated_mape_pct: float

    @property
    def ratio(self) -> float:
        """Error on the simulated board over error on the measured one."""
        return self.simulated_mape_pct / self.measured_mape_pct

    @property
    def is_alike(self) -> bool:
        """Whether the errors differ by no more than `FACTOR`."""
        return 1.0 / FACTOR <= self.ratio <= FACTOR


def is_large(table: MeasuredTable) -> bool:
    """Whether a table has power modes enough for a learning curve, all with power and of one batch size."""
    one_size = len(np.unique(table.batch_sizes)) == 1
    return bool(one_size and len(table.modes) >= FEWEST_MODES and not np.isnan(table.power_mw).any())


def learning_curves(measured: MeasuredTable, counts: Sequence[int] = COUNTS, repeats: int = REPEATS) -> List[Point]:
    """Train both models on the same random power modes of a measured table and of the simulated board.

    Rows that are known to be odd are left out on both sides: a simulated board has no other measuring sessions. Its
    rows carry noise as those of a simulated corpus do.
    """
    sound = measured.rows(measured.sound)
    tables = {"measured": sound, "simulated": _noisy(simulated_like(sound))}
    points = []
    for target, column in (("time", "time_ms"), ("power", "power_mw")):
        for name, learner in LEARNERS.items():
            for count in counts:
                errors = {
                    kind: float(np.median([_mape(table, column, learner, count, SEED + i) for i in range(repeats)]))
                    for kind, table in tables.items()
                }
                points.append(Point(measured.workload, target, name, count, errors["measured"], errors["simulated"]))
    return points


def _noisy(table: MeasuredTable) -> MeasuredTable:
    board = load_board(table.device)
    random = np.random.Generator(np.random.PCG64(SEED))
    return table._replace(
        time_ms=table.time_ms * np.exp(board.time_noise * random.standard_normal(len(table.modes))),
        power_mw=table.power_mw * np.exp(board.power_noise * random.standard_normal(len(table.modes))),
    )


def _mape(table: MeasuredTable, column: str, learner: Learner, count: int, seed: int) -> float:
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(table.modes))
    train, test = order[:count], order[count:]
    values = getattr(table, column)
    expected = learner(table.modes[train], values[train], table.modes[test])
    return share_to_percent(float(np.mean(np.abs(expected / values[test] - 1.0))))
