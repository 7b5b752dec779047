"""Strategies that search by profiling: what they find, and what they may spend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from predictors.contest.judged_choices import judge, optimum
from predictors.goals import Goal, power_budget
from predictors.settings import DIMENSIONS, Grid
from predictors.strategies.fixed import Maxn, Presets, VendorPreset, claimed_from_name
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.search import BinarySearch, BruteForce, CoordinateSearch, RandomSearch
from tests.predictors.strategies.strategy_examples import example_table

TABLE = example_table()
LEAST_MW, MOST_MW = float(TABLE.power_mw.min()), float(TABLE.power_mw.max())
SEARCHES = [RandomSearch(), BinarySearch(), BinarySearch(middle="lower"), CoordinateSearch()]
budgets = st.floats(LEAST_MW, MOST_MW)


def history(profiles, table=TABLE):
    return History(TableProfiler(table), profiles)


@pytest.mark.parametrize("strategy", SEARCHES, ids=lambda strategy: type(strategy).__name__)
@given(budget_mw=budgets, profiles=st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_a_search_spends_no_more_than_it_may_and_answers_with_what_it_measured(strategy, budget_mw, profiles):
    spent = history(profiles)
    choice = strategy.choose(spent, power_budget(budget_mw))
    assert choice.spent.profiles == len(spent.taken) <= profiles
    assert choice.measured is not None
    assert choice.feasible == (choice.measured.power_mw <= budget_mw)
    best = [found.time_ms for found in spent.taken.values() if found.power_mw <= budget_mw]
    assert not best or choice.measured.time_ms == min(best)


@pytest.mark.parametrize("strategy", SEARCHES, ids=lambda strategy: type(strategy).__name__)
def test_a_search_says_when_nothing_keeps_the_limit(strategy):
    spent = history(15)
    choice = strategy.choose(spent, power_budget(LEAST_MW / 2))
    assert not choice.feasible
    assert choice.measured.power_mw == min(spent.power_mw)


def test_brute_force_asks_for_all_profiles_and_finds_the_optimum():
    goal = power_budget(20_000.0)
    with pytest.raises(InvalidValueError, match="all"):
        BruteForce().choose(history(10), goal)
    outcome = judge(TABLE, goal, BruteForce().choose(history(len(TABLE)), goal))
    assert outcome.penalty_pct == 0
    assert outcome.choice.index == optimum(TABLE, goal)


@given(budget_mw=budgets, middle=st.sampled_from(["upper", "lower"]), dropped=st.sampled_from(["upper", "lower"]))
@settings(max_examples=40, deadline=None)
def test_binary_search_needs_about_the_logarithm_of_the_number_of_modes(budget_mw, middle, dropped):
    halvings = sum(math.ceil(math.log2(size)) for size in Grid(TableProfiler(TABLE).candidates).shape)
    halved = BinarySearch(middle=middle, when_not_better=dropped).choose(history(halvings + 1), power_budget(budget_mw))
    spent = BinarySearch(middle=middle, when_not_better=dropped).choose(history(1000), power_budget(budget_mw)).spent
    assert spent.profiles <= halvings + 1 or not halved.feasible


def test_binary_search_follows_the_report_step_by_step():
    """000 sec. 4.2: profile the middle; within the budget drop the lower half of the dimension, else the upper."""
    spent = history(3)
    BinarySearch().choose(spent, power_budget(MOST_MW))
    modes = [spent.mode(index) for index in spent.taken]
    assert modes[0] == PowerMode(8, 1_200_000, 700_000, 2_100_000)
    assert modes[1] == PowerMode(12, 1_200_000, 700_000, 2_100_000)
    assert modes[2] == PowerMode(12, 1_600_000, 700_000, 2_100_000)


INFERENCE = example_table(batch_sizes=(1, 4, 16, 64), task="inference")
LATENCY_GOALS = [
    Goal(minimise, {"power_mw": watts * 1e3, "time_ms": latency_ms})
    for minimise in ("sample_time_ms", "sample_energy_mws", "power_mw")
    for watts in (14, 18, 30)
    for latency_ms in (70, 150, 600)
]


@pytest.mark.parametrize("goal", LATENCY_GOALS, ids=Goal.describe)
def test_binary_search_meets_every_limit_that_some_mode_keeps(goal):
    """Too slow moves clocks up and the batch size down; too much power moves clocks down."""
    outcome = judge(INFERENCE, goal, BinarySearch().choose(history(40, INFERENCE), goal))
    assert (outcome.optimum is not None) == outcome.choice.feasible
    assert outcome.breaks != outcome.choice.feasible


def test_binary_search_goes_up_from_a_mode_that_is_too_slow():
    slow_side = TABLE.time_ms[TABLE.modes[:, 2] == 700_000].min()
    spent = history(2)
    BinarySearch(order=("gpu_khz", "cpu_khz", "cpu_cores", "mem_khz", "batch_size")).choose(
        spent, Goal("power_mw", {"time_ms": float(0.9 * slow_side)})
    )
    assert [spent.mode(index).gpu_khz for index in spent.taken] == [700_000, 1_100_000]


def test_binary_search_refuses_an_order_that_leaves_a_dimension_out():
    with pytest.raises(InvalidValueError, match="batch_size"):
        BinarySearch(order=DIMENSIONS[:4]).choose(history(5), power_budget(20_000.0))


def test_the_coordinate_search_beats_random_modes_of_the_same_number():
    goals = [power_budget(float(budget)) for budget in range(16_000, 40_000, 2_000)]

    def penalty(make):
        return np.mean([judge(TABLE, goal, make().choose(history(15), goal)).penalty_pct for goal in goals])

    assert penalty(CoordinateSearch) < penalty(RandomSearch)


def test_one_random_sample_serves_every_budget():
    shared = history(20)
    choices = RandomSearch().choose_all(shared, [power_budget(20_000.0), power_budget(30_000.0)])
    assert shared.spent.profiles == 20
    assert [choice.spent.profiles for choice in choices] == [20, 20]


def test_maxn_takes_the_greatest_mode_and_costs_nothing():
    choice = Maxn().choose(history(0), power_budget(20_000.0))
    assert choice.power_mode == PowerMode(*TABLE.modes.max(axis=0).tolist())
    assert choice.spent.profiles == 0


PRESETS = [
    VendorPreset("MAXN", PowerMode(12, 2_200_000, 1_300_000, 3_200_000), math.inf),
    VendorPreset("MODE_30W", PowerMode(8, 1_700_000, 600_000, 3_200_000), 30_000.0),
    VendorPreset("MODE_15W", PowerMode(4, 1_100_000, 400_000, 2_100_000), 15_000.0),
]


@pytest.mark.parametrize(
    ("budget_w", "preset", "feasible"), [(14, 2, False), (15, 2, True), (29, 2, True), (60, 1, True), (None, 0, True)]
)
def test_presets_go_by_what_they_claim(budget_w, preset, feasible):
    choice = Presets(PRESETS).choose(history(0), power_budget(budget_w * 1e3) if budget_w else Goal("time_ms"))
    expected = Grid(TableProfiler(TABLE).candidates).nearest(PRESETS[preset].mode)
    assert (choice.index, choice.feasible) == (expected, feasible)


def test_clocks_of_a_preset_with_less_gpu_have_another_name_than_the_preset():
    """Two figures for one name otherwise: `--strategy presets` profiles it with a part of the GPU off."""
    goal = power_budget(15_000.0)
    names = {
        Presets([PRESETS[2]._replace(has_less_gpu=has_less_gpu)]).choose(history(0), goal).reason.split(",")[0]
        for has_less_gpu in (False, True)
    }
    assert len(names) == 2
    assert sum(name.startswith("preset MODE_15W") for name in names) == 1


@pytest.mark.parametrize(
    ("name", "claimed_mw"), [("MODE_30W", 30e3), ("15W", 15e3), ("MODE_15W_6CORE", 15e3), ("MAXN", math.inf)]
)
def test_a_presets_name_tells_its_claim(name, claimed_mw):
    assert claimed_from_name(name) == claimed_mw


def test_a_profile_is_never_paid_for_twice_and_none_is_taken_beyond_the_limit():
    spent = history(1)
    assert spent.profile(3) == spent.profile(3)
    assert spent.spent.profiles == 1
    with pytest.raises(InvalidValueError, match="spent"):
        spent.profile(1)


def test_the_nearest_candidate_replaces_a_mode_that_is_none():
    """The distance is in steps, each as a share of those of its dimension."""
    sparse = TABLE.take(np.arange(0, len(TABLE), 7))
    grid = Grid(TableProfiler(sparse).candidates)
    shares = grid.steps / np.maximum(np.array(grid.shape) - 1, 1)
    far = 0
    for step in np.ndindex(*grid.shape):
        distance = np.abs(shares - np.array(step) / np.maximum(np.array(grid.shape) - 1, 1)).sum(axis=1)
        assert distance[grid.at(step)] == pytest.approx(distance.min())
        far += distance.min() > 0
    assert far == np.prod(grid.shape) - len(sparse)
    assert [grid.at(step) for step in grid.steps] == list(range(len(sparse)))


def test_a_mode_that_must_not_be_used_is_replaced_by_a_neighbour():
    grid = Grid(TableProfiler(TABLE).candidates)
    place = grid.greatest()
    grid.usable[place] = False
    replacement = grid.steps[grid.greatest()]
    assert sorted(grid.steps[place] - replacement) == [0, 0, 0, 0, 0, 1]
