"""Means of noisy series with their standard errors, and ratios of two means with an interval.

A stall comes in bursts and a median of it is often 0, so experiments compare means, where `harness.statistics` compares
medians. Neighbouring minibatches depend on each other: the noise of a mean is found from the means of blocks of them
[1, sec. 3]. Runs differ by more than their minibatches do. One run shows nothing of that, so every estimate starts from
what is known of such differences before, worth `PRIOR_FREEDOM` runs, and learns from those that there are [2, ch. 3].

References:
    [1] H. Kuensch: The jackknife and the bootstrap for general stationary observations. Ann. Statist. 17(3), 1989.
    [2] A. Gelman et al.: Bayesian Data Analysis. CRC Press, 3rd ed. 2013.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, Optional, Sequence

import numpy as np

from harness.statistics import block_length

RUN_TO_RUN = 0.005
"""Standard deviation of the same case's times between runs, before any was seen.

On AGX Xavier and Nano the epoch times of 15 h deviate by 1 % at most (004 sec. 5.4.1): two standard deviations.
"""

POWER_RUN_TO_RUN = 0.01
"""The same of power: the tables of Orin AGX (001) repeat to within about 1 %."""

PRIOR_FREEDOM = 20
"""How many runs that knowledge is worth: it comes from hundreds of epochs, but of other cases."""

BLOCKS_FREEDOM = 30
"""Degrees of freedom of a noise within a run from so many blocks or more; more make no difference."""


class Mean(NamedTuple):
    """A positive mean.

    Attributes:
        value: in the unit of what it was taken from.
        error: its standard error as a share of it.
        freedom: degrees of freedom behind the error.
    """

    value: float
    error: float
    freedom: int


class Ratio(NamedTuple):
    """After / before, with the interval at a confidence."""

    value: float
    low: float
    high: float


def mean_of(values: Sequence[float], per: Optional[Sequence[float]] = None) -> Optional[Mean]:
    """The mean of a series, or the sum of a series over that of another one.

    Args:
        values: one after the other in time.
        per: as many; with it the result is sum(values) / sum(per), such as the share of stall in time.

    Returns:
        None where there are fewer than two values, which say nothing of their noise, or the mean is not above 0.
    """
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
    return Mean(value, error, min(count - 1, BLOCKS_FREEDOM))


def over_runs(means: Sequence[Mean], run_to_run: float = RUN_TO_RUN) -> Mean:
    """The mean of a case that was measured in one run or more, the noise between runs included.

    Args:
        means: of each run; at least one.
        run_to_run: standard deviation between runs as a share, as far as known before.
    """
    logs = np.log([mean.value for mean in means])
    count, freedom = len(means), len(means) - 1 + PRIOR_FREEDOM
    variance = (float(np.sum((logs - logs.mean()) ** 2)) + PRIOR_FREEDOM * run_to_run**2) / freedom
    between = Mean(math.exp(float(logs.mean())), math.sqrt(variance / count), freedom)
    if count > 1:  # the runs' differences hold the noise within them
        return between
    return Mean(between.value, math.hypot(between.error, means[0].error), _freedom(between, means[0]))


def product(first: Mean, second: Mean) -> Mean:
    """The product of two means whose noises are independent, such as power and time."""
    error = math.hypot(first.error, second.error)
    return Mean(first.value * second.value, error, _freedom(first, second))


def quotient(before: Mean, after: Mean) -> Mean:
    """After / before, their noises independent."""
    error = math.hypot(before.error, after.error)
    return Mean(after.value / before.value, error, _freedom(before, after))


def interval(mean: Mean, confidence: float) -> Ratio:
    """A mean, or a quotient of two, with its two-sided interval; Student's t, on logarithms."""
    reach = math.exp(_student_quantile(mean.freedom, 0.5 + confidence / 2) * mean.error)
    return Ratio(mean.value, mean.value / reach, mean.value * reach)


def _freedom(first: Mean, second: Mean) -> int:
    """Welch's degrees of freedom of a sum of two noises, rounded."""
    variance = first.error**2 + second.error**2
    if variance == 0.0:
        return first.freedom + second.freedom
    parts = [(mean.error**2 / variance) ** 2 / mean.freedom for mean in (first, second)]
    return max(1, round(1.0 / sum(parts)))


@functools.lru_cache(maxsize=4096)
def _student_quantile(freedom: int, probability: float) -> float:
    from scipy import stats

    return float(stats.t.ppf(probability, freedom))
