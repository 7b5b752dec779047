"""Every strategy there is, on a device that cannot run every fifth mode."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.errors import CannotRunError
from harness.core.power_modes import PowerMode
from predictors.goals import power_budget
from predictors.models import networks, powertrain
from predictors.models.networks import train
from predictors.plans.choice import ConcurrentGoal, choose_concurrent
from predictors.strategies.closed_loop import design_for, learn
from predictors.strategies.fixed import VendorPreset
from predictors.strategies.protocol import MOST_FAILURES, FailedMode, History, TableProfiler
from predictors.strategies.recommendation import choose_and_describe
from predictors.strategies.registry import STRATEGIES, StrategySetting
from predictors.strategies.search import BruteForce, RandomSearch
from tests.predictors.plans.test_concurrent_plans import INFERENCE, TRAINING, EitherTable, spread
from tests.predictors.strategies.strategy_examples import NearlyRight, beside, closed_loop, example_table

ON_BOARDS = [name for name in STRATEGIES if name != "zeus"]  # which profiles the power limits of a discrete GPU
TABLE = dataclasses.replace(example_table(), device="orin-agx")
GREATEST = len(TABLE) - 1
SETTING = StrategySetting(
    "orin-agx",
    (dataclasses.replace(TABLE, workload="another", time_ms=1.3 * TABLE.time_ms),),
    (
        VendorPreset("MODE_20W", PowerMode(*TABLE.modes[GREATEST // 2].tolist()), 20_000.0),
        VendorPreset("MAXN", PowerMode(*TABLE.modes[-1].tolist()), np.inf),
    ),
    0.05,
)
GOALS = [power_budget(18_000.0), power_budget(28_000.0)]
TRYING_TOOK_S = 7.0


@pytest.fixture(autouse=True)
def networks_that_learn_little(monkeypatch):
    """How well a network predicts does not matter here, and a hundred epochs take seconds."""

    def one_epoch(start, inputs, outputs, schedule, *further):
        return train(start, inputs, outputs, dataclasses.replace(schedule, epochs=1), *further)

    monkeypatch.setattr(networks, "train", one_epoch)
    yield
    powertrain.learn_reference.cache_clear()


class Flawed(TableProfiler):
    """A table some of whose modes cannot be profiled; keeps what it was asked for."""

    def __init__(self, fails, rules_out=lambda index: (), table=TABLE):
        super().__init__(table)
        self.asked = []
        self._fails, self._rules_out = fails, rules_out

    def profile(self, index):
        self.asked.append(index)
        if self._fails(index):
            return FailedMode(f"mode {index} did not take", TRYING_TOOK_S, tuple(self._rules_out(index)))
        return super().profile(index)


def every_fifth(index):
    """The greatest mode is among them."""
    return index % 5 == GREATEST % 5


def limit_of(name):
    return {"given": 12, "none": 2, "all": len(TABLE)}[STRATEGIES[name].profiles]


@pytest.mark.parametrize("name", ON_BOARDS)
def test_a_mode_that_fails_is_spent_and_is_neither_asked_for_again_nor_chosen(name):
    profiler = Flawed(every_fifth)
    history = History(profiler, limit_of(name))
    for index in (GREATEST, 0):
        history.profile(index)
    choices = STRATEGIES[name].make(SETTING, 3).choose_all(history, GOALS)
    assert len(choices) == len(GOALS)
    assert len(profiler.asked) == len(set(profiler.asked)) == history.spent.profiles <= history.limit
    assert set(history.failed) == {index for index in profiler.asked if every_fifth(index)}
    for choice in choices:
        assert choice.index not in history.failed
        assert choice.spent.seconds >= TRYING_TOOK_S


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "goal"),
    [(name, GOALS[1]) for name in ON_BOARDS]
    + [(name, power_budget(1_000.0)) for name in ON_BOARDS if name not in ("front", "powertrain", "nn")],  # alike
    ids=str,
)
@pytest.mark.long
def test_where_the_mode_that_would_be_chosen_has_failed_it_is_another_one(name, goal):
    strategy = STRATEGIES[name].make(SETTING, 3)
    best = strategy.choose(History(TableProfiler(TABLE), limit_of(name)), goal).index
    history = History(Flawed(lambda index: index == best), limit_of(name))
    history.profile(best)
    choice = strategy.choose(history, goal)
    assert choice.index != best
    assert history.failed == {best: f"mode {best} did not take"}


@pytest.mark.parametrize("profiles", [2, 15])
def test_a_device_on_which_nothing_runs_is_given_up_after_a_few_modes(profiles):
    profiler = Flawed(lambda index: True)
    with pytest.raises(CannotRunError, match=r"none of the last modes .*did not take"):
        RandomSearch().choose(History(profiler, profiles), GOALS[0])
    assert len(profiler.asked) == min(MOST_FAILURES, profiles)


def test_failures_with_a_profile_in_between_end_nothing():
    history = History(Flawed(lambda index: index % 3 != 0), 30)
    for index in range(30):
        history.profile(index)
    assert (len(history.taken), len(history.failed), history.left) == (10, 20, 0)


def test_what_a_failure_rules_out_is_not_asked_for_either():
    profiler = Flawed(lambda index: index == 100, lambda index: range(90, len(TABLE)))
    history = History(profiler, len(TABLE))
    history.profile(95)
    history.profile(100)
    choice = BruteForce().choose(history, GOALS[1])
    assert sorted(profiler.asked) == [*range(90), 95, 100]
    assert np.flatnonzero(history.usable).tolist() == [*range(90), 95]
    assert choice.spent.profiles == 92
    assert choice.index in history.taken


def test_random_modes_are_as_many_as_allowed_where_some_are_ruled_out():
    history = History(Flawed(lambda index: index >= 280, lambda index: range(280, len(TABLE))), 20)
    choice = RandomSearch(1).choose(history, GOALS[0])
    assert choice.spent.profiles == 20
    assert len(history.failed) == 1


def test_where_all_is_tried_what_failed_has_no_figures():
    history = History(Flawed(every_fifth), len(TABLE))
    for index in range(len(TABLE)):
        history.profile(index)
    posterior = learn(NearlyRight(TABLE), history)
    assert np.isnan(posterior.log_time[GREATEST])
    assert not posterior.measured[GREATEST]
    np.testing.assert_allclose(np.exp(posterior.log_power[history.places]), TABLE.power_mw[history.places])


def test_a_recommendation_leaves_failed_modes_out_of_its_front_and_compares_with_what_runs():
    quickest = int(TABLE.time_ms.argmin())
    history = History(Flawed(lambda index: index in (GREATEST, quickest)), 12)
    for index in {GREATEST, quickest}:
        history.profile(index)
    found = choose_and_describe(history, [GOALS[1]], closed_loop(), NearlyRight(TABLE, log_sd=1e-6))[0]
    assert not {history.mode(index) for index in history.failed} & {mode.power_mode for mode in found.front}
    assert [saving.other.label for saving in found.savings] == ["the greatest mode that did not fail"]


def test_a_design_is_of_modes_that_have_not_failed():
    design = design_for(0)
    flawed = [int(index) for index in design(History(TableProfiler(TABLE), 15), 3)[:2]]
    history = History(Flawed(lambda index: index in flawed), 15)
    for index in flawed:
        history.profile(index)
    chosen = design(history, 3)
    assert len(chosen) == 3
    assert not set(flawed) & set(chosen)


@pytest.mark.parametrize("kind", ["training", "inference"])
@pytest.mark.parametrize("switching_ms", [None, 1e-6])
def test_a_plan_of_two_workloads_has_no_mode_that_failed_for_either(kind, switching_ms):
    goal = ConcurrentGoal(5.0, 1000.0, 30_000.0, switching_ms)

    def choose(first, second):
        return choose_concurrent(beside(first, second), goal, lambda: EitherTable(log_sd=1e-6), spread)

    tables = {"training": TRAINING, "inference": INFERENCE}
    best = getattr(choose(*map(TableProfiler, tables.values())), kind)
    profilers = [Flawed(lambda index, n=name: (n, index) == (kind, best), table=one) for name, one in tables.items()]
    found = choose(*profilers)
    assert [reason for _, reason in found.failed] == [f"mode {best} did not take"]
    assert getattr(found, kind) != best
    assert found.profiles == sum(len(profiler.asked) for profiler in profilers) <= 30
