"""Time and power of a minibatch on a GPU under a power limit: the physical form, its prior and its posterior.

With batch size b relative to `UNIT_BATCH`, limit c, locked clock l relative to the greatest, and a smooth minimum:

    G = (exp(fixed) + exp(sample) b^gamma) ((1 - m) / f + m)      work of the GPU at the relative clock f
    T = (exp(host)^p + G^p)^(1/p) + exp(serial) b^gamma           work of the host, beside it and after it
    u = G / T                                                     share of the time in which the GPU is busy
    f = max(min(exp(knee) r, r^exp(-exponent), l), exp(floor)),  r = (c - exp(static)) / exp(busy)
    B(f) = exp(static) + exp(busy) max(f / exp(knee), f^exp(exponent))        power while busy, without a limit
    power = (1 - u) min(exp(static) + exp(light), c) + u max(min(B(l), c), B(exp(floor)))

A limit caps the power of busy phases: the clock falls until the power above the static one, which is linear in the
clock at the least voltage and steeper above, is what the limit leaves; below a floor the clock does not fall, whatever
the limit. Averages over light phases stay below the limit although it slows training down. Of the work of the GPU the
share m = 1 / (1 + exp(-memory)) depends on no clock; p = exp(overlap). Times are in ms, powers in W. A Gaussian process
in the logarithms of the settings models what the form misses.

The parameters of a workload on a GPU are a mean plus an offset of the GPU, one of the workload and one of both, each
normal; tables of other GPUs and workloads inform about the first two. The means and standard deviations were set by
hand from fits to the tables of a V100 and an A40 (`jetwatt.load_table`).

Profiles are explained in several ways, which their evidence weighs (`BELIEFS`): a program may draw hardly more while
the GPU is busy, and may follow the form more closely or less than others do; at several locked clocks, a program bound
by the bandwidth of the memory takes the same time at each. Leave-one-out residuals of the profiles calibrate the widths
of predictions, which follow Student's t with the freedom that so few profiles leave.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.measured_tables import load_table
from harness.core.units import mw_to_w
from predictors.models.physical_gp.posterior import leave_each_out
from predictors.models.physical_gp.response import by_name, contiguous_columns
from predictors.profiles import Profiles, tables_of
from predictors.settings import DEFAULT_BATCH_SIZE, STAND_IN_KHZ, Settings

UNIT_BATCH = float(DEFAULT_BATCH_SIZE)
SHIPPED = ("zeus-v100", "zeus-a40")  # learned from where no reference is given

_MOST_STEPS, _STARTS = 40, 3
_SHARPNESS = 8.0  # of the smooth minimum of clocks
# Of the smooth minima of power and limit, in busy phases and between them: a power below the limit is less affected.
_BUSY_SHARPNESS, _LIGHT_SHARPNESS = 12.0, 20.0
_LEAST_SHARE = 1e-3

# Standard deviations of the discrepancy and of the noise of log time and log power; its lengths in the logarithms of
# batch size, limit and clock. With 0.03 for the discrepancy of power, or lengths twice as long, mean errors on the
# tables of the V100 and the A40 fall by at most 0.2 points and rise by up to 0.6.
AMPLITUDE, NOISE, LENGTHS = np.array([0.07, 0.05]), np.array([0.03, 0.025]), np.array([1.0, 0.5, 0.5])

# The factor on standard deviations before the first profile, and the profiles that it is worth. Chosen on the tables of
# the V100 and the A40: as many observations lie within intervals of 80 and 95 %, from five profiles on.
PRIOR_SPREAD, SPREAD_ROWS = 0.8, 2.0


class Parameter(NamedTuple):
    """A parameter of the form: its mean, and the standard deviations of its offsets."""

    mean: float
    spread: float  # of the mean itself
    workload: float
    gpu: float
    both: float


PARAMETERS: Dict[str, Parameter] = {
    "host": Parameter(3.0, 1.0, 1.5, 0.3, 0.3),
    "fixed": Parameter(2.0, 1.0, 1.5, 0.45, 0.4),
    "sample": Parameter(2.5, 1.0, 2.5, 0.45, 0.4),
    "serial": Parameter(1.0, 1.0, 2.5, 0.4, 0.45),
    "gamma": Parameter(1.0, 0.02, 0.05, 0.05, 0.2),
    "overlap": Parameter(float(np.log(4)), 0.3, 0.4, 0.2, 0.3),
    "memory": Parameter(-2.2, 0.5, 0.4, 0.5, 0.4),
    "static": Parameter(float(np.log(60)), 0.3, 0.1, 0.4, 0.2),
    "light": Parameter(float(np.log(15)), 0.5, 0.8, 0.4, 0.7),
    "busy": Parameter(float(np.log(200)), 0.3, 0.3, 0.2, 0.25),
    "knee": Parameter(float(np.log(1.5)), 0.15, 0.1, 0.2, 0.2),
    "exponent": Parameter(float(np.log(3)), 0.15, 0.15, 0.3, 0.25),
    "floor": Parameter(float(np.log(0.25)), 0.2, 0.1, 0.3, 0.35),
}
NAMES = tuple(PARAMETERS)


class Normal(NamedTuple):
    """A normal distribution of the parameters."""

    mean: np.ndarray  # shape (d,)
    covariance: np.ndarray  # shape (d, d)

    def at(self, name: str, mean: float, sd: float) -> Normal:
        """The same with another distribution of one parameter, independent of the others."""
        place = NAMES.index(name)
        means, covariance = self.mean.copy(), self.covariance.copy()
        means[place] = mean
        covariance[place] = covariance[:, place] = 0.0
        covariance[place, place] = sd**2
        return Normal(means, covariance)


class Belief(NamedTuple):
    """What may hold of a program on a GPU; by default, the prior."""

    # parameters with a prior of their own: name, mean and standard deviation
    own_prior: Tuple[Tuple[str, float, float], ...] = ()
    scale: float = 1.0  # factor on the standard deviations of the discrepancy and of the noise
    odds: float = 1.0  # before the first profile, to those of the prior

    @property
    def is_drawn(self) -> bool:
        """Whether `draw` draws from it."""
        return self.scale == 1.0 and self.own_prior != QUIET


CLOCKLESS = (("memory", 5.0, 0.7),)  # 97 to 99.8 % of the work depend on no clock
QUIET = (("busy", 2.3, 1.0),)  # while busy, a program draws 10 W more than the static power, by a factor of 2.7

BELIEFS = tuple(
    Belief(own_prior, scale, odds_of_prior * odds_of_scale)
    for own_prior, odds_of_prior in (((), 1.0), (CLOCKLESS, 0.3), (QUIET, 0.4))
    for scale, odds_of_scale in ((1.0, 1.0), (0.45, 0.5), (2.0, 0.5))
)
"""`CLOCKLESS` is of profiles at several locked clocks alone. Set by hand on the tables of a V100 and an A40, each with
the prior of the other, and on made-up programs under locked clocks. Under the prior alone the mean errors of power with
3, 5 and 10 profiles are 4.0, 3.3 and 3.1 % on the A40, and 4.1, 3.5 and 2.8 % on the V100; with all of them 3.9, 3.7
and 2.7 %, and 3.7, 3.3 and 2.8 %. Those of time are 11.9, 7.9 and 5.4 %, and 6.4, 4.4 and 3.0 %; with all of them 12.1,
8.1 and 5.4 %, and 6.0, 3.8 and 3.0 %. The power of NCF, which no limit lowers, gains most: on the A40 3.9, 3.0 and
2.5 % become 2.9, 2.4 and 1.8 %. The time of a made-up program that is bound by bandwidth is 0.4, 0.3 and 0.3 % off,
under the prior alone 4.5, 3.0 and 1.1 %; over five such programs, which follow the clock to different degrees, the mean
error falls from 3.2 to 2.1 % of time and from 3.3 to 2.8 % of power.

