"""Static clocks: readings a little off count as the clock that was set, others do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.static_clocks import counts_as, is_static

SET_KHZ = 2_265_000


@pytest.mark.parametrize("reading_khz", [2_262_000, 2_263_000, 2_265_000, 2_151_750])
def test_readings_a_little_off_count(reading_khz):
    assert counts_as(reading_khz, SET_KHZ)


@pytest.mark.parametrize("reading_khz", [0, 1_190_400, 2_151_749, 2_378_251])
def test_other_clocks_do_not(reading_khz):
    assert not counts_as(reading_khz, SET_KHZ)


@given(st.lists(st.integers(2_151_750, 2_378_250), min_size=1), st.integers(0, 2_151_749))
def test_one_reading_of_another_clock_makes_it_not_static(readings_khz, other_khz):
    assert is_static(readings_khz, SET_KHZ)
    assert not is_static([*readings_khz, other_khz], SET_KHZ)


def test_no_reading_is_no_evidence():
    assert not is_static([], SET_KHZ)
