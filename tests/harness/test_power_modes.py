"""Power modes: their names read back to themselves, spaces are what they say, wrong values are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InvalidValueError
from harness.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, parse_power_mode

ORIN_MAXN = PowerMode(12, 2_201_600, 1_300_500, 3_199_000)

clocks_khz = st.integers(1, 10_000_000) | st.just(UNKNOWN_KHZ)
power_modes = st.builds(PowerMode, st.integers(1, 256), clocks_khz, clocks_khz, clocks_khz)
dimensions = st.lists(st.integers(1, 5_000_000), min_size=1, max_size=6, unique=True).map(lambda v: tuple(sorted(v)))
spaces = st.builds(PowerModeSpace, dimensions, dimensions, dimensions, dimensions)


def test_a_mode_is_named_in_megahertz():
    assert ORIN_MAXN.name == "12c-2201.6-1300.5-3199"
    assert PowerMode(2, UNKNOWN_KHZ, 114_750, UNKNOWN_KHZ).name == "2c-x-114.75-x"


@given(power_modes)
def test_a_name_reads_back_to_its_mode(mode):
    assert parse_power_mode(mode.name, defaults=mode) == mode


def test_what_a_name_leaves_out_is_the_default():
    assert parse_power_mode("4c", ORIN_MAXN) == ORIN_MAXN._replace(cpu_cores=4)
    assert parse_power_mode("4c-x-114.75-x", ORIN_MAXN) == PowerMode(4, 2_201_600, 114_750, 3_199_000)


@pytest.mark.parametrize(
    "text", ["", "fast", "4", "4c-", "4c-1-2", "4c-1-2-3-4", "-4c", "4c-1.2.3-1-1", "4c-.-1-1", "4 c"]
)
def test_a_name_of_another_form_is_refused_with_an_example(text):
    with pytest.raises(InvalidValueError, match=r"12c-2201\.6-1300\.5-3199"):
        parse_power_mode(text, ORIN_MAXN)


@given(spaces)
def test_a_space_holds_exactly_the_modes_it_enumerates(space):
    modes = list(space)
    assert len(modes) == len(set(modes)) == len(space)
    assert all(mode in space for mode in modes)
    assert modes[-1] == space.greatest


@given(spaces, power_modes)
def test_check_refuses_exactly_what_is_not_in_the_space(space, mode):
    if mode in space:
        space.check(mode)
    else:
        with pytest.raises(InvalidValueError, match="allowed"):
            space.check(mode)


def test_check_names_the_dimension_and_the_allowed_values():
    space = PowerModeSpace((1, 2), (1_000_000,), (500_000,), (UNKNOWN_KHZ,))
    with pytest.raises(InvalidValueError, match=r"cpu_cores=3 .*allowed: 1, 2"):
        space.check(PowerMode(3, 1_000_000, 500_000, UNKNOWN_KHZ))


@pytest.mark.parametrize("values", [(), (2, 1), (1, 1)])
def test_a_dimension_must_rise(values):
    with pytest.raises(InvalidValueError, match="cpu_cores"):
        PowerModeSpace(values, (1,), (1,), (1,))
