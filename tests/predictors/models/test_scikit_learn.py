"""Boosted trees and the small perceptron are scikit-learn's, fitted to logarithms."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from harness.core.errors import DependencyError
from predictors.models.regression import columns_of
from predictors.models.scikit_learn import Boosting, DecisionTree, Perceptron, RandomForest
from predictors.settings import Settings
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
SOME = np.sort(np.random.default_rng(0).choice(54, 27, replace=False))


def fitted(kind, **params):
    return kind(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])


@pytest.mark.parametrize(
    ("kind", "params", "theirs", "options"),
    [
        (Boosting, {"trees": 30}, "ensemble.GradientBoostingRegressor", {"n_estimators": 30, "subsample": 0.7}),
        (RandomForest, {"trees": 10}, "ensemble.RandomForestRegressor", {"n_estimators": 10}),
        (DecisionTree, {}, "tree.DecisionTreeRegressor", {}),
    ],
)
def test_the_trees_answer_as_those_of_scikit_learn(kind, params, theirs, options):
    module, name = theirs.split(".")
    rows = Settings.of(TABLE.modes, 16, "training")
    inputs = columns_of(rows).matrix(rows)
    model = getattr(pytest.importorskip(f"sklearn.{module}"), name)(random_state=3, **options)
    model.fit(inputs[SOME], np.log(TABLE.time_ms[SOME]))
    expected = model.predict(inputs)
    assert np.allclose(np.log(fitted(kind, seed=3, **params).predict(TABLE.modes).time_ms), expected, rtol=1e-12)


def test_the_network_answers_as_that_of_scikit_learn():
    networks = pytest.importorskip("sklearn.neural_network")
    logs, times = np.log(TABLE.modes / [1, 1000, 1000, 1000]), np.log(TABLE.time_ms)
    scaled = (logs - logs[SOME].mean(axis=0)) / logs[SOME].std(axis=0)
    model = networks.MLPRegressor(hidden_layer_sizes=(32, 16), solver="lbfgs", alpha=0.1, max_iter=500, random_state=2)
    model.fit(scaled[SOME], (times[SOME] - times[SOME].mean()) / times[SOME].std())
    expected = model.predict(scaled) * times[SOME].std() + times[SOME].mean()
    assert np.allclose(np.log(fitted(Perceptron, seed=2).predict(TABLE.modes).time_ms), expected, rtol=1e-3)


@pytest.mark.parametrize(("kind", "module"), [(Boosting, "sklearn.ensemble"), (Perceptron, "sklearn.neural_network")])
def test_without_scikit_learn_the_error_says_what_to_install(kind, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DependencyError, match="pip install scikit-learn"):
        fitted(kind)
