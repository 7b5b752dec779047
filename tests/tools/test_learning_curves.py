"""The two plain models of the learning-curve check, and whether simulated boards are as hard to learn as real ones."""

import numpy as np
import pytest

from harness.core.boards import load_board as load_spec
from tests.tools.measured import measured_table
from tools.measured_tables import LEARNERS, MeasuredTable, Point, gaussian_process, is_large, learning_curves, ridge

SPACE = load_spec("orin-agx").power_mode_space()


def modes(count, seed=0):
    return np.array(SPACE.sample(count, seed), dtype=float)


def power_law(at):
    """A response that is linear in logarithms."""
    scaled = at / at.max(axis=0).clip(min=1.0)
    return 50.0 * (at[:, 0] / 12) ** -0.2 * (at[:, 1] / 2e6) ** -0.5 * (at[:, 2] / 1e6) ** -0.7 * scaled[:, 3] ** 0.0


def bent(at):
    """A response whose logarithm is smooth, but no polynomial."""
    return 20.0 + 3e7 / at[:, 2] + 4e7 / at[:, 1] + 60.0 / at[:, 0]


def error(learner, response, count=100):
    seen, unseen = modes(count), modes(400, 1)
    return float(np.mean(np.abs(learner(seen, response(seen), unseen) / response(unseen) - 1.0)))


@pytest.mark.parametrize("learner", [ridge, gaussian_process])
def test_a_power_law_is_learned(learner):
    assert error(learner, power_law) < 0.02


@pytest.mark.parametrize("learner", [ridge, gaussian_process])
def test_more_modes_teach_more(learner):
    assert error(learner, bent, 100) < 0.5 * error(learner, bent, 10)


def test_the_process_follows_what_a_quadratic_cannot():
    assert error(gaussian_process, bent) < error(ridge, bent)


def test_where_nothing_varies_nothing_breaks():
    seen = np.tile(modes(1), (10, 1))
    for learner in LEARNERS.values():
        assert learner(seen, np.full(10, 7.0), seen) == pytest.approx(7.0, rel=1e-2)


@pytest.mark.parametrize(("measured", "simulated", "alike"), [(3.0, 4.4, True), (3.0, 4.6, False), (3.0, 1.9, False)])
def test_alike_is_within_a_factor_of_one_and_a_half(measured, simulated, alike):
    assert Point("a", "time", "ridge", 10, measured, simulated).is_alike is alike


def as_table(count, sizes=16, power=20_000.0):
    at = modes(count)
    return MeasuredTable(
        "orin-agx",
        "resnet18-imagenet",
        "training",
        at,
        np.resize(sizes, count),
        bent(at),
        np.resize(power, count).astype(float),
    )


def test_a_table_is_large_with_a_thousand_modes_of_one_size_with_power():
    assert is_large(as_table(1_000))
    assert not is_large(as_table(999))
    assert not is_large(as_table(1_000, sizes=[8, 16]))
    assert not is_large(as_table(1_000, power=[20_000.0, np.nan]))


def test_both_tables_are_learned_from_the_same_modes():
    points = learning_curves(as_table(1_200, power=np.linspace(1e4, 5e4, 1_200)), counts=(10, 50), repeats=2)
    assert {(point.target, point.learner, point.count) for point in points} == {
        (target, learner, count) for target in ("time", "power") for learner in LEARNERS for count in (10, 50)
    }
    again = learning_curves(as_table(1_200, power=np.linspace(1e4, 5e4, 1_200)), counts=(10, 50), repeats=2)
    assert again == points


@pytest.mark.parametrize("workload", ["resnet18-imagenet", "yolov8n-coco"])
def test_simulated_boards_are_as_hard_to_learn_as_real_ones(workload):
    points = learning_curves(measured_table(workload))
    assert [point for point in points if not point.is_alike] == []
