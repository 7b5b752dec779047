"""Estimators of scikit-learn as predictors, one of log time and one of log power: trees and a perceptron."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np

from harness.core.errors import DependencyError
from harness.core.power_modes import PowerModeSpace
from predictors.models.regression import Figures, Regression, column_scale


@dataclass(eq=False)
class Boosting(Regression):
    """A sum of small trees: 001 sec. 3 tried trees, which fitted too closely."""

    name = "gbr"
    least_modes = 2
    usual_log_sd = (0.12, 0.05)
    trees: int = 200
    depth: int = 3  # of each tree, at most
    learning_rate: float = 0.1  # share of a tree that is added
    subsample: float = 0.7  # share of the rows that a tree learns from
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of those rows

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        model = _estimator(self.name, "ensemble", "GradientBoostingRegressor")(
            n_estimators=self.trees,
            max_depth=self.depth,
            learning_rate=self.learning_rate,
            subsample=self.subsample if self.subsample * len(inputs) >= 1 else 1.0,
            random_state=self.seed,
        )
        return _fit_logs(self.name, model, inputs, figures)


@dataclass(eq=False)
class RandomForest(Regression):
    """The mean of full trees, each grown on rows drawn with replacement (001 sec. 3)."""

    name = "random-forest"
    least_modes = 2
    usual_log_sd = (0.18, 0.08)
    trees: int = 100
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of those rows

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        model = _estimator(self.name, "ensemble", "RandomForestRegressor")(self.trees, random_state=self.seed)
        return _fit_logs(self.name, model, inputs, figures)


@dataclass(eq=False)
class DecisionTree(Regression):
    """One tree, grown until each leaf is one profile (001 sec. 3)."""

    name = "decision-tree"
    least_modes = 2
    usual_log_sd = (0.22, 0.1)
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of the order in which equally good splits are tried

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        model = _estimator(self.name, "tree", "DecisionTreeRegressor")(random_state=self.seed)
        return _fit_logs(self.name, model, inputs, figures)


@dataclass(eq=False)
class Perceptron(Regression):
    """A network with two small hidden layers, trained to the end by L-BFGS with a penalty.

    It is good with few modes (001 sec. 3).
    """

    name = "mlp"
    least_modes = 2
    usual_log_sd = (0.1, 0.04)
    log_inputs = True
    hidden: Tuple[int, ...] = (32, 16)
    penalty: float = 0.1  # on the squared weights
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of the weights to start with

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        logs = np.log(figures)
        scale, log_scale = column_scale(inputs), column_scale(logs)
        model = _estimator(self.name, "neural_network", "MLPRegressor")(
            hidden_layer_sizes=self.hidden, solver="lbfgs", alpha=self.penalty, max_iter=500, random_state=self.seed
        )
        both = _estimator(self.name, "multioutput", "MultiOutputRegressor")(model)
        with warnings.catch_warnings():
            # What 500 steps reach is good enough.
            warnings.simplefilter("ignore", _estimator(self.name, "exceptions", "ConvergenceWarning"))
            both.fit(scale.apply(inputs), log_scale.apply(logs))
        return lambda asked: np.exp(log_scale.undo(both.predict(scale.apply(asked))))


def _fit_logs(predictor: str, model: Any, inputs: np.ndarray, figures: np.ndarray) -> Figures:
    """Fit one copy of a model to log time and one to log power."""
    both = _estimator(predictor, "multioutput", "MultiOutputRegressor")(model).fit(inputs, np.log(figures))
    return lambda asked: np.exp(both.predict(asked))


def _estimator(predictor: str, module: str, name: str) -> Any:
    """A class of scikit-learn."""
    try:
        return getattr(importlib.import_module(f"sklearn.{module}"), name)
    except ImportError as error:
        raise DependencyError(
            f"the predictor {predictor} needs scikit-learn: {error}",
            "pip install scikit-learn, or take another predictor",
        ) from error
