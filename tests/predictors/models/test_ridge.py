"""The log-quadratic ridge: what it recovers, and that its cross-validation is one."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from predictors.models.protocol import State
from predictors.models.ridge import Ridge, fit_ridge, quadratic_terms
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
SOME = np.sort(np.random.default_rng(0).choice(54, 27, replace=False))


def test_settings_their_squares_and_products_are_the_terms():
    assert quadratic_terms(np.array([[2.0, 3.0]])).tolist() == [[2, 3, 4, 6, 9]]


def test_a_power_law_is_recovered():
    prediction = Ridge().fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME]).predict(TABLE.modes)
    assert np.allclose(prediction.time_ms, TABLE.time_ms, rtol=0.02)
    assert np.allclose(prediction.power_mw, TABLE.power_mw, rtol=0.02)


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_left_out_rows_are_predicted_as_if_the_ridge_were_fitted_without_them(penalty):
    random = np.random.default_rng(0)
    terms, values = random.standard_normal((12, 5)), random.standard_normal(12)
    terms -= terms.mean(axis=0)
    found = fit_ridge(terms, values, (penalty,)).others
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
    assert fit_ridge(terms, noise, (1e-4, 100.0)).penalty == 100.0
    assert fit_ridge(terms, line, (1e-4, 100.0)).penalty == 1e-4


@pytest.mark.parametrize("penalties", [(), (1.0, 0.0)])
def test_penalties_that_are_none_are_refused(penalties):
    with pytest.raises(InvalidValueError, match="penalties"):
        Ridge(penalties).fit(TABLE.modes, TABLE.time_ms, TABLE.power_mw)


def test_batch_sizes_are_an_input_where_several_were_learned():
    sizes = np.random.default_rng(0).choice([8, 16, 32], 54)
    time_ms = TABLE.time_ms * sizes / 16
    prediction = Ridge().fit(TABLE.modes, time_ms, TABLE.power_mw, batch_size=sizes).predict(TABLE.modes, batch_size=16)
    assert np.allclose(prediction.time_ms, TABLE.time_ms, rtol=0.05)


def test_what_was_saved_by_another_predictor_is_refused():
    with pytest.raises(InvalidValueError, match="not of ridge"):
        Ridge().restore(State({}, {}))
