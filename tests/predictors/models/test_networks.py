"""The papers' network: its forward pass, its training (as torch would), its shape, scalings and losses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.errors import UnknownNameError
from predictors.models import networks as module
from predictors.models.networks import Networks, NeuralNetwork, Schedule, fresh_networks, train
from tests.predictors.plain_predictors import made_table

SCHEDULE = Schedule(epochs=20, learning_rate=1e-3, dropout=0.0, minibatch=8, entries=4, most_entries=1000)
RANDOM = np.random.default_rng(7)
INPUTS = RANDOM.standard_normal((40, 3))
OUTPUTS = np.column_stack([np.sin(INPUTS[:, 0]), INPUTS[:, 1] * INPUTS[:, 2]])


def learn(seed=0, shares=None, **changes):
    random = np.random.default_rng(seed)
    start = fresh_networks(2, (3, 32, 16, 8, 1), random)
    return start, *train(start, INPUTS, OUTPUTS, dataclasses.replace(SCHEDULE, **changes), random, shares)


def error(networks, rows):
    return np.square(networks.outputs(INPUTS[rows]) - OUTPUTS[rows]).mean(axis=0)


def test_networks_learn_what_they_are_shown():
    start, networks, _ = learn(epochs=100)
    assert (error(networks, slice(None)) < 0.1 * error(start, slice(None))).all()


def test_of_a_mode_entered_often_all_rows_are_held_back_or_none():
    random = np.random.default_rng(0)
    start = fresh_networks(2, (3, 32, 16, 8, 1), random)
    rows = np.repeat(np.arange(40), 5)
    _, validation = train(start, INPUTS[rows], OUTPUTS[rows], dataclasses.replace(SCHEDULE, epochs=1), random)
    assert len(validation) == 20
    assert len(set(rows[validation])) == 4


@pytest.mark.exhaustive
def test_each_minibatch_of_a_mode_is_learned_and_intervals_are_of_their_median():
    noise = np.exp(0.3 * np.random.default_rng(1).standard_normal((40, len(SOME))))
    entered, alone = NeuralNetwork(epochs=30), NeuralNetwork(epochs=30)
    modes, power_mw = np.tile(TABLE.modes[SOME], (40, 1)), np.tile(TABLE.power_mw[SOME], 40)
    entered.fit(modes, (TABLE.time_ms[SOME] * noise).ravel(), power_mw)
    alone.fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])
    assert len(entered.training_rows_.time_ms) == 40 * len(SOME)
    assert entered.freedom_ == alone.freedom_
    assert entered.log_sd_[0] < 0.3


def test_more_epochs_never_keep_a_worse_one():
    _, short, validation = learn(epochs=3, learning_rate=0.03)
    _, longer, _ = learn(epochs=30, learning_rate=0.03)
    assert (error(longer, validation) <= error(short, validation) * (1 + 1e-5)).all()


def test_training_is_in_single_precision_unless_another_is_set(monkeypatch):
    _, single, _ = learn(epochs=1)
    monkeypatch.setattr(module, "PRECISION", np.float64)
    _, double, _ = learn(epochs=1)
    is_single = [(one.parameters == one.parameters.astype(np.float32)).all() for one in (single, double)]
    assert is_single == [True, False]
    np.testing.assert_allclose(double.parameters, single.parameters, atol=1e-4)


def test_dropout_changes_what_is_learned_and_not_how_answers_are_made():
    with_dropout = learn(dropout=0.5)[1]
    assert not np.allclose(with_dropout.parameters, learn()[1].parameters)
    assert with_dropout.outputs(INPUTS).tobytes() == with_dropout.outputs(INPUTS).tobytes()


def test_absolute_differences_are_weighed_by_shares():
    shares = np.ones_like(OUTPUTS)
    shares[:, 1] = 0
    start, networks, _ = learn(shares=shares)
    assert error(networks, slice(None))[0] < error(start, slice(None))[0]
    assert np.allclose(networks.parameters[1], start.parameters[1], rtol=1e-6)


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
        for weights, biases in start.layers:
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
        assert np.allclose(networks.outputs(INPUTS)[:, network], best, atol=2e-4)


def test_a_network_answers_as_its_formula_says():
    parameters = np.array([[1.0, -1.0, 0.0, 0.0, 3.0, 5.0, 0.5], [2.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]])
    answered = Networks(parameters, (1, 2, 1)).outputs(np.array([[2.0], [-2.0]]))
    assert answered.tolist() == [[6.5, 5.0], [10.5, 0.0]]


TABLE = made_table()
TABLE_COLUMNS = (TABLE.modes, TABLE.time_ms, TABLE.power_mw)
SOME = np.sort(np.random.default_rng(0).choice(54, 43, replace=False))


def fitted(**params):
    return NeuralNetwork(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])


def test_the_layers_are_those_of_the_paper():
    layers = fitted(epochs=1).networks_.layers
    assert [weights.shape for weights, _ in layers] == [(2, 4, 256), (2, 256, 128), (2, 128, 64), (2, 64, 1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("params", [{}, {"scaling": "min-max"}, {"loss": "mape"}])
def test_a_power_law_is_learned(params):
    prediction = fitted(**params).predict(TABLE.modes)
    assert np.median(np.abs(prediction.time_ms / TABLE.time_ms - 1)) < 0.15
    assert np.median(np.abs(prediction.power_mw / TABLE.power_mw - 1)) < 0.08


@pytest.mark.exhaustive
def test_the_relative_loss_looks_after_short_times_too():
    time_ms = TABLE.time_ms**2  # from 0.4 to 60 s
    short = time_ms < np.median(time_ms)
    off = {}
    for loss in ("mape", "mse"):
        predictor = NeuralNetwork(loss=loss).fit(TABLE.modes, time_ms, TABLE.power_mw)
        off[loss] = np.mean(np.abs(predictor.predict(TABLE.modes).time_ms / time_ms - 1)[short])
    assert off["mape"] < off["mse"]


def test_a_time_is_never_below_0():
    far = [[1, 100_000, 50_000, 100_000], [64, 9_000_000, 5_000_000, 9_000_000]]
    assert (fitted(epochs=20).predict(far).time_ms > 0).all()


@pytest.mark.parametrize("params", [{"scaling": "none"}, {"loss": "huber"}])
def test_an_unknown_scaling_or_loss_is_refused_with_the_known_ones(params):
    with pytest.raises(UnknownNameError, match="known"):
        fitted(**params)


@pytest.mark.parametrize(("rows", "entries"), [(10, 16), (54, 16), (54 * 81, 69)])
def test_steps_grow_with_the_rows_so_that_an_epoch_has_no_more_than_64(rows, entries, monkeypatch):
    used = []

    def remembered(start, inputs, outputs, schedule, random, shares=None, train=train):
        used.append(schedule.minibatch)
        return train(start, inputs, outputs, dataclasses.replace(schedule, epochs=0), random, shares)

    monkeypatch.setattr(module, "train", remembered)
    sizes = 1 + np.arange(rows) // 54
    modes, time_ms, power_mw = (np.resize(values, (rows, *values.shape[1:])) for values in TABLE_COLUMNS)
    NeuralNetwork().fit(modes, time_ms, power_mw, batch_size=sizes)
    assert used == [entries]
