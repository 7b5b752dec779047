"""Estimators of scikit-learn as predictors: gradient-boosted trees and a small perceptron."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, List, Optional, Tuple

import numpy as np

from harness.core.errors import DependencyError
from harness.core.power_modes import PowerModeSpace
from predictors.models.base import Inputs, Prediction, Predictor
from predictors.models.regression import columns_of, cross_validated, residual_spread, standard_scale

# Standard deviation of log time and log power residuals after 50 random modes of the tables of an Orin AGX.
USUAL_BOOSTING_LOG_SD = (0.12, 0.05)
USUAL_PERCEPTRON_LOG_SD = (0.1, 0.04)


class Boosting(Predictor):
    """A sum of small trees of log time and one of log power: 001 sec. 3 tried trees, which fitted too closely.

    Rows of several batch sizes or tasks have these as further inputs. Intervals come from cross-validation.

    Args:
        trees: how many.
        depth: of each, at most.
        learning_rate: share of a tree that is added.
        subsample: share of the rows that a tree learns from.
        space: the power modes that are allowed.
        seed: of those rows.
    """

    name = "gbr"
    least_modes = 2

    def __init__(
        self,
        trees: int = 200,
        depth: int = 3,
        learning_rate: float = 0.1,
        subsample: float = 0.7,
        space: Optional[PowerModeSpace] = None,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.subsample = subsample
        self.space = space
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        self.columns_ = columns_of(rows)
        inputs, logs = self.columns_.matrix(rows), np.log(np.column_stack([time_ms, power_mw]))

        def predict_others(learned: np.ndarray, asked: np.ndarray) -> np.ndarray:
            return _predict(self._fit(inputs[learned], logs[learned]), inputs[asked])

        self.estimators_ = self._fit(inputs, logs)
        others = cross_validated(len(logs), predict_others)
        self.spread_ = residual_spread(np.exp(logs), np.exp(others), USUAL_BOOSTING_LOG_SD, len(inputs))

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

    def _infer(self, rows: Inputs) -> Prediction:
        return self.spread_.prediction(np.exp(_predict(self.estimators_, self.columns_.matrix(rows))))


class Perceptron(Predictor):
    """A network of log time and one of log power with two small hidden layers: good with few modes (001 sec. 3).

    It is trained to the end by L-BFGS with a penalty. Rows of several batch sizes or tasks have these as further
    inputs. Intervals come from cross-validation.

    Args:
        hidden: neurons of the hidden layers.
        penalty: on the squared weights.
        space: the power modes that are allowed.
        seed: of the weights to start with.
    """

    name = "mlp"
    least_modes = 2

    def __init__(
        self,
        hidden: Tuple[int, ...] = (32, 16),
        penalty: float = 0.1,
        space: Optional[PowerModeSpace] = None,
        seed: int = 0,
    ) -> None:
        self.hidden = hidden
        self.penalty = penalty
        self.space = space
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        self.columns_ = columns_of(rows)
        inputs, logs = self.columns_.log_matrix(rows), np.log(np.column_stack([time_ms, power_mw]))
        self.input_scale_, self.output_scale_ = standard_scale(inputs), standard_scale(logs)
        scaled, outputs = self.input_scale_.apply(inputs), self.output_scale_.apply(logs)

        def predict_others(learned: np.ndarray, asked: np.ndarray) -> np.ndarray:
            return self.output_scale_.undo(_predict(self._fit(scaled[learned], outputs[learned]), scaled[asked]))

        self.estimators_ = self._fit(scaled, outputs)
        others = cross_validated(len(logs), predict_others)
        self.spread_ = residual_spread(np.exp(logs), np.exp(others), USUAL_PERCEPTRON_LOG_SD, len(inputs))

    def _fit(self, inputs: np.ndarray, outputs: np.ndarray) -> List[Any]:
        regressor = _estimator(self.name, "neural_network", "MLPRegressor")
        settings = {"hidden_layer_sizes": self.hidden, "solver": "lbfgs", "alpha": self.penalty, "max_iter": 500}
        with warnings.catch_warnings():
            # What 500 steps reach is good enough.
            warnings.simplefilter("ignore", _estimator(self.name, "exceptions", "ConvergenceWarning"))
            return [regressor(**settings, random_state=self.seed).fit(inputs, values) for values in outputs.T]

    def _infer(self, rows: Inputs) -> Prediction:
        scaled = _predict(self.estimators_, self.input_scale_.apply(self.columns_.log_matrix(rows)))
        return self.spread_.prediction(np.exp(self.output_scale_.undo(scaled)))


def _predict(estimators: List[Any], inputs: np.ndarray) -> np.ndarray:
    return np.column_stack([estimator.predict(inputs) for estimator in estimators])


def _estimator(predictor: str, module: str, name: str) -> Any:
    """A class of scikit-learn.

    Raises:
        DependencyError: it is not installed.
    """
    try:
        return getattr(importlib.import_module(f"sklearn.{module}"), name)
    except ImportError as error:
        raise DependencyError(
            f"the predictor {predictor} needs scikit-learn: {error}",
            "pip install scikit-learn, or take another predictor",
        ) from error
