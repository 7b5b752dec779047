"""How many minibatches a profile needs: the error of shorter ones (E18; 001 sec. 2.5)."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import numpy as np

from harness.metrics import between
from harness.profiles import Minibatch, Series
from harness.units import ms_to_s


class LengthError(NamedTuple):
    """What a profile of so many minibatches would have said.

    Attributes:
        minibatches: its length.
        time_error: median over all stretches of that length of |median time / that of all - 1|.
        time_error_q3: the third quartile of the same.
        without_power: share of the stretches that hold no power sample (C15).
        seconds: median time that such a stretch took.
    """

    minibatches: int
    time_error: float
    time_error_q3: float
    without_power: float
    seconds: float


def length_errors(
    minibatches: Sequence[Minibatch], power: Series, lengths: Sequence[int] = (10, 20, 30, 40)
) -> List[LengthError]:
    """The error of each length, over all stretches of the profile that are as long; lengths that it lacks are left out.

    Args:
        minibatches: those that count, one after the other.
        power: the samples of the total.
        lengths: minibatches.
    """
    times_ms = np.array([minibatch.e2e_ms for minibatch in minibatches])
    starts_s = np.array([minibatch.start_s for minibatch in minibatches])
    found = []
    for length in lengths:
        if not 1 <= length <= len(times_ms):
            continue
        whole = float(np.median(times_ms))
        stretches = range(len(times_ms) - length + 1)
        errors = [abs(float(np.median(times_ms[first : first + length])) / whole - 1.0) for first in stretches]
        ends_s = [starts_s[first + length - 1] + ms_to_s(times_ms[first + length - 1]) for first in stretches]
        empty = [not between(power, starts_s[first], end_s).values for first, end_s in zip(stretches, ends_s)]
        seconds = [end_s - starts_s[first] for first, end_s in zip(stretches, ends_s)]
        found.append(
            LengthError(
                length,
                float(np.median(errors)),
                float(np.percentile(errors, 75)),
                float(np.mean(empty)),
                float(np.median(seconds)),
            )
        )
    return found
