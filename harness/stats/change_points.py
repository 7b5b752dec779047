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
"""Runs of a segment. A single one apart is an outlier, but for the newest, because what follows it is not known yet."""

PENALTY = 5.0  # of a cut, times the logarithm of the number of runs: 2 (Schwarz criterion) cuts short series by chance
LIKELY = 7.35  # likelihood ratio within which a place is in the 95 % interval of a change [3]
FAR = 4.0  # standard deviations of a run from both its neighbours that noise does not bring about
_AT_ONCE = 64  # series: more of a year's runs do not fit into a processor's cache
_NORMAL_DIFFERENCE = 0.954  # median of the absolute difference of two normal values, over their standard deviation


class ChangePoint(NamedTuple):
    """Where a series changes: the first value of the new segment, and the least and greatest place that it may be."""

    place: int
    low: int
    high: int


def learn_from_neighbours(logs: np.ndarray, prior_noise: RunNoise) -> np.ndarray:
    """The noise of each of several series, as a share; at least what is left of the prior after so many runs.

    `logs` are logarithms in the order of time, shape (series, runs); the result has shape (series,).
    """
    count, runs = logs.shape
    steps = runs - 1
    if steps == 0:
        return np.full(count, prior_noise.share)
    moves = np.abs(np.diff(logs, axis=1))
    usual = np.maximum(np.median(moves, axis=1) / _NORMAL_DIFFERENCE, prior_noise.share)
    is_noise = moves <= FAR * math.sqrt(2) * usual[:, None]
    kept = is_noise.sum(axis=1)
    mean_squares = np.where(is_noise, moves**2, 0.0).sum(axis=1) / np.maximum(kept, 1)
    seen = np.sqrt(mean_squares / 2)
    dof = steps + prior_noise.dof
    expected = np.sqrt((steps * seen**2 + prior_noise.dof * prior_noise.share**2) / dof)
    return np.maximum(seen, expected) if steps > 1 else expected


def without_outliers(logs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Series in which a run far from both its neighbours, the newest aside, has the value of one of them.

    `logs` and the result have shape (series, runs), `shares`, the noise of each, has shape (series,).
    """
    if logs.shape[1] < 3:
        return logs
    before, own, after = logs[:, :-2], logs[:, 1:-1], logs[:, 2:]
    middles = np.maximum(np.minimum(before, own), np.minimum(np.maximum(before, own), after))  # of each three
    middles = np.concatenate([middles[:, :1], middles, logs[:, -1:]], axis=1)
    return np.where(np.abs(logs - middles) > FAR * shares[:, None], middles, logs)


def change_points(logs: Sequence[float], share: float, among: int = 1) -> List[ChangePoint]:
    """The places at which a series changes its level.

    `logs` are in the order of time, with noise of standard deviation `share`, above 0; `among` is how many series are
    looked at: of many, none is to be cut by chance.
    """
    [cuts] = change_points_of_each(np.asarray([logs], dtype=float), np.array([share]), among)
    return cuts


def change_points_of_each(logs: np.ndarray, shares: np.ndarray, among: int = 1) -> List[List[ChangePoint]]:
    """The same for several series of equal length: `logs` of shape (series, runs), `shares` of shape (series,)."""
    values = logs / shares[:, None]
    values = values - values.mean(axis=1, keepdims=True)  # levels do not matter, and small sums are exact
    penalty = PENALTY * math.log(max(logs.shape[1], 2)) + 2 * math.log(among)
    cuts = []
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        cuts += [_with_intervals(own, places) for own, places in zip(some, _cheapest_partitions(some, penalty))]
    return cuts


def _cheapest_partitions(values: np.ndarray, penalty: float) -> List[List[int]]:
    """Where the cheapest partition of each row cuts it; the first and the last place included."""
    count, runs = values.shape
    sums, squares = _running_sums(values), _running_sums(values**2)
    best, cuts = np.full((count, runs + 1), np.inf), np.zeros((count, runs + 1), dtype=int)
    best[:, 0] = -penalty
    before = best - squares  # of each start: the cheapest partition up to it, less the squares up to it
    for stop in range(1, runs + 1):
        starts = stop if stop == runs else max(stop - SHORTEST + 1, 0)
        if not starts:
            continue
        totals = sums[:, stop, None] - sums[:, :starts]
        np.square(totals, out=totals)
        totals /= stop - np.arange(starts)
        np.subtract(before[:, :starts], totals, out=totals)
        cuts[:, stop] = totals.argmin(axis=1)
        best[:, stop] = totals.min(axis=1) + squares[:, stop] + penalty
        before[:, stop] = best[:, stop] - squares[:, stop]
    partitions = []
    for own in cuts:
        places = [runs]
        while places[0] > 0:
            places.insert(0, int(own[places[0]]))
        partitions.append(places)
    return partitions


def _with_intervals(values: np.ndarray, places: Sequence[int]) -> List[ChangePoint]:
    """The cuts of a series, each with the places that it may have between its neighbours."""
    sums, squares = _running_sums(np.array([values, values**2]))

    def cost(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        return squares[stop] - squares[start] - (sums[stop] - sums[start]) ** 2 / (stop - start)

    cuts = []
    for start, place, stop in zip(places, places[1:], places[2:]):
        others = np.arange(start + 1, stop)
        both = cost(np.array(start), others) + cost(others, np.array(stop))
        likely = others[both <= both[place - start - 1] + LIKELY]
        cuts.append(ChangePoint(place, int(likely[0]), int(likely[-1])))
    return cuts


def _running_sums(rows: np.ndarray) -> np.ndarray:
    """The sums of the first 0, 1, 2, ... values of each row."""
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
