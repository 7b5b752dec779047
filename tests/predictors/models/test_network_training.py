"""Networks learn: as torch would, side by side, with layers frozen, and the best epoch is kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from predictors.models.dense_network import answers, fresh_networks
from predictors.models.network_training import Schedule, train

SCHEDULE = Schedule(epochs=20, learning_rate=1e-3, dropout=0.0, minibatch=8, entries=4, most_entries=1000)
RANDOM = np.random.default_rng(7)
INPUTS = RANDOM.standard_normal((40, 3))
OUTPUTS = np.column_stack([np.sin(INPUTS[:, 0]), INPUTS[:, 1] * INPUTS[:, 2]])


def learn(seed=0, shares=None, **changes):
    random = np.random.default_rng(seed)
    start = fresh_networks(2, (3, 32, 16, 8, 1), random)
    return start, *train(start, INPUTS, OUTPUTS, dataclasses.replace(SCHEDULE, **changes), random, shares)


def error(networks, rows):
    return np.square(answers(networks, INPUTS[rows]) - OUTPUTS[rows]).mean(axis=0)


def test_networks_learn_what_they_are_shown():
    start, networks, _ = learn(epochs=100)
    assert (error(networks, slice(None)) < 0.1 * error(start, slice(None))).all()


def test_a_tenth_of_the_rows_is_held_back():
    assert len(learn()[2]) == 4


def test_more_epochs_never_keep_a_worse_one():
    _, short, validation = learn(epochs=3, learning_rate=0.03)
    _, longer, _ = learn(epochs=30, learning_rate=0.03)
    assert (error(longer, validation) <= error(short, validation) * (1 + 1e-5)).all()


def test_frozen_layers_stay_and_the_others_learn():
    start, networks, _ = learn(frozen=2)
    for layer, (before, after) in enumerate(zip(start.weights, networks.weights)):
        assert np.allclose(before, after, rtol=1e-6) == (layer < 2)


def test_dropout_changes_what_is_learned_and_not_how_answers_are_made():
    with_dropout = learn(dropout=0.5)[1]
    assert not np.allclose(with_dropout.weights[0], learn()[1].weights[0])
    assert answers(with_dropout, INPUTS).tobytes() == answers(with_dropout, INPUTS).tobytes()


def test_absolute_differences_are_weighed_by_shares():
    shares = np.ones_like(OUTPUTS)
    shares[:, 1] = 0
    start, networks, _ = learn(shares=shares)
    assert error(networks, slice(None))[0] < error(start, slice(None))[0]
    assert np.allclose(networks.weights[0][1], start.weights[0][1], rtol=1e-6)


def test_the_same_seed_gives_the_same_networks():
    assert learn(3, dropout=0.1)[1].weights[0].tobytes() == learn(3, dropout=0.1)[1].weights[0].tobytes()


@pytest.mark.training
@pytest.mark.parametrize("absolute", [False, True])
def test_training_is_that_of_torch(absolute):
    torch = pytest.importorskip("torch")
    shares = np.abs(OUTPUTS) + 0.5 if absolute else None
    start, networks, validation = learn(5, shares, epochs=4)
    random = np.random.default_rng(5)
    fresh_networks(2, (3, 32, 16, 8, 1), random)
    learned = random.permutation(len(INPUTS))[len(validation) :]
    orders = [random.permutation(np.tile(learned, SCHEDULE.entries)) for _ in range(4)]
    for network in range(2):
        layers = []
        for weights, biases in zip(start.weights, start.biases):
            linear = torch.nn.Linear(*weights.shape[1:]).double()
            linear.weight.data = torch.tensor(weights[network].T)
            linear.bias.data = torch.tensor(biases[network, 0])
            layers += [linear, torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(model.parameters(), lr=SCHEDULE.learning_rate)
        found = []
        for order in orders:
            for first in range(0, len(order), SCHEDULE.minibatch):
                rows = order[first : first + SCHEDULE.minibatch]
                off = model(torch.tensor(INPUTS[rows]))[:, 0] - torch.tensor(OUTPUTS[rows, network])
                loss = (off.abs() * torch.tensor(shares[rows, network])).mean() if absolute else off.square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            answered = model(torch.tensor(INPUTS))[:, 0].detach().numpy()
            off = answered[validation] - OUTPUTS[validation, network]
            found.append(((np.abs(off) * shares[validation, network] if absolute else off**2).mean(), answered))
        best = min(found, key=lambda one: one[0])[1]
        assert np.allclose(answers(networks, INPUTS)[:, network], best, atol=2e-4)
