"""The contest of strategies: which runs there are, and what comes out of them."""

from __future__ import annotations

import json

import pytest

from harness.core.errors import UnknownNameError
from predictors.strategies.evaluation import contest_runs, results, run_contest
from predictors.strategies.goals import budget_goals
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_names
from tests.predictors.strategies.strategy_examples import example_table

TABLE = example_table()
CONTRACT = {
    "strategy", "target", "profiles", "penalty_median", "penalty_mean", "penalty_max", "over_limit_pct",
    "over_limit_plus1_pct", "area_w", "infeasible", "profiling_seconds", "provenance", "by_choice",
}  # fmt: skip


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


def test_results_carry_the_keys_that_programs_rely_on():
    runs = contest_runs(["random", "maxn"], [TABLE], [10], 2)
    rows = contest(runs, "15:40:5")
    assert all(set(row) >= CONTRACT for row in rows)
    assert json.loads(json.dumps(rows)) == rows
    assert {row["provenance"] for row in rows} == {"simulated"}


def test_two_processes_find_what_one_finds():
    runs = contest_runs(["random"], [TABLE], [10], 2)
    assert contest(runs, "20,30", jobs=2) == contest(runs, "20,30")


def test_the_spread_over_repeats_holds_the_mean_over_all():
    (row,) = contest(contest_runs(["random"], [TABLE], [10], 6), "15:40:5")
    assert row["repeats"] == 6
    spread = row["by_repeat"]["penalty"]
    assert spread["q1"] < spread["median"] < spread["q3"]
    assert spread["q1"] / 1.5 < row["penalty_mean"] < spread["q3"] * 1.5


def test_more_profiles_are_better_for_a_random_search():
    runs = contest_runs(["random"], [TABLE], [5, 100], 5)
    few, many = contest(runs, "15:40:5")
    assert many["penalty_mean"] < few["penalty_mean"]
    assert many["profiling_seconds"] > few["profiling_seconds"]


def test_all_stands_for_every_strategy_once():
    assert strategy_names("mdbs,all,mdbs") == ["mdbs", *(name for name in STRATEGIES if name != "mdbs")]


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="closed-loop"):
        strategy_names("mdbs,gradient")
