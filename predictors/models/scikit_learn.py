"""Scikit-learn's estimators as predictors, one of log time and one of log power: trees and a perceptron."""

from __future__ import annotations

import abc
import importlib
import warnings
from dataclasses import dataclass
from typing import Any, Tuple

import numpy as np

from harness.core.errors import DependencyError
from predictors.models.regression import Figures, Regression, column_scale


@dataclass(eq=False)
class _Estimator(Regression):
    """A copy of an estimator for log time and one for log power."""

    seed: int = 0  # of rows, splits or weights

    @abc.abstractmethod
    def _model(self, rows: int) -> Any:
        """An unfitted estimator for a number of rows."""

    def _fit_both(self, inputs: np.ndarray, logs: np.ndarray) -> Any:
        return self._of_sklearn("multioutput", "MultiOutputRegressor")(self._model(len(inputs))).fit(inputs, logs)

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        both = self._fit_both(inputs, np.log(figures))
        return lambda queries: np.exp(both.predict(queries))

    def _of_sklearn(self, module: str, name: str) -> Any:
        try:
            return getattr(importlib.import_module(f"sklearn.{module}"), name)
        except ImportError as error:
            raise DependencyError(
                f"the predictor {self.name} needs scikit-learn: {error}",
                "pip install scikit-learn, or use another predictor",
            ) from error


@dataclass(eq=False)
class Boosting(_Estimator):
    """Gradient-boosted small trees: the trees of 001 sec. 3 overfitted."""

    name = "gbr"
    usual_log_sd = (0.12, 0.05)
    trees: int = 200
    depth: int = 3  # of each tree, at most
    learning_rate: float = 0.1  # share of a tree that is added
    subsample: float = 0.7  # share of the rows that a tree learns from

    def _model(self, rows: int) -> Any:
        return self._of_sklearn("ensemble", "GradientBoostingRegressor")(
            n_estimators=self.trees,
            max_depth=self.depth,
            learning_rate=self.learning_rate,
            subsample=self.subsample if self.subsample * rows >= 1 else 1.0,
            random_state=self.seed,
        )


@dataclass(eq=False)
class RandomForest(_Estimator):
    """The mean of full trees, each grown on rows drawn with replacement (001 sec. 3)."""

    name = "random-forest"
    usual_log_sd = (0.18, 0.08)
    trees: int = 100

    def _model(self, rows: int) -> Any:
        return self._of_sklearn("ensemble", "RandomForestRegressor")(self.trees, random_state=self.seed)


@dataclass(eq=False)
class DecisionTree(_Estimator):
    """One tree, grown until each leaf is one profile (001 sec. 3)."""

    name = "decision-tree"
    usual_log_sd = (0.22, 0.1)

    def _model(self, rows: int) -> Any:
        return self._of_sklearn("tree", "DecisionTreeRegressor")(random_state=self.seed)


@dataclass(eq=False)
class Perceptron(_Estimator):
    """A network with two small hidden layers, trained by L-BFGS with a penalty; good with few modes (001 sec. 3)."""

    name = "mlp"
    usual_log_sd = (0.1, 0.04)
    log_inputs = True
    hidden: Tuple[int, ...] = (32, 16)
    penalty: float = 0.1  # on the squared weights

    def _model(self, rows: int) -> Any:
        return self._of_sklearn("neural_network", "MLPRegressor")(
            hidden_layer_sizes=self.hidden, solver="lbfgs", alpha=self.penalty, max_iter=500, random_state=self.seed
        )

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        logs = np.log(figures)
        scale, log_scale = column_scale(inputs), column_scale(logs)
        with warnings.catch_warnings():
            # The result after 500 steps is good enough.
            warnings.simplefilter("ignore", self._of_sklearn("exceptions", "ConvergenceWarning"))
            both = self._fit_both(scale.apply(inputs), log_scale.apply(logs))
        return lambda queries: np.exp(log_scale.undo(both.predict(scale.apply(queries))))
