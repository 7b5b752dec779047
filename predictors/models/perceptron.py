"""A small multi-layer perceptron by scikit-learn: the model that 001 sec. 3 found good with very few modes.

It learns logarithms of time and power from the logarithms of the settings. scikit-learn trains it; it is kept as plain
arrays and answers without it.
"""

from __future__ import annotations

import warnings
from typing import Optional, Tuple

import numpy as np

from harness.core.errors import DependencyError, InvalidValueError
from harness.core.power_modes import PowerModeSpace
from predictors.models.dense_network import (
    Networks,
    answers,
    network_arrays,
    networks_of,
    scale_of,
    scale_values,
    standard_scale,
)
from predictors.models.input_columns import column_values, columns_from, columns_of
from predictors.models.protocol import Inputs, Prediction, Predictor, State
from predictors.models.residual_spread import ResidualSpread, cross_validated, residual_spread

USUAL_LOG_SD = (0.1, 0.04)
"""Of time and power: the residuals of perceptrons that learned 50 random modes of the tables of an Orin AGX."""


class Perceptron(Predictor):
    """A network of time and one of power with two small hidden layers, trained to the end by L-BFGS with a penalty.

    Rows of several batch sizes or tasks have these as further inputs. Intervals come from cross-validation.

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
        """Keep the parameters."""
        self.hidden = hidden
        self.penalty = penalty
        self.space = space
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        columns = columns_of(rows)
        inputs, logs = columns.log_matrix(rows), np.log(np.column_stack([time_ms, power_mw]))
        scale, output_scale = standard_scale(inputs), standard_scale(logs)
        scaled, outputs = scale.apply(inputs), output_scale.apply(logs)

        def others(learned: np.ndarray, asked: np.ndarray) -> np.ndarray:
            networks = self._train(scaled[learned], outputs[learned])
            return np.exp(output_scale.undo(answers(networks, scaled[asked])))

        self.columns_, self.input_scale_, self.output_scale_ = columns, scale, output_scale
        self.networks_ = self._train(scaled, outputs)
        self.spread_ = residual_spread(np.exp(logs), cross_validated(len(logs), others), USUAL_LOG_SD, len(inputs))

    def _train(self, inputs: np.ndarray, outputs: np.ndarray) -> Networks:
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.neural_network import MLPRegressor
        except ImportError as error:
            raise DependencyError(
                f"the predictor {self.name} needs scikit-learn: {error}",
                "pip install scikit-learn, or take another predictor",
            ) from error
        model = MLPRegressor(
            hidden_layer_sizes=self.hidden, solver="lbfgs", alpha=self.penalty, max_iter=500, random_state=self.seed
        )
        layers = []
        for values in outputs.T:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # what 500 steps reach is good enough
                model.fit(inputs, values)
            layers.append(list(zip(model.coefs_, model.intercepts_)))
        pairs = list(zip(*layers))
        weights = tuple(np.stack([weight for weight, _ in pair]) for pair in pairs)
        return Networks(weights, tuple(np.stack([bias[None] for _, bias in pair]) for pair in pairs))

    def _infer(self, rows: Inputs) -> Prediction:
        scaled = answers(self.networks_, self.input_scale_.apply(self.columns_.log_matrix(rows)))
        return self.spread_.prediction(np.exp(self.output_scale_.undo(scaled)))

    def state(self) -> State:
        """What was learned."""
        values = {
            "columns": column_values(self.columns_),
            "input_scale": scale_values(self.input_scale_),
            "output_scale": scale_values(self.output_scale_),
            "spread": list(self.spread_),
        }
        return State(values, network_arrays(self.networks_))

    def restore(self, state: State) -> None:
        """Take what `state` gave."""
        try:
            self.columns_ = columns_from(state.values["columns"])
            scales = (scale_of(state.values[name]) for name in ("input_scale", "output_scale"))
            self.input_scale_, self.output_scale_ = scales
            self.spread_ = ResidualSpread(*state.values["spread"])
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"what was saved is not of {self.name}: {error!r}") from error
        self.networks_ = networks_of(state.arrays)
