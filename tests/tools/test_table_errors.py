"""Errors of simulated boards against measured tables, and what choosing by them costs."""

import dataclasses

import numpy as np
import pytest

from harness.core.boards import load_board
from harness.core.power_modes import PowerMode
from harness.simulation.corpus import simulate_corpus
from predictors.evaluation import odd_rows
from predictors.profiles import Profiles
from predictors.settings import Settings
from tests.messages import says
from tests.tools.measured import measured_table
from tools.measured_tables import choose, compare, keys_of, simulated_like, split_tables, validate_table

pytestmark = pytest.mark.one_python

MODES = load_board("orin-agx").power_mode_space().sample(200, 1)


def rows(workload="resnet18-imagenet", factor=1.0, provenance="measured", device="orin-agx", modes=MODES, **others):
    """Rows as a board would give them whose minibatches take `factor` times as long as simulated ones."""
    found = simulate_corpus(device, workload, modes, seed=None, **others)
    return [{**row, "minibatch_time_ms": row["minibatch_time_ms"] * factor, "provenance": provenance} for row in found]


def table(times, powers):
    modes = np.tile([8, 2_201_600, 1_300_500, 3_199_000], (len(times), 1))
    about = {"device": "orin-agx", "workload": "resnet18-imagenet", "provenance": "measured"}
    return Profiles.at(Settings.of(modes), np.array(times), np.array(powers), **about)


def test_what_cannot_be_compared_is_counted_with_a_reason():
    strange = [{**row, "workload": "chess"} for row in rows()[:3]]
    found, left_out = split_tables([*rows()[:5], *strange, *rows(provenance="simulated")[:2]])
    assert [len(one.modes) for one in found] == [5]
    unknown, simulated = left_out
    assert says(unknown, "3 rows", "orin-agx with chess")
    assert says(simulated, "2 rows", "simulated")


def test_a_workload_is_its_own_key_unless_it_comes_twice():
    once, _ = split_tables([*rows(), *rows("yolov8n-coco")])
    assert keys_of(once) == ["resnet18-imagenet", "yolov8n-coco"]
    twice, _ = split_tables([*rows(), *rows(task="inference")])
    assert keys_of(twice) == ["resnet18-imagenet/orin-agx/training", "resnet18-imagenet/orin-agx/inference"]


def test_a_simulated_board_answers_rows_as_its_corpus_has_them_each_with_its_batch_size():
    (measured,), _ = split_tables([*rows(batch_size=1), *rows(batch_size=32)])
    simulated = simulated_like(measured)
    assert simulated.time_ms == pytest.approx(measured.time_ms, rel=1e-4)
    assert simulated.power_mw == pytest.approx(measured.power_mw, rel=1e-3)


def test_errors_are_relative_to_what_was_measured():
    (measured,), _ = split_tables(rows(factor=1.25))
    found = validate_table(measured)
    expected = {"time_median_ape": 20.0, "time_p90_ape": 20.0, "time_median_bias": -20.0, "power_median_ape": 0.0,
                "time_rank_correlation": 1.0, "front_median_penalty_pct": 0.0}  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=0.01)
    assert (found["device"], found["rows"]) == ("orin-agx", 200)


def test_the_odd_slice_is_told_apart():
    modes = [*MODES, PowerMode(2, 422_400, 1_300_500, 3_199_000)]
    measured = rows(modes=modes)
    measured[-1]["minibatch_time_ms"] /= 8.0
    (one,), _ = split_tables(measured)
    found = validate_table(one)
    assert found["rows"] == 201
    assert found["sound"]["rows"] == int((~odd_rows(one)).sum()) < 201
    assert compare(one, simulated_like(one))["time_median_ape"] == pytest.approx(found["time_median_ape"])


def test_a_table_without_power_has_errors_of_time_only():
    (measured,), _ = split_tables([{**row, "power_mw": None} for row in rows()])
    found = compare(measured, simulated_like(measured))
    assert found["time_median_ape"] == pytest.approx(0.0, abs=0.01)
    assert not [name for name in found if name.startswith(("power", "front"))]


def test_choosing_by_the_truth_costs_nothing_and_wrong_predictions_cost_time_or_budget():
    true = table([10.0, 8.0, 6.0, 4.0], [16_000.0, 20_000.0, 25_000.0, 40_000.0])
    slow = dataclasses.replace(true, time_ms=np.array([10.0, 8.0, 9.0, 4.0]))
    frugal = dataclasses.replace(true, power_mw=np.array([16_000.0, 20_000.0, 18_000.0, 40_000.0]))
    by_truth, by_slow, by_frugal = (choose(one, true).set_index("budgets_w") for one in (true, slow, frugal))
    assert list(by_truth.index) == list(range(17, 40))
    assert by_truth.max().to_list() == pytest.approx([0.0, 0.0])
    assert by_slow["penalty_pct"][[24.0, 25.0]].to_list() == pytest.approx([0.0, 100.0 * (8.0 / 6.0 - 1.0)])
    assert by_frugal["excess_w"][[17.0, 18.0]].to_list() == pytest.approx([0.0, 7.0])
    assert compare(true, frugal)["front_over_budget_pct"] == pytest.approx(100.0 * 6 / 23)  # 18 to 23 W
    small = choose(*[table([10.0, 8.0, 6.0], [4_000.0, 6_000.0, 10_000.0])] * 2).budgets_w
    assert (small.min(), small.max(), len(small)) == (4.0, 10.0, 34), "a small board has budgets of its own"


@pytest.mark.parametrize("workload", ["resnet18-imagenet", "yolov8n-coco"])
def test_tables_that_the_parameters_were_fitted_to_are_met(workload):
    found = validate_table(measured_table(workload))["smooth"]
    assert found["time_median_ape"] <= 4.0
    assert found["power_median_ape"] <= 3.0
