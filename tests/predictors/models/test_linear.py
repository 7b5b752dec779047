"""The linear regressions and the ridge: what they recover, what their four modes cannot tell, how these are chosen."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from harness.core.boards import load_board
from harness.core.errors import InvalidValueError
from predictors.models.linear import (
    PAPERS_SUBSET,
    LinearEnergy,
    LinearRegression,
    Ridge,
    fit_ridge,
    least_squares,
    quadratic_terms,
    ranked_subsets,
)
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
MHZ = TABLE.modes / np.array([1, 1000, 1000, 1000])
SLOPES = np.array([-1.0, -0.01, -0.02, -0.003])
TIMES = 200 + MHZ @ SLOPES
SOME = np.sort(np.random.default_rng(0).choice(54, 12, replace=False))
HALF = np.sort(np.random.default_rng(0).choice(54, 27, replace=False))


def papers_modes(names):
    by_name = load_board("xavier-agx").modes_by_name()
    return np.array([by_name[name] for name in names]) / np.array([1, 1000, 1000, 1000])


def test_a_linear_time_is_recovered():
    predictor = LinearRegression().fit(TABLE.modes[SOME], TIMES[SOME], 20_000 + 2 * MHZ[SOME] @ -SLOPES)
    prediction = predictor.predict(TABLE.modes)
    assert np.allclose(prediction.time_ms, TIMES)
    assert np.allclose(prediction.power_mw, 20_000 + 2 * MHZ @ -SLOPES)


def test_a_time_that_falls_below_0_is_kept_above():
    fast = np.argsort(TIMES)
    learned = fast[20:]
    predictor = LinearRegression().fit(TABLE.modes[learned], TIMES[learned] - TIMES[fast[18]], np.ones(34))
    assert (predictor.predict(TABLE.modes).time_ms > 0).all()


def test_the_papers_four_modes_split_the_clocks_effect_by_how_far_each_moved():
    inputs = papers_modes(PAPERS_SUBSET)
    times = 500 - 0.2 * inputs[:, 2]
    slopes = least_squares(inputs, times[:, None]).slopes[:, 0]
    moved = inputs[3] - inputs[0]  # from e to j CPU and GPU clock change, nothing else
    assert np.allclose(least_squares(inputs, times[:, None]).at(inputs)[:, 0], times)
    assert slopes[1] / slopes[2] == pytest.approx(moved[1] / moved[2])
    assert slopes[2] != pytest.approx(-0.2, rel=1e-3)


def test_the_subset_chosen_has_the_least_sum_of_errors_of_all():
    random = np.random.default_rng(0)
    modes, times = random.uniform(1, 10, (7, 4)), random.uniform(10, 20, (7, 3))

    def error(taken):
        design = np.column_stack([modes, np.ones(7)])
        weights = np.linalg.lstsq(design[list(taken)], times[list(taken)], rcond=None)[0]
        return np.sqrt(np.mean((design @ weights - times) ** 2, axis=0)).sum()

    best = min(itertools.combinations(range(7), 5), key=error)
    ranked = ranked_subsets(modes, times, size=5)
    assert len(ranked) == 21
    assert ranked[0][1] == best


@pytest.mark.parametrize("size", [0, 11])
def test_a_subset_larger_than_the_modes_is_refused(size):
    with pytest.raises(InvalidValueError, match="cannot take"):
        ranked_subsets(papers_modes("abcdefghij"), np.ones((10, 1)), size)


def test_energy_is_learned_over_workloads_and_gives_power():
    def power_mw(time_ms):
        energy_mws = 2 * time_ms + MHZ @ [1, 0.01, 0.02, 0.03]
        return 1000 * energy_mws / time_ms

    references = tuple(
        dataclasses.replace(TABLE, workload=name, time_ms=factor * TIMES, power_mw=power_mw(factor * TIMES))
        for name, factor in (("resnet18-imagenet", 2), ("lstm-wikitext", 3))
    )
    predictor = LinearEnergy(references=references).fit(TABLE.modes[SOME], TIMES[SOME], power_mw(TIMES)[SOME])
    prediction = predictor.predict(TABLE.modes)
    assert np.allclose(prediction.time_ms, TIMES)
    assert np.allclose(prediction.power_mw, power_mw(TIMES))


def test_each_workload_weighs_the_same_in_the_energy():
    """With twice the rows, half of them at another batch size that changes nothing, a reference says the same."""
    few = made_table("resnet18-imagenet", seed=1, noise=0.1)
    twice = few.take(np.tile(np.arange(54), 2))
    twice = dataclasses.replace(twice, batch_size=np.repeat([16, 32], 54))
    predictions = [
        LinearEnergy(references=(table,))
        .fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])
        .predict(TABLE.modes)
        for table in (few, twice)
    ]
    assert np.allclose(predictions[0].power_mw, predictions[1].power_mw)


@pytest.mark.parametrize("references", [(), (made_table("yolov8n-coco", task="inference"),)])
def test_energy_is_learned_without_references_and_with_one_of_another_batch_size_and_task(references):
    predictor = LinearEnergy(references=references).fit(
        TABLE.modes[SOME], TIMES[SOME], np.full(len(SOME), 5000.0), batch_size=8
    )
    assert np.isfinite(predictor.predict(TABLE.modes, batch_size=8).power_mw).all()


def test_settings_their_squares_and_products_are_the_terms():
    assert quadratic_terms(np.array([[2.0, 3.0]])).tolist() == [[2, 3, 4, 6, 9]]


def test_a_power_law_is_recovered():
    prediction = Ridge().fit(TABLE.modes[HALF], TABLE.time_ms[HALF], TABLE.power_mw[HALF]).predict(TABLE.modes)
    assert np.allclose(prediction.time_ms, TABLE.time_ms, rtol=0.02)
    assert np.allclose(prediction.power_mw, TABLE.power_mw, rtol=0.02)


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_left_out_rows_are_predicted_as_if_the_ridge_were_fitted_without_them(penalty):
    random = np.random.default_rng(0)
    terms, values = random.standard_normal((12, 5)), random.standard_normal(12)
    terms -= terms.mean(axis=0)
    _, found = fit_ridge(terms, values, (penalty,))
    design, shrunk = np.column_stack([np.ones(12), terms]), np.diag([0, *[12 * penalty] * 5])
    for row in range(12):
        others = np.arange(12) != row
        weights = np.linalg.solve(design[others].T @ design[others] + shrunk, design[others].T @ values[others])
        assert found[row] == pytest.approx(design[row] @ weights)


def test_the_penalty_is_the_one_that_predicts_left_out_rows_best():
    random = np.random.default_rng(1)
    terms = random.standard_normal((10, 8))
    terms -= terms.mean(axis=0)
    noise, line = random.standard_normal(10), terms @ np.arange(8.0)
    for values, best in ((noise, 100.0), (line, 1e-4)):
        (chosen, _), (expected, _) = (fit_ridge(terms, values, tried) for tried in ((1e-4, 100.0), (best,)))
        assert np.array_equal(chosen, expected)


@pytest.mark.parametrize("penalties", [(), (1.0, 0.0)])
def test_penalties_that_are_none_are_refused(penalties):
    with pytest.raises(InvalidValueError, match="penalties"):
        Ridge(penalties=penalties).fit(TABLE.modes, TABLE.time_ms, TABLE.power_mw)


def test_batch_sizes_are_an_input_of_the_ridge_where_several_were_learned():
    sizes = np.random.default_rng(0).choice([8, 16, 32], 54)
    time_ms = TABLE.time_ms * sizes / 16
    prediction = Ridge().fit(TABLE.modes, time_ms, TABLE.power_mw, batch_size=sizes).predict(TABLE.modes, batch_size=16)
    assert np.allclose(prediction.time_ms, TABLE.time_ms, rtol=0.05)