A limit of the average over busy and light phases, as a second belief with even odds, makes the power errors of NCF
smaller as well, but raises others (V100, ResNet-50, 10 profiles: 1.1 to 1.5 %)."""


class LimitFit(NamedTuple):
    """The parameters given the rows, under a belief."""

    parameters: Normal
    belief: Belief = Belief()
    spread: np.ndarray = np.ones(2)  # factor on the standard deviations of predicted time and power, of each figure
    log_evidence: float = 0.0  # by Laplace's approximation, without what all beliefs share


class LimitPosterior(NamedTuple):
    """What n rows say: a mixture of fits, each under a belief, and what they share to predict others."""

    settings: np.ndarray  # of the rows, as of `settings_of`, shape (n, 3)
    greatest_khz: float  # the clock that locked clocks are relative to
    data: np.ndarray  # log ms, then log W if there is power, shape (n,) or (2n,)
    whitening: np.ndarray  # inverse Cholesky factor of the covariance of discrepancy and noise at scale 1, square
    has_power: bool
    fits: Tuple[LimitFit, ...]

    @property
    def weights(self) -> np.ndarray:
        """The posterior probability of each fit, shape (m,)."""
        return _weights(self.fits)

    @property
    def freedom(self) -> float:
        """The degrees of freedom of predictions; infinite before the first profile."""
        return SPREAD_ROWS + len(self.settings) if len(self.settings) else float("inf")


def settings_of(rows: Settings, greatest_khz: float) -> np.ndarray:
    """Logarithms of batch size, power limit in W and locked clock relative to the greatest, shape (n, 3).

    A clock that the device does not report is free: its logarithm is 0.
    """
    assert rows.power_limit_mw is not None
    gpu_khz = rows.modes[:, 2]
    clock = np.where(gpu_khz > STAND_IN_KHZ, np.minimum(gpu_khz / greatest_khz, 1.0), 1.0)
    return np.log(np.column_stack([rows.batch_size, mw_to_w(rows.power_limit_mw), clock]))


def log_response(theta: np.ndarray, settings: np.ndarray) -> np.ndarray:
    """Logarithms of time (ms) and power (W) side by side, (..., 2n), at parameters (..., d) and settings (n, 3)."""
    v = by_name(theta, NAMES)
    log_batch, log_limit_w, locked = contiguous_columns(settings)
    batch, limit_w = log_batch - np.log(UNIT_BATCH), np.exp(log_limit_w)
    static, light, busy = (np.exp(v[name]) for name in ("static", "light", "busy"))
    # softplus: what a limit below the static power leaves is small, and above 0
    share = np.log(np.maximum(np.logaddexp(0, 6 * (limit_w - static) / busy) / 6, _LEAST_SHARE))
    steep = np.logaddexp(-_SHARPNESS * (v["knee"] + share), -_SHARPNESS * share * np.exp(-v["exponent"]))
    clock = -np.logaddexp(steep, -_SHARPNESS * locked) / _SHARPNESS
    clock = np.logaddexp(_SHARPNESS * clock, _SHARPNESS * v["floor"]) / _SHARPNESS
    unchanged = 1 / (1 + np.exp(-v["memory"]))
    gpu = np.logaddexp(v["fixed"], v["sample"] + v["gamma"] * batch)
    gpu = gpu + np.log((1 - unchanged) * np.exp(-clock) + unchanged)
    overlap = np.exp(v["overlap"])
    hidden = np.logaddexp(overlap * v["host"], overlap * gpu) / overlap
    time = np.logaddexp(hidden, v["serial"] + v["gamma"] * batch)
    unlimited, least = (static + busy * _switching(v, at) for at in (locked, v["floor"]))
    busy_w = np.maximum(_smooth_minimum(unlimited, limit_w, _BUSY_SHARPNESS), least)
    light_w = _smooth_minimum(static + light, limit_w, _LIGHT_SHARPNESS)
    power = light_w + np.exp(gpu - time) * np.maximum(busy_w - light_w, 0)
    return np.concatenate([time, np.log(power)], axis=-1)


def _switching(v: Dict[str, np.ndarray], clock: np.ndarray) -> np.ndarray:
    """Power above the static one at a relative clock, in shares of that at the greatest; `clock` is a logarithm."""
    share = np.maximum(np.exp(clock - v["knee"]), np.exp(np.exp(v["exponent"]) * clock))
    return np.where(clock < 0, np.minimum(share, 1), 1.0)


def learn(
    rows: Settings,
    time_ms: np.ndarray,
    power_mw: np.ndarray,
    prior: Normal,
    greatest_khz: Optional[float] = None,
    starts: int = _STARTS,
    seed: int = 0,
) -> LimitPosterior:
    """Fit the parameters to rows under a prior and each of `BELIEFS`.

    Locked clocks are relative to `greatest_khz`, by default the greatest of the rows.
    """
    greatest_khz = greatest_khz or float(rows.modes[:, 2].max())
    settings, has_power = settings_of(rows, greatest_khz), not np.isnan(power_mw).all()
    data = np.concatenate([np.log(time_ms), *([np.log(mw_to_w(power_mw))] if has_power else [])])
    figures = len(data) // len(settings)
    covariance = _discrepancy(settings, settings, figures) + np.diag(np.repeat(NOISE[:figures] ** 2, len(settings)))
    whitening = np.linalg.inv(np.linalg.cholesky(covariance))
    has_locks = np.ptp(settings[:, 2]) > 0
    beliefs = [belief for belief in BELIEFS if has_locks or belief.own_prior != CLOCKLESS]
    fits = tuple(_fit(settings, data, whitening, prior, belief, starts, seed) for belief in beliefs)
    return LimitPosterior(settings, greatest_khz, data, whitening, has_power, fits)


def _weights(fits: Sequence[LimitFit]) -> np.ndarray:
    """The posterior probability of each fit among them, shape (m,)."""
    log_weights = np.array([fit.log_evidence + np.log(fit.belief.odds) for fit in fits])
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _fit(
    settings: np.ndarray,
    data: np.ndarray,
    whitening: np.ndarray,
    prior: Normal,
    belief: Belief,
    starts: int,
    seed: int,
) -> LimitFit:
    """The best fit from several starts, and a normal distribution around it."""
    for name, mean, sd in belief.own_prior:
        prior = prior.at(name, mean, sd)
    whitening = whitening / belief.scale
    root = np.linalg.cholesky(prior.covariance)
    precision_root = np.linalg.inv(root)

    def residual(theta: np.ndarray) -> np.ndarray:
        off = whitening @ (data - log_response(theta, settings)[: len(data)])
        return np.concatenate([off, precision_root @ (theta - prior.mean)])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([-whitening @ _jacobian(theta, settings)[: len(data)], precision_root])

    random = np.random.default_rng(seed)
    begins = [prior.mean, *(prior.mean + 0.7 * root @ random.normal(size=len(NAMES)) for _ in range(starts - 1))]
    reach = np.sqrt(np.diag(prior.covariance))
    descents = [_descend(residual, slopes, begin, reach) for begin in begins]
    cost, theta = min(descents, key=lambda descent: descent[0])
    jacobian = slopes(theta)
    curvature = jacobian.T @ jacobian
    parameters = Normal(theta, np.linalg.inv(curvature))
    log_widths = np.log(np.diag(whitening)).sum() - np.log(np.diag(root)).sum()
    log_evidence = float(log_widths - cost / 2 - np.linalg.slogdet(curvature)[1] / 2)
    off = data - log_response(theta, settings)[: len(data)]
    spread = _spread(whitening, off, -_jacobian(theta, settings)[: len(data)], parameters.covariance, len(settings))
    return LimitFit(parameters, belief, spread, log_evidence)


def _spread(
    whitening: np.ndarray, off: np.ndarray, jacobian: np.ndarray, covariance: np.ndarray, rows: int
) -> np.ndarray:
    """The factor on the standard deviations of each figure that its leave-one-out residuals ask for, shape (1 or 2,).

    Their mean square, of residuals in standard deviations, with that before the first profile.
    """
    left_out, variance = leave_each_out(whitening[None, None], off[None, None], jacobian[None, None], covariance[None])
    squares = (left_out**2 / variance).reshape(-1, rows)
    return np.sqrt((SPREAD_ROWS * PRIOR_SPREAD**2 + squares.sum(axis=1)) / (SPREAD_ROWS + rows))


def before_profiling(prior: Normal, greatest_khz: float) -> LimitPosterior:
    """The posterior without rows."""
    nothing = np.empty((0, 3)), greatest_khz, np.empty(0), np.empty((0, 0))
    return LimitPosterior(*nothing, has_power=True, fits=(LimitFit(prior),))


def infer(posterior: LimitPosterior, rows: Settings) -> Tuple[np.ndarray, np.ndarray]:
    """Mean and variance of log time (ms) and log power (W), noise included: each of shape (2, n); NaN without power."""
    settings, learned = settings_of(rows, posterior.greatest_khz), len(posterior.data)
    gain, left = _condition(posterior, settings)
    means, variances = [], []
    for fit in posterior.fits:
        theta = fit.parameters.mean
        jacobian = _jacobian(theta, settings)[: len(left)] - gain @ _jacobian(theta, posterior.settings)[:learned]
        variance = fit.belief.scale**2 * left + ((jacobian @ fit.parameters.covariance) * jacobian).sum(1)
        means.append(_mean(posterior, theta, settings, gain))
        widths = np.repeat(fit.spread, len(settings))
        variances.append(widths**2 * variance)
    weights = posterior.weights[:, None]
    mean = (weights * means).sum(0)
    variance = (weights * (np.array(variances) + (means - mean) ** 2)).sum(0)
    return _by_figure(mean, len(settings)), _by_figure(variance, len(settings))


def draw(posterior: LimitPosterior, rows: Settings, count: int, seed: int) -> Tuple[np.ndarray, np.ndarray]:
    """Joint samples of the parameters: mean and variance as of `infer` given each, of shape (2, count, n).

    They are of the form at scale 1, whether the time follows the clock or not, and as wide as the fits, not calibrated.
    With calibrated widths `closed-loop` explored too little, and came out 2.0 instead of 0.1 % above the least energy
    of the V100's networks. With draws of all beliefs, 6 profiles and three power budgets it came out 50 instead of
    0.7 % above the least time of NCF on the V100, 0.9 instead of 16.5 % above that of DeepSpeech2, and 4 instead of
    0 % above that of ResNet-50 on the A40.
    """
    settings = settings_of(rows, posterior.greatest_khz)
    gain, left = _condition(posterior, settings)
    random = np.random.default_rng(seed)
    fits = [fit for fit in posterior.fits if fit.belief.is_drawn]
    thetas = []
    for fit in fits:
        root = np.linalg.cholesky(fit.parameters.covariance)
        thetas.append(fit.parameters.mean + random.normal(size=(count, len(NAMES))) @ root.T)
    chosen = random.choice(len(fits), size=count, p=_weights(fits))
    theta = np.array(thetas)[chosen, np.arange(count)]
    variance = np.broadcast_to(left, (count, len(left)))
    return _by_figure(_mean(posterior, theta, settings, gain), len(settings)), _by_figure(variance, len(settings))


def _mean(posterior: LimitPosterior, theta: np.ndarray, settings: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Logarithms of time and power given parameters (..., d) and the rows, shape (..., n) or (..., 2n)."""
    off = posterior.data - log_response(theta, posterior.settings)[..., : len(posterior.data)]
    return log_response(theta, settings)[..., : len(gain)] + off @ gain.T


