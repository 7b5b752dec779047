"""Learning the parameters and the discrepancy together: several Laplace approximations, weighted by their evidence.

With y the logarithms of time and power, m(theta) the physical form, K the covariance of the discrepancy (a smooth part
and, on a board of no prior, free values of clocks and batch sizes: `alternatives.py`) and W that of the noise, each
start looks for the theta that minimises

    (y - m)' C^-1 (y - m) + (theta - mean)' diag(sd)^-2 (theta - mean),     C = s^2 (K + W)

by Levenberg and Marquardt. In between, rows that the others do not explain get more noise (Student t noise by
expectation-maximisation, with leave-one-out residuals), and s^2 is estimated for time and power each. Around the
minimum m is taken as linear, which makes the posterior normal and gives the evidence (Kennedy and O'Hagan 2001; Bishop
2006, sec. 4.4). Its widths are calibrated by leave-one-out residuals, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from predictors.models.physical_gp.alternatives import (
    FORM_ALONE,
    FURTHER_ODDS,
    Alternatives,
    free_covariance,
    free_effects,
    free_variance,
)
from predictors.models.physical_gp.response import (
    Features,
    ResponseModel,
    by_name,
    contiguous_columns,
    linearised,
    log_response,
)

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Prior

# Set by hand on the measured tables of an Orin AGX; lengths of 0.6 or 1.6 times that change errors by less than 0.3
# points.
# Length scales of cores, CPU, GPU, memory and batch size, in natural logarithms; and between training and inference.
LENGTHS = np.array([1.0, 1.0, 1.0, 1.5, 1.5, 1.0])
# Standard deviation of the effect of other batch sizes and tasks beyond the form, at the distances of LENGTHS.
ELSEWHERE = (0.12, 0.06)
# Standard deviation of the power of a task without rows: three networks were 5, 18 and 28 % off.
UNSEEN_TASK = 0.2

TAILS = 2.5  # degrees of freedom of the noise and of predictions

# Chosen on the measured tables behind 001. If two of their three networks determine both and `TAILS`, the third is
# covered as well.
_PRIOR_SPREAD = 0.85  # factor before the first profile: with t tails, the posterior's own width is a little large
_PRIOR_ROWS = 4.0  # rows that this is worth
_SPREAD_ROUNDS = 20

_ROUNDS = 5  # of estimating weights and scale
_STEPS = 6  # of Levenberg and Marquardt in each
_SCALE_ROWS = 8.0  # rows that the prior of the scale, s = 1, is worth
_FURTHEST_STEP = 1.5  # of a parameter, in standard deviations of its prior
_LEAST_EVIDENCE = 5.0  # approximations whose log evidence is this far below the best are dropped


class ParameterPosterior(NamedTuple):
    """The posterior given n rows: k normal approximations."""

    weight: np.ndarray  # of each, adding up to 1, shape (k,)
    theta: np.ndarray  # parameters, (k, d)
    free: np.ndarray  # indices of the parameters that the rows inform, (f,)
    covariance: np.ndarray  # of those, (k, f, f)
    prior_mean: np.ndarray  # of all parameters, (k, d)
    prior_covariance: np.ndarray  # (k, d, d)
    open_sd: np.ndarray  # standard deviations of the parameters that are not free, (k, d)
    rows: np.ndarray  # the training features, (n, 6)
    whitening: np.ndarray  # the inverse of the Cholesky factor of C for time and power, (k, 2, n, n)
    jacobian: np.ndarray  # derivatives of the response by the free parameters, (k, 2, n, f)
    data: np.ndarray  # y, (2, n)
    residual: np.ndarray  # y - m, (k, 2, n)
    scale: np.ndarray  # s for time and power, (k, 2)
    spread: np.ndarray  # factor on the standard deviations of predicted time and power, (k, 2)
    home: np.ndarray  # batch size and task, as features, at which their effect is 0
    # of each row's time and power, at most 1.4, and small if the other rows contradict it, (k, 2, n)
    row_weight: np.ndarray
    unit: np.ndarray  # added to log time in units of the parameters, gives log milliseconds
    alternatives: Alternatives  # the alternative of each

    @property
    def learned_at(self) -> Features:
        """The training features by name."""
        return Features(*contiguous_columns(self.rows))


def learn(
    at: Features,
    time_ms: np.ndarray,
    power: Optional[np.ndarray],
    priors: Sequence[Prior],
    starts: int,
    seed: int,
    alternatives: Alternatives = FORM_ALONE,
) -> ParameterPosterior:
    """The posterior given n rows with time and power (W), shapes (n,); power is None if it was not measured.

    The search starts `starts` times under each prior and the first alternative, and once under each further one; the
    evidence weighs the minima, with prior odds of `FURTHER_ODDS` of the further ones. `seed` draws all starts but those
    at the mean of a prior.
    """
    random = np.random.default_rng(seed)
    unit = np.log(time_ms).mean()
    data = np.stack([np.log(time_ms) - unit, *([] if power is None else [np.log(power)])])
    centred = [prior.centred(at) for prior in priors]
    mean, covariance = (np.array([getattr(prior, name) for prior in centred]) for name in ("mean", "covariance"))
    moves = random.normal(size=(len(centred) * starts, mean.shape[1]))
    moves[::starts] = 0
    count = len(alternatives.pause)
    of_prior = np.concatenate([np.repeat(np.arange(len(centred)), starts), np.tile(np.arange(len(centred)), count - 1)])
    of_start = select(alternatives, np.repeat(np.arange(count), [len(moves), *[len(centred)] * (count - 1)]))
    search = Climb(at, data, *prior_under(of_start, mean[of_prior], covariance[of_prior]), of_start)
    search.theta[: len(moves), search.free] += (search.root[: len(moves)] @ moves[:, search.free, None])[..., 0]
    for _ in range(_ROUNDS):
        search.descend(_STEPS)
        search.reweigh()
    search.descend(_STEPS)
    log_odds = np.repeat(np.log([1.0, FURTHER_ODDS]), [len(moves), len(of_prior) - len(moves)])
    return search.posterior(unit, log_odds)


def prior_under(alternatives: Alternatives, mean: np.ndarray, covariance: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Means and covariances of priors, shapes (s, d) and (s, d, d), under an alternative each.

    A parameter with a prior of its own is independent of the others.
    """
    own_mean, own_sd = np.swapaxes(alternatives.own_prior, 0, 1)
    shared = np.isnan(own_mean)
    widened = covariance * np.square(alternatives.prior_width)[:, None, None]
    widened = np.where(shared[:, :, None] & shared[:, None, :], widened, 0.0)
    own_variance = np.where(shared, 0.0, np.square(own_sd))
    return np.where(shared, mean, own_mean), widened + own_variance[:, :, None] * np.eye(mean.shape[1])


