"""The papers' figures of strategies, by hand on a table of four modes; the contest: its runs and what comes of them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UnknownNameError
from predictors.contest.judged_choices import (
    by_choice,
    contest_runs,
    hours_saved,
    judge,
    optimum,
    results,
    run_contest,
    summarise,
    sweep,
)
from predictors.goals import Goal, budget_goals, power_budget
from predictors.profiles import Profiles
from predictors.settings import Settings
from predictors.strategies.fixed import Maxn
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_names
from predictors.strategies.search import BruteForce, RandomSearch
from tests.predictors.strategies.strategy_examples import example_table

FOUR = Profiles.at(
    Settings.of([[2, 1, 1, 1], [4, 1, 1, 1], [6, 1, 1, 1], [8, 1, 1, 1]]),
    np.array([400.0, 200.0, 150.0, 100.0]),
    np.array([10e3, 20e3, 25e3, 40e3]),
    device="board",
    workload="workload",
    provenance="simulated",
)

TABLE = example_table()
CONTRACT = {
    "strategy", "target", "profiles", "penalty_median", "penalty_mean", "penalty_max", "over_limit_pct",
    "over_limit_plus1_pct", "area_w", "infeasible", "profiling_seconds", "provenance", "by_choice",
}  # fmt: skip


def test_the_optimum_is_the_fastest_mode_within_the_budget():
    assert [optimum(FOUR, power_budget(watts * 1e3)) for watts in (9, 10, 24, 25, 60)] == [None, 0, 1, 2, 3]


def test_the_figures_of_maxn_by_hand():
    figures = summarise(sweep(FOUR, lambda seed: Maxn(), budget_goals("5:50:15"), 0, 0))
    # Budgets 5 (no mode), 20 (optimum 200 ms), 35 (150 ms), 50 W (100 ms); MAXN has 100 ms at 40 W.
    assert figures["choices"] == 3
    assert figures["unmeetable"] == 1
    assert figures["penalty_mean"] == pytest.approx((-50 + -100 / 3 + 0) / 3)
    assert figures["penalty_median"] == pytest.approx(-100 / 3)
    assert figures["penalty_max"] == 0
    assert figures["over_limit_pct"] == pytest.approx(200 / 3)
    assert figures["over_limit_plus1_pct"] == pytest.approx(200 / 3)
    assert figures["area_w"] == pytest.approx((20 + 5 + 0) / 3)


def test_single_choices_are_those_that_the_figures_are_made_of():
    single = by_choice(sweep(FOUR, lambda seed: Maxn(), budget_goals("5:50:15"), 0, 0))
    assert single["budget_w"] == [20.0, 35.0, 50.0]
    assert single["penalty_pct"] == [-50.0, -33.333, 0.0]
    assert single["power_error_w"] == [20.0, 5.0, -10.0]


def test_a_choice_breaks_a_limit_by_a_share_of_it():
    """40 W at budgets of 39.5 and 39 W: half a watt is nothing there, a watt is more than 2 %."""
    figures = summarise(sweep(FOUR, lambda seed: Maxn(), budget_goals("39,39.5"), 0, 0))
    assert [figures[name] for name in ("over_limit_pct", "over_limit_plus1_pct", "violations_pct")] == [100, 0, 50]


def test_goals_that_are_missed_are_named():
    goal = power_budget(10e3)
    outcomes = [judge(FOUR, goal, RandomSearch().choose(History(TableProfiler(FOUR.take([1, 2])), 2), goal))]
    assert summarise(outcomes)["missed"] == ["least minibatch time with power at most 10 W"]


def test_a_strategy_that_says_infeasible_where_there_is_a_mode_is_counted():
    outcomes = sweep(FOUR, RandomSearch, [power_budget(10e3)] * 20, 1, 0)
    wrong = sum(outcome.choice.index != 0 for outcome in outcomes)
    assert 0 < summarise(outcomes)["infeasible"] == wrong


@given(st.integers(0, 5), st.integers(1, 40))
def test_no_measured_choice_has_a_penalty_below_zero_or_breaks_the_limit(seed, profiles):
    outcomes = sweep(TABLE, RandomSearch, budget_goals("15:45:10"), profiles, seed)
    assert all(outcome.penalty_pct >= 0 and outcome.over_mw == 0 for outcome in outcomes if outcome.choice.feasible)


def test_hours_saved_are_those_of_the_faster_mode_over_the_whole_training():
    goals = budget_goals("20,35")
    outcomes = sweep(FOUR, lambda seed: BruteForce(), goals, 4, 0)
    slowest, forbidden = (
        [judge(FOUR, one.goal, dataclasses.replace(one.choice, index=index)) for one in outcomes] for index in (0, 3)
    )
    # 400 ms against 200 ms at 20 W and 150 ms at 35 W, 36,000 minibatches: 2 h and 2.5 h.
    assert hours_saved(outcomes, slowest, 16 * 36_000) == pytest.approx(2.25)
    assert hours_saved(outcomes, forbidden, 16 * 36_000) is None


def test_hours_saved_are_of_as_many_samples_whatever_the_batch_size():
    table = dataclasses.replace(FOUR, batch_size=np.array([64, 16, 16, 16]))  # 6.25 ms a sample instead of 25
    goals = [Goal("sample_time_ms", {"power_mw": 15e3}), Goal("sample_time_ms", {"power_mw": 22e3})]
    outcomes = sweep(table, lambda seed: BruteForce(), goals, 4, 0)
    second = [judge(table, one.goal, dataclasses.replace(one.choice, index=1, batch_size=16)) for one in outcomes]
    assert hours_saved(outcomes, second, 36e5) == pytest.approx(36e5 * (12.5 - 6.25) / 36e5)


def test_an_energy_goal_is_judged_by_energy():
    outcomes = sweep(FOUR, lambda seed: Maxn(), [Goal("energy_mws")], 0, 0)
    assert outcomes[0].optimum == 2  # 3,750 mWs against 4,000 of three others
    assert outcomes[0].penalty_pct == pytest.approx(100 * (4000 / 3750 - 1))


def contest(runs, budgets, jobs=1):
    goals = budget_goals(budgets)
    return results(run_contest(runs, goals, StrategySetting(), jobs), [TABLE], len(goals))


def test_what_neither_number_nor_seed_changes_runs_once():
    runs = contest_runs(["maxn", "mdbs", "random", "brute-force"], [TABLE], [10, 15], 3)
    counted = {name: [(run.profiles, run.repeat) for run in runs if run.strategy == name] for name in STRATEGIES}
    assert counted["maxn"] == [(0, 0)]
    assert counted["mdbs"] == [(10, 0), (15, 0)]
    assert counted["random"] == [(count, repeat) for count in (10, 15) for repeat in range(3)]
    assert counted["brute-force"] == [(len(TABLE), 0)]


@pytest.mark.exhaustive
def test_results_carry_the_keys_that_programs_rely_on_and_two_processes_find_what_one_finds():
    runs = contest_runs(["random", "maxn"], [TABLE], [10], 2)
    rows = contest(runs, "15:40:5")
    assert all(set(row) >= CONTRACT for row in rows)
    assert json.loads(json.dumps(rows)) == rows
    assert {row["provenance"] for row in rows} == {"simulated"}
    assert contest(runs, "15:40:5", jobs=2) == rows


def test_the_spread_over_repeats_holds_the_mean_over_all_and_more_profiles_are_better():
    row, many = contest(contest_runs(["random"], [TABLE], [10, 100], 6), "15:40:5")
    assert row["repeats"] == 6
    spread = row["by_repeat"]["penalty"]
    assert spread["q1"] < spread["median"] < spread["q3"]
    assert spread["q1"] / 1.5 < row["penalty_mean"] < spread["q3"] * 1.5
    assert many["penalty_mean"] < row["penalty_mean"]
    assert many["profiling_seconds"] > row["profiling_seconds"]


def test_all_stands_for_every_strategy_once_and_an_unknown_one_is_refused_with_the_known_ones():
    assert strategy_names("mdbs,all,mdbs") == ["mdbs", *(name for name in STRATEGIES if name != "mdbs")]
    with pytest.raises(UnknownNameError, match="closed-loop"):
        strategy_names("mdbs,gradient")
