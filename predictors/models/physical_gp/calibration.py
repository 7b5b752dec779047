"""How wide predictions must be: from how far each profiled figure lies from what the others say of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TAILS = 2.5
"""Degrees of freedom of the noise, and of what is predicted."""

# Chosen with the measured tables behind 001 in view. Where two of their three networks choose both and `TAILS`, the
# third is covered as well.
_BELIEVED = 0.85  # factor believed before anything was profiled: beside a t, what the posterior says is a little wide
_BELIEF_ROWS = 4.0  # rows that this is worth
_ROUNDS = 20


class LeftOut(NamedTuple):
    """What each time and power of n rows is by all the other figures, in s approximations; arrays of shape (s, 2, n).

    Attributes:
        residual: what was measured, less what the others say.
        variance: of that residual.
    """

    residual: np.ndarray
    variance: np.ndarray


def leave_each_out(whitening: np.ndarray, residual: np.ndarray, slopes: np.ndarray, covariance: np.ndarray) -> LeftOut:
    """Leave-one-out residuals without learning anew (Rasmussen and Williams 2006, 5.4.2), parameters taken as linear.

    Args:
        whitening: inverse of the Cholesky factor of the covariance of discrepancy and noise, shape (s, 2, n, n).
        residual: what was measured, less the physical form, (s, 2, n).
        slopes: derivatives of the form by f parameters, (s, 2, n, f).
        covariance: of the parameters after learning, (s, f, f).
    """
    back = np.swapaxes(whitening, -1, -2)
    reach = back @ (whitening @ slopes)
    precision = (whitening**2).sum(-2) - ((reach @ covariance[:, None]) * reach).sum(-1)
    return LeftOut((back @ (whitening @ residual[..., None]))[..., 0] / precision, 1 / precision)


def spread(squares: np.ndarray) -> np.ndarray:
    """The factor on standard deviations with which residuals follow a Student t.

    Estimated by expectation-maximisation, under a scaled inverse chi-squared belief.

    Args:
        squares: of the residuals in standard deviations, shape (..., n).

    Returns:
        Shape (...).
    """
    found = np.full(squares.shape[:-1], _BELIEVED**2)
    for _ in range(_ROUNDS):
        weights = (TAILS + 1) / (TAILS + squares / found[..., None])
        found = (_BELIEF_ROWS * _BELIEVED**2 + (weights * squares).sum(-1)) / (_BELIEF_ROWS + squares.shape[-1])
    return np.sqrt(found)