def select(alternatives: Alternatives, places: Union[Sequence[int], np.ndarray]) -> Alternatives:
    """The alternatives at some indices, which may repeat."""
    return Alternatives(*(part[places] for part in alternatives))


def before_profiling(prior: Prior) -> ParameterPosterior:
    """The posterior without rows: a prior in milliseconds."""
    free = np.arange(len(prior.mean))
    return ParameterPosterior(
        weight=np.ones(1),
        theta=prior.mean[None],
        free=free,
        covariance=prior.covariance[None],
        prior_mean=prior.mean[None],
        prior_covariance=prior.covariance[None],
        open_sd=prior.sd[None],
        rows=np.empty((0, len(Features._fields))),
        whitening=np.empty((1, 2, 0, 0)),
        jacobian=np.empty((1, 2, 0, len(free))),
        data=np.empty((2, 0)),
        residual=np.empty((1, 2, 0)),
        scale=np.ones((1, 2)),
        spread=np.full((1, 2), _PRIOR_SPREAD),
        home=np.zeros(2),
        row_weight=np.ones((1, 2, 0)),
        unit=np.zeros(()),
        alternatives=FORM_ALONE,
    )


def infer(posterior: ParameterPosterior, at: Features) -> Tuple[np.ndarray, np.ndarray]:
    """Mean and variance of log time (ms) and log power (W) of m rows, noise included: each of shape (2, m).

    If the training rows have no power, none is predicted, and the shape is (1, m).
    """
    learned_at, relation = posterior.learned_at, relation_to_rows(posterior, at)
    count, figures = len(at.cores), posterior.scale.shape[1]
    # The rows have no information about other batch sizes and tasks than their own: there the prior applies.
    moved = at.batch.any() or at.inference.any()
    open_places = np.setdiff1d(np.arange(posterior.theta.shape[1]), posterior.free) if moved else np.array([], int)
    means, variances = [], []
    for k, theta in enumerate(posterior.theta):
        places, pause = np.concatenate([posterior.free, open_places]), posterior.alternatives.pause[k]
        jacobian = linearised(theta[None], at, places, pause=pause)[1].reshape(2, count, len(places))[:figures]
        jacobian, open_jacobian = np.split(jacobian, [len(posterior.free)], axis=2)
        open_variance = np.square(open_jacobian * posterior.open_sd[k, open_places]).sum(2)
        if len(posterior.rows):
            open_variance[1:] += UNSEEN_TASK**2 * ~np.isin(at.inference, learned_at.inference)
        related, own, noise = discrepancy(posterior, k, at, relation)
        white = related @ np.swapaxes(posterior.whitening[k], 1, 2)
        learned = np.concatenate([posterior.residual[k, :, :, None], posterior.jacobian[k]], axis=2)
        correction = white @ (posterior.whitening[k] @ learned)
        mean, unexplained = correction[:, :, 0], jacobian - correction[:, :, 1:]
        variance = own - (white**2).sum(2) + noise
        variance = variance + ((unexplained @ posterior.covariance[k]) * unexplained).sum(2)
        variances.append(posterior.spread[k, :, None] ** 2 * variance + open_variance)
        response = ResponseModel(by_name(theta), at)
        times = response.times()
        log_power = np.log(response.watts(times, times.total + mean[0], pause).total)
        means.append(np.stack([times.total + posterior.unit, log_power])[:figures] + mean)
    weight = posterior.weight[:, None, None]
    mean = (weight * means).sum(0)
    return mean, (weight * (np.array(variances) + (np.array(means) - mean) ** 2)).sum(0)


