"""Dense networks as arrays: scales, answers, arrays and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.core.errors import InvalidValueError
from predictors.models.dense_network import (
    SCALES,
    Networks,
    answers,
    fresh_networks,
    min_max_scale,
    network_arrays,
    networks_of,
    scale_of,
    scale_values,
    standard_scale,
)

VALUES = np.array([[1.0, 100.0, 7.0], [2.0, 300.0, 7.0], [6.0, 200.0, 7.0]])


def test_a_standard_scale_gives_mean_0_and_variance_1():
    scaled = standard_scale(VALUES).apply(VALUES)
    assert np.allclose(scaled.mean(axis=0), 0)
    assert np.allclose(scaled.std(axis=0), [1, 1, 0])


def test_a_min_max_scale_gives_0_to_1():
    scaled = min_max_scale(VALUES).apply(VALUES)
    assert scaled.min(axis=0).tolist() == [0, 0, 0]
    assert scaled.max(axis=0).tolist() == [1, 1, 0]


@pytest.mark.parametrize("name", SCALES)
def test_a_column_that_never_changed_says_nothing_of_other_values(name):
    scale = SCALES[name](VALUES)
    assert scale.apply(np.array([[1.0, 100.0, 1e9]]))[0, 2] == 0


@pytest.mark.parametrize("name", SCALES)
@given(values=arrays(float, (5, 2), elements=st.floats(1, 1e6)))
def test_scaling_can_be_undone(name, values):
    scale = SCALES[name](values)
    again = scale_of(scale_values(scale))
    assert np.allclose(again.undo(scale.apply(values)), values, rtol=1e-6)


def test_a_network_answers_as_its_formula_says():
    weights = (np.array([[[1.0, -1.0]], [[2.0, 0.0]]]), np.array([[[3.0], [5.0]], [[1.0], [1.0]]]))
    biases = (np.array([[[0.0, 0.0]], [[1.0, 0.0]]]), np.array([[[0.5]], [[0.0]]]))
    answered = answers(Networks(weights, biases), np.array([[2.0], [-2.0]]))
    assert answered.tolist() == [[6.5, 5.0], [10.5, 0.0]]


def test_arrays_and_back_give_the_same_answers_to_the_bit():
    networks = fresh_networks(2, (3, 8, 1), np.random.default_rng(0))
    again = networks_of(network_arrays(networks))
    assert answers(again, VALUES).tobytes() == answers(networks, VALUES).tobytes()


def test_arrays_without_a_whole_network_are_refused():
    kept = network_arrays(fresh_networks(2, (3, 8, 1), np.random.default_rng(0)))
    with pytest.raises(InvalidValueError, match="biases_1 is missing"):
        networks_of({name: values for name, values in kept.items() if name != "biases_1"})
    with pytest.raises(InvalidValueError, match="no network"):
        networks_of({})
