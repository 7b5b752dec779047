"""The papers' neural networks: one for time and one for power, trained on the profiles of one workload.

001 sec. 3.1: dense layers of 256, 128, 64 and 1 neurons, ReLU after the first three, dropout after the first two; Adam
at 0.001 on the mean squared error, 100 epochs, 90 % of the modes for training and 10 % for choosing the best epoch.
With all modes of a corpus it is the paper's NN-All, with k of them its NN-k. Times and powers are standardised, which
the paper does not say: it changes the unit of the error, not its minimum.

Sample construction (001 sec. 4): the paper enters 40 minibatches of each mode, and repeats powers, of which there are
fewer. If single minibatches are available (`Profiles.entries`), each is an entry here too. A corpus has only their
medians: each row is then entered up to 40 times in an epoch, as long as the epoch has no more than 200 entries. Five
times as many changed no error by more than a point at 50 modes (YOLOv8n, LSTM).

Written in numpy: a step of networks this small takes 0.3 ms, in torch 1 ms (two networks, 16 rows, one thread), and a
model can be fitted without torch.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.terminal import available_hint
from predictors.models.regression import SCALES, ColumnScale, Figures, Regression, above_zero, column_scale
from predictors.settings import places_of_equals

HIDDEN = (256, 128, 64)
LOSSES = ("mse", "mape")

DECAYS = (0.9, 0.999)  # of Adam's two moments, and what keeps it from dividing by 0: as its authors and torch have them
EPSILON = 1e-8
DROPOUT_LAYERS = 2  # 001 sec. 3.1: after the first and second

PRECISION = np.float32
"""Of training. Double precision takes 1.6 times as long and comes out alike on every processor: in single precision a
dead neuron may come alive under one rounding and not under another, and Adam takes full steps with any gradient."""

Layer = Tuple[np.ndarray, np.ndarray]
"""Weights of the networks, shape (networks, inputs, outputs), and biases, shape (networks, 1, outputs)."""


class Networks(NamedTuple):
    """Networks of one shape side by side: ReLU after each layer but the last, which is linear."""

    parameters: np.ndarray  # of each network, of each layer in turn the weights and the biases, shape (networks, p)
    sizes: Tuple[int, ...]  # of the input, of each layer, of the output

    @property
    def layers(self) -> List[Layer]:
        layers, first = [], 0
        for inputs, outputs in zip(self.sizes, self.sizes[1:]):
            middle, last = first + inputs * outputs, first + (inputs + 1) * outputs
            weights = self.parameters[:, first:middle].reshape(-1, inputs, outputs)
            layers.append((weights, self.parameters[:, None, middle:last]))
            first = last
        return layers

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """The forward pass of networks with one output each: scaled inputs (n, d) to shape (n, networks)."""
        parts = np.array_split(inputs, -(-len(inputs) // 1024))  # all at once would take much memory
        return np.concatenate([_forward(self.layers, part)[0][-1][:, :, 0].T for part in parts])


def fresh_networks(networks: int, sizes: Sequence[int], random: np.random.Generator) -> Networks:
    """Untrained networks, uniform up to 1 / sqrt(inputs) of each layer, as torch starts a linear layer."""
    parts = [
        random.uniform(-(inputs**-0.5), inputs**-0.5, (networks, count))
        for inputs, outputs in zip(sizes, sizes[1:])
        for count in (inputs * outputs, outputs)
    ]
    return Networks(np.concatenate(parts, axis=1), tuple(sizes))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Training hyperparameters; the paper gives no dropout and no minibatch."""

    epochs: int = 100  # passes over the entries
    learning_rate: float = 1e-3  # of Adam
    dropout: float = 0.1  # dropout rate after the first two layers
    minibatch: int = 16  # entries in a step
    entries: int = 40  # the most entries of a row in an epoch
    most_entries: int = 200  # in an epoch, unless there are more rows than that
    frozen: int = 0  # number of layers, from the first, that keep their weights


SCHEDULE = Schedule()