def prior_for(references: Sequence[Profiles], board: Optional[str], workload: Optional[str]) -> Normal:
    """The parameters of a workload on a GPU before its first profile, given tables of others.

    Without a reference under power limits, the tables that ship with the suite are taken, less those of this device.
    """
    tables = [table for table in references if table.power_limit_mw is not None and table.has_power]
    if not tables:
        tables = [table for table in shipped_tables() if table.device != board]
    fits = [fit_reference(table) for table in tables]
    same_gpu = np.array([table.device == board for table in tables], dtype=float)
    same_workload = np.array([table.workload == workload for table in tables], dtype=float)
    gpus, workloads = (np.array([getattr(table, name) for table in tables]) for name in ("device", "workload"))
    each = np.eye(len(tables))
    alike = tuple((names[:, None] == names).astype(float) for names in (gpus, workloads))
    means, variances = [], []
    for place, (mean, spread, of_workload, of_gpu, of_both) in enumerate(PARAMETERS.values()):
        known = np.array([fit.mean[place] for fit in fits])
        own = np.array([fit.covariance[place, place] for fit in fits])
        between = spread**2 + of_gpu**2 * alike[0] + of_workload**2 * alike[1] + of_both**2 * each
        toward = spread**2 + of_gpu**2 * same_gpu + of_workload**2 * same_workload
        weights = np.linalg.solve(between + np.diag(own), toward)
        means.append(mean + weights @ (known - mean))
        variances.append(spread**2 + of_gpu**2 + of_workload**2 + of_both**2 - weights @ toward)
    return Normal(np.array(means), np.diag(variances))


