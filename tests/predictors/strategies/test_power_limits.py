"""Strategies on discrete GPUs: power limit and batch size are chosen together, in six profiles, beside Zeus' rule."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from harness.core.measured_tables import load_table
from predictors.contest.judged_choices import contest_runs, run_contest, summarise
from predictors.goals import Goal
from predictors.profiles import tables_of
from predictors.strategies.power_limits import PowerLimits
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import STRATEGIES, StrategySetting
from tests.predictors.strategies.strategy_examples import example_table

ENERGY = Goal("sample_energy_mws")
PROFILES = 6


def tables(name):
    return [table.complete() for table in tables_of(load_table(name))]


RESNET = next(table for table in tables("zeus-v100") if table.workload.startswith("resnet50"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("gpu", "other"),
    [("zeus-v100", "zeus-a40"), pytest.param("zeus-a40", "zeus-v100", marks=pytest.mark.exhaustive)],
)
def test_six_profiles_end_near_the_best_setting(gpu, other):
    """On average over six networks within 3 %, for the energy of a sample and for its time under a power budget."""
    setting = StrategySetting(references=tuple(table for table in tables(other)))
    penalties = []
    for table in tables(gpu):
        budget = Goal("sample_time_ms", {"power_mw": float(np.quantile(table.power_mw, 0.5))})
        judged = run_contest(contest_runs(["closed-loop"], [table], [PROFILES], 1), [ENERGY, budget], setting)
        [outcomes] = judged.values()
        assert not any(outcome.breaks for outcome in outcomes)
        penalties.append(summarise(outcomes)["penalty_mean"])
    assert np.mean(penalties) <= 3


def test_a_choice_names_its_power_limit_and_so_does_the_report_of_each_profile():
    lines = []
    history = History(TableProfiler(RESNET), PROFILES, lines.append)
    setting = StrategySetting("v100", tuple(tables("zeus-a40")), workload=RESNET.workload)
    choice = STRATEGIES["random"].make(setting, 0).choose(history, ENERGY)
    assert choice.power_limit_mw == RESNET.power_limit_mw[choice.index]
    assert len(lines) == PROFILES
    index = next(iter(history.taken))
    limit_w, size = RESNET.power_limit_mw[index] / 1000, RESNET.batch_size[index]
    assert lines[0].startswith(f"profile 1 of 6: power limit {limit_w:g} W, batch size {size:g}: ")


def test_zeus_profiles_every_limit_at_a_batch_size_before_the_next_and_keeps_the_cheapest():
    limits, sizes = np.unique(RESNET.power_limit_mw), np.unique(RESNET.batch_size)
    history = History(TableProfiler(RESNET), 2 * len(limits))
    choice = PowerLimits().choose(history, ENERGY)
    profiled = RESNET.table[history.places][:, 4:]
    assert profiled[: len(limits), 0].tolist() == [sizes[len(sizes) // 2]] * len(limits)
    assert profiled[: len(limits), 1].tolist() == limits[::-1].tolist()
    costs = RESNET.time_ms * RESNET.power_mw / RESNET.batch_size
    assert costs[choice.index] == costs[history.places].min()


def test_zeus_weighs_time_by_the_greatest_limit_and_keeps_a_budget():
    history = History(TableProfiler(RESNET), len(RESNET))
    budget_mw = 150_000.0
    choice = PowerLimits().choose(history, Goal("sample_time_ms", {"power_mw": budget_mw}))
    kept = RESNET.power_mw <= budget_mw
    per_sample = RESNET.time_ms / RESNET.batch_size
    assert per_sample[choice.index] == per_sample[kept].min()
    assert choice.feasible


def test_zeus_is_refused_on_a_device_without_power_limits():
    with pytest.raises(InvalidValueError, match=r"device has none.*another strategy"):
        PowerLimits().choose(History(TableProfiler(example_table()), 5), ENERGY)
