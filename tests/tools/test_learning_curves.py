"""Learning curves: whether simulated boards are as hard to learn as real ones."""

import dataclasses

import numpy as np
import pytest

from harness.core.boards import load_board
from predictors.profiles import Profiles
from predictors.settings import Settings
from tests.tools.measured import measured_table
from tools.measured_tables import LEARNERS, is_large, learning_curves, simulated_like

pytestmark = pytest.mark.one_python

SPACE = load_board("orin-agx").power_mode_space()


def modes(count, seed=0):
    return np.array(SPACE.sample(count, seed))


def bent(at):
    """A response whose logarithm is smooth, but no polynomial."""
    return 20.0 + 3e7 / at[:, 2] + 4e7 / at[:, 1] + 60.0 / at[:, 0]


def as_table(count, sizes=16, power=(2e4, 5e4)):
    at = modes(count)
    about = {"device": "orin-agx", "workload": "resnet18-imagenet", "provenance": "measured"}
    return Profiles.at(Settings.of(at, np.resize(sizes, count)), bent(at), np.resize(np.array(power), count), **about)


def test_a_table_is_large_with_a_thousand_modes_of_one_size_with_power():
    assert is_large(as_table(1_000))
    assert not is_large(as_table(999))
    assert not is_large(as_table(1_000, sizes=[8, 16]))
    assert not is_large(as_table(1_000, power=[20_000.0, np.nan]))


@pytest.mark.exhaustive
@pytest.mark.long
def test_both_tables_are_learned_from_the_same_modes_and_alike_is_within_a_factor():
    table = as_table(1_200, power=np.linspace(1e4, 5e4, 1_200))
    table = dataclasses.replace(table, time_ms=simulated_like(table).time_ms)
    points = learning_curves(table, counts=(10, 50), repeats=2)
    assert set(zip(points["target"], points["learner"], points["count"])) == {
        (target, learner, count) for target in ("time", "power") for learner in LEARNERS for count in (10, 50)
    }
    assert (points["ratio"] == points["simulated_mape_pct"] / points["measured_mape_pct"]).all()
    assert list(points["is_alike"]) == [1 / 1.5 <= ratio <= 1.5 for ratio in points["ratio"]]
    assert points["is_alike"][points["target"] == "time"].all()
    assert not points["is_alike"].all()
    assert learning_curves(table, counts=(10, 50), repeats=2).equals(points)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workload", ["resnet18-imagenet", "yolov8n-coco"])
@pytest.mark.long
def test_simulated_boards_are_as_hard_to_learn_as_real_ones(workload):
    points = learning_curves(measured_table(workload), counts=(10, 50))
    assert points[~points["is_alike"]].to_dict("records") == []
