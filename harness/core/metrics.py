"""The papers' formulas as pure functions: overhead, epoch sums, energy, power settling, throughput."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.profiles import Minibatch, Series
from harness.core.units import ms_to_s, mws_to_mwh

STABLE_WINDOW_S = 3.0
"""Length of the sliding window that finds stable power.

PowerTrain sec. 2.5 leaves it open but says that power settles in 2-3 s after a change of mode: a window as long as the
longest of these cannot lie inside the transient.
"""

STABLE_TOLERANCE = 0.05
"""How far the means of a stable window's two halves may lie apart, as a share of the window's mean.

PowerTrain leaves it open too. Repeated modes of its corpus differ by about 1 % and its predictors err by 5 % or more:
5 % is above the noise of a sensor and no greater than what the figures are used for.
"""

MAX_GAP_INTERVALS = 3.0
"""Samples that lie further apart than this many median intervals cover nothing of the time between them.

The papers' formula lets a sample stand for the time since the one before. After reads that failed, that would be a time
of which the sample knows nothing.
"""


class EpochSums(NamedTuple):
    """One epoch: when it ran (monotonic seconds) and the sums over its minibatches, in seconds."""

    epoch: int
    start_s: float
    end_s: float
    e2e_s: float
    stall_s: float
    compute_s: float
    overhead_s: float


def overhead_ms(minibatch: Minibatch) -> float:
    """Framework overhead of a minibatch: E2E - stall - compute (SIGMETRICS sec. 4.5)."""
    return minibatch.e2e_ms - minibatch.stall_ms - minibatch.compute_ms


def epoch_sums(minibatches: Sequence[Minibatch]) -> List[EpochSums]:
    """Sums over the minibatches of each epoch, every phase included, in order (SIGMETRICS sec. 4.5)."""
    epochs: Dict[int, List[Minibatch]] = {}
    for minibatch in minibatches:
        epochs.setdefault(minibatch.epoch, []).append(minibatch)
    return [
        EpochSums(
            epoch=epoch,
            start_s=min(minibatch.start_s for minibatch in members),
            end_s=max(end_s(minibatch) for minibatch in members),
            e2e_s=ms_to_s(sum(minibatch.e2e_ms for minibatch in members)),
            stall_s=ms_to_s(sum(minibatch.stall_ms for minibatch in members)),
            compute_s=ms_to_s(sum(minibatch.compute_ms for minibatch in members)),
            overhead_s=ms_to_s(sum(overhead_ms(minibatch) for minibatch in members)),
        )
        for epoch, members in sorted(epochs.items())
    ]


def end_s(minibatch: Minibatch) -> float:
    """When a minibatch ended, on the clock of its `start_s`."""
    return minibatch.start_s + ms_to_s(minibatch.e2e_ms)


def integral(
    times_s: Sequence[float],
    values: Sequence[float],
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Optional[float]:
    """A sampled rate times time: sum of p(t_i) x (t_i - t_(i-1)), the papers' formula of energy (SIGMETRICS sec. 4.5).

    A sample stands for the time since the sample before it. In a window only the overlap counts. At either end of the
    samples, and of a gap of more than `MAX_GAP_INTERVALS` median intervals among them, the nearest one is taken to hold
    for at most one median interval more.

    Args:
        times_s: when the samples were taken, ascending, in seconds.
        values: the rate, as many as `times_s`.
        start_s: start of the window; default: the first sample.
        end_s: end of the window; default: the last sample.

    Returns:
        The integral over seconds; None where there are fewer than two samples, or they do not cover the window.
    """
    if len(times_s) < 2:
        return None
    times = np.asarray(times_s, dtype=float)
    rates = np.asarray(values, dtype=float)
    window_start = times[0] if start_s is None else start_s
    window_end = times[-1] if end_s is None else end_s
    if window_end < window_start:
        return None
    intervals = np.diff(times)
    hold_s = float(np.median(intervals))
    # What is held on both sides of a gap does not meet in its middle: a window is covered by one part or by none.
    after_gaps = np.flatnonzero(intervals > MAX_GAP_INTERVALS * hold_s) + 1
    for part, held in zip(np.split(times, after_gaps), np.split(rates, after_gaps)):
        if part[0] - hold_s <= window_start and window_end <= part[-1] + hold_s:
            edges = np.concatenate([[min(window_start, part[0])], part, [max(window_end, part[-1])]])
            clipped = np.clip(edges, window_start, window_end)
            return float(np.sum(np.append(held, held[-1]) * np.diff(clipped)))
    return None


def energy_mwh(
    times_s: Sequence[float],
    values_mw: Sequence[float],
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Optional[float]:
    """Energy from power samples in mW, in mWh: their `integral`, whose arguments and rules hold here too."""
    energy_mws = integral(times_s, values_mw, start_s, end_s)
    return None if energy_mws is None else mws_to_mwh(energy_mws)


def stable_from(
    times_s: Sequence[float],
    values_mw: Sequence[float],
    window_s: float = STABLE_WINDOW_S,
    tolerance: float = STABLE_TOLERANCE,
) -> Optional[float]:
    """When power has become stable: the start of the first stable one of sliding windows (PowerTrain sec. 2.5).

    A window is stable where the means of its two halves differ by no more than `tolerance` of the window's mean. A
    transient moves the mean; the alternation of stall and compute inside a minibatch does not.

    Args:
        times_s: when the samples were taken, ascending, in seconds; from the change that power has to settle after.
        values_mw: power in mW, as many as `times_s`.
        window_s: length of the window; it holds at least two samples however rare they are.
        tolerance: allowed difference as a share of the mean.

    Returns:
        A time out of `times_s`; None where no window that was observed to its end is stable.
    """
    times = np.asarray(times_s, dtype=float)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values_mw, dtype=float))])
    # The last sample of a window is the first that is as far away as the window is long, but for rounding.
    last = np.searchsorted(times, times + (1 - 1e-9) * window_s)
    for first, stop in enumerate(last + 1):
        if stop > len(times):
            return None
        half = (stop - first) // 2
        early = (sums[first + half] - sums[first]) / half
        late = (sums[stop] - sums[stop - half]) / half
        mean = (sums[stop] - sums[first]) / (stop - first)
        if abs(late - early) <= tolerance * abs(mean):
            return float(times[first])
    return None


def samples_per_s(minibatches: int, batch_size: int, seconds: float) -> Optional[float]:
    """Training throughput; None where no time has passed."""
    return minibatches * batch_size / seconds if seconds > 0 else None


def quartiles(values: Sequence[float]) -> Tuple[float, float, float]:
    """First quartile, median and third quartile of one value or more, linearly interpolated."""
    first, median, third = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
    return float(first), float(median), float(third)


def between(series: Series, start_s: float, end_s: float) -> Series:
    """The samples taken from `start_s` to `end_s`, both included."""
    kept = [(time, value) for time, value in zip(series.times_s, series.values) if start_s <= time <= end_s]
    return Series(tuple(time for time, _ in kept), tuple(value for _, value in kept))
