"""When did a figure change? Optimal partitioning of a series of runs, and an interval for each change.

The series is cut where that pays: a segment costs the squares of its deviations from its mean over the variance of the
noise, a cut costs a penalty, and the cheapest of all partitions is taken [1]; PELT [2] is a faster way to the same one.
The noise is learned from differences of neighbours, which a few steps do not move, and from the prior for such
devices. The interval of a cut holds the places near it that a likelihood ratio does not reject [3].

References:
    [1] B. Jackson et al.: An algorithm for optimal partitioning of data on an interval. IEEE Signal Processing Letters
        12(2), 2005.
    [2] R. Killick, P. Fearnhead, I. Eckley: Optimal detection of changepoints with a linear computational cost. JASA
        107, 2012.
    [3] B. Hansen: Sample splitting and threshold estimation. Econometrica 68(3), 2000, Table I.
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Sequence

import numpy as np

from harness.stats.noise import RunNoise

SHORTEST = 2
"""Runs of a segment. A single one apart is an outlier, but for the newest: nobody knows yet what follows it."""

PENALTY = 5.0  # of a cut, times the logarithm of the number of runs: 2 (Schwarz criterion) cuts short series by chance
LIKELY = 7.35  # likelihood ratio within which a place is in the 95 % interval of a change [3]
FAR = 4.0  # standard deviations of a run from both its neighbours that noise does not bring about
_NORMAL_DIFFERENCE = 0.954  # median of the absolute difference of two normal values, over their standard deviation


class ChangePoint(NamedTuple):
    """Where a series changes: the first value of the new segment, and the least and greatest place that it may be."""

    place: int
    low: int
    high: int


def learn_from_neighbours(logs: np.ndarray, prior_noise: RunNoise) -> RunNoise:
    """The noise of a series of logarithms in the order of time; at least what is left of the prior after so many."""
    steps, seen = len(logs) - 1, 0.0
    if steps > 0:
        moves = np.abs(np.diff(logs))
        noisy = moves[
            moves <= FAR * math.sqrt(2) * max(float(np.median(moves)) / _NORMAL_DIFFERENCE, prior_noise.share)
        ]
        seen = float(np.sqrt(np.mean(noisy**2) / 2)) if len(noisy) else 0.0
    dof = steps + prior_noise.dof
    expected = math.sqrt((steps * seen**2 + prior_noise.dof * prior_noise.share**2) / dof)
    return RunNoise(max(seen, expected) if steps > 1 else expected, dof, steps)


def without_outliers(logs: np.ndarray, share: float) -> np.ndarray:
    """A series in which a run far from both its neighbours, the newest aside, has the value of one of them."""
    if len(logs) < 3:
        return logs
    middles = np.median([logs[:-2], logs[1:-1], logs[2:]], axis=0)
    middles = np.concatenate([middles[:1], middles, logs[-1:]])
    return np.where(np.abs(logs - middles) > FAR * share, middles, logs)


def change_points(logs: Sequence[float], share: float, among: int = 1) -> List[ChangePoint]:
    """The places at which a series changes its level.

    `logs` are in the order of time, with noise of standard deviation `share`, above 0; `among` is how many series are
    looked at: of many, none is to be cut by chance.
    """
    values = np.asarray(logs, dtype=float) / share
    count = len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (values, values**2))

    def cost(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        return squares[stop] - squares[start] - (sums[stop] - sums[start]) ** 2 / (stop - start)

    penalty = PENALTY * math.log(max(count, 2)) + 2 * math.log(among)
    best, cut = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=int)
    best[0] = -penalty
    for stop in range(1, count + 1):
        starts = np.arange(stop if stop == count else max(stop - SHORTEST + 1, 0))
        if len(starts):
            totals = best[starts] + cost(starts, np.array(stop)) + penalty
            cut[stop] = int(np.argmin(totals))
            best[stop] = totals[cut[stop]]
    places = [count]
    while places[0] > 0:
        places.insert(0, int(cut[places[0]]))
    change_points = []
    for start, place, stop in zip(places, places[1:], places[2:]):
        others = np.arange(start + 1, stop)
        both = cost(np.array(start), others) + cost(others, np.array(stop))
        likely = others[both <= both[place - start - 1] + LIKELY]
        change_points.append(ChangePoint(place, int(likely[0]), int(likely[-1])))
    return change_points
