"""What the regressions share: input columns, scales of columns, and intervals from residuals.

Input columns: the papers' predictors take cores and clocks only; another batch size is another workload to them
(001 sec. 4.3.5). Learned from rows of one batch size and task, a predictor takes these four and refuses rows of another
batch size or task, rather than answer as if it made no difference. Learned from several, it has them as inputs, too.

Intervals: the logarithm of measured over predicted is taken to be normal with mean 0 and unknown variance. A prior
worth a few residuals (scaled inverse chi-squared) keeps a handful of real ones from deciding alone; the predictive
distribution is a Student t with as many degrees of freedom as residuals, those of the prior included (Gelman et al.,
Bayesian Data Analysis, sec. 2.6).
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.units import KHZ_PER_MHZ
from predictors.models.base import Inputs, Prediction, check_inputs
from predictors.models.tables import Table

USUAL_WEIGHT = 4.0  # how many residuals the prior of the spread is worth
USUAL_MODES = 50
FOLDS = 5


class InputColumns(NamedTuple):
    """What goes into a regression beside the four settings."""

    batch_size: Optional[float]  # the one batch size that was learned; None where it is an input
    # the one task that was learned, 1 for inference, 0 for training; None where it is an input
    inference: Optional[float]

    def matrix(self, rows: Inputs) -> np.ndarray:
        """Cores and clocks in MHz, then the logarithm of the batch size and the task where they are inputs."""
        if self.batch_size is not None:
            self._refuse(rows.batch_size != self.batch_size, "batch size", f"{self.batch_size:g}", rows.batch_size)
        if self.inference is not None:
            tasks = np.where(rows.inference, "inference", "training")
            learned = "inference" if self.inference else "training"
            self._refuse(tasks != learned, "task", learned, tasks)
        return self.matrix_of_others(rows)

    def matrix_of_others(self, rows: Inputs) -> np.ndarray:
        """The same for rows of another workload, whose batch size and task may be others."""
        columns = [rows.modes[:, 0], *(rows.modes[:, 1:] / KHZ_PER_MHZ).T]
        if self.batch_size is None:
            columns.append(np.log(rows.batch_size))
        if self.inference is None:
            columns.append(rows.inference.astype(float))
        return np.column_stack(columns)

    def log_matrix(self, rows: Inputs) -> np.ndarray:
        """As `matrix`, with logarithms of cores and clocks."""
        columns = self.matrix(rows)
        columns[:, :4] = np.log(columns[:, :4])
        return columns

    @staticmethod
    def _refuse(other: np.ndarray, what: str, learned: str, asked: np.ndarray) -> None:
        if other.any():
            raise InvalidValueError(
                f"only {what} {learned} was learned, asked for {asked[other][0]}",
                f"learn from profiles of several, or from those of that {what}",
            )


def columns_of(rows: Inputs) -> InputColumns:
    sizes, tasks = np.unique(rows.batch_size), np.unique(rows.inference)
    return InputColumns(float(sizes[0]) if len(sizes) == 1 else None, float(tasks[0]) if len(tasks) == 1 else None)


def table_inputs(table: Table) -> Inputs:
    return check_inputs(table.modes, table.batch_size, table.task)


class ColumnScale(NamedTuple):
    """A shift and a width for each column, so that (value - shift) / width is of order 1."""

    shift: np.ndarray  # shape (columns,)
    # shape (columns,); 0 where a column is constant. Whatever such a column is asked for becomes 0: nothing is known of
    # the effect of other values.
    width: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        shifted = np.asarray(values, dtype=float) - self.shift
        return np.divide(
            shifted, self.width, out=np.zeros_like(shifted), where=np.broadcast_to(self.width > 0, shifted.shape)
        )

    def undo(self, scaled: np.ndarray) -> np.ndarray:
        return scaled * self.width + self.shift


def standard_scale(values: np.ndarray) -> ColumnScale:
    """To mean 0 and variance 1, as scikit-learn's StandardScaler."""
    return ColumnScale(values.mean(axis=0), _width(values, values.std(axis=0)))


def min_max_scale(values: np.ndarray) -> ColumnScale:
    """To the range from 0 to 1, as scikit-learn's MinMaxScaler."""
    return ColumnScale(values.min(axis=0), _width(values, np.ptp(values, axis=0)))


def _width(values: np.ndarray, widths: np.ndarray) -> np.ndarray:
    rounding = 1e-9 * np.abs(values).max(axis=0)
    return np.where(np.ptp(values, axis=0) > rounding, widths, 0.0)


SCALES = {"standard": standard_scale, "min-max": min_max_scale}


class ResidualSpread(NamedTuple):
    """How far a regression is off, the same for all modes."""

    time_log_sd: float  # scale of the Student t distribution of log time
    power_log_sd: float  # the same of power
    freedom: float  # its degrees of freedom

    def prediction(self, figures: np.ndarray) -> Prediction:
        """The prediction with these times in ms and powers in mW, shape (n, 2)."""
        time_ms, power_mw = figures.T
        log_sds = [np.full(len(figures), log_sd) for log_sd in (self.time_log_sd, self.power_log_sd)]
        return Prediction(time_ms, power_mw, *log_sds, freedom=self.freedom)


def residual_spread(
    observed: np.ndarray, predicted: np.ndarray, usual: Tuple[float, float], learned: int
) -> ResidualSpread:
    """The spread of residuals of time and power, (n, 2), predicted by a regression that had not learned these modes.

    Args:
        observed: above 0; n may be 0.
        predicted: the same modes.
        usual: standard deviation of log time and log power residuals that such a regression has after `USUAL_MODES`
            modes; it is taken to fall with the root of the number of modes.
        learned: how many modes the regression learned from.
    """
    squares = np.log(observed / predicted) ** 2
    freedom = USUAL_WEIGHT + len(squares)
    prior = USUAL_WEIGHT * np.square(usual) * USUAL_MODES / learned
    return ResidualSpread(*np.sqrt((prior + squares.sum(axis=0)) / freedom).tolist(), freedom)


def cross_validated(
    count: int, predict: Callable[[np.ndarray, np.ndarray], np.ndarray], folds: int = FOLDS, seed: int = 0
) -> np.ndarray:
    """What is predicted for each row by a regression that learned the rows of the other folds, shape (count, 2).

    `predict` learns the rows of its first index array, and predicts those of the second: shape (rows, 2).
    """
    order = np.random.default_rng(seed).permutation(count)
    found = np.empty((count, 2))
    for part in np.array_split(order, min(folds, count)):
        found[part] = predict(np.setdiff1d(order, part), part)
    return found


def above_zero(predicted: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Predictions (n, k) kept above a tenth of the least learned (m, k): a linear function may fall below 0.

    `learned` may also be the least of each column, shape (k,).
    """
    return np.maximum(predicted, 0.1 * np.min(np.atleast_2d(learned), axis=0))