@functools.lru_cache(maxsize=256)
def fit_reference(table: Profiles) -> Normal:
    """The parameters of a table, fitted once per process under the prior of any workload on any GPU."""
    usable = table.usable()
    per_sample = usable.time_ms / usable.batch_size * UNIT_BATCH
    scale, least = np.log(np.median(per_sample)), np.log(usable.time_ms.min())
    mean = np.array([parameter.mean for parameter in PARAMETERS.values()])
    mean[:4] = least, least - 1, scale, scale - 1.5  # the times of the network, roughly
    sd = np.array([np.sqrt(sum(np.square(parameter[1:]))) for parameter in PARAMETERS.values()])
    sd[:4] = 1.5
    posterior = learn(usable, usable.time_ms, usable.power_mw, Normal(mean, np.diag(sd**2)), starts=1)
    return posterior.fits[int(posterior.weights.argmax())].parameters


@functools.lru_cache(maxsize=1)
def shipped_tables() -> List[Profiles]:
    """The measured tables of GPUs that ship with the suite."""
    return [table for name in SHIPPED for table in tables_of(load_table(name))]


def knows_time(references: Sequence[Profiles], workload: Optional[str]) -> bool:
    """Whether a reference has the workload on another GPU: without a profile its time is unknown otherwise."""
    return any(table.workload == workload and table.power_limit_mw is not None for table in references)


