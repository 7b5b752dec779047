"""Pareto fronts and baseload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.pareto import pareto_front
from harness.stats.baseload import split_load
from harness.stats.pareto import grouped

points = st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(0.1, 100.0)), min_size=1, max_size=40)


@given(points)
def test_no_point_of_a_front_is_beaten_and_every_other_one_is(found):
    times, costs = [time for time, _ in found], [cost for _, cost in found]
    front = pareto_front(times, costs).tolist()
    for place, (time, cost) in enumerate(found):
        beaten = any(t <= time and c <= cost and (t, c) != (time, cost) for t, c in found)
        twin_before = (time, cost) in found[:place]
        assert (place in front) == (not beaten and not twin_before)


def test_a_front_goes_from_cheap_and_slow_to_dear_and_fast():
    assert pareto_front([5.0, 1.0, 3.0, 4.0], [1.0, 9.0, 4.0, 5.0]).tolist() == [0, 2, 1]


def test_points_are_grouped_by_a_resource():
    assert grouped([8, 4, 8]) == {4: [1], 8: [0, 2]}


def test_energy_splits_into_baseload_and_the_rest():
    load = split_load(energy_mwh=10.0, idle_mw=6_000.0, epoch_s=3.0)
    assert load.baseload_mwh == pytest.approx(5.0)
    assert load.incremental_mwh == pytest.approx(5.0)
    assert load.baseload_share == pytest.approx(0.5)


def test_a_share_of_no_energy_is_refused():
    with pytest.raises(InvalidValueError):
        split_load(0.0, 1.0, 1.0)
