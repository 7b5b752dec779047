"""The papers' neural network: one for time and one for power, learned from the profiles of one workload.

001 sec. 3.1: dense layers of 256, 128, 64 and 1 neurons, ReLU after the first three, dropout after the first two; Adam
at 0.001 on the mean squared error, 100 epochs, 90 % of the modes to learn from and 10 % to choose the best epoch by.
With all modes of a corpus it is the paper's NN-All, with k of them its NN-k. Times and powers are standardised, which
the paper does not say: it changes the unit of the error, not its minimum.

Sample construction (001 sec. 4): the paper enters 40 minibatches of each mode, and repeats power samples where there
are fewer. A corpus row is the median over the minibatches of a mode, so here each row is entered up to 40 times in an
epoch, as long as the epoch has no more than 200 entries. Five times as many changed no error by more than a point at 50
modes (YOLOv8n, LSTM), and 10 modes had 3 to 4 points less of time error with twice as many.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Optional, Tuple

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerModeSpace
from predictors.models.dense_network import (
    SCALES,
    Networks,
    Scale,
    answers,
    fresh_networks,
    network_arrays,
    networks_of,
    scale_of,
    scale_values,
    standard_scale,
)
from predictors.models.input_columns import InputColumns, column_values, columns_from, columns_of
from predictors.models.network_training import Schedule, train
from predictors.models.protocol import Inputs, Prediction, Predictor, State
from predictors.models.residual_spread import ResidualSpread, above_zero, residual_spread

HIDDEN = (256, 128, 64)
LOSSES = ("mse", "mape")
SCHEDULE = Schedule(epochs=100, learning_rate=1e-3, dropout=0.1, minibatch=16, entries=40, most_entries=200)
USUAL_LOG_SD = (0.3, 0.05)
"""Of time and power: the residuals of networks that learned 50 random modes of the tables of an Orin AGX."""


class Learned(NamedTuple):
    """Networks of time and power, and what they need to answer.

    Attributes:
        networks: the first of time, the second of power.
        columns: their inputs.
        input_scale: of the inputs.
        output_scale: of ms and mW.
        least: the least time and power learned.
        spread: how sure they are.
    """

    networks: Networks
    columns: InputColumns
    input_scale: Scale
    output_scale: Scale
    least: np.ndarray
    spread: ResidualSpread

    def figures(self, rows: Inputs) -> np.ndarray:
        """Time in ms and power in mW, shape (n, 2)."""
        scaled = answers(self.networks, self.input_scale.apply(self.columns.matrix(rows)))
        return above_zero(self.output_scale.undo(scaled), self.least)

    def prediction(self, rows: Inputs) -> Prediction:
        """What is predicted of rows."""
        return self.spread.prediction(self.figures(rows))

    def state(self) -> State:
        """All of it, for a file."""
        values = {
            "columns": column_values(self.columns),
            "input_scale": scale_values(self.input_scale),
            "output_scale": scale_values(self.output_scale),
            "least": self.least.tolist(),
            "spread": list(self.spread),
        }
        return State(values, network_arrays(self.networks))


def learned_from(state: State) -> Learned:
    """What `Learned.state` gave.

    Raises:
        InvalidValueError: it is not of networks.
    """
    try:
        values = state.values
        return Learned(
            networks_of(state.arrays),
            columns_from(values["columns"]),
            scale_of(values["input_scale"]),
            scale_of(values["output_scale"]),
            np.array(values["least"]),
            ResidualSpread(*values["spread"]),
        )
    except (KeyError, TypeError) as error:
        raise InvalidValueError(f"what was saved is not of networks: {error!r}") from error


def fit_networks(
    start: Networks,
    columns: InputColumns,
    input_scale: Scale,
    rows: Inputs,
    measured: np.ndarray,
    schedule: Schedule,
    loss: str,
    usual_log_sd: Tuple[float, float],
    random: np.random.Generator,
) -> Learned:
    """Train networks of time and power from where they start.

    Args:
        start: networks with as many inputs as there are columns.
        columns: their inputs.
        input_scale: of the inputs.
        rows: at least 2.
        measured: times and powers, shape (n, 2).
        schedule: how.
        loss: `mse`, of standardised outputs, or `mape`.
        usual_log_sd: what residuals of log time and log power are usual, see `predictors.models.residual_spread`.
        random: of the training.

    Raises:
        UnknownNameError: there is no such loss.
    """
    if loss not in LOSSES:
        raise UnknownNameError(f"loss {loss!r} is unknown", f"known: {', '.join(LOSSES)}")
    output_scale = standard_scale(measured)
    shares = output_scale.width / measured if loss == "mape" else None
    inputs = input_scale.apply(columns.matrix(rows))
    networks, held_back = train(start, inputs, output_scale.apply(measured), schedule, random, shares)
    nothing = ResidualSpread(0.0, 0.0, 1.0)
    learned = Learned(networks, columns, input_scale, output_scale, measured.min(axis=0), nothing)
    off = Inputs(*(values[held_back] for values in rows))
    return learned._replace(
        spread=residual_spread(measured[held_back], learned.figures(off), usual_log_sd, len(inputs))
    )


class NeuralNetwork(Predictor):
    """Networks of time and of power that start from random weights.

    Inputs are cores and clocks; rows of several batch sizes or tasks have these as further inputs. Intervals come from
    the residuals on the tenth of the modes held back, which chose the epoch too and are therefore somewhat small.

    Args:
        scaling: of the inputs: `standard`, scikit-learn's StandardScaler, which the paper names, or `min-max`, whose
            range from 0 to 1 it describes.
        loss: `mse` or `mape`.
        epochs: passes over the entries.
        learning_rate: of Adam.
        dropout: share of silent neurons; the paper does not give it.
        minibatch: entries in a step of training, where there are few rows; the paper does not give it.
        space: the power modes that are allowed.
        seed: of weights, division and order.
    """

    name = "nn"
    least_modes = 2

    def __init__(
        self,
        scaling: str = "standard",
        loss: str = "mse",
        epochs: int = SCHEDULE.epochs,
        learning_rate: float = SCHEDULE.learning_rate,
        dropout: float = SCHEDULE.dropout,
        minibatch: int = SCHEDULE.minibatch,
        space: Optional[PowerModeSpace] = None,
        seed: int = 0,
    ) -> None:
        """Keep the parameters."""
        self.scaling = scaling
        self.loss = loss
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.minibatch = minibatch
        self.space = space
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if self.scaling not in SCALES:
            raise UnknownNameError(f"scaling {self.scaling!r} is unknown", f"known: {', '.join(SCALES)}")
        random = np.random.default_rng(self.seed)
        columns = columns_of(rows)
        inputs = columns.matrix(rows)
        start = fresh_networks(2, (inputs.shape[1], *HIDDEN, 1), random)
        schedule = dataclasses.replace(
            SCHEDULE,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            dropout=self.dropout,
            minibatch=minibatch_for(len(inputs), self.minibatch),
        )
        measured = np.column_stack([time_ms, power_mw])
        scale = SCALES[self.scaling](inputs)
        self.learned_ = fit_networks(start, columns, scale, rows, measured, schedule, self.loss, USUAL_LOG_SD, random)

    def _infer(self, rows: Inputs) -> Prediction:
        return self.learned_.prediction(rows)

    def state(self) -> State:
        """What was learned."""
        return self.learned_.state()

    def restore(self, state: State) -> None:
        """Take what `state` gave."""
        self.learned_ = learned_from(state)


def minibatch_for(rows: int, least: int) -> int:
    """Entries in a step: `least`, or more where there are so many rows that an epoch would have over 64 steps."""
    return max(least, -(-rows // 64))