def _descend(
    residual: Callable[[np.ndarray], np.ndarray],
    slopes: Callable[[np.ndarray], np.ndarray],
    begin: np.ndarray,
    reach: np.ndarray,
) -> Tuple[float, np.ndarray]:
    """Levenberg and Marquardt's descent: the least squares, and the parameters there."""
    theta, off, jacobian = begin, residual(begin), slopes(begin)
    cost, damping = float(off @ off), 0.1
    for _ in range(_MOST_STEPS):
        curvature = jacobian.T @ jacobian
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -jacobian.T @ off)
        tried = theta + np.clip(step, -reach, reach)
        tried_off = residual(tried)
        tried_cost = float(tried_off @ tried_off)
        if tried_cost >= cost:
            damping *= 6
            if damping > 1e6:
                break
            continue
        gained, theta, off, cost = cost - tried_cost, tried, tried_off, tried_cost
        damping = max(damping / 5, 1e-8)
        if gained < 1e-3:
            break
        jacobian = slopes(theta)
    return cost, theta


def _jacobian(theta: np.ndarray, settings: np.ndarray) -> np.ndarray:
    """Derivatives of `log_response` by the parameters, by central differences, shape (2n, d)."""
    step = 1e-4 * np.eye(len(theta))
    above, below = np.split(log_response(theta + np.concatenate([step, -step]), settings), 2)
    return ((above - below) / 2e-4).T


