"""Intervals for regressions that have none of their own: from how far they were off on modes they had not learned.

The logarithm of measured over predicted is taken to be normal with mean 0 and unknown variance. What is usual for a
predictor counts as a few residuals beforehand, so that a handful of real ones does not decide alone (a scaled inverse
chi-squared prior); the predictive distribution is then a Student t with as many degrees of freedom as residuals, those
beforehand included (Gelman et al., Bayesian Data Analysis, sec. 2.6).
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

import numpy as np

from predictors.models.protocol import Prediction

USUAL_WEIGHT = 4.0
"""How many residuals the usual spread counts as."""

USUAL_MODES = 50

FOLDS = 5


class ResidualSpread(NamedTuple):
    """How sure a regression is, the same for all modes.

    Attributes:
        time_log_sd: scale of the Student t of log time.
        power_log_sd: the same of power.
        freedom: its degrees of freedom.
    """

    time_log_sd: float
    power_log_sd: float
    freedom: float

    def prediction(self, figures: np.ndarray) -> Prediction:
        """The prediction with these times in ms and powers in mW, shape (n, 2)."""
        time_ms, power_mw = figures.T
        sure = [np.full(len(figures), log_sd) for log_sd in (self.time_log_sd, self.power_log_sd)]
        return Prediction(time_ms, power_mw, *sure, freedom=self.freedom)


def residual_spread(
    observed: np.ndarray, predicted: np.ndarray, usual: Tuple[float, float], learned: int
) -> ResidualSpread:
    """The spread that residuals tell.

    Args:
        observed: time and power, shape (n, 2), above 0; n may be 0.
        predicted: the same, for modes that the regression that says so had not learned.
        usual: standard deviation of the residuals of log time and log power that such a regression has after
            `USUAL_MODES` modes. It is taken to fall with the root of the modes.
        learned: how many modes the regression learned from.
    """
    squares = np.log(observed / predicted) ** 2
    freedom = USUAL_WEIGHT + len(squares)
    beforehand = USUAL_WEIGHT * np.square(usual) * USUAL_MODES / learned
    return ResidualSpread(*np.sqrt((beforehand + squares.sum(axis=0)) / freedom).tolist(), freedom)


def cross_validated(
    count: int, predict: Callable[[np.ndarray, np.ndarray], np.ndarray], folds: int = FOLDS, seed: int = 0
) -> np.ndarray:
    """What is predicted for each row by a regression that learned the rows of the other folds.

    Args:
        count: how many rows, at least 2.
        predict: learns the rows of the first index array, and predicts those of the second: shape (rows, 2).
        folds: into how many parts the rows are divided; as many as rows where these are fewer.
        seed: of the division.

    Returns:
        Shape (count, 2).
    """
    order = np.random.default_rng(seed).permutation(count)
    parts = np.array_split(order, min(folds, count))
    found = np.empty((count, 2))
    for part in parts:
        found[part] = predict(np.setdiff1d(order, part), part)
    return found


def above_zero(predicted: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Predictions of a regression that may fall to 0 and below, kept to at least a tenth of the least that was learned.

    A time or power below that is no answer; the floor is low enough to leave every sensible one as it is.

    Args:
        predicted: shape (n, k).
        learned: what was learned, shape (m, k); or its least, shape (k,).
    """
    return np.maximum(predicted, 0.1 * np.min(np.atleast_2d(learned), axis=0))
