"""The papers' figures on numbers small enough to do by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from predictors.evaluation import bias, coverage, mape, odd_rows, spread
from predictors.sampling import profiling_seconds
from tests.predictors.plain_predictors import LogLinear, made_table


def test_mape_is_the_mean_of_the_shares_that_predictions_are_off():
    assert mape(np.array([100.0, 200.0]), np.array([110.0, 160.0])) == pytest.approx(15.0)
    unknown = [mape(np.ones(2), np.array([1.0, wrong])) for wrong in (np.nan, np.inf)]
    assert np.isnan([mape(np.array([]), np.array([])), *unknown]).all()


def test_bias_is_signed_and_a_factor_moves_it_by_its_logarithm():
    observed = np.array([100.0, 200.0, 400.0])
    assert bias(observed, observed * [2.0, 0.5, 1.0]) == pytest.approx(0.0)
    predicted = observed * [3.0, 0.2, 1.1]
    assert bias(observed, 0.9 * predicted) - bias(observed, predicted) == pytest.approx(100 * np.log(0.9))
    unknown = [bias(np.ones(2), np.array([1.0, wrong])) for wrong in (np.nan, np.inf, 0.0, -1.0)]
    assert np.isnan([bias(np.array([]), np.array([])), *unknown]).all()


def test_coverage_counts_what_lies_within():
    observed = np.array([1.0, 2.0, 3.0, 4.0])
    assert coverage(observed, np.full(4, 2.0), np.full(4, 3.0)) == 50.0
    assert np.isnan(coverage(observed, np.full(4, np.nan), np.full(4, 3.0)))


def test_profiling_takes_settling_and_41_minibatches_a_mode():
    assert profiling_seconds(np.array([100.0, 1000.0])) == pytest.approx(3 + 4.1 + 3 + 41)


def test_a_spread_is_the_median_with_its_quartiles():
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == (3.0, 2.0, 4.0)
    assert spread([1.0, None]) is spread([1.0, np.nan]) is spread([]) is None


def test_the_odd_part_of_an_orin_is_its_two_slow_cores():
    table = made_table(provenance="measured")
    cores, cpu_khz = table.modes[:, 0], table.modes[:, 1]
    assert odd_rows(table).tolist() == ((cores == 2) & (cpu_khz == 499_200)).tolist()
    elsewhere = (made_table(provenance="simulated"), made_table(provenance="measured", device="nano"))
    assert [odd_rows(one) for one in elsewhere] == [None, None]


def test_what_is_odd_depends_on_the_task_and_a_clock_that_was_not_applied_is_odd_anywhere():
    modes = np.array([[6, 576_000, 1_300_500, 204_000], [8, 576_000, 1_300_500, 204_000], [8, 1, 318_750, 2_133_000]])
    table = dataclasses.replace(made_table(provenance="measured").take(slice(3)), modes=modes)
    assert odd_rows(table).tolist() == [True, False, False]
    assert odd_rows(dataclasses.replace(table, task="inference")).tolist() == [False, False, True]
    clocks = np.array([[4, 1_000_000, 500_000, 1_000_000], [4, 1_000_000, 600_000, 1_000_000]])
    two = {"modes": clocks, "time_ms": np.array([5.0, 9.0]), "power_mw": np.array([9e3, 5e3])}
    elsewhere = dataclasses.replace(table.take(slice(2)), device="nano", **two)
    assert odd_rows(elsewhere).tolist() == [True, False]
    learned = LogLinear()
    learned.least_modes = 1
    learned.fit(elsewhere.applied())
    assert learned.training_rows_.time_ms.tolist() == [9.0]
