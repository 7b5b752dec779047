"""Gradient-boosted trees: a plain baseline that learns logarithms of time and power from the settings.

001 sec. 3 tried trees and put them aside because they fit too closely; boosting many small ones is the usual remedy.
scikit-learn grows the trees; they are kept as plain arrays and answer without it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import numpy as np

from harness.core.errors import DependencyError, InvalidValueError
from harness.core.power_modes import PowerModeSpace
from predictors.models.input_columns import column_values, columns_from, columns_of
from predictors.models.protocol import Inputs, Prediction, Predictor, State
from predictors.models.residual_spread import ResidualSpread, cross_validated, residual_spread

USUAL_LOG_SD = (0.12, 0.05)
"""Of time and power: the residuals of trees that learned 50 random modes of the tables of an Orin AGX."""


class Trees(NamedTuple):
    """A sum of regression trees of one shape, padded with leaves.

    Attributes:
        start: what is predicted before any tree.
        feature: the column that a node looks at, -1 in a leaf; shape (trees, nodes), the root first.
        threshold: up to which a row goes left.
        left: the node to go to then.
        right: the node to go to else.
        value: of a leaf.
    """

    start: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    def at(self, inputs: np.ndarray) -> np.ndarray:
        """Their sum at inputs (n, d): shape (n,)."""
        inputs = inputs.astype(np.float32)  # as scikit-learn compares them
        rows, trees = np.arange(len(inputs))[:, None], np.arange(len(self.feature))[None]
        node = np.zeros((len(inputs), len(self.feature)), dtype=np.int64)
        while True:
            feature = self.feature[trees, node]
            inner = feature >= 0
            if not inner.any():
                return self.start + self.value[trees, node].sum(axis=1)
            goes_left = inputs[rows, np.maximum(feature, 0)] <= self.threshold[trees, node]
            node = np.where(inner, np.where(goes_left, self.left[trees, node], self.right[trees, node]), node)


class Boosting(Predictor):
    """A sum of small trees of time and one of power.

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
        """Keep the parameters."""
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.subsample = subsample
        self.space = space
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        columns = columns_of(rows)
        inputs, logs = columns.matrix(rows), np.log(np.column_stack([time_ms, power_mw]))

        def others(learned: np.ndarray, asked: np.ndarray) -> np.ndarray:
            return np.column_stack([trees.at(inputs[asked]) for trees in self._grow(inputs[learned], logs[learned])])

        self.columns_ = columns
        self.time_trees_, self.power_trees_ = self._grow(inputs, logs)
        self.spread_ = residual_spread(
            np.exp(logs), np.exp(cross_validated(len(logs), others)), USUAL_LOG_SD, len(inputs)
        )

    def _grow(self, inputs: np.ndarray, logs: np.ndarray) -> List[Trees]:
        """Trees of each column of logarithms."""
        try:
            from sklearn.ensemble import GradientBoostingRegressor
        except ImportError as error:
            raise DependencyError(
                f"the predictor {self.name} needs scikit-learn: {error}",
                "pip install scikit-learn, or take another predictor",
            ) from error
        model = GradientBoostingRegressor(
            n_estimators=self.trees,
            max_depth=self.depth,
            learning_rate=self.learning_rate,
            subsample=self.subsample if self.subsample * len(inputs) >= 1 else 1.0,
            random_state=self.seed,
        )
        return [_trees_of(model.fit(inputs, values), float(values.mean())) for values in logs.T]

    def _infer(self, rows: Inputs) -> Prediction:
        inputs = self.columns_.matrix(rows)
        logs = np.column_stack([self.time_trees_.at(inputs), self.power_trees_.at(inputs)])
        return self.spread_.prediction(np.exp(logs))

    def state(self) -> State:
        """What was learned."""
        values = {"columns": column_values(self.columns_), "spread": list(self.spread_)}
        return State(values, {**_arrays("time", self.time_trees_), **_arrays("power", self.power_trees_)})

    def restore(self, state: State) -> None:
        """Take what `state` gave."""
        try:
            self.columns_ = columns_from(state.values["columns"])
            self.spread_ = ResidualSpread(*state.values["spread"])
            self.time_trees_, self.power_trees_ = (_trees(name, state.arrays) for name in ("time", "power"))
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"what was saved is not of {self.name}: {error!r}") from error


def _trees_of(model: Any, start: float) -> Trees:
    """The trees of a fitted model of scikit-learn; its learning rate is put into the leaves.

    Args:
        model: a GradientBoostingRegressor of squared error, which starts from the mean.
        start: that mean.
    """
    grown = [estimator.tree_ for estimator in model.estimators_[:, 0]]
    nodes = max(tree.node_count for tree in grown)

    def padded(arrays: List[np.ndarray], fill: float, dtype: type) -> np.ndarray:
        found = np.full((len(arrays), nodes), fill, dtype=dtype)
        for row, values in zip(found, arrays):
            row[: len(values)] = values
        return found

    return Trees(
        np.array(start),
        padded([np.where(tree.children_left < 0, -1, tree.feature) for tree in grown], -1, np.int64),
        padded([tree.threshold for tree in grown], 0, np.float64),
        padded([tree.children_left for tree in grown], 0, np.int64),
        padded([tree.children_right for tree in grown], 0, np.int64),
        padded([model.learning_rate * tree.value[:, 0, 0] for tree in grown], 0, np.float64),
    )


def _arrays(name: str, trees: Trees) -> Dict[str, np.ndarray]:
    return {f"{name}_{part}": values for part, values in trees._asdict().items()}


def _trees(name: str, arrays: Mapping[str, np.ndarray]) -> Trees:
    return Trees(*(arrays[f"{name}_{part}"] for part in Trees._fields))
