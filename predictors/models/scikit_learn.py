"""Estimators of scikit-learn as predictors: gradient-boosted trees and a small perceptron."""

from __future__ import annotations

import abc
import importlib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, List, Optional, Tuple

import numpy as np

from harness.core.errors import DependencyError
from harness.core.power_modes import PowerModeSpace
from predictors.models.base import Inputs, Prediction, Predictor
from predictors.models.regression import columns_of, cross_validated, residual_spread, standard_scale


class ScikitPredictor(Predictor):
    """An estimator of log time and one of log power.

    Rows of several batch sizes or tasks have these as further inputs. Intervals come from cross-validation.
    """

    least_modes = 2
    usual_log_sd: ClassVar[Tuple[float, float]]  # of residuals after 50 random modes of the tables of an Orin AGX

    @abc.abstractmethod
    def _fit(self, inputs: np.ndarray, logs: np.ndarray) -> List[Any]:
        """An estimator for each column of the logarithms."""

    def _inputs(self, rows: Inputs) -> np.ndarray:
        return self.columns_.matrix(rows)

    def _predict(self, estimators: List[Any], inputs: np.ndarray) -> np.ndarray:
        return np.column_stack([estimator.predict(inputs) for estimator in estimators])

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        self.columns_ = columns_of(rows)
        inputs, logs = self._inputs(rows), np.log(np.column_stack([time_ms, power_mw]))
        self._scale(inputs, logs)
        self.estimators_ = self._fit(inputs, logs)

        def predict_others(learned: np.ndarray, asked: np.ndarray) -> np.ndarray:
            return self._predict(self._fit(inputs[learned], logs[learned]), inputs[asked])

        others = cross_validated(len(logs), predict_others)
        self.spread_ = residual_spread(np.exp(logs), np.exp(others), self.usual_log_sd, len(inputs))

    def _scale(self, inputs: np.ndarray, logs: np.ndarray) -> None:
        """Learn what scales the estimators need; trees need none."""

    def _infer(self, rows: Inputs) -> Prediction:
        return self.spread_.prediction(np.exp(self._predict(self.estimators_, self._inputs(rows))))


@dataclass(eq=False)
class Boosting(ScikitPredictor):
    """A sum of small trees of log time and one of log power: 001 sec. 3 tried trees, which fitted too closely."""

    name = "gbr"
    usual_log_sd = (0.12, 0.05)
    trees: int = 200
    depth: int = 3  # of each tree, at most
    learning_rate: float = 0.1  # share of a tree that is added
    subsample: float = 0.7  # share of the rows that a tree learns from
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of those rows

    def _fit(self, inputs: np.ndarray, logs: np.ndarray) -> List[Any]:
        regressor = _estimator(self.name, "ensemble", "GradientBoostingRegressor")
        return [
            regressor(
                n_estimators=self.trees,
                max_depth=self.depth,
                learning_rate=self.learning_rate,
                subsample=self.subsample if self.subsample * len(inputs) >= 1 else 1.0,
                random_state=self.seed,
            ).fit(inputs, values)
            for values in logs.T
        ]


@dataclass(eq=False)
class Perceptron(ScikitPredictor):
    """A network of log time and one of log power with two small hidden layers: good with few modes (001 sec. 3).

    It is trained to the end by L-BFGS with a penalty.
    """

    name = "mlp"
    usual_log_sd = (0.1, 0.04)
    hidden: Tuple[int, ...] = (32, 16)
    penalty: float = 0.1  # on the squared weights
    space: Optional[PowerModeSpace] = None
    seed: int = 0  # of the weights to start with

    def _inputs(self, rows: Inputs) -> np.ndarray:
        return self.columns_.log_matrix(rows)

    def _scale(self, inputs: np.ndarray, logs: np.ndarray) -> None:
        self.input_scale_, self.output_scale_ = standard_scale(inputs), standard_scale(logs)

    def _fit(self, inputs: np.ndarray, logs: np.ndarray) -> List[Any]:
        scaled, outputs = self.input_scale_.apply(inputs), self.output_scale_.apply(logs)
        regressor = _estimator(self.name, "neural_network", "MLPRegressor")
        settings = {"hidden_layer_sizes": self.hidden, "solver": "lbfgs", "alpha": self.penalty, "max_iter": 500}
        with warnings.catch_warnings():
            # What 500 steps reach is good enough.
            warnings.simplefilter("ignore", _estimator(self.name, "exceptions", "ConvergenceWarning"))
            return [regressor(**settings, random_state=self.seed).fit(scaled, values) for values in outputs.T]

    def _predict(self, estimators: List[Any], inputs: np.ndarray) -> np.ndarray:
        return self.output_scale_.undo(super()._predict(estimators, self.input_scale_.apply(inputs)))


def _estimator(predictor: str, module: str, name: str) -> Any:
    """A class of scikit-learn."""
    try:
        return getattr(importlib.import_module(f"sklearn.{module}"), name)
    except ImportError as error:
        raise DependencyError(
            f"the predictor {predictor} needs scikit-learn: {error}",
            "pip install scikit-learn, or take another predictor",
        ) from error
