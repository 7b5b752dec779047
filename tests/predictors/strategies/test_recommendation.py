"""A recommendation: the chosen mode, the front around it, and what it saves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from predictors.goals import power_budget
from predictors.strategies.closed_loop import ClosedLoop
from predictors.strategies.fixed import Maxn, VendorPreset
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.recommendation import choose_and_describe, energy_wh, shared_mode, thinned
from tests.predictors.strategies.strategy_examples import NearlyRight, example_table, middle_modes

TABLE = example_table()
PRESET = VendorPreset("MODE_20W", PowerMode(4, 1_100_000, 400_000, 2_100_000), 20_000.0)


def recommended(budget_mw=25_000.0, samples=16e5, presets=(PRESET,), table=TABLE):
    strategy = ClosedLoop(lambda: NearlyRight(table, log_sd=0.02), middle_modes)
    history = History(TableProfiler(table), 12)
    goal = power_budget(budget_mw)
    return choose_and_describe(history, [goal], strategy, NearlyRight(table, log_sd=0.02), presets, samples)[0]


def test_the_recommended_mode_has_the_figures_that_were_profiled():
    found = recommended()
    assert found.mode.time_ms.profiled
    assert found.mode.time_ms.value == pytest.approx(TABLE.time_ms[found.choice.index])
    assert found.mode.time_ms.low < found.mode.time_ms.value < found.mode.time_ms.high


def test_savings_are_those_of_time_and_power_over_the_whole_training_or_else_an_hour():
    found, in_an_hour = recommended(), recommended(samples=None)
    maxn = in_an_hour.savings[0]
    assert maxn.hours == pytest.approx(maxn.other.time_ms.value / in_an_hour.mode.time_ms.value - 1)
    for saving in found.savings:
        hours = (saving.other.time_ms.value - found.mode.time_ms.value) * 1e5 / 3.6e6
        assert saving.hours == pytest.approx(hours)
        assert saving.energy_wh == pytest.approx(energy_wh(saving.other, 1e5) - energy_wh(found.mode, 1e5))
    preset = "preset MODE_20W, approximated by the nearest available mode"  # its clocks are not in the table
    assert [saving.other.label for saving in found.savings] == ["MAXN", preset]
    assert [saving.keeps_limits for saving in found.savings] == [False, True]


def test_the_front_rises_in_power_falls_in_time_and_is_thinned_to_its_ends():
    front = recommended().front
    assert all(a.power_mw.value < b.power_mw.value for a, b in zip(front, front[1:]))
    assert all(a.time_ms.value > b.time_ms.value for a, b in zip(front, front[1:]))
    few = thinned(front, 5)
    assert len(few) <= 5
    assert (few[0], few[-1]) == (front[0], front[-1])


def test_the_one_mode_for_several_workloads_counts_the_tails_of_the_predictor():
    found = [recommended(budget_mw) for budget_mw in (24e3, 25e3)]
    unsure = {"measured": np.zeros(len(TABLE), dtype=bool), "log_power_sd": np.full(len(TABLE), 0.1), "freedom": 2.5}
    shared = shared_mode([one._replace(posterior=dataclasses.replace(one.posterior, **unsure)) for one in found], 0.05)
    assert shared.modes[0].power_mw.value < 24e3 * 1.02 * np.exp(-0.1 * 2.5)  # 5 % of a t lie above 2.6


def test_the_one_mode_for_several_workloads_is_one_that_each_of_them_has():
    table = TABLE.take(np.arange(len(TABLE))[::-1][: len(TABLE) // 2])
    shared = shared_mode([recommended(), recommended(table=table)], 0.05)
    first, second = shared.modes
    assert first.power_mode == second.power_mode
    place = table.modes.tolist().index(list(second.power_mode))
    assert second.time_ms.value == pytest.approx(table.time_ms[place], rel=0.1)
    even, odd = TABLE.take(np.arange(0, len(TABLE), 2)), TABLE.take(np.arange(1, len(TABLE), 2))
    assert shared_mode([recommended(table=even), recommended(table=odd)], 0.05) is None


def test_nothing_profiled_is_no_recommendation():
    with pytest.raises(InvalidValueError, match="profiles"):
        choose_and_describe(History(TableProfiler(TABLE), 0), [power_budget(25e3)], Maxn(), NearlyRight(TABLE))


def test_several_goals_share_one_set_of_profiles_and_each_says_what_all_of_them_cost():
    goals = [power_budget(20e3), power_budget(30e3)]
    strategy = ClosedLoop(lambda: NearlyRight(TABLE, log_sd=0.02), middle_modes)
    found = choose_and_describe(History(TableProfiler(TABLE), 14), goals, strategy, NearlyRight(TABLE))
    assert [one.choice.spent.profiles for one in found] == [14, 14]
    assert found[0].mode.time_ms.value > found[1].mode.time_ms.value


def test_what_a_strategy_chose_without_profiles_is_profiled():
    (found,) = choose_and_describe(History(TableProfiler(TABLE), 5), [power_budget(20e3)], Maxn(), NearlyRight(TABLE))
    assert (found.choice.spent.profiles, found.choice.feasible, found.mode.time_ms.profiled) == (1, False, True)
