"""A front holds what nothing beats, and beats all that it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.metrics import minibatch_energy_mws
from harness.core.pareto import pareto_front

figures = st.floats(0.5, 100) | st.integers(1, 5).map(float)
points = st.lists(st.tuples(figures, figures), max_size=40)


def columns(pairs):
    return np.array([pair[0] for pair in pairs], dtype=float), np.array([pair[1] for pair in pairs], dtype=float)


@given(points, st.randoms(use_true_random=False))
def test_nothing_on_the_front_is_beaten_all_else_is_and_the_order_of_points_does_not_matter(pairs, random):
    cost, value = columns(pairs)
    kept = pareto_front(value, cost)
    assert (np.diff(cost[kept]) > 0).all()
    assert (np.diff(value[kept]) < 0).all()
    for place in kept:
        better = (cost <= cost[place]) & (value <= value[place]) & ((cost < cost[place]) | (value < value[place]))
        assert not better.any()
    for place in set(range(len(pairs))) - set(kept.tolist()):
        assert ((cost[kept] <= cost[place]) & (value[kept] <= value[place])).any()
    order = random.sample(range(len(pairs)), len(pairs))
    again = pareto_front(value[order], cost[order])
    assert cost[kept].tolist() == cost[order][again].tolist()
    assert value[kept].tolist() == value[order][again].tolist()


@pytest.mark.parametrize(
    ("value", "cost", "front"),
    [
        ([np.nan, 1.0, 5.0], [1.0, np.nan, 3.0], [2]),  # what is unknown is on no front
        ([np.inf, 3.0], [1.0, 2.0], [0, 1]),  # an infinite time is, where nothing is cheaper
        ([5.0, 2.0, 2.0], [1.0, 3.0, 3.0], [0, 1]),  # of equal points the first
    ],
)
def test_points_that_are_unknown_infinite_or_equal(value, cost, front):
    assert pareto_front(np.array(value), np.array(cost)).tolist() == front


def test_two_columns_of_one_length_are_asked_for():
    with pytest.raises(InvalidValueError, match="shapes"):
        pareto_front(np.ones(3), np.ones(4))


def test_fronts_of_time_with_power_and_with_energy():
    time_ms, power_mw = np.array([10.0, 20.0, 40.0]), np.array([30_000.0, 20_000.0, 14_000.0])
    energy_mws = minibatch_energy_mws(time_ms, power_mw)
    assert energy_mws.tolist() == [300.0, 400.0, 560.0]
    assert pareto_front(time_ms, power_mw).tolist() == [2, 1, 0]
    assert pareto_front(time_ms, energy_mws).tolist() == [0]
