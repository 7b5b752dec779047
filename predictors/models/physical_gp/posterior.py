"""Learning the parameters and the discrepancy together: several Laplace approximations, weighted by their evidence.

With y the logarithms of time and power, m(theta) the physical form, K the covariance of the discrepancy and W that of
the noise, each start looks for the theta that minimises

    (y - m)' C^-1 (y - m) + (theta - mean)' diag(sd)^-2 (theta - mean),     C = s^2 (K + W)

by Levenberg and Marquardt. In between, rows that the others do not explain get more noise (Student t noise by
expectation-maximisation, with leave-one-out residuals), and s^2 is estimated for time and power each. Around the
minimum m is taken as linear, which makes the posterior normal and gives the evidence (Kennedy and O'Hagan 2001; Bishop
2006, sec. 4.4). How far its widths can be trusted is told by leave-one-out residuals again (`calibration`).
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from predictors.models.physical_gp import discrepancy
from predictors.models.physical_gp.calibration import TAILS, LeftOut, leave_each_out, spread
from predictors.models.physical_gp.prior import Belief
from predictors.models.physical_gp.response import (
    TIME_SCALES,
    Features,
    by_name,
    linearised,
    log_response,
    minibatch_times,
    power_w,
)

_ROUNDS = 5  # of estimating weights and scale
_STEPS = 6  # of Levenberg and Marquardt in each
_SCALE_ROWS = 8.0  # rows that the belief in the scale s = 1 is worth
_FURTHEST_STEP = 1.5  # of a parameter, in standard deviations of its belief
_LEAST_EVIDENCE = 5.0  # approximations whose log evidence is that much below the best are left out


class Posterior(NamedTuple):
    """What was learned from n rows: k normal approximations.

    Attributes:
        weight: of each, adding up to 1, shape (k,).
        theta: parameters, (k, d).
        free: places of the parameters that the rows tell something of, (f,).
        covariance: of those, (k, f, f).
        belief_sd: standard deviations that were believed before, of all parameters, (k, d).
        rows: the features learned from, (n, 6).
        whitening: the inverse of the Cholesky factor of C for time and power, (k, 2, n, n).
        slopes: derivatives of the response by the free parameters, (k, 2, n, f).
        residual: y - m, (k, 2, n).
        scale: s for time and power, (k, 2).
        spread: factor on the standard deviations of what is predicted of time and power, (k, 2).
        unit: what is added to log time in units of the parameters to get log milliseconds.
    """

    weight: np.ndarray
    theta: np.ndarray
    free: np.ndarray
    covariance: np.ndarray
    belief_sd: np.ndarray
    rows: np.ndarray
    whitening: np.ndarray
    slopes: np.ndarray
    residual: np.ndarray
    scale: np.ndarray
    spread: np.ndarray
    unit: np.ndarray


class Moments(NamedTuple):
    """Mean and variance of the logarithm of a quantity, each of shape (m,)."""

    mean: np.ndarray
    variance: np.ndarray


def learn(
    at: Features, time_ms: np.ndarray, power: np.ndarray, beliefs: Sequence[Belief], starts: int, seed: int
) -> Posterior:
    """The posterior of n rows.

    Args:
        at: the rows.
        time_ms: what was measured, shape (n,).
        power: in W, shape (n,).
        beliefs: alternatives; the evidence weighs them.
        starts: how many minima are looked for under each belief.
        seed: of the starts after the first.
    """
    random = np.random.default_rng(seed)
    unit = np.log(time_ms).mean()
    data = np.stack([np.log(time_ms) - unit, np.log(power)])
    centred = [centre(belief, at) for belief in beliefs]
    mean = np.repeat([belief.mean for belief in centred], starts, axis=0)
    sd = np.repeat([belief.sd for belief in centred], starts, axis=0)
    problem = _Problem(at, data, mean, sd)
    theta = mean.copy()
    theta[:, problem.free] += (sd * random.normal(size=mean.shape))[:, problem.free]
    theta[::starts] = mean[::starts]
    state = problem.start(theta)
    for _ in range(_ROUNDS):
        state = problem.descend(state, _STEPS)
        state = problem.reweigh(state)
    return problem.finish(problem.descend(state, _STEPS), unit)


def infer(posterior: Posterior, at: Features) -> Tuple[Moments, Moments]:
    """What the posterior says of log time (ms) and log power (W) of m rows, noise included."""
    learned = Features(*posterior.rows.T)
    near = discrepancy.correlation(at, learned)
    count = len(at.cores)
    # The rows say nothing of other batch sizes and tasks than their own: there the belief goes on.
    elsewhere = at.batch.any() or at.inference.any()
    open_places = np.setdiff1d(np.arange(posterior.theta.shape[1]), posterior.free) if elsewhere else np.array([], int)
    means, variances = [], []
    for k, theta in enumerate(posterior.theta):
        amplitude = posterior.scale[k] * discrepancy.AMPLITUDE
        noise = posterior.scale[k] * discrepancy.NOISE
        middle, slopes = linearised(theta[None], at, np.concatenate([posterior.free, open_places]))
        slopes = slopes.reshape(2, count, -1)
        open_variance = np.square(slopes[:, :, len(posterior.free) :] * posterior.belief_sd[k, open_places]).sum(2)
        slopes = slopes[:, :, : len(posterior.free)]
        mean, variance = np.empty((2, count)), np.empty((2, count))
        for what in range(2):
            white = amplitude[what] ** 2 * near @ posterior.whitening[k, what].T
            explained = posterior.whitening[k, what] @ np.column_stack(
                [posterior.residual[k, what], posterior.slopes[k, what]]
            )
            correction = white @ explained
            unexplained = slopes[what] - correction[:, 1:]
            mean[what] = correction[:, 0]
            variance[what] = amplitude[what] ** 2 - (white**2).sum(1) + noise[what] ** 2
            variance[what] += ((unexplained @ posterior.covariance[k]) * unexplained).sum(1)
            variance[what] = posterior.spread[k, what] ** 2 * variance[what] + open_variance[what]
        values = by_name(theta)
        times = minibatch_times(values, at)
        log_power = np.log(power_w(values, at, times, times.total * np.exp(mean[0])))
        means.append(np.stack([middle[0, :count] + posterior.unit + mean[0], log_power + mean[1]]))
        variances.append(variance)
    weight = posterior.weight[:, None, None]
    mean = (weight * means).sum(0)
    variance = (weight * (np.array(variances) + (np.array(means) - mean) ** 2)).sum(0)
    return Moments(mean[0], variance[0]), Moments(mean[1], variance[1])


def centre(belief: Belief, at: Features) -> Belief:
    """The belief moved to the unit in which the mean log time of the rows is 0."""
    mean = belief.mean.copy()
    mean[: len(TIME_SCALES)] -= log_response(mean, at)[: len(at.cores)].mean()
    return Belief(mean, belief.sd)


class _State(NamedTuple):
    theta: np.ndarray  # (s, d)
    damping: np.ndarray  # (s,)
    weights: np.ndarray  # (s, 2, n)
    scale: np.ndarray  # (s, 2)
    whitening: np.ndarray  # (s, 2, n, n)
    cost: np.ndarray  # (s,)


class _Problem:
    """The least-squares problem of some rows under some beliefs, one for each of s starts."""

    def __init__(self, at: Features, data: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> None:
        self.at, self.data, self.mean, self.sd = at, data, mean, sd
        self.covariance = (np.square(discrepancy.AMPLITUDE)[:, None, None] * discrepancy.correlation(at, at))[None]
        self.noise = np.square(discrepancy.NOISE)[:, None]
        slopes = linearised(mean[:1], at, np.arange(mean.shape[1]), data[0])[1]
        self.free = np.flatnonzero((slopes != 0).any(axis=(0, 1)))

    def start(self, theta: np.ndarray) -> _State:
        starts = len(theta)
        weights, scale = np.ones((starts, *self.data.shape)), np.ones((starts, 2))
        whitening = self._whiten(weights, scale)
        return _State(theta, np.full(starts, 0.1), weights, scale, whitening, self._cost(theta, whitening))

    def descend(self, state: _State, steps: int) -> _State:
        theta, damping, cost = state.theta, state.damping, state.cost
        for _ in range(steps):
            gradient, curvature, _ = self._expand(theta, state.whitening)
            diagonal = np.einsum("sii->si", curvature)
            damped = curvature + (damping[:, None] * diagonal)[:, :, None] * np.eye(len(self.free))
            step = np.linalg.solve(damped, gradient[..., None])[..., 0]
            reach = _FURTHEST_STEP * self.sd[:, self.free]
            tried = theta.copy()
            tried[:, self.free] += np.clip(step, -reach, reach)
            tried_cost = self._cost(tried, state.whitening)
            better = tried_cost < cost
            theta, cost = np.where(better[:, None], tried, theta), np.where(better, tried_cost, cost)
            damping = np.clip(np.where(better, damping / 5, damping * 6), 1e-8, 1e4)
        return state._replace(theta=theta, damping=damping, cost=cost)

    def reweigh(self, state: _State) -> _State:
        """Estimate scale and, from leave-one-out residuals, each row's noise."""
        _, curvature, slopes = self._expand(state.theta, state.whitening)
        covariance = np.linalg.inv(curvature)
        residual = self._residual(state.theta)
        white = state.whitening @ np.concatenate([residual[..., None], slopes], axis=-1)
        # What the rows decide of the parameters takes as much of their freedom (MacKay 1992).
        decided = ((white[..., 1:] @ covariance[:, None]) * white[..., 1:]).sum((2, 3))
        ratio = (_SCALE_ROWS + (white[..., 0] ** 2).sum(2)) / (_SCALE_ROWS + self.data.shape[1] - decided)
        left_out = self._leave_each_out(state, residual, slopes, covariance)
        weights = (TAILS + 1) / (TAILS + left_out.residual**2 / (left_out.variance * ratio[:, :, None]))
        scale = state.scale * np.sqrt(ratio)
        whitening = self._whiten(weights, scale)
        return state._replace(
            weights=weights,
            scale=scale,
            whitening=whitening,
            cost=self._cost(state.theta, whitening),
            damping=np.full(len(scale), 1e-2),
        )

    def finish(self, state: _State, unit: float) -> Posterior:
        _, curvature, slopes = self._expand(state.theta, state.whitening)
        covariance = np.linalg.inv(curvature)
        residual = self._residual(state.theta)
        left_out = self._leave_each_out(state, residual, slopes, covariance)
        free_sd = self.sd[:, self.free]
        determinants = np.linalg.slogdet(curvature)[1] / 2 + np.log(free_sd).sum(1)
        determinants -= np.log(np.einsum("swii->swi", state.whitening)).sum((1, 2))
        evidence = -state.cost / 2 - determinants
        kept = self._different(state.theta, np.where(np.isfinite(evidence), evidence, -np.inf))
        weight = np.exp(evidence[kept] - evidence[kept].max())
        return Posterior(
            weight=weight / weight.sum(),
            theta=state.theta[kept],
            free=self.free,
            covariance=covariance[kept],
            belief_sd=self.sd[kept],
            rows=np.column_stack(self.at),
            whitening=state.whitening[kept],
            slopes=slopes[kept],
            residual=residual[kept],
            scale=state.scale[kept],
            spread=spread(left_out.residual[kept] ** 2 / left_out.variance[kept]),
            unit=np.array(unit),
        )

    def _different(self, theta: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """Places of the minima that count, each once: starts that end in the same must not count twice."""
        kept: List[int] = []
        for place in np.argsort(-evidence):
            near = [
                (np.abs(theta[place] - theta[other]) < 0.3 * self.sd[place]).all()
                and np.allclose(self.mean[place], self.mean[other])
                for other in kept
            ]
            if evidence[place] > evidence.max() - _LEAST_EVIDENCE and not any(near):
                kept.append(int(place))
        return np.array(kept)

    def _leave_each_out(
        self, state: _State, residual: np.ndarray, slopes: np.ndarray, covariance: np.ndarray
    ) -> LeftOut:
        """As if the row left out were as noisy as any, whatever it has shown to be."""
        left_out = leave_each_out(state.whitening, residual, slopes, covariance)
        noise = state.scale[:, :, None] ** 2 * self.noise
        variance = np.maximum(left_out.variance + noise * (1 - 1 / state.weights), noise)
        return left_out._replace(variance=variance)

    def _whiten(self, weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
        noise = (self.noise / weights)[..., None] * np.eye(self.data.shape[1])
        factor = np.linalg.cholesky(scale[:, :, None, None] ** 2 * (self.covariance + noise))
        return np.linalg.inv(factor)

    def _residual(self, theta: np.ndarray) -> np.ndarray:
        return self.data - log_response(theta, self.at, self.data[0]).reshape(-1, *self.data.shape)

    def _cost(self, theta: np.ndarray, whitening: np.ndarray) -> np.ndarray:
        white = np.einsum("swij,swj->swi", whitening, self._residual(theta))
        return (white**2).sum((1, 2)) + (((theta - self.mean) / self.sd) ** 2).sum(1)

    def _expand(self, theta: np.ndarray, whitening: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Minus half the gradient of the cost, half its Gauss-Newton curvature, and the derivatives of the response."""
        middle, slopes = linearised(theta, self.at, self.free, self.data[0])
        slopes = slopes.reshape(len(theta), *self.data.shape, -1)
        residual = self.data - middle.reshape(-1, *self.data.shape)
        white = whitening @ slopes
        white_residual = np.einsum("swij,swj->swi", whitening, residual)
        sd, offset = self.sd[:, self.free], (theta - self.mean)[:, self.free]
        gradient = np.einsum("swif,swi->sf", white, white_residual) - offset / sd**2
        curvature = np.einsum("swif,swig->sfg", white, white) + np.eye(len(self.free)) / sd[:, None, :] ** 2
        return gradient, curvature, slopes
