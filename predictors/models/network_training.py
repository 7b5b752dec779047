"""How dense networks learn: Adam on minibatches, dropout, and the weights of the epoch that validates best.

Written in numpy: a step of networks this small takes it 0.3 ms where torch takes 1 ms (two networks, 16 rows, one
thread of the development machine), and a model can be fitted where no torch is.
"""

from __future__ import annotations

import dataclasses
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from predictors.models.dense_network import Networks

DECAYS = (0.9, 0.999)  # of Adam's two moments, and what keeps it from dividing by 0: as its authors and torch have them
EPSILON = 1e-8
DROPOUT_LAYERS = 2  # 001 sec. 3.1: after the first and second


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How networks are trained.

    Attributes:
        epochs: passes over the entries.
        learning_rate: of Adam.
        dropout: share of the neurons of the first two layers that is silent in a step.
        minibatch: entries in a step.
        entries: how often a row is entered in an epoch, at most.
        most_entries: in an epoch, unless there are more rows than that.
        frozen: how many layers, from the first, keep their weights.
    """

    epochs: int
    learning_rate: float
    dropout: float
    minibatch: int
    entries: int
    most_entries: int
    frozen: int = 0


class _Flat(NamedTuple):
    """Arrays of one shape list as views of one vector, so that Adam takes all of them at once."""

    vector: np.ndarray
    weights: List[np.ndarray]
    biases: List[np.ndarray]


def train(
    start: Networks,
    inputs: np.ndarray,
    outputs: np.ndarray,
    schedule: Schedule,
    random: np.random.Generator,
    shares: Optional[np.ndarray] = None,
) -> Tuple[Networks, np.ndarray]:
    """Train networks side by side, each on its own output, and keep of each the epoch with the least validation loss.

    A tenth of the rows, at least one, is held back to validate with (001 sec. 3.1: 90:10).

    Args:
        start: what they begin with.
        inputs: scaled, shape (n, inputs), n at least 2.
        outputs: scaled, shape (n, networks).
        schedule: how.
        random: divides the rows, orders and silences.
        shares: where given, shape (n, networks), the loss is the mean of shares times absolute differences; else it is
            the mean of squared differences.

    Returns:
        The networks, and the places of the rows held back.
    """
    order = random.permutation(len(inputs))
    held_back = max(1, round(0.1 * len(inputs)))
    validation, learned = order[:held_back], order[held_back:]
    entries = np.tile(learned, max(1, min(schedule.entries, schedule.most_entries // len(learned))))
    x, y = inputs.astype(np.float32), outputs.T[:, :, None].astype(np.float32)
    share = None if shares is None else shares.T[:, :, None].astype(np.float32)
    values, slopes = _flatten(start), _flatten(start)
    changed = sum(weights.size + biases.size for weights, biases in list(zip(*start))[: schedule.frozen])
    adam = _Adam(values.vector[changed:], slopes.vector[changed:], schedule.learning_rate)
    best, least = values.vector.copy(), np.full(y.shape[0], np.inf)
    kept = _views(best, start)

    for _ in range(schedule.epochs):
        shuffled = random.permutation(entries)
        for first in range(0, len(shuffled), schedule.minibatch):
            rows = shuffled[first : first + schedule.minibatch]
            layers, alive = _forward(values, x[rows], schedule.dropout, random)
            _, by_answer = _loss(layers[-1] - y[:, rows], None if share is None else share[:, rows])
            _backward(values, slopes, layers, alive, by_answer, schedule.frozen)
            adam.step()
        answers = _forward(values, x[validation], 0.0, random)[0][-1]
        losses, _ = _loss(answers - y[:, validation], None if share is None else share[:, validation])
        better = losses < least
        least[better] = losses[better]
        for old, new in zip((*kept.weights, *kept.biases), (*values.weights, *values.biases)):
            old[better] = new[better]
    return Networks(
        tuple(w.astype(float) for w in kept.weights), tuple(b.astype(float) for b in kept.biases)
    ), validation


class _Adam:
    """Adam (Kingma and Ba 2015) on a vector, in place."""

    def __init__(self, values: np.ndarray, slopes: np.ndarray, learning_rate: float) -> None:
        self._values, self._slopes, self._rate = values, slopes, learning_rate
        self._first, self._second, self._work = (np.zeros_like(values) for _ in range(3))
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        work, (first, second) = self._work, (np.float32(decay) for decay in DECAYS)
        self._first *= first
        self._first += np.multiply(self._slopes, 1 - first, out=work)
        self._second *= second
        np.multiply(self._slopes, self._slopes, out=work)
        work *= 1 - second
        self._second += work
        np.sqrt(self._second, out=work)
        work *= np.float32((1 - DECAYS[1] ** self._steps) ** -0.5)
        work += np.float32(EPSILON)
        np.divide(self._first, work, out=work)
        work *= np.float32(self._rate / (1 - DECAYS[0] ** self._steps))
        self._values -= work


def _flatten(networks: Networks) -> _Flat:
    parts = [part.reshape(-1) for layer in zip(networks.weights, networks.biases) for part in layer]
    return _views(np.concatenate(parts).astype(np.float32), networks)


def _views(vector: np.ndarray, like: Networks) -> _Flat:
    flat, first = _Flat(vector, [], []), 0
    for layer in zip(like.weights, like.biases):
        for part, views in zip(layer, (flat.weights, flat.biases)):
            views.append(vector[first : first + part.size].reshape(part.shape))
            first += part.size
    return flat


def _forward(
    networks: _Flat, rows: np.ndarray, dropout: float, random: np.random.Generator
) -> Tuple[List[np.ndarray], List[np.ndarray]]:
    """What goes into each layer and comes out of the last, and by how much each neuron of a hidden layer passes on."""
    layers, alive = [np.broadcast_to(rows, (len(networks.weights[0]), *rows.shape))], []
    last = len(networks.weights) - 1
    for place, (weights, biases) in enumerate(zip(networks.weights, networks.biases)):
        values = layers[-1] @ weights
        values += biases
        if place < last:
            passes = values > 0
            if dropout > 0 and place < DROPOUT_LAYERS:
                passes &= random.random(values.shape, dtype=np.float32) >= dropout
                factor = passes * np.float32(1 / (1 - dropout))
            else:
                factor = passes.astype(np.float32)
            values *= factor
            alive.append(factor)
        layers.append(values)
    return layers, alive


def _loss(difference: np.ndarray, share: Optional[np.ndarray]) -> Tuple[np.ndarray, np.ndarray]:
    """The loss of each network, and its derivatives by what the networks answer."""
    count = difference.shape[1]
    if share is None:
        return np.square(difference).mean(axis=(1, 2)), difference * np.float32(2 / count)
    return (np.abs(difference) * share).mean(axis=(1, 2)), np.sign(difference) * share / np.float32(count)


def _backward(
    networks: _Flat,
    slopes: _Flat,
    layers: List[np.ndarray],
    alive: List[np.ndarray],
    by_answer: np.ndarray,
    frozen: int,
) -> None:
    """Put the derivatives of the loss by weights and biases into `slopes`, back to the first layer not frozen."""
    above = by_answer
    for place in range(len(networks.weights) - 1, frozen - 1, -1):
        np.matmul(layers[place].transpose(0, 2, 1), above, out=slopes.weights[place])
        slopes.biases[place][:] = above.sum(axis=1, keepdims=True)
        if place > frozen:
            above = above @ networks.weights[place].transpose(0, 2, 1)
            above *= alive[place - 1]
