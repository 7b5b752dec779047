"""Means of noisy series with their standard errors, and ratios of two means with an interval.

A stall comes in bursts and a median of it is often 0, so experiments compare means, where `harness.stats.intervals`
compares medians. Neighbouring minibatches depend on each other: the noise of a mean is found from the means of
blocks of them [1, sec. 3]. Runs
differ by more than their minibatches do. One run shows nothing of that, so every estimate starts from
what is known of such differences before, worth a number of runs, and learns from cases that were repeated [2, ch. 3].

References:
    [1] H. Kuensch: The jackknife and the bootstrap for general stationary observations. Ann. Statist. 17(3), 1989.
    [2] A. Gelman et al.: Bayesian Data Analysis. CRC Press, 3rd ed. 2013.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Iterable, NamedTuple, Optional, Sequence

import numpy as np

from harness.stats.intervals import block_length

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


class RunNoise(NamedTuple):
    """How much runs of the same case differ.

    Attributes:
        share: standard deviation between runs as a share of the mean.
        freedom: degrees of freedom behind it.
        repetitions: how many runs beside the first of a case it was learned from; 0 where it is what was known before.
    """

    share: float
    freedom: int
    repetitions: int = 0


BOARD = RunNoise(0.005, 20)
"""Of times on a board with static clocks and nothing else running, before any were repeated.

On AGX Xavier and Nano the epoch times of 15 h deviate by 1 % at most (004 sec. 5.4.1): two standard deviations. That is
worth many runs: it comes from hundreds of epochs, but of other cases.
"""

BOARD_POWER = RunNoise(0.01, 20)
"""The same of power: the tables of Orin AGX (001) repeat to within about 1 %."""

ANY_MACHINE = RunNoise(0.05, 4)
"""Of times and power on a machine of which nothing is known: worth little, so that few repetitions outweigh it.

On a shared virtual machine of two cores, repeated cases of the campaign `quick` came out 5 to 7 % apart within a run of
it, and LeNet and ResNet on CIFAR 11 to 14 % over ten runs with other work on the machine (standard deviations).
"""


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


def learned(groups: Iterable[Sequence[Mean]], known: RunNoise) -> RunNoise:
    """The noise between runs of a machine, from cases that were repeated on it.

    It is the greater of what the repetitions show and of what they make of what was known: a machine that differs more
    than others do is believed at once, one that differs less only as it is seen to.

    Args:
        groups: the means of each case, one for each run.
        known: of such machines before.
    """
    squares, repetitions = 0.0, 0
    for means in groups:
        logs = np.log([mean.value for mean in means])
        squares += float(np.sum((logs - logs.mean()) ** 2))
        repetitions += len(means) - 1
    if not repetitions:
        return known
    freedom = repetitions + known.freedom
    variance = max(squares / repetitions, (squares + known.freedom * known.share**2) / freedom)
    return RunNoise(math.sqrt(variance), freedom, repetitions)


def over_runs(means: Sequence[Mean], noise: Optional[RunNoise] = None) -> Mean:
    """The mean of a case that was measured in one run or more, the noise between runs included.

    Args:
        means: of each run; at least one.
        noise: between runs on this machine; None to learn it from these runs, as on a board.
    """
    between = learned([means], BOARD) if noise is None else noise
    count = len(means)
    value = math.exp(float(np.mean(np.log([mean.value for mean in means]))))
    first = Mean(value, between.share / math.sqrt(count), between.freedom)
    within = math.sqrt(sum(mean.error**2 for mean in means)) / count
    freedom = means[0].freedom if count == 1 else sum(mean.freedom for mean in means)
    return Mean(value, math.hypot(first.error, within), _freedom(first, Mean(value, within, freedom)))


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


def normal_error(mean: Mean, confidence: float) -> float:
    """The standard deviation, as a share, of the normal noise whose interval is as wide as that of the mean."""
    normal = NormalDist().inv_cdf(0.5 + confidence / 2)
    return _student_quantile(mean.freedom, 0.5 + confidence / 2) * mean.error / normal


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
