"""Where the time of an epoch goes: fetch stall, compute and framework overhead, for each epoch (004 sec. 4.5)."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

from harness.core.metrics import epoch_sums
from harness.core.profiles import FIRST, Minibatch
from harness.stats.means import Mean, Ratio, interval, mean_of, over_runs, quotient


class Breakdown(NamedTuple):
    """One epoch in parts; seconds, and shares of its end-to-end time that sum to 1."""

    epoch: int
    e2e_s: float
    stall_s: float
    compute_s: float
    overhead_s: float
    stall_share: float
    compute_share: float
    overhead_share: float


class Times(NamedTuple):
    """Mean times of a minibatch in ms, and the share of stall; None where a part is 0 throughout."""

    time: Optional[Mean]
    stall: Optional[Mean]
    compute: Optional[Mean]
    stall_share: Optional[Mean]


def breakdown(minibatches: Sequence[Minibatch]) -> List[Breakdown]:
    """Stacked bars of each epoch, in order; an epoch that took no time is left out."""
    return [
        Breakdown(
            one.epoch,
            one.e2e_s,
            one.stall_s,
            one.compute_s,
            one.overhead_s,
            one.stall_s / one.e2e_s,
            one.compute_s / one.e2e_s,
            one.overhead_s / one.e2e_s,
        )
        for one in epoch_sums(minibatches)
        if one.e2e_s > 0
    ]


def mean_times(minibatches: Sequence[Minibatch]) -> Times:
    """Mean time, stall and compute of minibatches, without the first of a profile (C12) and of each epoch.

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
        mean_of(e2e_ms),
        mean_of([minibatch.stall_ms for minibatch in kept]),
        mean_of([minibatch.compute_ms for minibatch in kept]),
        mean_of([minibatch.stall_ms for minibatch in kept], e2e_ms),
    )


def speedup(before: Sequence[Minibatch], after: Sequence[Minibatch], confidence: float = 0.95) -> Optional[Ratio]:
    """How many times as fast `after` is, with its interval; None where either is empty."""
    first, second = mean_times(before).time, mean_times(after).time
    if first is None or second is None:
        return None
    return interval(quotient(over_runs([second]), over_runs([first])), confidence)
