"""The base of the regressions: input columns, scales of columns, and intervals from residuals.

Input columns: the papers' predictors take cores and clocks only and treat another batch size as another workload
(001 sec. 4.3.5). A predictor fitted on rows of one batch size and task takes these four columns and refuses rows of
another batch size or task, instead of ignoring the difference. Fitted on several, it has them as inputs, too.

Intervals: the logarithm of measured over predicted is assumed normal with mean 0 and unknown variance. A prior worth a
few residuals (scaled inverse chi-squared) keeps a handful of real ones from deciding alone; the predictive distribution
is a Student t with as many degrees of freedom as residuals, those of the prior included (Gelman et al., Bayesian Data
Analysis, sec. 2.6).
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable, ClassVar, NamedTuple, Optional, Tuple

import numpy as np

from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from harness.core.units import KHZ_PER_MHZ
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.settings import Settings

USUAL_WEIGHT = 4.0  # number of residuals that the prior of the spread is worth
USUAL_MODES = 50
FOLDS = 5


class InputColumns(NamedTuple):
    """Inputs of a regression beyond the four settings: batch size and task, if the training rows vary in them."""

    batch_size: Optional[float]  # that of all training rows; None if it varies and is an input
    task: Optional[str]  # likewise
    has_limit: bool = False  # whether the rows have a power limit, which is an input then

    def matrix(self, rows: Settings) -> np.ndarray:
        """Cores and clocks in MHz; then log batch size, the task and log power limit, those that are inputs."""
        for what, form, learned, requested in (
            ("batch size", "g", self.batch_size, rows.batch_size),
            ("task", "", self.task, np.where(rows.inference, *reversed(TASKS))),
        ):
            other = [] if learned is None else requested[requested != learned]
            if len(other):
                raise InvalidValueError(
                    f"the predictor was fitted on {what} {learned:{form}} only, requested {other[0]:{form}}",
                    f"fit on profiles of several values, or of the requested {what}",
                )
        return self.matrix_of_others(rows)

    def matrix_of_others(self, rows: Settings) -> np.ndarray:
        """As `matrix`, for rows of another workload, whose batch size and task may differ."""
        columns = [rows.modes[:, 0], *(rows.modes[:, 1:] / KHZ_PER_MHZ).T]
        if self.batch_size is None:
            columns.append(np.log(rows.batch_size))
        if self.task is None:
            columns.append(rows.inference.astype(float))
        if self.has_limit:
            if rows.power_limit_mw is None:
                raise InvalidValueError("the reference has no power limits, the target has", "use another reference")
            columns.append(np.log(rows.power_limit_mw))
        return np.column_stack(columns)


def columns_of(rows: Settings) -> InputColumns:
    sizes, tasks = np.unique(rows.batch_size), np.unique(rows.inference)
    task = TASKS[int(tasks[0])] if len(tasks) == 1 else None
    return InputColumns(sizes[0] if len(sizes) == 1 else None, task, rows.power_limit_mw is not None)


class ColumnScale(NamedTuple):
    """A shift and a width for each column, so that (value - shift) / width is of order 1; both of shape (columns,).

    The width of a constant column is 0, and every value of it is scaled to 0: the effect of other values is unknown.
    """

    shift: np.ndarray
    width: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        return np.where(self.width > 0, (values - self.shift) / np.where(self.width > 0, self.width, 1.0), 0.0)

    def undo(self, scaled: np.ndarray) -> np.ndarray:
        return scaled * self.width + self.shift


SCALES = ("standard", "min-max")


def column_scale(values: np.ndarray, kind: str = "standard") -> ColumnScale:
    """To mean 0 and variance 1, as scikit-learn's StandardScaler, or from 0 to 1, as its MinMaxScaler."""
    span = np.ptp(values, axis=0)
    standard = (values.mean(axis=0), values.std(axis=0))
    shift, width = standard if kind == "standard" else (values.min(axis=0), span)
    varies = span > 1e-9 * np.abs(values).max(axis=0)  # by more than rounding
    return ColumnScale(shift, np.where(varies, width, 0.0))


