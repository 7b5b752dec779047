"""How sure a regression is, told from residuals; folds; the floor under predictions."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.models.residual_spread import USUAL_MODES, USUAL_WEIGHT, above_zero, cross_validated, residual_spread

NOTHING = np.empty((0, 2))


def test_without_residuals_the_usual_spread_is_told():
    spread = residual_spread(NOTHING, NOTHING, (0.2, 0.1), USUAL_MODES)
    assert spread[:2] == pytest.approx((0.2, 0.1))
    assert spread.freedom == USUAL_WEIGHT


def test_fewer_modes_are_less_sure_beforehand():
    few, many = (residual_spread(NOTHING, NOTHING, (0.2, 0.1), count) for count in (10, 100))
    assert few.time_log_sd > 0.2 > many.time_log_sd


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_intervals_hold_their_share_of_what_is_measured(share):
    random = np.random.default_rng(0)
    truth = np.full((4000, 2), 100.0)
    measured = truth * np.exp(random.standard_normal(truth.shape) * [0.2, 0.05])
    spread = residual_spread(measured[:60], truth[:60], (0.2, 0.05), 60)
    low, high = spread.prediction(truth).power_interval_mw(share)
    assert np.mean((low <= measured[:, 1]) & (measured[:, 1] <= high)) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("count", [2, 3, 5, 23])
def test_each_row_is_predicted_once_from_rows_without_it(count):
    asked_for = []

    def predict(learned, asked):
        assert not set(learned) & set(asked)
        assert len(learned) + len(asked) == count
        asked_for.extend(asked)
        return np.column_stack([asked, asked])

    assert cross_validated(count, predict).tolist() == [[row, row] for row in range(count)]
    assert sorted(asked_for) == list(range(count))


def test_predictions_do_not_fall_below_a_tenth_of_the_least_learned():
    kept = above_zero(np.array([[-5.0, 7.0], [3.0, 0.0]]), np.array([[10.0, 20.0], [30.0, 5.0]]))
    assert kept.tolist() == [[1.0, 7.0], [3.0, 0.5]]
