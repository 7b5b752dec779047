"""Change points: the cheapest of all partitions, of one series and of many at once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from harness.stats.change_points import (
    PENALTY,
    SHORTEST,
    change_points,
    change_points_of_each,
    learn_from_neighbours,
    without_outliers,
)
from harness.stats.noise import BOARD

RUNS = 9


def series(seed: int, count: int = 1, runs: int = RUNS) -> np.ndarray:
    """Series with noise of 1 and up to two steps."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((count, runs))
    for row in values:
        for place in random.integers(1, runs, 2):
            row[place:] += random.normal(0, 8)
    return values


def cost_of(values: np.ndarray, places: tuple) -> float:
    parts = np.split(values, places)
    return sum(float(np.sum((part - part.mean()) ** 2)) for part in parts) + PENALTY * math.log(len(values)) * len(
        places
    )


def cheapest(values: np.ndarray) -> tuple:
    """The cheapest of all partitions whose segments have `SHORTEST` runs; the last one may have a single run."""
    places = range(SHORTEST, len(values))
    candidates = [
        cuts
        for count in range(4)
        for cuts in itertools.combinations(places, count)
        if all(later - earlier >= SHORTEST for earlier, later in zip(cuts, cuts[1:]))
    ]
    return min(candidates, key=lambda cuts: cost_of(values, cuts))


@pytest.mark.parametrize("seed", range(12))
def test_no_other_partition_is_cheaper(seed):
    [values] = series(seed)
    assert tuple(cut.place for cut in change_points(values, 1.0)) == cheapest(values)


def test_series_together_are_cut_as_each_alone():
    values = series(3, count=150, runs=20)
    shares = np.linspace(0.5, 2, len(values))
    alone = [change_points(row, share, among=7) for row, share in zip(values, shares)]
    assert change_points_of_each(values, shares, among=7) == alone
    assert len({len(cuts) for cuts in alone}) > 1
    noise = learn_from_neighbours(values, BOARD)
    assert noise.tolist() == [learn_from_neighbours(row[None], BOARD)[0] for row in values]
    calm = without_outliers(values, noise)
    assert (
        calm == np.concatenate([without_outliers(row[None], share[None]) for row, share in zip(values, noise)])
    ).all()


def test_the_interval_of_a_cut_contains_it_and_is_narrow_for_a_great_step():
    values = np.concatenate([np.zeros(10), np.full(10, 50.0)]) + series(5, runs=20)[0] * 0.01
    [cut] = change_points(values, 1.0)
    assert tuple(cut) == (10, 10, 10)
    unsure = np.concatenate([np.zeros(15), [3.0], np.full(14, 6.0)])
    [cut] = change_points(unsure, 1.0)
    assert cut.low <= cut.place <= cut.high
    assert cut.low < cut.high


def test_an_outlier_is_replaced_by_a_neighbour_but_for_the_newest_run():
    row = np.array([[0.0, 0.1, 50.0, 0.2, 0.1, 50.0]])
    assert without_outliers(row, np.array([1.0])).tolist() == [[0.0, 0.1, 0.2, 0.2, 0.1, 50.0]]
