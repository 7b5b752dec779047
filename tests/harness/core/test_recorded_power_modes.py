"""Recorded power modes are a space without the crossings that nobody measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode, RecordedSpace

modes = st.builds(PowerMode, st.integers(1, 4), *[st.sampled_from([100, 200, 400])] * 3)


@given(st.lists(modes, min_size=1))
def test_it_holds_the_given_modes_and_no_other(given_modes):
    space = RecordedSpace.of(given_modes)
    assert list(space) == sorted(set(given_modes))
    assert len(space) == len(set(given_modes))
    assert [space.at(place) for place in range(len(space))] == list(space)
    assert set(space.sample(len(space))) == set(given_modes)
    assert space.greatest in space


@given(st.lists(modes, min_size=1), modes)
def test_the_nearest_of_a_recorded_mode_is_itself_and_of_others_a_recorded_one(given_modes, mode):
    space = RecordedSpace.of(given_modes)
    assert space.nearest(mode) in space
    assert (space.nearest(mode) == mode) == (mode in space)


def test_a_crossing_of_recorded_values_is_refused():
    space = RecordedSpace.of([PowerMode(1, 100, 100, 100), PowerMode(2, 200, 100, 100)])
    with pytest.raises(
        InvalidValueError, match=r"not among the 2 recorded ones; the nearest are 1c-0\.1-0\.1-0\.1, 2c"
    ):
        space.check(PowerMode(1, 200, 100, 100))
    assert space.greatest == PowerMode(2, 200, 100, 100)
    with pytest.raises(InvalidValueError, match="number 2 does not exist"):
        space.at(2)


def test_the_paper_grid_keeps_what_is_recorded_of_it():
    space = RecordedSpace.of(PowerMode(cores, 100, 100, 100) for cores in (1, 2, 3))
    assert list(space.paper_grid()) == [PowerMode(2, 100, 100, 100)]
