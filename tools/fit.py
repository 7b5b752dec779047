"""Fitting the parameters to the papers' figures and, where there are some, to measured tables.

Each free parameter has a log-normal prior; the fit is the most likely set (maximum a posteriori). Residuals are
logarithms of model over measurement, in units of what such a deviation is worth, and robust: the tables hold slices
from other measuring sessions, and the papers contradict themselves in places.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.corpus import Row
from harness.core.errors import DependencyError
from harness.core.power_modes import PowerMode
from harness.judge.published_figures import Figure
from harness.simulation.model import Load, cached_share, simulate
from tools.free_parameters import read_free_parameters, with_values
from tools.published import Evaluator, Parameters

TABLE_DEVIATION = 0.03
"""Deviation of a table's row from the model that counts as one."""

TABLE_ROWS = 1000.0
"""Rows that a table counts as, however many it has: rows of a grid are not independent."""

FIGURE_DEVIATIONS = {"=": 0.05, "~": 0.1, "range": 0.05}
"""The same of a figure with a comparator; 0.1 where it is a bound."""

COMPARISON_DEVIATION = 0.08
"""The same of a figure that compares two conditions: each of them deviates."""

MOST_STEPS = 40


class MeasuredTable(NamedTuple):
    """Rows of a corpus that were run alike."""

    device: str  # as in the corpus
    workload: str
    load: Load  # how they were run
    modes: np.ndarray  # shape (n, 4)
    log_time: np.ndarray  # natural logarithms of ms and mW, shape (n,); NaN where there is no power
    log_power: np.ndarray
    weight: float  # of a row in the fit


class Fitted(NamedTuple):
    """What a fit found."""

    parameters: Parameters  # the set
    distances: Dict[Tuple[str, str], float]  # of each free parameter from its prior, in spreads, by owner and key
    cost: float  # half the sum of squares at the end
    steps: int  # evaluations of the model without those for derivatives


def tables_of(rows: Sequence[Row]) -> List[MeasuredTable]:
    """The measured rows of a corpus, grouped by how they were run; workers as the papers ran each workload."""
    fitted = Parameters.fitted()
    groups: Dict[Tuple[str, str, str], Dict[int, List[Row]]] = {}
    for row in rows:
        known = row["device"] in fitted.boards and row["workload"] in fitted.workloads
        if known and row["provenance"] != "simulated":
            key = (row["device"], row["workload"], row["task"])
            groups.setdefault(key, {}).setdefault(row["batch_size"], []).append(row)
    tables = []
    for (device, workload_name, task), sizes in groups.items():
        workload, board = fitted.workloads[workload_name], fitted.boards[device]
        workers = workload.default_workers
        count = sum(map(len, sizes.values()))
        for batch_size, group in sizes.items():
            power = [np.nan if row["power_mw"] is None else row["power_mw"] for row in group]
            tables.append(
                MeasuredTable(
                    device,
                    workload_name,
                    Load(
                        batch_size=batch_size,
                        workers=workers,
                        cached_share=cached_share(board, workload, workers=workers),
                        task=task,
                    ),
                    np.array([[row[name] for name in PowerMode._fields] for row in group], dtype=float),
                    np.log([row["minibatch_time_ms"] for row in group]),
                    np.log(power),
                    float(np.sqrt(TABLE_ROWS / max(count, TABLE_ROWS))),
                )
            )
    return tables


def table_residuals(table: MeasuredTable, parameters: Parameters) -> Tuple[np.ndarray, np.ndarray]:
    """Logarithm of model over measurement, of time and of power, for each row."""
    board, workload = parameters.boards[table.device], parameters.workloads[table.workload]
    response = simulate(board, workload, table.modes, table.load, rough=False, physics=parameters.physics)
    return np.log(response.minibatch_time_ms) - table.log_time, np.log(response.power_mw) - table.log_power


def figure_residuals(evaluator: Evaluator, parameters: Parameters) -> np.ndarray:
    """Deviation of each figure in units of what is worth one."""
    answers = evaluator.answers(parameters, rough=False)
    return np.array(
        [figure.deviation(answered) / _worth(figure) for figure, answered in zip(evaluator.figures, answers)]
    )


def _worth(figure: Figure) -> float:
    deviation = FIGURE_DEVIATIONS.get(figure.comparator, 0.1)
    return max(deviation, COMPARISON_DEVIATION) if figure.versus is not None else deviation


def robust(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow like the residuals' size beyond 1 (soft L1)."""
    return np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0))


def fit(figures: Sequence[Figure], tables: Sequence[MeasuredTable], most_steps: int = MOST_STEPS) -> Fitted:
    """Fit all free parameters, from their priors."""
    least_squares = _least_squares()
    free, ties = read_free_parameters()
    fixed = Parameters.fitted()
    evaluator = Evaluator(figures)

    def residuals(distances: np.ndarray) -> np.ndarray:
        parameters = with_values(fixed, free, ties, distances)
        found = [distances, robust(figure_residuals(evaluator, parameters))]
        for table in tables:
            for logarithms in table_residuals(table, parameters):
                known = logarithms[~np.isnan(logarithms)]
                found.append(table.weight * robust(known / TABLE_DEVIATION))
        return np.concatenate(found)

    result = least_squares(residuals, np.zeros(len(free)), max_nfev=most_steps, ftol=1e-5, xtol=1e-5)
    return Fitted(
        with_values(fixed, free, ties, result.x),
        {(parameter.owner[1], parameter.key): float(at) for parameter, at in zip(free, result.x)},
        float(result.cost),
        int(result.nfev),
    )


def _least_squares() -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise DependencyError("fitting needs scipy, which is not installed", "pip install scipy") from error
    return least_squares
