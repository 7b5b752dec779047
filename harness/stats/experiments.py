"""What single experiments ask: baseload (M13), spread of repetitions (M14), error of short profiles (E18)."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.profiles import Minibatch, Series
from harness.core.units import ms_to_s, mws_to_mwh


def baseload_share(energy_mwh: float, idle_mw: float, epoch_s: float) -> float:
    """Idle power, in state (i), x epoch time / energy of the epoch (004 sec. 5.6.2); above 1 only by noise."""
    return mws_to_mwh(idle_mw * epoch_s) / energy_mwh


class Variability(NamedTuple):
    median: float
    deviation: float  # the greatest distance from the median as a share of it (004 sec. 5.4.1)
    interquartile: float  # third less first quartile, as a share of the median (the boxes of 004 Fig. 5)
    coefficient: Optional[float]  # standard deviation over mean (002 sec. II.4); None of a single figure
    count: int  # type: ignore[assignment]  # a tuple has a method of that name


def variability(values: Sequence[float]) -> Optional[Variability]:
    """The spread of repeated figures, such as the epoch times of a night; None if there are none."""
    samples = np.asarray(values, dtype=float)
    if len(samples) == 0:
        return None
    first, median, third = (float(quartile) for quartile in np.percentile(samples, [25, 50, 75]))
    deviation = float(np.max(np.abs(samples - median)) / median)
    coefficient = float(np.std(samples, ddof=1) / np.mean(samples)) if len(samples) > 1 else None
    return Variability(median, deviation, (third - first) / median, coefficient, len(samples))


LENGTHS = (10, 20, 30, 40)  # minibatches per profile that 001 sec. 2.5 tried
LONG = 4 * LENGTHS[-1]  # from so many minibatches on, a profile shows what shorter ones would have shown


class Stretches(NamedTuple):
    """Every stretch of so many minibatches of a profile, in the order in which they begin."""

    minibatches: int  # the length of each
    time_errors: Tuple[float, ...]  # |median time / that of all minibatches - 1| of each
    # |mean power / that of all samples - 1| of each; NaN if a stretch holds no power sample (C15)
    power_errors: Tuple[float, ...]
    seconds: Tuple[float, ...]  # how long each took

    @property
    def time_error(self) -> float:
        """What a profile of so many minibatches would have been off: the median of the errors."""
        return float(np.median(self.time_errors))

    @property
    def without_power(self) -> float:
        """Share of the stretches that hold no power sample."""
        return float(np.mean(np.isnan(self.power_errors)))


def stretches_of(minibatches: Sequence[Minibatch], power: Series, length: int) -> Stretches:
    """Every stretch of `length` counted minibatches against the whole; none if the profile is shorter."""
    starts_s = np.array([minibatch.start_s for minibatch in minibatches])
    times_ms = np.array([minibatch.e2e_ms for minibatch in minibatches])
    return stretches_of_series(starts_s, times_ms, np.array(power.times_s), np.array(power.values), length)


def stretches_of_series(
    starts_s: np.ndarray, times_ms: np.ndarray, sampled_s: np.ndarray, power_mw: np.ndarray, length: int
) -> Stretches:
    """The same of the starts and times of minibatches, and of power samples with their times."""
    if length > len(times_ms):
        return Stretches(length, (), (), ())
    begin = np.arange(len(times_ms) - length + 1)
    medians_ms = np.median(np.lib.stride_tricks.sliding_window_view(times_ms, length), axis=1)
    time_errors = np.abs(medians_ms / np.median(times_ms) - 1.0)
    ends_s = starts_s + ms_to_s(times_ms)
    inside = (sampled_s >= starts_s[0]) & (sampled_s <= ends_s[-1])
    sampled_s, power_mw = sampled_s[inside], power_mw[inside]
    first = np.searchsorted(sampled_s, starts_s[begin], side="left")
    behind = np.searchsorted(sampled_s, ends_s[begin + length - 1], side="right")
    sums = np.concatenate([[0.0], np.cumsum(power_mw)])
    with np.errstate(invalid="ignore", divide="ignore"):  # no sample in a stretch, or none at all: NaN
        power_errors = np.abs((sums[behind] - sums[first]) / (behind - first) / (sums[-1] / len(power_mw)) - 1.0)
    seconds = ends_s[begin + length - 1] - starts_s[begin]
    return Stretches(length, tuple(time_errors.tolist()), tuple(power_errors.tolist()), tuple(seconds.tolist()))
