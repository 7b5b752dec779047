"""Learning the parameters and the discrepancy together: several Laplace approximations, weighted by their evidence.

With y the logarithms of time and power, m(theta) the physical form, K the covariance of the discrepancy and W that of
the noise, each start looks for the theta that minimises

    (y - m)' C^-1 (y - m) + (theta - mean)' diag(sd)^-2 (theta - mean),     C = s^2 (K + W)

by Levenberg and Marquardt. In between, rows that the others do not explain get more noise (Student t noise by
expectation-maximisation, with leave-one-out residuals), and s^2 is estimated for time and power each. Around the
minimum m is taken as linear, which makes the posterior normal and gives the evidence (Kennedy and O'Hagan 2001; Bishop
2006, sec. 4.4). Its widths are calibrated by leave-one-out residuals, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, NamedTuple, Sequence, Tuple

import numpy as np

from predictors.models.physical_gp.response import Features, by_name, linearised, log_response, minibatch_times, power_w

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Prior

# Set by hand on the measured tables of an Orin AGX; lengths of 0.6 or 1.6 times that, or amplitudes of 0.05, change
# errors by less than 0.3 points.
LENGTHS = np.array([1.0, 1.0, 1.0, 1.5, 1.5, 1.0])
"""How far, in natural logarithms, cores, CPU, GPU, memory and batch size reach; and training from inference."""
AMPLITUDE = (0.03, 0.04)
"""Standard deviation of the smooth part of log time and log power."""
NOISE = (0.018, 0.016)
"""Standard deviation of the noise of log time and log power."""

TAILS = 2.5
"""Degrees of freedom of the noise, and of what is predicted."""

# Chosen with the measured tables behind 001 in view. Where two of their three networks choose both and `TAILS`, the
# third is covered as well.
_PRIOR_SPREAD = 0.85  # factor before anything was profiled: beside a t, the posterior's own is a little wide
_PRIOR_ROWS = 4.0  # rows that this is worth
_SPREAD_ROUNDS = 20

_ROUNDS = 5  # of estimating weights and scale
_STEPS = 6  # of Levenberg and Marquardt in each
_SCALE_ROWS = 8.0  # rows that the prior of the scale, s = 1, is worth
_FURTHEST_STEP = 1.5  # of a parameter, in standard deviations of its prior
_LEAST_EVIDENCE = 5.0  # approximations whose log evidence is that much below the best are left out


class ParameterPosterior(NamedTuple):
    """What was learned from n rows: k normal approximations."""

    weight: np.ndarray  # of each, adding up to 1, shape (k,)
    theta: np.ndarray  # parameters, (k, d)
    free: np.ndarray  # places of the parameters that the rows tell something of, (f,)
    covariance: np.ndarray  # of those, (k, f, f)
    prior_sd: np.ndarray  # prior standard deviations of all parameters, (k, d)
    rows: np.ndarray  # the features learned from, (n, 6)
    whitening: np.ndarray  # the inverse of the Cholesky factor of C for time and power, (k, 2, n, n)
    jacobian: np.ndarray  # derivatives of the response by the free parameters, (k, 2, n, f)
    residual: np.ndarray  # y - m, (k, 2, n)
    scale: np.ndarray  # s for time and power, (k, 2)
    spread: np.ndarray  # factor on the standard deviations of what is predicted of time and power, (k, 2)
    unit: np.ndarray  # what is added to log time in units of the parameters to get log milliseconds


def learn(
    at: Features, time_ms: np.ndarray, power: np.ndarray, priors: Sequence[Prior], starts: int, seed: int
) -> ParameterPosterior:
    """The posterior of n rows with time and power (W), shapes (n,).

    Under each of the priors, which the evidence weighs, `starts` minima are looked for; `seed` is of all but the first.
    """
    random = np.random.default_rng(seed)
    unit = np.log(time_ms).mean()
    data = np.stack([np.log(time_ms) - unit, np.log(power)])
    centred = [prior.centred(at) for prior in priors]
    mean = np.repeat([prior.mean for prior in centred], starts, axis=0)
    sd = np.repeat([prior.sd for prior in centred], starts, axis=0)
    problem = _Problem(at, data, mean, sd)
    theta = mean.copy()
    theta[:, problem.free] += (sd * random.normal(size=mean.shape))[:, problem.free]
    theta[::starts] = mean[::starts]
    state = problem.start(theta)
    for _ in range(_ROUNDS):
        state = problem.descend(state, _STEPS)
        state = problem.reweigh(state)
    return problem.finish(problem.descend(state, _STEPS), unit)


def infer(posterior: ParameterPosterior, at: Features) -> Tuple[np.ndarray, np.ndarray]:
    """Mean and variance of log time (ms) and log power (W) of m rows, noise included: each of shape (2, m)."""
    learned = Features(*posterior.rows.T)
    near = correlation(at, learned)
    count = len(at.cores)
    # The rows say nothing of other batch sizes and tasks than their own: there the prior holds.
    elsewhere = at.batch.any() or at.inference.any()
    open_places = np.setdiff1d(np.arange(posterior.theta.shape[1]), posterior.free) if elsewhere else np.array([], int)
    means, variances = [], []
    for k, theta in enumerate(posterior.theta):
        amplitude = posterior.scale[k] * AMPLITUDE
        noise = posterior.scale[k] * NOISE
        middle, jacobian = linearised(theta[None], at, np.concatenate([posterior.free, open_places]))
        jacobian = jacobian.reshape(2, count, -1)
        open_variance = np.square(jacobian[:, :, len(posterior.free) :] * posterior.prior_sd[k, open_places]).sum(2)
        jacobian = jacobian[:, :, : len(posterior.free)]
        mean, variance = np.empty((2, count)), np.empty((2, count))
        for what in range(2):
            white = amplitude[what] ** 2 * near @ posterior.whitening[k, what].T
            explained = posterior.whitening[k, what] @ np.column_stack(
                [posterior.residual[k, what], posterior.jacobian[k, what]]
            )
            correction = white @ explained
            unexplained = jacobian[what] - correction[:, 1:]
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
    return mean, (weight * (np.array(variances) + (np.array(means) - mean) ** 2)).sum(0)


class _State(NamedTuple):
    theta: np.ndarray  # (s, d)
    damping: np.ndarray  # (s,)
    weights: np.ndarray  # (s, 2, n)
    scale: np.ndarray  # (s, 2)
    whitening: np.ndarray  # (s, 2, n, n)
    cost: np.ndarray  # (s,)


class _Problem:
    """The least-squares problem of some rows under some priors, one for each of s starts."""

    def __init__(self, at: Features, data: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> None:
        self.at, self.data, self.mean, self.sd = at, data, mean, sd
        self.covariance = (np.square(AMPLITUDE)[:, None, None] * correlation(at, at))[None]
        self.noise = np.square(NOISE)[:, None]
        jacobian = linearised(mean[:1], at, np.arange(mean.shape[1]), data[0])[1]
        self.free = np.flatnonzero((jacobian != 0).any(axis=(0, 1)))

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
        _, curvature, jacobian = self._expand(state.theta, state.whitening)
        covariance, residual = np.linalg.inv(curvature), self._residual(state.theta)
        white = state.whitening @ np.concatenate([residual[..., None], jacobian], axis=-1)
        # What the rows decide of the parameters takes as much of their freedom (MacKay 1992).
        decided = ((white[..., 1:] @ covariance[:, None]) * white[..., 1:]).sum((2, 3))
        ratio = (_SCALE_ROWS + (white[..., 0] ** 2).sum(2)) / (_SCALE_ROWS + self.data.shape[1] - decided)
        left_out = self._leave_each_out(state, residual, jacobian, covariance)
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

    def finish(self, state: _State, unit: float) -> ParameterPosterior:
        _, curvature, jacobian = self._expand(state.theta, state.whitening)
        covariance = np.linalg.inv(curvature)
        residual = self._residual(state.theta)
        left_out = self._leave_each_out(state, residual, jacobian, covariance)
        free_sd = self.sd[:, self.free]
        determinants = np.linalg.slogdet(curvature)[1] / 2 + np.log(free_sd).sum(1)
        determinants -= np.log(np.einsum("swii->swi", state.whitening)).sum((1, 2))
        evidence = -state.cost / 2 - determinants
        kept = self._different(state.theta, np.where(np.isfinite(evidence), evidence, -np.inf))
        weight = np.exp(evidence[kept] - evidence[kept].max())
        return ParameterPosterior(
            weight=weight / weight.sum(),
            theta=state.theta[kept],
            free=self.free,
            covariance=covariance[kept],
            prior_sd=self.sd[kept],
            rows=np.column_stack(self.at),
            whitening=state.whitening[kept],
            jacobian=jacobian[kept],
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
        self, state: _State, residual: np.ndarray, jacobian: np.ndarray, covariance: np.ndarray
    ) -> LeftOut:
        """As if the row left out were as noisy as any, whatever it has shown to be."""
        left_out = leave_each_out(state.whitening, residual, jacobian, covariance)
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
        middle, jacobian = linearised(theta, self.at, self.free, self.data[0])
        jacobian = jacobian.reshape(len(theta), *self.data.shape, -1)
        residual = self.data - middle.reshape(-1, *self.data.shape)
        white = whitening @ jacobian
        white_residual = np.einsum("swij,swj->swi", whitening, residual)
        sd, offset = self.sd[:, self.free], (theta - self.mean)[:, self.free]
        gradient = np.einsum("swif,swi->sf", white, white_residual) - offset / sd**2
        curvature = np.einsum("swif,swig->sfg", white, white) + np.eye(len(self.free)) / sd[:, None, :] ** 2
        return gradient, curvature, jacobian


def correlation(one: Features, other: Features) -> np.ndarray:
    """Matern 3/2 correlation of rows n with rows m, shape (n, m): (1 + r) exp(-r), r the scaled distance."""
    a, b = np.column_stack(one) / LENGTHS, np.column_stack(other) / LENGTHS
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return (1 + distance) * np.exp(-distance)


class LeftOut(NamedTuple):
    """What all other figures say of each time and power of n rows, in s approximations: shapes (s, 2, n)."""

    residual: np.ndarray  # what was measured, less what the others say
    variance: np.ndarray  # of that residual


def leave_each_out(
    whitening: np.ndarray, residual: np.ndarray, jacobian: np.ndarray, covariance: np.ndarray
) -> LeftOut:
    """Leave-one-out residuals without learning anew (Rasmussen and Williams 2006, 5.4.2), parameters taken as linear.

    Arguments are as in `ParameterPosterior`: shapes (s, 2, n, n), (s, 2, n), (s, 2, n, f) and (s, f, f).
    """
    back = np.swapaxes(whitening, -1, -2)
    reach = back @ (whitening @ jacobian)
    precision = (whitening**2).sum(-2) - ((reach @ covariance[:, None]) * reach).sum(-1)
    return LeftOut((back @ (whitening @ residual[..., None]))[..., 0] / precision, 1 / precision)


def spread(squares: np.ndarray) -> np.ndarray:
    """The factor, shape (...), on standard deviations with which residuals follow a Student t.

    Estimated from the squares of residuals in standard deviations, shape (..., n), by expectation-maximisation under a
    scaled inverse chi-squared prior.
    """
    found = np.full(squares.shape[:-1], _PRIOR_SPREAD**2)
    for _ in range(_SPREAD_ROUNDS):
        weights = (TAILS + 1) / (TAILS + squares / found[..., None])
        found = (_PRIOR_ROWS * _PRIOR_SPREAD**2 + (weights * squares).sum(-1)) / (_PRIOR_ROWS + squares.shape[-1])
    return np.sqrt(found)
