"""Orders of power modes: chains hold every point once and never rise, passes are few, settings change rarely."""

from __future__ import annotations

import collections
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.boards import load_board
from harness.core.mode_orders import ORDERS, count_switches, order_passes
from harness.core.power_modes import PowerMode

small = st.integers(1, 3)
few_modes = st.lists(st.builds(PowerMode, small, small, small, small), max_size=5)
modes = st.lists(
    st.builds(PowerMode, st.integers(1, 12), st.integers(1, 30), st.integers(1, 14), st.integers(1, 4)), max_size=60
)


def rises(before, after):
    return after.cpu_khz > before.cpu_khz or after.gpu_khz > before.gpu_khz


def passes_of(sequence):
    """How many times a sequence has to begin at the top."""
    return bool(sequence) + sum(rises(before, after) for before, after in zip(sequence, sequence[1:]))


@pytest.mark.parametrize("order", ORDERS)
@given(modes)
def test_passes_hold_every_mode_as_often_as_it_was_given_and_no_cpu_or_gpu_clock_rises_within_one(order, given_modes):
    passes = order_passes(given_modes, order)
    assert collections.Counter(itertools.chain.from_iterable(passes)) == collections.Counter(given_modes)
    for one in passes:
        assert one
        assert not any(rises(before, after) for before, after in zip(one, one[1:]))


@given(few_modes)
def test_no_order_at_all_needs_fewer_passes_than_the_safe_one(given_modes):
    assert len(order_passes(given_modes, "safe")) == min(map(passes_of, itertools.permutations(given_modes)))


@given(modes, st.randoms(use_true_random=False))
def test_the_safe_order_needs_as_many_passes_however_the_modes_are_given(given_modes, random):
    shuffled = random.sample(given_modes, len(given_modes))
    assert len(order_passes(shuffled, "safe")) == len(order_passes(given_modes, "safe"))


@pytest.mark.parametrize(("board", "passes"), [("orin-agx", 13), ("xavier-agx", 14), ("orin-nano", 5)])
def test_a_whole_space_is_gone_through_changing_one_setting_a_step(board, passes):
    space = load_board(board).power_mode_space()
    ordered = order_passes(list(space), "safe")
    assert len(ordered) == passes  # of two modes that share no clock of a full grid one may always rise
    assert sum(map(count_switches, ordered)) == len(space) - passes


def test_as_given_stays_and_is_cut_where_a_clock_rises():
    given_modes = [PowerMode(1, 5, 5, 1), PowerMode(1, 5, 4, 2), PowerMode(1, 6, 1, 1), PowerMode(2, 6, 2, 1)]
    assert order_passes(given_modes, "as-given") == [given_modes[:2], given_modes[2:3], given_modes[3:]]


def test_descending_goes_from_high_to_low_as_nested_loops_do():
    given_modes = [PowerMode(cores, cpu, gpu, 1) for cores in (1, 2) for cpu in (1, 2) for gpu in (1, 2)]
    first, second = order_passes(given_modes, "descending")
    assert [mode[:3] for mode in first] == [(2, 2, 2), (1, 2, 2), (2, 2, 1), (1, 2, 1)]
    assert {mode.cpu_khz for mode in second} == {1}


@pytest.mark.parametrize("order", ORDERS)
def test_what_has_a_mode_is_ordered_like_the_mode(order):
    named = [("low", PowerMode(1, 1, 1, 1)), ("high", PowerMode(1, 2, 2, 1))]
    passes = order_passes(named, order, mode_of=lambda pair: pair[1])
    assert [[pair[1] for pair in one] for one in passes] == order_passes([mode for _, mode in named], order)


def test_switches_count_every_setting_that_changes():
    assert count_switches([PowerMode(1, 1, 1, 1), PowerMode(2, 1, 1, 3), PowerMode(2, 1, 1, 3)]) == 2
    assert count_switches([]) == 0
