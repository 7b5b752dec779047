"""Log-quadratic ridge: logarithms of time and power as quadratic functions of the logarithms of the settings.

A plain baseline that knows no reference and no physics. Penalties are chosen by leave-one-out cross-validation, which
for a ridge has a closed form (Golub, Heath and Wahba 1979), so that fitting takes milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from predictors.models.dense_network import scale_of, scale_values, standard_scale
from predictors.models.input_columns import column_values, columns_from, columns_of
from predictors.models.protocol import Inputs, Prediction, Predictor, State
from predictors.models.residual_spread import ResidualSpread, residual_spread

PENALTIES = tuple(10.0**exponent for exponent in np.arange(-4.0, 2.01, 0.25))
"""Tried, relative to standardised columns and one row."""

USUAL_LOG_SD = (0.13, 0.05)
"""Of time and power: the residuals of ridges that learned 50 random modes of the tables of an Orin AGX."""


class Ridge(Predictor):
    """Squares, products and the settings themselves, in logarithms, with shrunk coefficients.

    Rows of several batch sizes or tasks have these as further inputs. Intervals come from the leave-one-out residuals.

    Args:
        penalties: from which the one of time and the one of power are chosen.
        space: the power modes that are allowed.
    """

    name = "ridge"
    least_modes = 2

    def __init__(self, penalties: Tuple[float, ...] = PENALTIES, space: Optional[PowerModeSpace] = None) -> None:
        """Keep the parameters."""
        self.penalties = penalties
        self.space = space

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if not self.penalties or min(self.penalties) <= 0:
            raise InvalidValueError(f"{self.name} has penalties {self.penalties}", "give some, all above 0")
        self.columns_ = columns_of(rows)
        inputs = self.columns_.log_matrix(rows)
        self.input_scale_ = standard_scale(inputs)
        terms = quadratic_terms(self.input_scale_.apply(inputs))
        self.term_scale_ = standard_scale(terms)
        logs = np.log(np.column_stack([time_ms, power_mw]))
        fits = [fit_ridge(self.term_scale_.apply(terms), values, self.penalties) for values in logs.T]
        self.weights_ = np.column_stack([fit.weights for fit in fits])
        self.height_ = logs.mean(axis=0)
        others = np.column_stack([fit.others for fit in fits])
        self.spread_ = residual_spread(np.exp(logs), np.exp(others), USUAL_LOG_SD, len(inputs))

    def _infer(self, rows: Inputs) -> Prediction:
        terms = quadratic_terms(self.input_scale_.apply(self.columns_.log_matrix(rows)))
        return self.spread_.prediction(np.exp(self.term_scale_.apply(terms) @ self.weights_ + self.height_))

    def state(self) -> State:
        """What was learned."""
        values = {
            "columns": column_values(self.columns_),
            "input_scale": scale_values(self.input_scale_),
            "term_scale": scale_values(self.term_scale_),
            "spread": list(self.spread_),
        }
        return State(values, {"weights": self.weights_, "height": self.height_})

    def restore(self, state: State) -> None:
        """Take what `state` gave."""
        try:
            self.columns_ = columns_from(state.values["columns"])
            self.input_scale_, self.term_scale_ = (
                scale_of(state.values[name]) for name in ("input_scale", "term_scale")
            )
            self.spread_ = ResidualSpread(*state.values["spread"])
            self.weights_, self.height_ = state.arrays["weights"], state.arrays["height"]
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"what was saved is not of {self.name}: {error!r}") from error


class RidgeFit(NamedTuple):
    """A ridge with the penalty that predicts left-out rows best.

    Attributes:
        weights: shape (d,).
        others: what is predicted for each row by a ridge that learned all others, shape (n,).
        penalty: chosen.
    """

    weights: np.ndarray
    others: np.ndarray
    penalty: float


def quadratic_terms(columns: np.ndarray) -> np.ndarray:
    """Columns, their squares and their products: shape (n, d (d + 3) / 2)."""
    first, second = np.triu_indices(columns.shape[1])
    return np.column_stack([columns, columns[:, first] * columns[:, second]])


def fit_ridge(terms: np.ndarray, values: np.ndarray, penalties: Tuple[float, ...]) -> RidgeFit:
    """Fit values less their mean, which is not shrunk.

    Args:
        terms: of mean 0, shape (n, d), n at least 2.
        values: shape (n,).
        penalties: above 0; on the squared weights, beside the mean of the squared residuals.
    """
    left, singular, right = np.linalg.svd(terms, full_matrices=False)
    mean = values.mean()
    along = left.T @ (values - mean)
    best: Optional[RidgeFit] = None
    least = np.inf
    for penalty in penalties:
        kept = singular**2 / (singular**2 + penalty * len(values))
        leverage = 1 / len(values) + (left**2) @ kept
        residuals = (values - mean - left @ (kept * along)) / np.maximum(1 - leverage, 1e-9)
        error = float(np.mean(residuals**2))
        if best is None or error < least:
            weights = right.T @ (singular / (singular**2 + penalty * len(values)) * along)
            best, least = RidgeFit(weights, values - residuals, penalty), error
    assert best is not None
    return best
