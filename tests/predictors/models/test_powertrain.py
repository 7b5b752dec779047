"""PowerTrain: what is carried over from the reference, and which references serve."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from predictors.models.networks import NeuralNetwork
from predictors.models.powertrain import PowerTrain, learn_reference
from tests.predictors.plain_predictors import made_table

TABLE, REFERENCE = made_table(), made_table("resnet18-imagenet", noise=0.05, seed=1)
SOME = np.sort(np.random.default_rng(0).choice(54, 10, replace=False))


def fitted(batch_size=16, **params):
    params = {"references": (REFERENCE,), **params}
    return PowerTrain(**params).fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME], batch_size=batch_size)


def reference_networks():
    return learn_reference(REFERENCE, 0).networks_


def time_error(predictor):
    return np.mean(np.abs(predictor.predict(TABLE.modes).time_ms / TABLE.time_ms - 1))


@pytest.mark.exhaustive
@pytest.mark.long
def test_the_reference_is_trained_once():
    reference_networks()
    before = learn_reference.cache_info().currsize
    first = reference_networks()
    fitted(seed=1)
    fitted(seed=2)
    assert learn_reference.cache_info().currsize == before
    assert reference_networks() is first
    fitted(reference_seed=1, references=(REFERENCE.take(np.arange(9)),))  # another seed and table
    assert learn_reference.cache_info().currsize == before + 1


@pytest.mark.parametrize("frozen", [0, 1, 3])
@pytest.mark.exhaustive
def test_frozen_layers_are_the_reference_s_and_the_last_is_fresh(frozen):
    carried, own = reference_networks().layers, fitted(frozen=frozen).networks_.layers
    same = [np.allclose(carried[layer][0], own[layer][0], rtol=1e-6) for layer in range(4)]
    assert same == [layer < frozen for layer in range(4)]


@pytest.mark.exhaustive
def test_a_like_workload_is_learned_better_than_without_reference():
    alone = NeuralNetwork().fit(TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME])
    assert time_error(fitted()) < 0.8 * time_error(alone)


@pytest.mark.exhaustive
def test_of_several_references_the_first_is_taken():
    other = made_table("bert-squad", noise=0.5, seed=3)
    both, one = (fitted(references=tables).predict(TABLE.modes) for tables in ((REFERENCE, other), (REFERENCE,)))
    assert np.array_equal(both.time_ms, one.time_ms)


def test_without_reference_it_says_what_is_missing():
    with pytest.raises(InvalidValueError, match="no reference to start from"):
        fitted(references=())


@pytest.mark.exhaustive
def test_a_reference_of_another_batch_size_serves_as_the_paper_has_it():
    predictor = PowerTrain(references=(REFERENCE,)).fit(
        TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME], batch_size=8
    )
    assert np.isfinite(predictor.predict(TABLE.modes, batch_size=8).time_ms).all()
    with pytest.raises(InvalidValueError, match="batch size 8 only"):
        predictor.predict(TABLE.modes)


def test_several_batch_sizes_need_a_reference_with_several():
    sizes = np.where(np.arange(len(SOME)) % 2, 8, 32)
    with pytest.raises(InvalidValueError, match="resnet18-imagenet has one"):
        PowerTrain(references=(REFERENCE,)).fit(
            TABLE.modes[SOME], TABLE.time_ms[SOME], TABLE.power_mw[SOME], batch_size=sizes
        )


@pytest.mark.exhaustive
def test_a_reference_with_several_batch_sizes_serves_a_workload_with_one():
    several = dataclasses.replace(REFERENCE, batch_size=np.where(np.arange(54) % 2, 8, 16))
    prediction = fitted(references=(several,)).predict(TABLE.modes, batch_size=32)
    assert np.isfinite(prediction.time_ms).all()
