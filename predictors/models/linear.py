"""Linear regressions: those of 004 sec. 5.7 on the settings, and a log-quadratic ridge as a plain baseline."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.metrics import minibatch_energy_mws
from harness.core.units import ms_to_s
from predictors.models.regression import Figures, Regression, above_zero, column_scale
from predictors.profiles import Profiles

PAPERS_SUBSET = ("e", "f", "i", "j")  # modes of an AGX Xavier (004 Table 3) from which the paper learns (sec. 5.7.1)

# Directions that inputs vary in by less than this share of the greatest are rounding. LAPACK's usual tolerance is so
# small that rounding may pass for a direction, and does with the paper's four modes.
RANK_TOLERANCE = 1e-9

# Standard deviation of log time and log power residuals after 50 random modes of the tables of an Orin AGX.
USUAL_LOG_SD = (0.5, 0.1)

# Tried by the ridge, relative to standardised columns and one row.
PENALTIES = tuple(10.0**exponent for exponent in np.arange(-4.0, 2.01, 0.25))


class Plane(NamedTuple):
    """A linear function of inputs."""

    centre: np.ndarray  # of the training inputs, shape (d,)
    height: np.ndarray  # of the training values there, shape (k,)
    slopes: np.ndarray  # shape (d, k)

    def at(self, inputs: np.ndarray) -> np.ndarray:
        """The values at inputs (n, d): shape (n, k)."""
        return (inputs - self.centre) @ self.slopes + self.height


def least_squares(inputs: np.ndarray, values: np.ndarray, weights: Optional[np.ndarray] = None) -> Plane:
    """The plane of least squared error, weighted by (n,), through inputs (n, d) and values (n, k).

    If there are several, it is the one with the least slopes.
    """
    centre, height = np.average(inputs, axis=0, weights=weights), np.average(values, axis=0, weights=weights)
    root = np.ones((len(inputs), 1)) if weights is None else np.sqrt(weights)[:, None]
    slopes = np.linalg.lstsq(root * (inputs - centre), root * (values - height), rcond=RANK_TOLERANCE)[0]
    return Plane(centre, height, slopes)


def ranked_subsets(inputs: np.ndarray, time_ms: np.ndarray, size: int = 4) -> List[Tuple[float, Tuple[int, ...]]]:
    """All subsets of modes to fit time on, best first: 210 ways to take 4 of 10 (004 sec. 5.7.1).

    Each comes with the sum over workloads of the root mean square error on all modes, in ms. `inputs` are cores and
    clocks (MHz) of the available modes, shape (n, 4); `time_ms` is per mode and workload, shape (n, k).
    """
    if not 1 <= size <= len(inputs):
        raise InvalidValueError(f"cannot take {size} of {len(inputs)} modes", "take fewer, or give more modes")

    def error(taken: Tuple[int, ...]) -> float:
        rows = list(taken)
        off = least_squares(inputs[rows], time_ms[rows]).at(inputs) - time_ms
        return float(np.sqrt(np.mean(off**2, axis=0)).sum())

    return sorted((error(taken), taken) for taken in itertools.combinations(range(len(inputs)), size))


@dataclass(eq=False)
class LinearRegression(Regression):
    """Time by least squares on cores and the three clocks: 004 sec. 5.7.1. A weak baseline.

    The paper learns from the modes e, f, i and j of an AGX Xavier, the first of its `ranked_subsets`. Each setting
    takes only two values in them, and CPU and GPU clock change together: a system of rank 4 for five coefficients. The
    data do not determine how an effect is split between CPU and GPU; the solver's minimum-norm solution does, which
    depends on the unit: MHz and cores, as in the paper. Power, for which the paper has no such model, is fitted in the
    same way.
    """

    name = "linear"
    least_modes = 4
    usual_log_sd = USUAL_LOG_SD

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        plane = least_squares(inputs, figures)
        return lambda queries: above_zero(plane.at(queries), figures)


@dataclass(eq=False)
class LinearEnergy(Regression):
    """Energy by least squares on the settings and the time, one model for all workloads: 004 sec. 5.7.1.

    The time is that of `LinearRegression`, fitted on the workload's own modes. The energy model is fitted on measured
    times and energies of these modes and of all references; all workloads weigh the same, as in the paper, where each
    has as many modes. Predictions use the predicted time. Energy is per minibatch here, per epoch in the paper; power
    is energy over predicted time. The paper reports errors of 25 to 60 %, the largest for its smallest network, whose
    energies count for little in a sum of squares; the same holds here.
    """

    name = "linear-energy"
    least_modes = 4
    usual_log_sd = USUAL_LOG_SD
    references: Tuple[Profiles, ...] = ()

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        workloads = [np.column_stack([inputs, figures])]
        for table in self.references:
            profiles = table.complete()
            if len(profiles) == 0:
                continue
            settings = self.columns_.matrix_of_others(profiles)
            workloads.append(np.column_stack([settings, profiles.time_ms, profiles.power_mw]))
        rows = np.concatenate(workloads)
        energies = minibatch_energy_mws(rows[:, -2], rows[:, -1])
        weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in workloads])
        time = least_squares(inputs, figures[:, :1])
        energy = least_squares(rows[:, :-1], energies[:, None], weights)

        def predict(queries: np.ndarray) -> np.ndarray:
            time_ms = above_zero(time.at(queries), figures[:, :1])
            energy_mws = energy.at(np.column_stack([queries, time_ms]))
            return np.column_stack([time_ms, above_zero(energy_mws / ms_to_s(time_ms), figures[:, 1:])])

        return predict


@dataclass(eq=False)
class Ridge(Regression):
    """Logarithms of time and power as quadratic functions of the logarithms of the settings, with shrunk coefficients.

    A baseline without references or physics. Penalties are chosen by leave-one-out cross-validation, which has a closed
    form for a ridge (Golub, Heath and Wahba 1979); the intervals come from the same residuals.
    """

    name = "ridge"
    usual_log_sd = (0.13, 0.05)
    log_inputs = True
    penalties: Tuple[float, ...] = PENALTIES

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        if not self.penalties or min(self.penalties) <= 0:
            raise InvalidValueError(f"{self.name} has penalties {self.penalties}", "give at least one, all above 0")
        input_scale = column_scale(inputs)
        terms = quadratic_terms(input_scale.apply(inputs))
        term_scale = column_scale(terms)
        logs = np.log(figures)
        fits = [fit_ridge(term_scale.apply(terms), values, self.penalties) for values in logs.T]
        weights, self.others_ = (np.column_stack(parts) for parts in zip(*fits))
        height = logs.mean(axis=0)

        def predict(queries: np.ndarray) -> np.ndarray:
            query_terms = quadratic_terms(input_scale.apply(queries))
            return np.exp(term_scale.apply(query_terms) @ weights + height)

        return predict

    def _left_out(self, inputs: np.ndarray, figures: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return figures, np.exp(self.others_)


def quadratic_terms(columns: np.ndarray) -> np.ndarray:
    """Columns, their squares and their products: shape (n, d (d + 3) / 2)."""
    first, second = np.triu_indices(columns.shape[1])
    return np.column_stack([columns, columns[:, first] * columns[:, second]])


def fit_ridge(terms: np.ndarray, values: np.ndarray, penalties: Tuple[float, ...]) -> Tuple[np.ndarray, np.ndarray]:
    """Fit values (n,) less their mean, which is not shrunk, to terms (n, d) of mean 0; n is at least 2.

    Penalties apply to the squared weights and are relative to the mean of the squared residuals. Returns the weights,
    shape (d,), and the leave-one-out predictions, shape (n,), for the penalty with the least leave-one-out error.
    """
    left, singular, right = np.linalg.svd(terms, full_matrices=False)
    mean = values.mean()
    along = left.T @ (values - mean)

    def fit(penalty: float) -> Tuple[np.ndarray, np.ndarray]:
        kept = singular**2 / (singular**2 + penalty * len(values))
        leverage = 1 / len(values) + (left**2) @ kept
        residuals = (values - mean - left @ (kept * along)) / np.maximum(1 - leverage, 1e-9)
        return right.T @ (singular / (singular**2 + penalty * len(values)) * along), values - residuals

    return min(map(fit, penalties), key=lambda fitted: np.mean((values - fitted[1]) ** 2))
