"""Joint draws from the posterior: each gives time and power of all modes, consistent with each other.

A normal posterior around the best parameters is symmetric. Two cores never take less time than eight, but a search by
normal distributions keeps expecting that they might. Each draw is therefore a separate optimum, with the prior's mean
and the rows perturbed by a draw of their noise (randomise-then-optimise: Bardsley et al. 2014); for a linear response
it is an exact draw from the posterior.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from predictors.models.physical_gp.posterior import (
    Climb,
    ParameterPosterior,
    discrepancy,
    relation_to_rows,
    select,
)
from predictors.models.physical_gp.response import Features, ResponseModel, by_name

_STEPS = 8  # of Levenberg and Marquardt, from the posterior's own optimum
_FURTHEST = 3.0  # the largest perturbation of the prior mean, in standard deviations
_ROWS_AT_ONCE = 512  # 18,096 rows of 32 draws take 5 MB an array; smaller ones stay in the processor's cache


def draw(posterior: ParameterPosterior, at: Features, count: int, seed: int) -> Tuple[np.ndarray, np.ndarray]:
    """Means and variances of log time (ms) and log power (W) of m rows in each draw: both of shape (count, 2, m).

    The mean comes from the draw's parameters and the discrepancy that the rows imply under them; the variance is the
    remaining uncertainty.
    """
    search, which = _optima(posterior, count, seed)
    search.moved = np.zeros_like(search.moved)
    residual = search.residual(search.theta)
    response, pause = ResponseModel(by_name(search.theta), at), posterior.alternatives.pause[which]
    mean, variance = np.empty((2, count, 2, len(at.cores)))
    for first in range(0, len(at.cores), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        some = Features(*(column[rows] for column in at))
        mean[..., rows], variance[..., rows] = _discrepancies(posterior, some, which, residual)
        times = response.times(rows)
        log_power = np.log(response.watts(times, times.total + mean[:, 0, rows], pause, rows).total)
        mean[..., rows] += np.stack([times.total + posterior.unit, log_power], axis=1)
    return mean, variance


def _discrepancies(
    posterior: ParameterPosterior, at: Features, which: np.ndarray, residual: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Means and variances of what the form of each draw leaves unexplained: `residual` of the learned rows is known."""
    relation = relation_to_rows(posterior, at)
    mean, variance = np.empty((2, len(which), 2, len(at.cores)))
    for k in np.unique(which):
        mine, whitening = which == k, posterior.whitening[k]
        related, own, noise = discrepancy(posterior, k, at, relation)
        white = related @ np.swapaxes(whitening, 1, 2)
        mean[mine] = (white @ (whitening @ residual[mine][..., None]))[..., 0]
        left = own - (white**2).sum(2) + noise
        variance[mine] = posterior.spread[k, :, None] ** 2 * left
    return mean, variance


def _optima(posterior: ParameterPosterior, count: int, seed: int) -> Tuple[Climb, np.ndarray]:
    """The solved problem of each draw, and the approximation of the posterior that it started from."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    shares = np.floor(posterior.weight.cumsum() * count + 0.5).astype(int)
    which = np.repeat(np.arange(len(shares)), np.diff(shares, prepend=0))
    points = qmc.Sobol(posterior.theta.shape[1], seed=seed).random_base2(int(np.ceil(np.log2(count))))[:count]
    roots = np.linalg.cholesky(posterior.prior_covariance)[which]
    moved = (roots @ np.clip(ndtri(points), -_FURTHEST, _FURTHEST)[..., None])[..., 0]
    learned_at = posterior.learned_at
    mean = posterior.prior_mean[which] + moved
    alternatives = select(posterior.alternatives, which)
    search = Climb(learned_at, posterior.data, mean, posterior.prior_covariance[which], alternatives)
    search.theta[:, search.free] = posterior.theta[which][:, search.free]
    search.weights, search.scale = posterior.row_weight[which], posterior.scale[which]
    search.whiten()
    noise = np.random.default_rng(seed).normal(size=(count, *posterior.data.shape, 1))
    search.moved = np.linalg.solve(search.whitening, noise)[..., 0]
    search.descend(_STEPS)
    search.theta = search.whole()
    return search, which
