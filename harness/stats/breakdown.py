"""Mean times of minibatches: end to end, fetch stall and compute (004 sec. 4.5)."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from harness.core.profiles import FIRST, Minibatch
from harness.stats.estimates import Estimate, series_mean


class Times(NamedTuple):
    """Estimate times of a minibatch in ms, and the share of stall; None where a part is 0 throughout."""

    time: Optional[Estimate]
    stall: Optional[Estimate]
    compute: Optional[Estimate]
    stall_share: Optional[Estimate]


def mean_times(minibatches: Sequence[Minibatch]) -> Times:
    """Estimate time, stall and compute of minibatches, without the first of a profile (C12) and of each epoch.

    The first of an epoch waits for the workers to start. That is paid once an epoch, however long the epoch is: in the
    papers' epochs of thousands of minibatches it is nothing, in a small data set it would hide all else.
    """
    kept = [
        minibatch
        for earlier, minibatch in zip([None, *minibatches], minibatches)
        if minibatch.phase != FIRST and (earlier is None or earlier.epoch == minibatch.epoch)
    ]
    e2e_ms = [minibatch.e2e_ms for minibatch in kept]
    return Times(
        series_mean(e2e_ms),
        series_mean([minibatch.stall_ms for minibatch in kept]),
        series_mean([minibatch.compute_ms for minibatch in kept]),
        series_mean([minibatch.stall_ms for minibatch in kept], e2e_ms),
    )
