"""How many minibatches a profile needs: the error of shorter ones (E18; 001 sec. 2.5)."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.profiles import Minibatch, Series
from harness.core.units import ms_to_s

LENGTHS = (10, 20, 30, 40)
"""Minibatches per profile that 001 sec. 2.5 tried."""

LONG = 4 * LENGTHS[-1]
"""From so many minibatches on a profile tells what shorter ones would have said."""


class Stretches(NamedTuple):
    """Every stretch of so many minibatches of a profile, in the order in which they begin."""

    time_errors: Tuple[float, ...]  # |median time / that of all minibatches - 1| of each
    # |mean power / that of all samples - 1| of each; NaN where a stretch holds no power sample (C15)
    power_errors: Tuple[float, ...]
    seconds: Tuple[float, ...]  # how long each took

    @property
    def without_power(self) -> float:
        """Share of the stretches that hold no power sample."""
        return float(np.mean(np.isnan(self.power_errors)))


class LengthError(NamedTuple):
    """What a profile of so many minibatches would have said."""

    minibatches: int  # its length
    time_error: float  # median over all stretches of that length of |median time / that of all - 1|
    time_error_q3: float  # the third quartile of the same
    without_power: float  # share of the stretches that hold no power sample (C15)
    seconds: float  # median time that such a stretch took


def stretches_of(minibatches: Sequence[Minibatch], power: Series, length: int) -> Stretches:
    """Every stretch of a length against the whole; none where the profile is shorter.

    Minibatches are those that count, one after the other; power is the total.
    """
    times_ms = np.array([minibatch.e2e_ms for minibatch in minibatches])
    starts_s = np.array([minibatch.start_s for minibatch in minibatches])
    if length > len(times_ms):
        return Stretches((), (), ())
    begin = np.arange(len(times_ms) - length + 1)
    medians_ms = np.median(np.lib.stride_tricks.sliding_window_view(times_ms, length), axis=1)
    time_errors = np.abs(medians_ms / np.median(times_ms) - 1.0)
    ends_s = starts_s + ms_to_s(times_ms)
    sampled_s, power_mw = np.array(power.times_s), np.array(power.values)
    inside = (sampled_s >= starts_s[0]) & (sampled_s <= ends_s[-1])
    sampled_s, power_mw = sampled_s[inside], power_mw[inside]
    first = np.searchsorted(sampled_s, starts_s[begin], side="left")
    behind = np.searchsorted(sampled_s, ends_s[begin + length - 1], side="right")
    sums = np.concatenate([[0.0], np.cumsum(power_mw)])
    with np.errstate(invalid="ignore", divide="ignore"):  # no sample in a stretch, or none at all: NaN
        power_errors = np.abs((sums[behind] - sums[first]) / (behind - first) / (sums[-1] / len(power_mw)) - 1.0)
    seconds = ends_s[begin + length - 1] - starts_s[begin]
    return Stretches(tuple(time_errors.tolist()), tuple(power_errors.tolist()), tuple(seconds.tolist()))


def length_errors(
    minibatches: Sequence[Minibatch], power: Series, lengths: Sequence[int] = LENGTHS
) -> List[LengthError]:
    """The error of each length, over all stretches of the profile that are as long; none of lengths that it lacks."""
    found = []
    for length in lengths:
        if not 1 <= length <= len(minibatches):
            continue
        stretches = stretches_of(minibatches, power, length)
        found.append(
            LengthError(
                length,
                float(np.median(stretches.time_errors)),
                float(np.percentile(stretches.time_errors, 75)),
                stretches.without_power,
                float(np.median(stretches.seconds)),
            )
        )
    return found