class Relation(NamedTuple):
    """How m rows relate to the n training rows, before any scale."""

    near: np.ndarray  # correlation of the smooth part, (m, n)
    apart: np.ndarray  # covariance of the effect of other batch sizes and tasks, (m, n), or (1, 1) without any
    alone: np.ndarray  # variance of that effect, (m,)


def relation_to_rows(posterior: ParameterPosterior, at: Features) -> Relation:
    learned_at, home = posterior.learned_at, posterior.home
    return Relation(correlation(at, learned_at), elsewhere(at, learned_at, home), elsewhere_variance(at, home))


def discrepancy(
    posterior: ParameterPosterior, k: int, at: Features, relation: Relation
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariance of m rows with the training rows, their own variance, and the noise, in approximation k.

    Shapes (2, m, n), (2, m) and (2, 1); (1, ...) if the training rows have no power.
    """
    scale = posterior.scale[k]
    figures = len(scale)
    smooth_sd, noise_sd = posterior.alternatives.smooth_sd[k], posterior.alternatives.noise_sd[k]
    amplitude, beyond, noise = (np.square(scale * sd[:figures])[:, None] for sd in (smooth_sd, ELSEWHERE, noise_sd))
    related = amplitude[:, None] * relation.near + beyond[:, None] * relation.apart
    own = amplitude + beyond * relation.alone
    if posterior.alternatives.free_sd.any():
        by_value, by_value_alone = of_free_values(posterior, k, at)
        related = related + by_value[:figures]
        own = own + by_value_alone[:figures]
    return related, own, noise


def of_free_values(posterior: ParameterPosterior, k: int, at: Features) -> Tuple[np.ndarray, np.ndarray]:
    """Covariance of m rows with the training rows by the free values, and their own variance.

    In approximation k; shapes (2, m, n) and (2, m).
    """
    learned_at, theta, alternative = posterior.learned_at, posterior.theta[k][None], select(posterior.alternatives, [k])
    effects, learned_effects = (free_effects(alternative, theta, rows) for rows in (at, learned_at))
    squared_scale = np.square(posterior.scale[k])[:, None]
    covariance = free_covariance(at, learned_at, effects, learned_effects)[0]
    return squared_scale[..., None] * covariance, squared_scale * free_variance(effects)[0]


class Climb:
    """The least-squares problem of the rows under a prior for each of s starts, and the state of its solution."""

    def __init__(
        self, at: Features, data: np.ndarray, mean: np.ndarray, covariance: np.ndarray, alternatives: Alternatives
    ) -> None:
        """Start at the means of priors, of shapes (s, d) and (s, d, d), with an alternative each.

        `data` has shape (2, n), or (1, n).
        """
        self.at, self.data, self.mean, self.prior_covariance = at, data, mean, covariance
        self.alternatives = alternatives
        self.sd = np.sqrt(np.einsum("sdd->sd", covariance))
        beyond = np.square(ELSEWHERE[: len(data)])[:, None, None]
        amplitude = np.square(alternatives.smooth_sd)[:, : len(data), None, None]
        self.home = home_of(at)
        self.covariance = amplitude * correlation(at, at) + beyond * elsewhere(at, at, self.home)
        self.noise = np.square(alternatives.noise_sd)[:, : len(data), None]  # (s, 2, 1)
        jacobian = linearised(mean[:1], at, np.arange(mean.shape[1]), data[0])[1][:, : data.size]
        self.free = np.flatnonzero((jacobian != 0).any(axis=(0, 1)))
        self.theta = mean.copy()  # (s, d)
        within = covariance[:, self.free[:, None], self.free]
        self.root, self.precision = np.linalg.cholesky(within), np.linalg.inv(within)
        self.moved = np.zeros((1, *data.shape))  # perturbation of the data, for all or each start, (s, 2, n)
        self.damping = np.full(len(mean), 0.1)  # (s,)
        self.weights = np.ones((len(mean), *data.shape))  # (s, 2, n)
        self.scale = np.ones((len(mean), len(data)))  # (s, 2)
        self.whiten()

    def descend(self, steps: int) -> None:
        cost = self._cost(self.theta)
        for _ in range(steps):
            gradient, curvature, _ = self._expand()
            diagonal = np.einsum("sii->si", curvature)
            damped = curvature + (self.damping[:, None] * diagonal)[:, :, None] * np.eye(len(self.free))
            step = np.linalg.solve(damped, gradient[..., None])[..., 0]
            reach = _FURTHEST_STEP * self.sd[:, self.free]
            tried = self.theta.copy()
            tried[:, self.free] += np.clip(step, -reach, reach)
            tried_cost = self._cost(tried)
            better = tried_cost < cost
            self.theta, cost = np.where(better[:, None], tried, self.theta), np.where(better, tried_cost, cost)
            self.damping = np.clip(np.where(better, self.damping / 5, self.damping * 6), 1e-8, 1e4)

    def reweigh(self) -> None:
        """Estimate the scale and, from leave-one-out residuals, the noise of each row."""
        _, curvature, jacobian = self._expand()
        covariance, residual = np.linalg.inv(curvature), self.residual(self.theta)
        white = self.whitening @ np.concatenate([residual[..., None], jacobian], axis=-1)
        # The effective number of parameters that the rows determine reduces their degrees of freedom (MacKay 1992).
        decided = ((white[..., 1:] @ covariance[:, None]) * white[..., 1:]).sum((2, 3))
        ratio = (_SCALE_ROWS + (white[..., 0] ** 2).sum(2)) / (_SCALE_ROWS + self.data.shape[1] - decided)
        left_out, variance = self._leave_each_out(residual, jacobian, covariance)
        self.weights = (TAILS + 1) / (TAILS + left_out**2 / (variance * ratio[:, :, None]))
        self.scale = self.scale * np.sqrt(ratio)
        self.damping = np.full(len(self.theta), 1e-2)
        self.whiten()

    def posterior(self, unit: float, log_odds: np.ndarray) -> ParameterPosterior:
        """The posterior, given the prior odds of the alternative that each start belongs to, shape (s,)."""
        if self.alternatives.free_sd.any():
            self.whiten()  # their effects at the final parameters
        _, curvature, jacobian = self._expand()
        covariance, residual = np.linalg.inv(curvature), self.residual(self.theta)
        left_out, variance = self._leave_each_out(residual, jacobian, covariance)
        determinants = np.linalg.slogdet(curvature)[1] / 2 + np.log(np.einsum("sff->sf", self.root)).sum(1)
        determinants -= np.log(np.einsum("swii->swi", self.whitening)).sum((1, 2))
        evidence = log_odds - self._cost(self.theta) / 2 - determinants
        kept = self._different(np.where(np.isfinite(evidence), evidence, -np.inf))
        weight = np.exp(evidence[kept] - evidence[kept].max())
        across = self.prior_covariance[:, :, self.free]
        explained = ((across @ self.precision) * across).sum(2)
        return ParameterPosterior(
            weight=weight / weight.sum(),
            theta=self.whole()[kept],
            free=self.free,
            covariance=covariance[kept],
            prior_mean=self.mean[kept],
            prior_covariance=self.prior_covariance[kept],
            open_sd=np.sqrt(np.maximum(self.sd**2 - explained, 0))[kept],
            rows=np.column_stack(self.at),
            whitening=self.whitening[kept],
            jacobian=jacobian[kept],
            data=self.data,
            residual=residual[kept],
            scale=self.scale[kept],
            spread=spread(left_out[kept] ** 2 / variance[kept]),
            home=self.home,
            row_weight=self.weights[kept],
            unit=np.array(unit),
            alternatives=select(self.alternatives, kept),
        )

    def whole(self) -> np.ndarray:
        """All parameters: those that the rows do not inform follow from the prior, given the others."""
        off = self.precision @ (self.theta - self.mean)[:, self.free, None]
        theta = self.mean + (self.prior_covariance[:, :, self.free] @ off)[..., 0]
        theta[:, self.free] = self.theta[:, self.free]
        return theta

    def _different(self, evidence: np.ndarray) -> np.ndarray:
        """Indices of the distinct minima with enough evidence: starts that end in the same minimum count once."""
        kept: List[int] = []
        for place in np.argsort(-evidence):
            near = [
                (np.abs(self.theta[place] - self.theta[other]) < 0.3 * self.sd[place]).all()
                and np.allclose(self.mean[place], self.mean[other])
                and all(np.array_equal(part[place], part[other], equal_nan=True) for part in self.alternatives)
                for other in kept
            ]
            if evidence[place] > evidence.max() - _LEAST_EVIDENCE and not any(near):
                kept.append(int(place))
        return np.array(kept)

    def _leave_each_out(
        self, residual: np.ndarray, jacobian: np.ndarray, covariance: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray]:
        """As `leave_each_out`, with the average noise for the row left out, regardless of its weight."""
        left_out, variance = leave_each_out(self.whitening, residual, jacobian, covariance)
        noise = self.scale[:, :, None] ** 2 * self.noise
        return left_out, np.maximum(variance + noise * (1 - 1 / self.weights), noise)

    def whiten(self) -> None:
        noise = (self.noise / self.weights)[..., None] * np.eye(self.data.shape[1])
        covariance = self.covariance + noise
        if self.alternatives.free_sd.any():
            effects = free_effects(self.alternatives, self.theta, self.at)
            covariance = covariance + free_covariance(self.at, self.at, effects, effects)[:, : len(self.data)]
        factor = np.linalg.cholesky(self.scale[:, :, None, None] ** 2 * covariance)
        self.whitening = np.linalg.inv(factor)  # (s, 2, n, n)

    def residual(self, theta: np.ndarray) -> np.ndarray:
        response = log_response(theta, self.at, self.data[0], self.alternatives.pause)[..., : self.data.size]
        return self.data + self.moved - response.reshape(-1, *self.data.shape)

    def _cost(self, theta: np.ndarray) -> np.ndarray:
        white = np.einsum("swij,swj->swi", self.whitening, self.residual(theta))
        offset = (theta - self.mean)[:, self.free]
        return (white**2).sum((1, 2)) + np.einsum("sf,sfg,sg->s", offset, self.precision, offset)

    def _expand(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Minus half the gradient of the cost, half its Gauss-Newton curvature, and the derivatives of the response."""
        pause = self.alternatives.pause
        middle, jacobian = linearised(self.theta, self.at, self.free, self.data[0], pause)
        jacobian = jacobian[:, : self.data.size].reshape(len(self.theta), *self.data.shape, -1)
        residual = self.data + self.moved - middle[:, : self.data.size].reshape(-1, *self.data.shape)
        white = self.whitening @ jacobian
        white_residual = np.einsum("swij,swj->swi", self.whitening, residual)
        offset = (self.theta - self.mean)[:, self.free, None]
        gradient = np.einsum("swif,swi->sf", white, white_residual) - (self.precision @ offset)[..., 0]
        curvature = np.einsum("swif,swig->sfg", white, white) + self.precision
        return gradient, curvature, jacobian


def correlation(rows: Features, other: Features) -> np.ndarray:
    """Matern 3/2 correlation of rows n with rows m, shape (n, m): (1 + r) exp(-r), r the scaled distance."""
    return _matern(np.column_stack(rows) / LENGTHS, np.column_stack(other) / LENGTHS)


def home_of(at: Features) -> np.ndarray:
    """The batch size and task that most rows have, as two features."""
    conditions, counts = np.unique(np.column_stack(at[4:]), axis=0, return_counts=True)
    return conditions[counts.argmax()]


def elsewhere(rows: Features, other: Features, home: np.ndarray) -> np.ndarray:
    """Covariance of the change from home, f(x) - f(home) of a Matern process f, shape (n, m)."""
    a, b = ((np.column_stack(at[4:]) - home) / LENGTHS[4:] for at in (rows, other))
    if not (a.any() and b.any()):
        return np.zeros((1, 1))
    still = np.zeros((1, 2))
    pinned = _matern(a, b) - _matern(a, still) - _matern(still, b) + 1
    return pinned * _matern(np.column_stack(rows[:4]) / LENGTHS[:4], np.column_stack(other[:4]) / LENGTHS[:4])


def elsewhere_variance(at: Features, home: np.ndarray) -> np.ndarray:
    """The diagonal of `elsewhere` for rows with themselves, shape (n,)."""
    return 2 * (1 - _matern((np.column_stack(at[4:]) - home) / LENGTHS[4:], np.zeros((1, 2)))[:, 0])


def _matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return (1 + distance) * np.exp(-distance)


def leave_each_out(
    whitening: np.ndarray, residual: np.ndarray, jacobian: np.ndarray, covariance: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Leave-one-out residuals of each time and power, and their variances: shapes (s, 2, n).

    In closed form (Rasmussen and Williams 2006, 5.4.2), with the response linear in the parameters. Arguments are as in
    `ParameterPosterior`: shapes (s, 2, n, n), (s, 2, n), (s, 2, n, f) and (s, f, f).
    """
    back = np.swapaxes(whitening, -1, -2)
    reach = back @ (whitening @ jacobian)
    precision = (whitening**2).sum(-2) - ((reach @ covariance[:, None]) * reach).sum(-1)
    return (back @ (whitening @ residual[..., None]))[..., 0] / precision, 1 / precision


def spread(squares: np.ndarray) -> np.ndarray:
    """The factor, shape (...), on standard deviations with which the residuals follow a Student t.

    Estimated from the squares of residuals in standard deviations, shape (..., n), by expectation-maximisation under a
    scaled inverse chi-squared prior.
    """
    variance = np.full(squares.shape[:-1], _PRIOR_SPREAD**2)
    for _ in range(_SPREAD_ROUNDS):
        weights = (TAILS + 1) / (TAILS + squares / variance[..., None])
        variance = (_PRIOR_ROWS * _PRIOR_SPREAD**2 + (weights * squares).sum(-1)) / (_PRIOR_ROWS + squares.shape[-1])
    return np.sqrt(variance)
