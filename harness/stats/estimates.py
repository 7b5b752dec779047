"""Estimates of positive figures: a value with its standard error, from noisy, autocorrelated series and from runs.

Neighbouring minibatches depend on each other (a slow disk or a busy neighbour slows several in a row), so the noise of
a figure within a run is estimated from blocks of them: of a mean from the means of the blocks [1, sec. 3], of a median
from a bootstrap of moving blocks [1]. Runs differ by more than their minibatches do; `harness.stats.noise` estimates by
how much, and `over_runs` adds it.

Errors are standard errors of the logarithm: a ratio is a difference of logarithms, errors add in squares, and degrees
of freedom follow Welch [3]. The width of an interval follows Student's t with these degrees of freedom.

References:
    [1] H. Kuensch: The jackknife and the bootstrap for general stationary observations. Ann. Statist. 17(3), 1989.
    [2] P. Hall, J. Horowitz, B.-Y. Jing: On blocking rules for the bootstrap with dependent data. Biometrika 82, 1995.
    [3] B. Welch: The generalization of "Student's" problem when several different population variances are involved.
        Biometrika 34, 1947.
    [4] B. Efron, R. Tibshirani: An Introduction to the Bootstrap. Chapman & Hall, 1993.
"""

from __future__ import annotations

import functools
import hashlib
import math
from statistics import NormalDist
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

CONFIDENCE = 0.95

RESAMPLES = 1000  # of a bootstrap: a standard error needs 200 [4, ch. 6]; more makes a verdict depend less on the seed
MOST_DOF = 30  # degrees of freedom of a mean of so many blocks or more; more make no difference
DRAWS = 400  # so often a statistic of estimates is drawn: its 95 % interval has ten draws beyond each end


class Interval(NamedTuple):
    """A figure and the ends of its two-sided interval, in the unit of what it was taken from."""

    value: float
    low: float
    high: float


class Estimate(NamedTuple):
    """A positive figure with its noise."""

    value: float  # in the unit of what it was taken from; a ratio has none
    error: float  # standard error of its logarithm, which is about its standard error as a share of it
    dof: int  # degrees of freedom behind the error

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        reach = math.exp(student_quantile(self.dof, 0.5 + confidence / 2) * self.error)
        return Interval(self.value, self.value / reach, self.value * reach)

    def p_above(self, bound: float = 1.0) -> float:
        """One-sided: how likely noise alone puts the estimate as far above the bound as it is, or farther."""
        effect = math.log(self.value / bound)
        if self.error == 0.0:
            return 0.5 if effect == 0.0 else float(effect < 0.0)
        from scipy.special import stdtr

        return float(stdtr(self.dof, -effect / self.error))

    def p_differs(self, bound: float = 1.0) -> float:
        """Two-sided: how likely noise alone puts the estimate as far from the bound, either way."""
        above = self.p_above(bound)
        return min(1.0, 2 * min(above, 1 - above))

    def with_noise(self, error: float, dof: int) -> Estimate:
        total = math.hypot(self.error, error)
        return Estimate(self.value, total, welch_dof([(self.error, self.dof), (error, dof)]))


def welch_dof(parts: Sequence[Tuple[float, int]]) -> int:
    """Degrees of freedom of a sum of independent noises, each a standard error and its own degrees of freedom [3]."""
    variance = sum(error**2 for error, _ in parts)
    if variance == 0.0:
        return max(1, sum(dof for _, dof in parts))
    return max(1, round(1.0 / sum((error**2 / variance) ** 2 / dof for error, dof in parts)))


@functools.lru_cache(maxsize=4096)
def student_quantile(dof: int, probability: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(dof, probability))


def block_length(count: int) -> int:
    """Neighbouring minibatches that are taken together: the cube root of their number, rounded up [2]."""
    return next(length for length in range(1, count + 1) if length**3 >= count)