def train(
    start: Networks,
    inputs: np.ndarray,
    outputs: np.ndarray,
    schedule: Schedule,
    random: np.random.Generator,
    shares: Optional[np.ndarray] = None,
) -> Tuple[Networks, np.ndarray]:
    """Train networks side by side, each on its own output, and keep the epoch with the least validation loss of each.

    Inputs (n, d) and outputs (n, networks) are scaled; at least two inputs differ. A tenth of the distinct inputs, at
    least one, is held back for validation (001 sec. 3.1: 90:10); the indices of their rows are returned too. The loss
    is the mean of squared differences or, if shares (n, networks) are given, of shares times absolute differences.
    """
    places = places_of_equals(inputs)
    order = [places[number] for number in random.permutation(len(places))]
    held_back = max(1, round(0.1 * len(order)))
    validation, learned = np.concatenate(order[:held_back]), np.concatenate(order[held_back:])
    entries = np.tile(learned, max(1, min(schedule.entries, schedule.most_entries // len(learned))))
    x, y = inputs.astype(PRECISION), outputs.T[:, :, None].astype(PRECISION)
    share = None if shares is None else shares.T[:, :, None].astype(PRECISION)
    values = start._replace(parameters=start.parameters.astype(PRECISION))
    gradient = start._replace(parameters=np.zeros_like(values.parameters))
    layers, by_layer = values.layers, gradient.layers
    kept = sum(weights[0].size + biases[0].size for weights, biases in layers[: schedule.frozen])
    adam = _Adam(values.parameters[:, kept:], gradient.parameters[:, kept:], schedule.learning_rate)
    best, least = values.parameters.copy(), np.full(len(y), np.inf)

    def loss(rows: np.ndarray, predicted: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The loss of each network, and its derivatives by the networks' outputs."""
        difference, count = predicted - y[:, rows], np.float32(len(rows))
        if share is None:
            return np.square(difference).mean(axis=(1, 2)), difference * np.float32(2 / len(rows))
        weights = share[:, rows]
        return (np.abs(difference) * weights).mean(axis=(1, 2)), np.sign(difference) * weights / count

    for _ in range(schedule.epochs):
        shuffled = random.permutation(entries)
        for first in range(0, len(shuffled), schedule.minibatch):
            rows = shuffled[first : first + schedule.minibatch]
            passed, alive = _forward(layers, x[rows], schedule.dropout, random)
            _backward(layers, by_layer, passed, alive, loss(rows, passed[-1])[1], schedule.frozen)
            adam.step()
        losses, _ = loss(validation, _forward(layers, x[validation])[0][-1])
        better = losses < least
        least[better] = losses[better]
        best[better] = values.parameters[better]
    return start._replace(parameters=best.astype(float)), validation


class _Adam:
    """Adam (Kingma and Ba 2015), in place."""

    def __init__(self, values: np.ndarray, gradient: np.ndarray, learning_rate: float) -> None:
        self._values, self._gradient, self._rate = values, gradient, learning_rate
        self._first, self._second, self._work = (np.zeros_like(values) for _ in range(3))
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        work, (first, second) = self._work, (np.float32(decay) for decay in DECAYS)
        self._first *= first
        self._first += np.multiply(self._gradient, 1 - first, out=work)
        self._second *= second
        np.multiply(self._gradient, self._gradient, out=work)
        work *= 1 - second
        self._second += work
        np.sqrt(self._second, out=work)
        work *= np.float32((1 - DECAYS[1] ** self._steps) ** -0.5)
        work += np.float32(EPSILON)
        np.divide(self._first, work, out=work)
        work *= np.float32(self._rate / (1 - DECAYS[0] ** self._steps))
        self._values -= work


def _forward(
    layers: List[Layer], rows: np.ndarray, dropout: float = 0.0, random: Optional[np.random.Generator] = None
) -> Tuple[List[np.ndarray], List[np.ndarray]]:
    """The input of each layer and the output of the last, and the factor on each neuron of the hidden layers."""
    passed, alive = [np.broadcast_to(rows, (len(layers[0][0]), *rows.shape))], []
    for place, (weights, biases) in enumerate(layers):
        values = passed[-1] @ weights
        values += biases
        if place < len(layers) - 1:
            passes = values > 0
            factor = np.float32(1)
            if random is not None and dropout > 0 and place < DROPOUT_LAYERS:
                passes &= random.random(values.shape, dtype=np.float32) >= dropout
                factor = np.float32(1 / (1 - dropout))
            alive.append(passes * factor)
            values *= alive[-1]
        passed.append(values)
    return passed, alive


def _backward(
    layers: List[Layer],
    gradient: List[Layer],
    passed: List[np.ndarray],
    alive: List[np.ndarray],
    by_output: np.ndarray,
    frozen: int,
) -> None:
    """Write the derivatives of the loss by weights and biases, back to the first layer not frozen."""
    above = by_output
    for place in range(len(layers) - 1, frozen - 1, -1):
        by_weights, by_biases = gradient[place]
        np.matmul(passed[place].transpose(0, 2, 1), above, out=by_weights)
        by_biases[:] = above.sum(axis=1, keepdims=True)
        if place > frozen:
            above = above @ layers[place][0].transpose(0, 2, 1)
            above *= alive[place - 1]


@dataclasses.dataclass(eq=False)
class NetworkRegression(Regression):
    """Networks of time and of power; each row is an entry, repeated modes included.

    Intervals come from the held-back modes, which also chose the epoch: residuals there are somewhat small.
    """

    learns_repeats = True
    loss: str = "mse"  # of standardised outputs; or `mape`, relative to the outputs themselves
    epochs: int = SCHEDULE.epochs
    learning_rate: float = SCHEDULE.learning_rate
    dropout: float = SCHEDULE.dropout
    minibatch: int = SCHEDULE.minibatch  # larger if an epoch would otherwise have more than 64 steps
    seed: int = 0  # of fresh weights, division and order
    frozen = 0  # number of layers that keep their weights; a parameter of `PowerTrain`

    @abc.abstractmethod
    def _start(self, inputs: np.ndarray, random: np.random.Generator) -> Tuple[Networks, ColumnScale]:
        """The networks to train, and the scale of their inputs."""

    def _fit(self, inputs: np.ndarray, figures: np.ndarray) -> Figures:
        if self.loss not in LOSSES:
            raise UnknownNameError(f"loss {self.loss!r} is unknown", available_hint(self.loss, LOSSES))
        random = np.random.default_rng(self.seed)
        start, scale = self._start(inputs, random)
        output_scale = column_scale(figures)
        shares = output_scale.width / figures if self.loss == "mape" else None
        minibatch = max(self.minibatch, -(-len(figures) // 64))
        schedule = Schedule(self.epochs, self.learning_rate, self.dropout, minibatch, frozen=self.frozen)
        outputs = output_scale.apply(figures)
        self.networks_, self.held_back_ = train(start, scale.apply(inputs), outputs, schedule, random, shares)
        self.scale_ = scale
        return lambda queries: above_zero(output_scale.undo(self.networks_.outputs(scale.apply(queries))), figures)

    def _left_out(self, inputs: np.ndarray, figures: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        inputs, figures = inputs[self.held_back_], figures[self.held_back_]
        places = places_of_equals(inputs)
        medians = np.array([np.median(figures[group], axis=0) for group in places])
        return medians, self.fitted_(inputs[[group[0] for group in places]])


@dataclasses.dataclass(eq=False)
class NeuralNetwork(NetworkRegression):
    """Networks that start from random weights; inputs are cores and clocks."""

    name = "nn"
    usual_log_sd = (0.3, 0.05)
    hidden: Tuple[int, ...] = HIDDEN  # neurons of each layer but the last, which has one
    scaling: str = "standard"  # StandardScaler, which the paper names; or `min-max`, whose range 0 to 1 it describes

    def _start(self, inputs: np.ndarray, random: np.random.Generator) -> Tuple[Networks, ColumnScale]:
        if self.scaling not in SCALES:
            raise UnknownNameError(f"scaling {self.scaling!r} is unknown", available_hint(self.scaling, SCALES))
        return fresh_networks(2, (inputs.shape[1], *self.hidden, 1), random), column_scale(inputs, self.scaling)
