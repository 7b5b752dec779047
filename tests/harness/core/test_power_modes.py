"""Power modes: their names, the space that a device allows, and the space that a corpus holds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, RecordedSpace, parse_power_mode

ORIN_MAXN = PowerMode(12, 2_201_600, 1_300_500, 3_199_000)
ORIN_SPACE = PowerModeSpace(
    tuple(range(1, 13)),
    (*range(115_200, 2_188_801, 76_800), 2_201_600),
    (*range(114_750, 1_236_751, 102_000), 1_300_500),
    (204_000, 665_600, 2_133_000, 3_199_000),
)
DRAWN_CPU_KHZ = 57_318_400
"""The sum of the CPU clocks of 50 modes drawn from it with seed 1."""

clocks_khz = st.integers(1, 10_000_000) | st.just(UNKNOWN_KHZ)
power_modes = st.builds(PowerMode, st.integers(1, 256), clocks_khz, clocks_khz, clocks_khz)
dimensions = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=6, unique=True).map(lambda v: tuple(sorted(v)))
spaces = st.builds(PowerModeSpace, dimensions, dimensions, dimensions, dimensions)


@given(power_modes)
def test_a_name_reads_back_to_its_mode(mode):
    assert parse_power_mode(mode.name, defaults=mode) == mode


def test_a_mode_is_named_in_megahertz_and_what_a_name_leaves_out_is_the_default():
    assert ORIN_MAXN.name == "12c-2201.6-1300.5-3199"
    assert PowerMode(2, UNKNOWN_KHZ, 114_750, UNKNOWN_KHZ).name == "2c-x-114.75-x"
    assert parse_power_mode("4c", ORIN_MAXN) == ORIN_MAXN._replace(cpu_cores=4)
    assert parse_power_mode("4c-x-114.75-x", ORIN_MAXN) == PowerMode(4, 2_201_600, 114_750, 3_199_000)


@pytest.mark.parametrize("text", ["", "4", "4c-", "4c-1-2", "4c-1-2-3-4", "4c-1.2.3-1-1"])
def test_a_name_of_another_form_is_refused_with_an_example(text):
    with pytest.raises(InvalidValueError, match=r"12c-2201\.6-1300\.5-3199"):
        parse_power_mode(text, ORIN_MAXN)


@given(spaces)
def test_a_space_holds_exactly_the_modes_it_enumerates(space):
    modes = list(space)
    assert len(modes) == len(set(modes)) == len(space)
    assert all(mode in space and space.nearest(mode) == mode for mode in modes)
    assert modes[-1] == space.greatest
    assert sorted(space.sample(len(space))) == sorted(modes)


@given(spaces, power_modes)
def test_check_refuses_exactly_what_is_not_in_the_space(space, mode):
    if mode in space:
        space.check(mode)
    else:
        with pytest.raises(InvalidValueError, match="allowed"):
            space.check(mode)


def test_a_dimension_must_rise_and_is_named_with_its_allowed_values():
    for values in ((), (2, 1), (1, 1)):
        with pytest.raises(InvalidValueError, match="cpu_cores"):
            PowerModeSpace(values, (1,), (1,), (1,))
    with pytest.raises(InvalidValueError, match=r"cpu_cores=3 .*allowed: 1, 2"):
        PowerModeSpace((1, 2), (1,), (1,), (1,)).check(PowerMode(3, 1, 1, 1))


@given(spaces, st.data())
def test_a_sample_holds_as_many_modes_as_asked_for_and_none_twice(space, data):
    count = data.draw(st.integers(1, len(space)))
    seed = data.draw(st.integers(0, 2**32))
    drawn = space.sample(count, seed)
    assert len(set(drawn)) == len(drawn) == count
    assert all(mode in space for mode in drawn)
    assert drawn == space.sample(count, seed)


def test_a_seed_draws_the_same_modes_under_every_python():
    """The drawing is part of a record: results with `--sample 50 --seed 1` must be comparable across boards."""
    drawn = ORIN_SPACE.sample(50, seed=1)
    assert drawn[:3] == [
        PowerMode(3, 2_112_000, 930_750, 2_133_000),
        PowerMode(2, 883_200, 1_032_750, 3_199_000),
        PowerMode(6, 1_267_200, 1_032_750, 2_133_000),
    ]
    assert sum(mode.cpu_khz for mode in drawn) == DRAWN_CPU_KHZ


@pytest.mark.parametrize("count", [0, 7])
def test_a_sample_of_no_possible_size_is_refused(count):
    with pytest.raises(InvalidValueError, match="draw 1 to 6 from"):
        PowerModeSpace((1, 2, 3), (1, 2), (1,), (1,)).sample(count)


def test_the_papers_grid_of_an_orin_is_the_4368_modes_that_were_profiled():
    grid = ORIN_SPACE.paper_grid()
    assert len(grid) == 4_368
    assert grid.cpu_cores == (2, 4, 6, 8, 10, 12)
    assert (grid.cpu_khz[0], grid.cpu_khz[1], grid.cpu_khz[-1], len(grid.cpu_khz)) == (268_800, 422_400, 2_201_600, 14)
    assert (grid.gpu_khz, grid.mem_khz) == (ORIN_SPACE.gpu_khz, ORIN_SPACE.mem_khz)


@given(spaces)
def test_the_papers_grid_is_a_part_of_the_space_with_its_greatest_clocks(space):
    grid = space.paper_grid()
    assert all(mode in space for mode in grid)
    assert grid.greatest[1:] == space.greatest[1:]
    assert not set(grid.cpu_khz) & set(space.cpu_khz[:2]) or len(space.cpu_khz) < 3


@given(spaces, st.builds(PowerMode, st.integers(1, 256), *[st.integers(1, 10_000_000)] * 3))
def test_no_allowed_mode_is_nearer_than_the_nearest(space, mode):
    nearest = space.nearest(mode)
    assert nearest in space
    assert abs(nearest.cpu_cores - mode.cpu_cores) == min(abs(cores - mode.cpu_cores) for cores in space.cpu_cores)
    for khz, found, allowed in zip(mode[1:], nearest[1:], space.dimensions[1:]):
        ratios = {value: Fraction(max(khz, value), min(khz, value)) for value in allowed}
        assert found == min(allowed, key=lambda value: (ratios[value], value))  # of two as near the lower


def test_clocks_are_near_by_their_ratio_not_their_difference_and_an_unknown_one_to_nothing():
    space = PowerModeSpace((1,), (100_000, 400_000), (1,), (UNKNOWN_KHZ,))
    mode = PowerMode(1, 210_000, 1, 5)
    assert space.nearest(mode) == PowerMode(1, 400_000, 1, UNKNOWN_KHZ)
    assert space.nearest(mode._replace(cpu_khz=200_000)).cpu_khz == 100_000  # as near to both: the lower
    with pytest.raises(InvalidValueError, match="cpu_khz of power mode 1c-x-"):
        space.nearest(mode._replace(cpu_khz=UNKNOWN_KHZ))


modes = st.builds(PowerMode, st.integers(1, 4), *[st.sampled_from([100, 200, 400])] * 3)


@given(st.lists(modes, min_size=1), modes)
def test_a_recorded_space_holds_the_given_modes_alone_and_the_nearest_of_others_is_one_of_them(given_modes, mode):
    space = RecordedSpace.of(given_modes)
    assert list(space) == sorted(set(given_modes))
    assert len(space) == len(set(given_modes))
    assert set(space.sample(len(space))) == set(given_modes)
    assert space.greatest in space
    assert space.nearest(mode) in space
    assert (space.nearest(mode) == mode) == (mode in space)


def test_a_crossing_of_recorded_values_is_refused():
    space = RecordedSpace.of([PowerMode(1, 100, 100, 100), PowerMode(2, 200, 100, 100)])
    with pytest.raises(InvalidValueError, match=r"2 recorded .* 1c-0\.1-0\.1-0\.1, 2c"):
        space.check(PowerMode(1, 200, 100, 100))
    assert space.greatest == PowerMode(2, 200, 100, 100)
    assert list(space.paper_grid()) == [PowerMode(2, 200, 100, 100)], "what is recorded of it"
