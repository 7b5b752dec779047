"""Whether simulated boards are as hard to learn as real ones: two plain models, trained on few power modes of each."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Sequence

import numpy as np

from harness.core.units import share_to_percent
from harness.simulation.parameters import load_board
from tools.table_errors import Table, simulated_like

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


def is_large(table: Table) -> bool:
    """Whether a table has power modes enough for a learning curve, all with power and of one batch size."""
    one_size = len(np.unique(table.batch_sizes)) == 1
    return bool(one_size and len(table.modes) >= FEWEST_MODES and not np.isnan(table.power_mw).any())


def learning_curves(measured: Table, counts: Sequence[int] = COUNTS, repeats: int = REPEATS) -> List[Point]:
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


def _noisy(table: Table) -> Table:
    board = load_board(table.device)
    random = np.random.Generator(np.random.PCG64(SEED))
    return table._replace(
        time_ms=table.time_ms * np.exp(board.time_noise * random.standard_normal(len(table.modes))),
        power_mw=table.power_mw * np.exp(board.power_noise * random.standard_normal(len(table.modes))),
    )


def _mape(table: Table, column: str, learner: Learner, count: int, seed: int) -> float:
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(table.modes))
    train, test = order[:count], order[count:]
    values = getattr(table, column)
    expected = learner(table.modes[train], values[train], table.modes[test])
    return share_to_percent(float(np.mean(np.abs(expected / values[test] - 1.0))))
