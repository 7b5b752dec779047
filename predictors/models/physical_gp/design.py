"""Optimal designs: the power modes whose profiles inform the physical model most about all others.

The response is linearised at parameters drawn from the prior, or at the posterior so far. Profiling a mode with
derivatives J and noise R updates the covariance S of the parameters to S - S J' (J S J' + R)^-1 J S. Modes are chosen
greedily so that the expected variance of log time and log power falls most, averaged over the modes to predict and
relative to the variance left in each (a Bayesian V-optimal design: Chaloner and Verdinelli 1995). Whatever the
physical form does not explain counts as noise.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import numpy as np

from predictors.models.physical_gp.alternatives import FORM_ALONE
from predictors.models.physical_gp.posterior import ParameterPosterior, select
from predictors.models.physical_gp.prior import Prior
from predictors.models.physical_gp.response import Features, ResponseModel, by_name, linearised

_DRAWS = 12
_UNKNOWN_UNIT = 3.0  # standard deviation of the log of a workload's time scale before the first profile


class Linearisations(NamedTuple):
    """Linearisation points of the response, s of them."""

    weight: np.ndarray  # of each, adding up to 1, shape (s,)
    theta: np.ndarray  # parameters, (s, d)
    free: np.ndarray  # indices of the parameters that matter, (f,)
    root: np.ndarray  # a root of their covariance, (s, f, f)
    unit_sd: float  # standard deviation of the logarithm of the unit of time
    noise: np.ndarray  # residual variance of log time and log power, (s, 2)
    pause: np.ndarray  # as of `response.power_w`, (s,)


def before_profiling(priors: Sequence[Prior], at: Features, seed: int) -> Linearisations:
    """Linearise at draws from the priors of a workload without profiles; `at` are modes to predict."""
    random = np.random.default_rng(seed)
    centred = [priors[draw % len(priors)].centred(at) for draw in range(_DRAWS)]
    mean, covariance = (np.array([getattr(prior, name) for prior in centred]) for name in ("mean", "covariance"))
    theta = mean + (np.linalg.cholesky(covariance) @ random.normal(size=mean.shape)[..., None])[..., 0]
    theta[: len(priors)] = mean[: len(priors)]
    jacobian = linearised(mean[:1], at, np.arange(mean.shape[1]))[1]
    free = np.flatnonzero((jacobian != 0).any(axis=(0, 1)))
    root = np.linalg.cholesky(covariance[:, free[:, None], free])
    form = select(FORM_ALONE, np.zeros(_DRAWS, dtype=int))
    noise = np.square(form.smooth_sd) + np.square(form.noise_sd)
    return Linearisations(np.full(_DRAWS, 1 / _DRAWS), theta, free, root, _UNKNOWN_UNIT, noise, form.pause)


def after_profiling(posterior: ParameterPosterior) -> Linearisations:
    """Linearise at the modes of a posterior."""
    alternatives = posterior.alternatives
    noise = np.square(posterior.scale) * (np.square(alternatives.smooth_sd) + np.square(alternatives.noise_sd))
    root = np.linalg.cholesky(posterior.covariance)
    return Linearisations(posterior.weight, posterior.theta, posterior.free, root, 0.0, noise, alternatives.pause)


def most_informative(
    linearisations: Linearisations, candidates: Features, predicted: Features, count: int
) -> np.ndarray:
    """Indices of the `count` candidates to profile, the one that reduces the variance of predictions most first."""
    measured = _jacobian(linearisations, candidates, time_known=True)
    predicted_by = _jacobian(linearisations, predicted, time_known=False)
    spread = np.einsum("smwf,smwg->swfg", predicted_by, predicted_by) / predicted_by.shape[1]
    noise = linearisations.noise[:, None, :, None] * np.eye(2)
    covariance = np.repeat(np.eye(measured.shape[-1])[None], len(linearisations.weight), axis=0)
    chosen: List[int] = []
    for _ in range(count):
        reach = measured @ covariance[:, None]
        inverse = np.linalg.inv(reach @ np.swapaxes(measured, -1, -2) + noise)
        gain = linearisations.weight @ _variance_gain(reach, inverse, covariance, spread)
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        reach_of_best = reach[:, best]
        covariance = covariance - np.swapaxes(reach_of_best, -1, -2) @ inverse[:, best] @ reach_of_best
    return np.array(chosen, dtype=int)


def _variance_gain(reach: np.ndarray, inverse: np.ndarray, covariance: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The share of the mean variance of log time, plus that of log power, that each candidate removes, shape (s, n)."""
    gain = np.zeros(reach.shape[:2])
    for what in range(2):
        left = np.einsum("sfg,sgf->s", covariance, spread[:, what])
        taken = reach @ spread[:, what][:, None] @ np.swapaxes(reach, -1, -2)
        gain += np.einsum("snij,snji->sn", inverse, taken) / left[:, None]
    return gain


def _jacobian(linearisations: Linearisations, at: Features, time_known: bool) -> np.ndarray:
    """Derivatives of log time and log power, shape (s, n, 2, f + 1), by parameters of unit variance and the time unit.

    `time_known`: power is taken at the measured time, as for a profiled mode.
    """
    parts = []
    for theta, root, pause in zip(linearisations.theta, linearisations.root, linearisations.pause[:, None]):
        log_time = ResponseModel(by_name(theta), at).times().total if time_known else None
        jacobian = linearised(theta[None], at, linearisations.free, log_time, pause)[1][0]
        jacobian = jacobian.reshape(2, len(at.cores), -1)
        unit = np.zeros((2, len(at.cores), 1))
        unit[0] = linearisations.unit_sd
        parts.append(np.concatenate([jacobian @ root, unit], axis=-1).swapaxes(0, 1))
    return np.array(parts)