def block_medians(values: Sequence[float]) -> List[float]:
    """Medians of neighbouring values, `block_length` of them each: nearly independent of each other."""
    block = block_length(len(values))
    whole = np.asarray(values[: len(values) // block * block], dtype=float)
    medians: List[float] = np.median(whole.reshape(-1, block), axis=1).tolist()
    return medians


def series_mean(values: Sequence[float], per: Optional[Sequence[float]] = None) -> Optional[Estimate]:
    """The mean of a series, or with `per` sum(values) / sum(per); None of fewer than two values, or not above 0."""
    series = np.asarray(values, dtype=float)
    weights = np.ones(len(series)) if per is None else np.asarray(per, dtype=float)
    if len(series) < 2 or not series.sum() > 0 or not weights.sum() > 0:
        return None
    value = float(series.sum() / weights.sum())
    length = min(block_length(len(series)), len(series) // 2)
    count = len(series) // length
    blocks = series[: count * length].reshape(count, length).sum(axis=1)
    sizes = weights[: count * length].reshape(count, length).sum(axis=1)
    residuals = (blocks - value * sizes) / (value * sizes.mean())  # linearised, as for any ratio of two means
    error = float(np.sqrt(np.sum(residuals**2) / (count - 1) / count))
    return Estimate(value, error, min(count - 1, MOST_DOF))


def series_median(values: Sequence[float], seed: int = 0) -> Estimate:
    """The median of a series of positive values; of a single value the noise is unknown and left at 0."""
    series = np.log(np.asarray(values, dtype=float))
    count, block = len(series), block_length(len(series))
    value, dof = float(np.median(values)), max(1, count // block - 1)
    if np.ptp(series) == 0:
        return Estimate(value, 0.0, dof)
    generator = np.random.default_rng(seed)
    starts = generator.integers(count - block + 1, size=(RESAMPLES, -(-count // block)))
    # Ranks are resampled in the place of values: of thousands of small integers a median takes a tenth of the time.
    order = np.argsort(series, kind="stable")
    ranks = np.empty(count, dtype=np.min_scalar_type(count))
    ranks[order] = np.arange(count)
    drawn_ranks = np.lib.stride_tricks.sliding_window_view(ranks, block)[starts].reshape(RESAMPLES, -1)[:, :count]
    middle = [(count - 1) // 2, count // 2]
    draws = series[order][np.partition(drawn_ranks, middle, axis=1)[:, middle]].mean(axis=1)
    error = float(np.std(draws, ddof=1)) if np.ptp(draws) > 0 else 0.0  # not the rounding error of equal draws' mean
    return Estimate(value, error, dof)


def quotient(before: Estimate, after: Estimate) -> Estimate:
    """After / before, their noises independent."""
    return Estimate(after.value / before.value, before.error, before.dof).with_noise(after.error, after.dof)


def product(first: Estimate, second: Estimate) -> Estimate:
    """The product of two figures whose noises are independent, such as power and time."""
    return Estimate(first.value * second.value, first.error, first.dof).with_noise(second.error, second.dof)


def geometric_mean(estimates: Sequence[Estimate]) -> Estimate:
    """The geometric mean of figures whose noises are independent; at least one."""
    count = len(estimates)
    value = math.exp(sum(math.log(each.value) for each in estimates) / count)
    parts = [(each.error / count, each.dof) for each in estimates]
    return Estimate(value, math.hypot(*(error for error, _ in parts)), welch_dof(parts))


def paired_ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median ratio after / before of pairs measured next to each other, so that what drifts slowly cancels out.

    The interval is the sign test's, of at least this confidence; with 5 pairs or less it is all of the range.
    """
    from scipy import stats

    ratios = np.sort(np.asarray(after, dtype=float) / np.asarray(before, dtype=float))
    outside = max(0, int(stats.binom.ppf((1 - confidence) / 2, len(ratios), 0.5)) - 1)
    return Interval(float(np.median(ratios)), float(ratios[outside]), float(ratios[len(ratios) - 1 - outside]))


class Drawn(NamedTuple):
    """A statistic that is no ratio, such as a correlation: of values, and of values drawn by their noise."""

    value: float
    draws: Tuple[float, ...]

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The figure with its percentile interval; without draws it is exact."""
        if not self.draws:
            return Interval(self.value, self.value, self.value)
        low, high = np.quantile(self.draws, [0.5 - confidence / 2, 0.5 + confidence / 2])
        return Interval(self.value, min(float(low), self.value), max(float(high), self.value))


def drawn(label: str, estimates: Sequence[Sequence[Estimate]], statistic: Callable[..., float]) -> Drawn:
    """A statistic of arrays, one per series, and of the same drawn by their noise; `label` seeds the draws."""
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big"))
    values = [np.array([each.value for each in series]) for series in estimates]
    # The standard deviation of the normal noise whose interval is as wide as Student's.
    normal, probability = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2), 0.5 + CONFIDENCE / 2
    errors = [
        np.array([student_quantile(each.dof, probability) * each.error / normal for each in series])
        for series in estimates
    ]
    draws = []
    for _ in range(DRAWS):
        noisy = [value * np.exp(error * generator.standard_normal(len(error))) for value, error in zip(values, errors)]
        draws.append(float(statistic(*noisy)))
    return Drawn(float(statistic(*values)), tuple(draws))
