"""The order of a run's cases: clocks only fall where they must, everything else stays where it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import Case
from harness.core.mode_orders import SAFE, order_passes
from harness.core.power_modes import NamedMode, PowerMode
from harness.plan import in_safe_order, passes_needed

MODES = st.builds(
    PowerMode, st.sampled_from([2, 8]), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1_000, 3_000])
)
DEVICES = st.sampled_from(["falls", "rises"])
ITEMS = st.lists(st.none() | st.tuples(DEVICES, MODES), max_size=25)


def made(items):
    """A run's tests: each None, or a case; and what tells device and mode of one on a device whose clocks fall."""
    cases = [item and Case(item[0], "lenet-mnist", NamedMode(item[1].name, item[1]), 0, "ssd", 16) for item in items]

    def falling(item):
        return (item[1].device, item[1].power_mode.mode) if item[1] and item[1].device == "falls" else None

    return list(enumerate(cases)), falling


@given(ITEMS)
def test_only_the_cases_that_need_it_move_and_none_is_lost(items):
    tests, falling = made(items)
    ordered = in_safe_order(tests, falling)
    assert sorted(ordered, key=lambda item: item[0]) == tests
    for before, after in zip(tests, ordered):
        if not falling(before):
            assert after == before


@given(ITEMS)
def test_clocks_rise_between_passes_only_and_there_are_no_fewer_passes(items):
    tests, falling = made(items)
    ordered = [item for item in in_safe_order(tests, falling) if falling(item)]
    modes = [falling(item)[1] for item in ordered]
    rises = sum(later.cpu_khz > mode.cpu_khz or later.gpu_khz > mode.gpu_khz for mode, later in zip(modes, modes[1:]))
    needed = len(order_passes(modes, SAFE))
    assert passes_needed(ordered, falling) == ({"falls": needed} if modes else {})
    assert rises == max(needed - 1, 0)


def test_cases_of_one_mode_stay_together_in_their_own_order():
    high, low = PowerMode(8, 2, 2, 1_000), PowerMode(8, 1, 1, 1_000)
    tests, falling = made([("falls", mode) for mode in (low, high, low, high)])
    assert [number for number, _ in in_safe_order(tests, falling)] == [1, 3, 0, 2]
