"""The papers' figures on numbers small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.metrics import coverage, mape, profiling_seconds, spread
from predictors.slices import SLICES, slice_of
from tests.predictors.plain_predictors import made_table


def test_mape_is_the_mean_of_the_shares_that_predictions_are_off():
    assert mape(np.array([100.0, 200.0]), np.array([110.0, 160.0])) == pytest.approx(15.0)


def test_there_is_no_mape_of_nothing_nor_of_a_predictor_that_does_not_answer():
    assert mape(np.array([]), np.array([])) is None
    assert mape(np.array([1.0, 2.0]), np.array([1.0, np.nan])) is None
    assert mape(np.array([1.0, 2.0]), np.array([1.0, np.inf])) is None


def test_coverage_counts_what_lies_within():
    observed = np.array([1.0, 2.0, 3.0, 4.0])
    assert coverage(observed, np.full(4, 2.0), np.full(4, 3.0)) == 50.0
    assert coverage(observed, np.full(4, np.nan), np.full(4, 3.0)) is None


def test_profiling_takes_settling_and_41_minibatches_a_mode():
    assert profiling_seconds(np.array([100.0, 1000.0])) == pytest.approx(3 + 4.1 + 3 + 41)


def test_a_spread_is_the_median_with_its_quartiles():
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == (3.0, 2.0, 4.0)


def test_there_is_no_spread_where_a_repeat_has_no_figure():
    assert spread([1.0, None]) is None
    assert spread([]) is None


def test_the_odd_slice_of_an_orin_is_its_two_slow_cores():
    (odd,) = SLICES
    inside, outside = [2, 576_000, 1_300_500, 204_000], [[4, 576_000, 1_300_500, 1], [2, 729_600, 1_300_500, 1]]
    assert odd.contains(np.array([inside, *outside])).tolist() == [True, False, False]


def test_simulated_boards_and_other_devices_have_no_odd_slice():
    assert slice_of(made_table(provenance="measured")) is not None
    assert slice_of(made_table(provenance="simulated")) is None
    assert slice_of(made_table(provenance="measured", device="nano")) is None