def _condition(posterior: LimitPosterior, settings: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """The weights of the rows' residuals in predictions, and the variance that the rows leave, noise included."""
    figures = 2 if posterior.has_power else 1
    across = _discrepancy(settings, posterior.settings, figures) @ posterior.whitening.T
    variance = np.repeat((AMPLITUDE**2 + NOISE**2)[:figures], len(settings)) - (across**2).sum(1)
    return across @ posterior.whitening, variance


def _by_figure(values: np.ndarray, rows: int) -> np.ndarray:
    """Figures side by side, shape (..., n) or (..., 2n), as (2, ..., n)."""
    parts = [values[..., :rows], values[..., rows:]]
    return np.stack([parts[0], parts[1] if parts[1].shape[-1] else np.full_like(parts[0], np.nan)])


def _discrepancy(settings: np.ndarray, others: np.ndarray, figures: int) -> np.ndarray:
    """Matern 3/2 covariance of the discrepancy, a block for each figure."""
    distance = np.sqrt(3 * (((settings[:, None] - others[None]) / LENGTHS) ** 2).sum(-1))
    correlation = (1 + distance) * np.exp(-distance)
    return np.kron(np.diag(AMPLITUDE[:figures] ** 2), correlation)


def _smooth_minimum(one: np.ndarray, other: np.ndarray, sharpness: float) -> np.ndarray:
    return (one**-sharpness + other**-sharpness) ** (-1 / sharpness)
