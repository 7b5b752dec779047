"""The closed loop, and one pick at a risk: on tables with a predictor of known quality."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from predictors.contest.judged_choices import judge, optimum, summarise, sweep
from predictors.forecast import Forecast
from predictors.goals import Goal, budget_goals, power_budget
from predictors.settings import Settings
from predictors.strategies import closed_loop as module
from predictors.strategies.closed_loop import (
    VARIED_BY,
    ClosedLoop,
    OneShot,
    design_for,
    expected_gains,
    expected_improvement,
    learn,
)
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import StrategySetting, make_closed_loop
from predictors.strategies.search import RandomSearch
from tests.messages import says
from tests.predictors.strategies.strategy_examples import (
    ROUGH_TABLE,
    NearlyRight,
    closed_loop,
    example_table,
    middle_modes,
)

TABLE = ROUGH_TABLE
GOALS = budget_goals("14:44:5")


def penalty(make, goals=GOALS, profiles=15):
    return summarise(sweep(TABLE, make, goals, profiles, 0))["penalty_mean"]


def test_it_finds_better_modes_than_random_search_and_breaks_no_limit():
    figures = summarise(sweep(TABLE, closed_loop, GOALS, 15, 0))
    assert figures["penalty_mean"] < penalty(RandomSearch) / 2
    assert (figures["over_limit_pct"], figures["infeasible"]) == (0, 0)


@pytest.mark.exhaustive
def test_more_profiles_make_it_no_worse():
    assert penalty(closed_loop, profiles=25) <= penalty(closed_loop, profiles=10)


@pytest.mark.exhaustive
def test_a_predictor_that_knows_nothing_makes_it_worse():
    """The loop lives by its predictor: with one that errs tenfold it must show."""
    lost = ClosedLoop(lambda: NearlyRight(log_sd=2.0), middle_modes)
    assert penalty(lambda seed: lost) > penalty(closed_loop)


def test_the_answer_was_measured():
    history = History(TableProfiler(TABLE), 12)
    choice = closed_loop().choose(history, power_budget(25_000.0))
    assert choice.measured is not None
    assert choice.index in history.taken
    assert choice.spent.profiles == 12


def test_it_stops_where_nothing_better_is_likely():
    choice = closed_loop(least_gain=0.05).choose(History(TableProfiler(TABLE), 100), power_budget(25_000.0))
    assert choice.spent.profiles < 40
    assert says(choice.reason, "profiled modes", "5 %")


@pytest.mark.parametrize(
    ("profiles", "least_gain", "first_other"),
    [(2 * VARIED_BY, 0.0, VARIED_BY), (VARIED_BY + 1, 0.0, None), (2 * VARIED_BY, 2.0, 1)],
    ids=["with-profiles-to-spare", "with-few-profiles", "before-it-ends-early"],
)
def test_a_memory_clock_that_looks_unpromising_is_tried(monkeypatch, profiles, least_gain, first_other):
    def gains_of_one_clock(posterior, history, goals):
        memory_khz = history.profiler.candidates.modes[:, 3]
        gains = expected_gains(posterior, history, goals)
        return np.where(memory_khz == memory_khz[history.places[0]], gains, gains * 1e-6)

    monkeypatch.setattr(module, "expected_gains", gains_of_one_clock)
    history = History(TableProfiler(TABLE), profiles)
    closed_loop(least_gain=least_gain).choose(history, power_budget(25_000.0))
    memory_khz = TABLE.modes[history.places, 3]
    others = np.flatnonzero(memory_khz != memory_khz[0]).tolist()
    assert (others[0] if others else None) == first_other
    assert (len(memory_khz) < profiles) == (least_gain > 0)


def test_one_set_of_profiles_serves_a_whole_sweep():
    history = History(TableProfiler(TABLE), 25)
    choices = closed_loop().choose_all(history, GOALS)
    assert history.spent.profiles == 25
    assert {choice.reason for choice in choices} == {"best of 25 profiled modes"}
    assert all(choice.feasible for choice in choices)
    alone = penalty(RandomSearch, profiles=25)
    together = np.mean([judge(TABLE, goal, choice).penalty_pct for goal, choice in zip(GOALS, choices)])
    assert together < alone


def test_the_least_energy_under_a_deadline_is_found():
    goal = Goal("energy_mws", {"time_ms": float(np.median(TABLE.time_ms))})
    outcome = judge(TABLE, goal, closed_loop().choose(History(TableProfiler(TABLE), 25), goal))
    assert outcome.choice.feasible
    assert outcome.penalty_pct < 10


def test_what_was_profiled_promises_nothing():
    history = History(TableProfiler(TABLE), 10)
    for index in middle_modes(history, 10):
        history.profile(int(index))
    gains = expected_gains(learn(NearlyRight(), history), history, GOALS)
    assert (gains[history.places] == 0).all()
    assert (gains >= 0).all()


@given(st.floats(-3, 3), st.floats(0.01, 2), st.floats(-3, 3))
def test_expected_improvement_is_the_mean_of_what_falls_below(mean, sd, incumbent):
    drawn = np.random.default_rng(0).normal(mean, sd, 40_000)
    expected = np.maximum(1 - np.exp(drawn - incumbent), 0).mean()
    assert expected_improvement(np.array(mean), np.array(sd), incumbent) == pytest.approx(expected, abs=0.02)


def test_a_pick_at_a_risk_breaks_the_limit_no_more_often_than_that():
    """With a predictor that is honest about its error, over many seeds."""
    outcomes = [
        outcome
        for seed in range(40)
        for outcome in sweep(TABLE, lambda _, s=seed: OneShot(lambda: NearlyRight(seed=s), risk=0.1), GOALS, 5, 0, True)
    ]
    figures = summarise(outcomes)
    careless = [
        outcome
        for seed in range(40)
        for outcome in sweep(TABLE, lambda _, s=seed: OneShot(lambda: NearlyRight(seed=s)), GOALS, 5, 0, True)
    ]
    assert figures["over_limit_plus1_pct"] < summarise(careless)["over_limit_plus1_pct"] / 2


def test_a_pick_where_no_mode_is_safe_enough_is_marked_infeasible():
    budget = power_budget(float(TABLE.power_mw.min()) * 0.5)
    choice = OneShot(lambda: NearlyRight(), risk=0.05).choose(History(TableProfiler(TABLE), 5), budget)
    assert not choice.feasible
    assert "nearest" in choice.reason


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, 5])
def test_a_risk_that_is_no_probability_is_refused(risk):
    with pytest.raises(InvalidValueError, match="risk"):
        OneShot(NearlyRight, risk=risk)


def test_the_perfect_predictor_picks_the_optimum():
    outcomes = sweep(TABLE, lambda seed: OneShot(lambda: NearlyRight(log_sd=1e-9)), GOALS, 3, 0, True)
    assert [outcome.choice.index for outcome in outcomes] == [optimum(TABLE, goal) for goal in GOALS]


def test_where_nothing_keeps_the_limit_the_nearest_mode_is_found_and_no_more_is_profiled():
    wanted = ClosedLoop(lambda: NearlyRight(log_sd=1e-3), middle_modes)
    choice = wanted.choose(History(TableProfiler(TABLE), 100), power_budget(float(TABLE.power_mw.min()) * 0.8))
    assert not choice.feasible
    assert choice.index == int(TABLE.power_mw.argmin())
    assert choice.spent.profiles < 10
    assert says(choice.reason, "profiled modes", "no other")


class Pessimist(NearlyRight):
    """Expects every mode that it has not seen to be slower and to draw more than any is."""

    def _infer(self, rows):
        right = super()._infer(rows)
        slow, high = (np.full(len(TABLE), 2 * figures.max()) for figures in (TABLE.time_ms, TABLE.power_mw))
        return dataclasses.replace(right, log_time=np.log(slow), log_power=np.log(high))


@pytest.mark.parametrize(("quantity", "figures"), [("time_ms", TABLE.time_ms), ("power_mw", TABLE.power_mw)])
def test_the_extreme_modes_are_profiled_before_a_limit_is_given_up(quantity, figures):
    wanted = ClosedLoop(lambda: Pessimist(log_sd=1e-3), middle_modes)
    goal = Goal("energy_mws", {quantity: 1.01 * float(figures.min())})
    assert wanted.choose(History(TableProfiler(TABLE), 100), goal).feasible


def test_modes_of_a_batch_are_profiled_from_high_to_low_clocks():
    history = History(TableProfiler(TABLE), 3 + 4)
    closed_loop(batch=4).choose_all(history, GOALS[:2])
    assert history.spent.profiles == 7
    gpu_khz = TABLE.modes[history.places, 2]
    assert (np.diff(gpu_khz[:3]) <= 0).all()
    assert (np.diff(gpu_khz[3:]) <= 0).all()


class SureOfClocks(NearlyRight):
    """Time falls with the GPU clock; what a mode took is what all modes of its GPU clock take."""

    def _learn(self, rows, time_ms, power_mw):
        self.known_ = rows.modes[:, 2]

    def _infer(self, rows):
        sd = np.where(np.isin(rows.modes[:, 2], self.known_), 0.001, 0.3)
        return Forecast.of_medians(rows, 1e8 / rows.modes[:, 2], np.full(len(sd), 10_000.0), sd, sd)


def test_modes_of_a_batch_are_not_of_one_kind():
    """The three most promising by one posterior are three of the highest GPU clock, one of which tells of all."""
    history = History(TableProfiler(TABLE), 1 + 3)
    ClosedLoop(SureOfClocks, middle_modes, batch=3).choose(history, power_budget(1e6))
    assert len(set(TABLE.modes[history.places[1:], 2])) == 3


class HeavyTailed(NearlyRight):
    def _infer(self, rows):
        return dataclasses.replace(super()._infer(rows), freedom=2.5)


@pytest.mark.parametrize(("sizes", "widen", "bolder"), [((16,), 1.0, 0.5), ((4, 16, 64), 1 + 18**-0.5, 1.0)])
def test_a_pick_at_a_risk_counts_the_tails_of_its_predictor_and_the_batch_sizes(sizes, widen, bolder):
    table, goals = example_table(sizes), budget_goals("14:44:2", "sample_time_ms")
    history, heavy = History(TableProfiler(table), 18), HeavyTailed(table, log_sd=0.02)
    picks = [choice.index for choice in OneShot(lambda: heavy, risk=0.05).choose_all(history, goals)]

    def safest(predictor, widen):
        posterior, found = learn(predictor, history, widen), []
        for goal in goals:
            mean, sd = posterior.log_objective(goal)
            found.append(np.where(posterior.risk(goal) <= 0.05, mean + posterior.reach(0.05) * sd, np.inf).argmin())
        return found

    assert picks == safest(heavy, widen)
    assert picks not in (safest(heavy, bolder), safest(NearlyRight(table, log_sd=0.02), widen))


def test_the_risk_is_of_more_than_counts_as_breaking_a_limit_and_what_was_measured_has_no_tails():
    two, measured = np.ones(2), np.array([True, False])
    posterior = Forecast(Settings.of(np.ones((2, 4))), two, 0.1 * two, np.log(20e3) * two, 0.1 * two, 2.5, measured)
    exceeded = posterior.risk(power_budget(20e3 * np.exp(0.1) / 1.02))
    assert exceeded == pytest.approx([0.15866, 0.20203], abs=1e-4)  # of a normal distribution and a t above 1
    assert [posterior.reach(share)[place] for place, share in enumerate(exceeded)] == pytest.approx([1, 1])


class Told(NearlyRight):
    """Is told what to say of three modes, of which the first is profiled: times in ms, powers in W, and deviations."""

    def __init__(self, time_ms, time_sd, power_w):
        self.said = np.array(time_ms), 1e3 * np.array(power_w), np.array(time_sd), np.full(3, 0.05)

    def _infer(self, rows):
        return Forecast.of_medians(rows, *self.said)


@pytest.mark.parametrize(
    ("predictor", "budget_w", "feasible", "picked"),
    [
        (Told([99, 60, 62], [0.1, 0.5, 0.01], [9, 8, 8]), 9.0, True, 2),  # is 60 ms, or 113
        (Told([99, 60, 130], [0.1, 0.5, 0.01], [9, 8, 8]), 9.0, True, 1),  # is faster than that, too
        (Told([99, 60, 3000], [0.1, 0.1, 0.1], [9, 8, 7.95]), 6.0, False, 1),  # is next to as likely to break it
        (Told([99, 60, 3000], [0.1, 0.1, 0.1], [9, 6.3, 6]), 6.0, False, 2),  # is the only one likely to keep it
    ],
)
def test_a_pick_goes_by_what_is_known_of_it(predictor, budget_w, feasible, picked):
    few = TABLE.take(np.arange(3))
    few = dataclasses.replace(few, time_ms=np.full(3, 100.0), power_mw=np.full(3, 20e3))
    history = History(TableProfiler(few), 1)
    history.profile(0)
    choice = OneShot(lambda: predictor, risk=0.1).choose(history, power_budget(1e3 * budget_w))
    assert (choice.index, choice.feasible) == (picked, feasible)


class FastIsHot(NearlyRight):
    """Of the second mode it is known that it is fast and hot, or slow and cool; the third is a little better."""

    TIME_MS = np.array([[100.0, 60.0, 97.0], [100.0, 160.0, 97.0]])
    POWER_MW = np.array([[10e3, 14e3, 10.5e3], [10e3, 8e3, 10.5e3]])

    def _infer(self, rows):
        log_time, log_power = np.log(self.TIME_MS), np.log(self.POWER_MW)
        middle = (np.exp(log.mean(axis=0)) for log in (log_time, log_power))
        return Forecast.of_medians(rows, *middle, *(np.maximum(log.std(axis=0), 0.01) for log in (log_time, log_power)))

    def draw(self, modes, count, seed):
        return Forecast.of_medians(modes, self.TIME_MS, self.POWER_MW, *np.full((2, 2, 3), 0.01))


def test_a_mode_that_is_fast_only_where_it_breaks_the_limit_promises_nothing():
    few = TABLE.take(np.arange(3))
    few = dataclasses.replace(few, time_ms=FastIsHot.TIME_MS[0], power_mw=FastIsHot.POWER_MW[0])
    history, goal = History(TableProfiler(few), 2), power_budget(11e3)
    history.profile(0)
    assert expected_gains(learn(FastIsHot(), history), history, [goal]).argmax() == 1
    ClosedLoop(FastIsHot, lambda history, count: [0]).choose(history, goal)
    assert history.places.tolist() == [0, 2]


def test_a_batch_without_modes_is_refused():
    with pytest.raises(InvalidValueError, match="batch"):
        closed_loop(batch=0)


def test_a_search_for_one_goal_begins_in_the_middle_and_for_several_goals_with_more():
    history = History(TableProfiler(TABLE), 15)
    first = design_for(0)(history, 1)
    assert [history.mode(index) for index in first] == [PowerMode(8, 1_200_000, 700_000, 2_100_000)]
    began = []
    for goals in (GOALS[:1], GOALS):
        counted = ClosedLoop(NearlyRight, lambda history, count: began.append(count) or [0])
        counted.choose_all(History(TableProfiler(TABLE), 4), goals)
    assert began == [1, 3]


def test_a_search_for_several_goals_begins_with_several_batch_sizes():
    table = example_table(batch_sizes=(1, 4, 16, 64), task="inference")
    history = History(TableProfiler(table), 3)
    make_closed_loop(StrategySetting("example-board"), 0).choose_all(history, GOALS)
    sizes = table.batch_size[history.places]
    assert 16 in sizes  # the middle
    assert len(set(sizes.tolist())) > 1


def test_a_design_of_one_batch_size_has_the_middle_one():
    table = example_table(batch_sizes=(1, 4, 16, 64), task="inference")
    design = design_for(0)(History(TableProfiler(table), 15), 5)
    assert set(table.batch_size[list(design)].tolist()) == {16}


def test_what_is_uncertain_by_orders_of_magnitude_promises_no_more_than_all_of_it():
    gains = expected_improvement(np.array([0.0, 700.0, 0.0]), np.array([1.0, 2.0, 40.0]), 0.0)
    assert np.isfinite(gains).all()
    assert (gains <= 1).all()