def residual_spread(
    observed: np.ndarray, predicted: np.ndarray, usual: Tuple[float, float], learned: int
) -> Tuple[np.ndarray, float]:
    """Scales of the Student t distributions of log time and log power, shape (2,), and their degrees of freedom.

    They follow from observed times and powers, (n, 2), and held-out predictions of a regression fitted on `learned`
    modes. `usual` are the standard deviations that such a regression has after `USUAL_MODES` modes; they are assumed to
    fall with the square root of the number of modes.
    """
    squares = np.log(observed / predicted) ** 2
    freedom = USUAL_WEIGHT + len(squares)
    prior = USUAL_WEIGHT * np.square(usual) * USUAL_MODES / learned
    return np.sqrt((prior + squares.sum(axis=0)) / freedom), freedom


def above_zero(predicted: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Predictions (n, k) clipped at a tenth of the least training value (m, k): a linear function may fall below 0."""
    return np.maximum(predicted, 0.1 * learned.min(axis=0))


Figures = Callable[[np.ndarray], np.ndarray]
"""From inputs (n, d) to time in ms and power in mW, shape (n, 2)."""


@dataclasses.dataclass(eq=False)
class Regression(Predictor):
    """A regression of time and power on the settings, with intervals from its residuals on held-out rows.

    Batch size and task are further inputs if the training rows have several. Parameters are given by name.
    """

    usual_log_sd: ClassVar[Tuple[float, float]]  # of its residuals after 50 random modes of the tables of an Orin AGX
    log_inputs: ClassVar[bool] = False  # whether inputs are the logarithms of cores and clocks
    least_modes: ClassVar[int] = 2  # the intervals come from rows left out, so one must remain to fit on
    space: Optional[PowerModeSpace] = None  # the modes it may be used for

    def __new__(cls, *positional: Any, **_: Any) -> Regression:
        """Refuse positional parameters: as this class has the first one, `space`, `Ridge(0.1)` would set it."""
        if positional:
            raise TypeError(f"{cls.__name__} takes its parameters by name, got {positional[0]!r} without one")
        return super().__new__(cls)

    @abc.abstractmethod
    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        """Fit figures (n, 2) to inputs (n, d)."""

    def _columns(self, rows: Settings) -> InputColumns:
        return columns_of(rows)

    def _inputs(self, rows: Settings) -> np.ndarray:
        inputs = self.columns_.matrix(rows)
        if self.log_inputs:
            inputs[:, :4] = np.log(inputs[:, :4])
        return inputs

    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        self.columns_ = self._columns(rows)
        self.power_known_ = not np.isnan(power_mw).all()
        # Power that was not measured is fitted as a constant, which no time depends on, and never returned.
        figures = np.column_stack([time_ms, power_mw if self.power_known_ else np.ones_like(power_mw)])
        inputs = self._inputs(rows)
        self.fitted_ = self._fit(inputs, figures)
        left_out = self._left_out(inputs, figures)
        self.log_sd_, self.freedom_ = residual_spread(*left_out, self.usual_log_sd, len(np.unique(inputs, axis=0)))

    def _left_out(self, inputs: np.ndarray, figures: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Figures, and their predictions by a regression fitted on the other folds."""
        order = np.random.default_rng(0).permutation(len(inputs))
        predicted = np.empty_like(figures)
        for part in np.array_split(order, min(FOLDS, len(order))):
            others = np.setdiff1d(order, part)
            predicted[part] = self._fit(inputs[others], figures[others])(inputs[part])
        return figures, predicted

    def _infer(self, rows: Settings) -> Forecast:
        figures = self.fitted_(self._inputs(rows)).T
        log_sd = np.repeat(self.log_sd_[:, None], figures.shape[1], axis=1)
        if not self.power_known_:
            figures[1], log_sd[1] = np.nan, np.nan
        return Forecast.of_medians(rows, figures[0], figures[1], log_sd[0], log_sd[1], self.freedom_)
