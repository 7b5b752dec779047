"""The small perceptron: kept as arrays it answers as scikit-learn's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from harness.core.errors import DependencyError, InvalidValueError
from predictors.models.perceptron import Perceptron
from predictors.models.protocol import State
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
SOME = np.sort(np.random.default_rng(0).choice(54, 27, replace=False))


def fitted(**params):
    return Perceptron(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])


def test_the_network_answers_as_that_of_scikit_learn():
    networks = pytest.importorskip("sklearn.neural_network")
    logs, times = np.log(TABLE.modes / [1, 1000, 1000, 1000]), np.log(TABLE.time_ms)
    scaled = (logs - logs[SOME].mean(axis=0)) / logs[SOME].std(axis=0)
    model = networks.MLPRegressor(hidden_layer_sizes=(32, 16), solver="lbfgs", alpha=0.1, max_iter=500, random_state=2)
    model.fit(scaled[SOME], (times[SOME] - times[SOME].mean()) / times[SOME].std())
    expected = model.predict(scaled) * times[SOME].std() + times[SOME].mean()
    assert np.allclose(np.log(fitted(seed=2).predict(TABLE.modes).time_ms), expected, rtol=1e-3)


def test_a_power_law_is_learned_from_half_the_modes():
    pytest.importorskip("sklearn")
    prediction = fitted().predict(TABLE.modes)
    assert np.median(np.abs(prediction.time_ms / TABLE.time_ms - 1)) < 0.05
    assert np.median(np.abs(prediction.power_mw / TABLE.power_mw - 1)) < 0.05


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(DependencyError, match="pip install scikit-learn"):
        fitted()


def test_what_was_saved_by_another_predictor_is_refused():
    with pytest.raises(InvalidValueError, match="not of mlp"):
        Perceptron().restore(State({}, {}))
