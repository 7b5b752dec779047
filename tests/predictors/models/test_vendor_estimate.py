"""The vendor's estimate: what it is made of, and that it needs no profile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.boards import BOARDS, load_board
from harness.core.errors import UnknownNameError
from harness.core.power_modes import PowerMode
from predictors.models.vendor_estimate import VendorPower, estimated_board, estimated_boards, estimated_power_mw

ORIN = load_board("orin-agx")
GREATEST = ORIN.power_mode_space().greatest


def test_boards_whose_clocks_are_known_can_be_estimated():
    jetsons = {name for name in BOARDS if load_board(name).is_jetson}
    assert jetsons - set(estimated_boards()) == {"thor", "tx1"}
    assert set(estimated_boards()) < jetsons


@pytest.mark.parametrize("board", estimated_boards())
def test_the_greatest_mode_draws_the_peak_power(board):
    spec = load_board(board)
    greatest = np.array([spec.power_mode_space().greatest])
    assert estimated_power_mw(spec, greatest) == pytest.approx([spec.peak_power_mw])


@given(st.lists(st.floats(0.05, 1), min_size=4, max_size=4), st.integers(0, 3), st.floats(1.01, 2))
def test_more_of_any_setting_draws_more(shares, dimension, factor):
    less = np.array(shares) * GREATEST
    more = less.copy()
    more[dimension] *= factor
    low, high = estimated_power_mw(ORIN, np.array([less, more]))
    assert 0 < low < high


def test_it_answers_without_any_profile_and_knows_no_time():
    prediction = VendorPower(board="orin-agx").predict([PowerMode(12, 1_651_200, 624_750, 3_199_000)])
    assert np.isnan([prediction.time_ms, prediction.log_time_sd, prediction.log_power_sd]).all()
    # 001 sec. 1.4: 4 % off the 28.6 W of ResNet-18 there.
    assert prediction.power_mw == pytest.approx([28_633], rel=0.1)


def test_profiles_change_nothing():
    modes = [PowerMode(4, 1_036_800, 624_750, 2_133_000), PowerMode(8, 1_651_200, 624_750, 3_199_000)]
    fitted, other = VendorPower(board="orin-agx").fit(modes, [10.0, 8.0], [1.0, 2.0]), VendorPower(board="orin-agx")
    assert np.array_equal(fitted.predict(modes).power_mw, other.predict(modes).power_mw)


def test_a_board_without_data_sheet_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="'host'"):
        VendorPower(board="host").predict([GREATEST])
    with pytest.raises(UnknownNameError, match="'thor'"):
        estimated_board("thor")
