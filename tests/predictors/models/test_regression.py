"""What regressions share: their inputs, scales of columns, and how far residuals say they are off."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.core.errors import InvalidValueError
from predictors.forecast import Forecast
from predictors.models.linear import Ridge
from predictors.models.regression import (
    SCALES,
    USUAL_MODES,
    USUAL_WEIGHT,
    Regression,
    above_zero,
    column_scale,
    columns_of,
    residual_spread,
)
from predictors.settings import Settings

MODES = [[2, 1_000_000, 500_000, 204_000], [4, 2_000_000, 1_000_000, 3_199_000]]
VALUES = np.array([[1.0, 100.0, 7.0], [2.0, 300.0, 7.0], [6.0, 200.0, 7.0]])
NOTHING = np.empty((0, 2))


def test_rows_of_one_batch_size_and_task_give_the_four_settings():
    rows = Settings.of(MODES, 8, "training")
    assert columns_of(rows).matrix(rows).tolist() == [[2, 1000, 500, 204], [4, 2000, 1000, 3199]]


def test_batch_size_and_task_are_inputs_where_rows_differ_in_them():
    rows = Settings.of(MODES, [8, 16], ["training", "inference"])
    columns = columns_of(rows)
    assert columns.matrix(rows)[:, 4:].tolist() == [[np.log(8), 0], [np.log(16), 1]]
    columns.matrix(Settings.of(MODES, 64, "inference"))


@pytest.mark.parametrize(
    ("size", "task", "named"), [(32, "training", "batch size 8"), (8, "inference", "task training")]
)
def test_another_batch_size_or_task_than_the_one_learned_is_refused(size, task, named):
    columns = columns_of(Settings.of(MODES, 8, "training"))
    rows = Settings.of(MODES, size, task)
    with pytest.raises(InvalidValueError, match=f"was fitted on {named} only, requested {size if size > 8 else task}"):
        columns.matrix(rows)
    assert columns.matrix_of_others(rows).shape == (2, 4)


def test_scales_give_mean_0_and_variance_1_or_0_to_1():
    standard, min_max = (column_scale(VALUES, kind).apply(VALUES) for kind in SCALES)
    assert np.allclose([standard.mean(axis=0), standard.std(axis=0)], [[0, 0, 0], [1, 1, 0]])
    assert [min_max.min(axis=0).tolist(), min_max.max(axis=0).tolist()] == [[0, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("name", SCALES)
def test_a_column_that_never_changed_says_nothing_of_other_values(name):
    scale = column_scale(VALUES, name)
    assert scale.apply(np.array([[1.0, 100.0, 1e9]]))[0, 2] == 0


@pytest.mark.parametrize("name", SCALES)
@given(values=arrays(float, (5, 2), elements=st.floats(1, 1e6)))
def test_scaling_can_be_undone(name, values):
    scale = column_scale(values, name)
    assert np.allclose(scale.undo(scale.apply(values)), values, rtol=1e-6)


def test_without_residuals_the_usual_spread_is_told_and_more_of_fewer_modes():
    log_sd, freedom = residual_spread(NOTHING, NOTHING, (0.2, 0.1), USUAL_MODES)
    assert log_sd == pytest.approx((0.2, 0.1))
    assert freedom == USUAL_WEIGHT
    few, many = (residual_spread(NOTHING, NOTHING, (0.2, 0.1), count)[0] for count in (10, 100))
    assert few[0] > 0.2 > many[0]


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_intervals_hold_their_share_of_what_is_measured(share):
    random = np.random.default_rng(0)
    truth = np.full((4000, 2), 100.0)
    measured = truth * np.exp(random.standard_normal(truth.shape) * [0.2, 0.05])
    log_sd, freedom = residual_spread(measured[:60], truth[:60], (0.2, 0.05), 60)
    low, high = Forecast.of_medians(
        Settings.of(np.ones((4000, 4))), *truth.T, *np.tile(log_sd[:, None], 4000), freedom
    ).interval("power_mw", share)
    assert np.mean((low <= measured[:, 1]) & (measured[:, 1] <= high)) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("count", [2, 3, 5, 23])
def test_residuals_are_of_rows_that_were_not_learned(count):
    class Recording(Regression):
        name, usual_log_sd = "recording", (0.1, 0.1)

        def __init__(self):
            self.asked = []

        def _fit(self, inputs, figures):
            def predict(asked):
                assert not {*map(tuple, inputs)} & {*map(tuple, asked)}
                assert len(inputs) + len(asked) == count
                self.asked.extend(asked[:, 1])
                return np.ones((len(asked), 2))

            return predict

    cpu_khz = 1000 * np.arange(1, count + 1)
    modes = np.column_stack([np.ones(count), cpu_khz, np.full((count, 2), 1e6)])
    predictor = Recording().fit(modes, np.full(count, np.e), np.ones(count))
    assert sorted(predictor.asked) == (cpu_khz / 1000).tolist()
    assert predictor.log_sd_[0] > predictor.log_sd_[1]


def test_predictions_do_not_fall_below_a_tenth_of_the_least_learned():
    kept = above_zero(np.array([[-5.0, 7.0], [3.0, 0.0]]), np.array([[10.0, 20.0], [30.0, 5.0]]))
    assert kept.tolist() == [[1.0, 7.0], [3.0, 0.5]]


def test_parameters_of_a_regression_are_given_by_name_and_copies_keep_them():
    with pytest.raises(TypeError, match=r"Ridge .*by name, got \(0.1,\)"):
        Ridge((0.1,))
    ridge = Ridge(penalties=(0.1,))
    for other in (ridge.clone(), copy.deepcopy(ridge), pickle.loads(pickle.dumps(ridge))):
        assert (other.penalties, other.space) == ((0.1,), None)
