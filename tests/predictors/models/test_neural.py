"""The papers' network: its shape, its scalings, its losses."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import InvalidValueError, UnknownNameError
from predictors.models.neural import NeuralNetwork, minibatch_for
from predictors.models.protocol import State
from tests.predictors.plain_predictors import made_table

TABLE = made_table()
SOME = np.sort(np.random.default_rng(0).choice(54, 43, replace=False))


def fitted(**params):
    return NeuralNetwork(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])


def test_the_layers_are_those_of_the_paper():
    arrays = fitted(epochs=1).state().arrays
    assert [arrays[f"weights_{layer}"].shape for layer in range(4)] == [
        (2, 4, 256),
        (2, 256, 128),
        (2, 128, 64),
        (2, 64, 1),
    ]


@pytest.mark.parametrize("params", [{}, {"scaling": "min-max"}, {"loss": "mape"}])
def test_a_power_law_is_learned(params):
    prediction = fitted(**params).predict(TABLE.modes)
    assert np.median(np.abs(prediction.time_ms / TABLE.time_ms - 1)) < 0.15
    assert np.median(np.abs(prediction.power_mw / TABLE.power_mw - 1)) < 0.08


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


def test_one_mode_is_too_few_to_learn_and_to_validate():
    with pytest.raises(InvalidValueError, match="at least 2"):
        NeuralNetwork().fit(TABLE.modes[:1], TABLE.time_ms[:1], TABLE.power_mw[:1])


def test_batch_sizes_are_an_input_where_several_were_learned():
    sizes = np.random.default_rng(0).choice([8, 32], 54)
    predictor = NeuralNetwork().fit(TABLE.modes, TABLE.time_ms * sizes / 16, TABLE.power_mw, batch_size=sizes)
    small, large = (predictor.predict(TABLE.modes, batch_size=size).time_ms.mean() for size in (8, 32))
    assert large > 2 * small


def test_the_state_of_numpy_s_own_generator_is_left_alone():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    fitted(epochs=1)
    assert np.random.random() == expected


@pytest.mark.parametrize(("rows", "entries"), [(10, 16), (1024, 16), (4368, 69)])
def test_steps_grow_with_the_rows_so_that_an_epoch_has_no_more_than_64(rows, entries):
    assert minibatch_for(rows, 16) == entries


def test_what_was_saved_by_another_predictor_is_refused():
    with pytest.raises(InvalidValueError, match="no network"):
        NeuralNetwork().restore(State({}, {}))
