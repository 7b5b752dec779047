"""Tails of minibatch times: intervals of a quantile and of the share of minibatches beyond a limit.

Slow minibatches come in runs: after one that missed its deadline, most often another does. So the number of values
overstates what a series shows, by the design effect: the variance of a share relative to that of independent values
[1]. Both intervals are the exact binomial one [2] of the effective number of values, which is their number over the
design effect [1]. A quantile's interval is the range of limits that the interval of the share beyond them does not
refute: of independent values the one by order statistics [3, sec. 7.1].

Of a limit that few values exceed, the series itself hardly shows how long such runs are. Until it does, they are taken
to be as long as those of deadline misses on edge GPUs, of which 74 % were followed by another [4].

References:
    [1] E. Korn, B. Graubard: Confidence intervals for proportions with small expected number of positive counts
        estimated from survey data. Survey Methodology 24(2), 1998.
    [2] C. Clopper, E. Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial.
        Biometrika 26(4), 1934.
    [3] H. David, H. Nagaraja: Order Statistics. Wiley, 3rd ed. 2003.
    [4] arXiv 2606.16106, 2026.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

import numpy as np

from harness.stats.estimates import CONFIDENCE, Interval, student_quantile

EXPECTED_LENGTH = 1 / (1 - 0.74)
"""Mean length of a run of misses before any was seen [4]; worth one run, so that a few of its own outweigh it."""

SLOWEST_SHARE = 0.1
"""Values beyond this quantile from above show how much neighbours depend on each other where few are beyond a limit."""

FEWEST_BLOCKS = 4  # fewer show nothing of how much blocks differ
MOST_NEEDED = 1_000_000  # values; a share that needs more cannot be told from the limit
NEXT_NUMBER = 1.01  # the next number of values that is tried, as a multiple of the last

Series = Sequence[Sequence[float]]  # the values of each run of a case


def design_effect(runs: Series, limit: float) -> float:
    """How many times more values it takes than independent ones to know the share of those beyond a limit; at least 1.

    The greatest of three: by the lengths of runs of values beyond the limit, and by how much blocks differ, in the
    share of those values and in that of the slowest tenth.
    """
    pooled = np.concatenate([np.asarray(run, dtype=float) for run in runs])
    slowest = float(np.quantile(pooled, 1 - SLOWEST_SHARE))
    return max(1.0, _by_lengths(runs, limit), _by_blocks(runs, limit), _by_blocks(runs, slowest))


def _by_lengths(runs: Series, limit: float) -> float:
    """By the mean length of runs of values beyond the limit, or of those within it if they are fewer.

    Where those lengths are geometric, the variance of a share is 2 x length - 1 times that of independent values, and
    the chance to see none at all is that of a number of values that is `length` times smaller.
    """
    masks = [np.asarray(run, dtype=float) > limit for run in runs]
    if 2 * sum(int(mask.sum()) for mask in masks) > sum(map(len, masks)):
        masks = [~mask for mask in masks]
    rare, clusters = 0, 0
    for mask in masks:
        rare += int(mask.sum())
        clusters += int(mask[:1].sum() + (mask[1:] & ~mask[:-1]).sum())
    length = (rare + EXPECTED_LENGTH) / (clusters + 1)
    return length + (length - 1) * clusters / (clusters + 1)


def _by_blocks(runs: Series, limit: float) -> float:
    """By the variance between blocks, as long as the square root of the number of values, or as the shortest run.

    No block has values of two runs: what runs differ by would be less than it is.
    """
    length = max(1, min(math.isqrt(sum(map(len, runs))), *map(len, runs)))
    shares: List[float] = []
    beyond, count = 0, 0
    for run in runs:
        is_beyond = np.asarray(run, dtype=float) > limit
        beyond += int(is_beyond.sum())
        count += len(is_beyond)
        whole = len(is_beyond) // length * length
        shares += is_beyond[:whole].reshape(-1, length).mean(axis=1).tolist()
    share = beyond / count
    blocks = len(shares)
    if blocks < FEWEST_BLOCKS or not 0 < share < 1:
        return 1.0
    effect = length * float(np.var(shares, ddof=1)) / (share * (1 - share))
    # Few blocks know their variance badly: as a t-test is wider than one of a known variance [1].
    probability = 0.5 + CONFIDENCE / 2
    return effect * (student_quantile(blocks - 1, probability) / student_quantile(count - 1, probability)) ** 2


def share_interval(beyond: float, count: float, confidence: float = CONFIDENCE) -> Interval:
    """The share of values beyond a limit, with its exact binomial interval [2]; both numbers may be effective ones."""
    from scipy.special import betaincinv

    outside = (1 - confidence) / 2
    low = float(betaincinv(beyond, count - beyond + 1, outside)) if beyond > 0 else 0.0
    high = float(betaincinv(beyond + 1, count - beyond, 1 - outside)) if beyond < count else 1.0
    return Interval(beyond / count, low, high)


def miss_ratio(runs: Series, limit: float, confidence: float = CONFIDENCE) -> Interval:
    """The share of the values of all runs beyond a limit, with its interval; at least one value."""
    effect = design_effect(runs, limit)
    count = sum(map(len, runs))
    beyond = sum(int((np.asarray(run, dtype=float) > limit).sum()) for run in runs)
    return share_interval(beyond / effect, count / effect, confidence)._replace(value=beyond / count)


def quantile(runs: Series, share: float, limit: float, confidence: float = CONFIDENCE) -> Interval:
    """A quantile of the values of all runs with its interval, to be compared with a limit; at least one value.

    The upper end is infinite where there are too few values to bound it, the lower one 0.
    """
    ordered = np.sort(np.concatenate([np.asarray(run, dtype=float) for run in runs]))
    count = len(ordered)
    value = float(np.quantile(ordered, share))
    effect = design_effect(runs, limit)
    beyond = round(count * (1 - share))
    low, high = 0.0, math.inf
    for number in range(beyond, -1, -1):  # so few values beyond a limit show that the quantile lies below it
        if share_interval(number / effect, count / effect, confidence).high <= 1 - share:
            high = float(ordered[count - 1 - number])
            break
    for number in range(beyond, count + 1):  # so many, that it lies above
        if share_interval(number / effect, count / effect, confidence).low >= 1 - share:
            low = float(ordered[count - number])
            break
    return Interval(value, min(low, value), max(high, value))


def values_needed(share: float, most: float, effect: float, confidence: float = CONFIDENCE) -> Optional[int]:
    """How many values decide whether the share beyond a limit is above `most`, if it stays `share`; None if too many.

    With no value beyond the limit, the fewest that show it: 368 independent ones for a share of 1 %.
    """
    count = 1
    while count <= MOST_NEEDED:
        interval = share_interval(share * count / effect, count / effect, confidence)
        if interval.high <= most or interval.low > most:
            return count
        count = math.ceil(count * NEXT_NUMBER)
    return None
