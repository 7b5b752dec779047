"""Boosted trees: kept as arrays they answer as scikit-learn's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from harness.core.errors import DependencyError, InvalidValueError
from predictors.models.boosting import Boosting
from predictors.models.input_columns import columns_of
from predictors.models.protocol import State, check_inputs
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
SOME = np.sort(np.random.default_rng(0).choice(54, 27, replace=False))


def fitted(**params):
    return Boosting(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])


def test_the_trees_answer_as_those_of_scikit_learn():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rows = check_inputs(TABLE.modes, 16, "training")
    inputs = columns_of(rows).matrix(rows)
    model = ensemble.GradientBoostingRegressor(
        n_estimators=30, max_depth=3, learning_rate=0.1, subsample=0.7, random_state=3
    )
    model.fit(inputs[SOME], np.log(TABLE.time_ms[SOME]))
    prediction = fitted(trees=30, seed=3).predict(TABLE.modes)
    assert np.allclose(np.log(prediction.time_ms), model.predict(inputs), rtol=1e-12)


def test_what_was_learned_is_predicted():
    pytest.importorskip("sklearn")
    prediction = fitted().predict(TABLE.modes[SOME])
    assert np.allclose(prediction.time_ms, TABLE.time_ms[SOME], rtol=0.1)
    assert np.allclose(prediction.power_mw, TABLE.power_mw[SOME], rtol=0.1)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(DependencyError, match="pip install scikit-learn"):
        fitted()


def test_what_was_saved_by_another_predictor_is_refused():
    with pytest.raises(InvalidValueError, match="not of gbr"):
        Boosting().restore(State({}, {}))
