"""Searches of a run: what they come to, what they keep, and which are refused."""

from __future__ import annotations

import dataclasses
import functools
import io

import pytest

from harness.core.cases import Case
from harness.core.errors import CannotRunError
from harness.core.terminal import Progress
from harness.devices.simulated import SimulatedDevice
from predictors.choose.device_profiler import DeviceProfiler
from predictors.contest import mode_search
from predictors.contest.mode_search import (
    CLOSED_LOOP,
    HALVING,
    ModeSearches,
    SearchOutcome,
    closed_loop_over_halving,
    excess_of_chosen,
    profiles_of_halving,
    slowdown_by_halving,
)
from tests.messages import says
from tests.named_modes import mode_on

CASE = Case("sim:orin-nano", "mobilenetv3-gld23k", mode_on("sim:orin-nano"), 4, "ssd", 16)


class FallingBoard(SimulatedDevice):
    """A board whose clocks may only fall during a run."""

    provenance = "measured"
    clocks_only_fall = True


@pytest.mark.exhaustive
def test_both_searches_of_each_budget_are_told_and_kept():
    searches, told = ModeSearches(), io.StringIO()
    found = searches.search(SimulatedDevice("orin-nano"), CASE, Progress(told))
    assert [one.strategy for one in found] == [HALVING, CLOSED_LOOP] * 2
    assert {one.goal.partition(",")[0] for one in found} == {CASE.id}  # no two searches of a run have the same goal
    assert all(one.over <= 1.0 and one.slower is not None for one in found)
    assert told.getvalue().count("times as long as the best mode") == 4
    assert searches.of(CASE.device) == found
    with pytest.raises(CannotRunError, match="sim:orin-agx no search"):
        searches.of("sim:orin-agx")


def test_budgets_are_shares_of_the_greatest_mode_at_the_batch_size_of_the_case(monkeypatch):
    def name_the_first(self, index):
        raise CannotRunError(f"the first is {self.candidates.name(index)}")

    monkeypatch.setattr(DeviceProfiler, "profile", name_the_first)
    device, case = SimulatedDevice("orin-nano"), dataclasses.replace(CASE, task="inference", batch_size=8)
    with pytest.raises(CannotRunError, match=f"the first is {device.power_mode_space().greatest.name}, batch size 8"):
        ModeSearches().search(device, case, Progress(io.StringIO()))


def test_a_replayed_corpus_without_the_greatest_mode_has_no_budgets():
    device, modes = SimulatedDevice("orin-nano"), SimulatedDevice("orin-nano").power_modes("all")
    lower = [named for named in modes if named[1] != device.power_mode_space().greatest]
    with pytest.raises(CannotRunError, match=r"no profile .*greatest mode"):
        mode_search.search(DeviceProfiler(device, CASE, lower), None)


def found_by(strategy, goal, spent=7, true_over=0.9, slower=1.0):
    return SearchOutcome(goal, strategy, 128, spent, 0.9, true_over, slower, "simulated")


def test_each_figure_is_of_the_searches_that_it_is_about():
    outcomes = [
        *(found_by(HALVING, "6 W", 7, slower=1.2), found_by(CLOSED_LOOP, "6 W", 14, slower=1.08)),
        *(found_by(HALVING, "8 W", 14, 1.01, slower=1.0), found_by(CLOSED_LOOP, "8 W", 7, slower=1.1)),
    ]

    def values(figures):
        return [(cell.label, cell.figure.value) for cell in figures(outcomes).cells]

    assert values(profiles_of_halving) == [("6 W", 1.0), ("8 W", 2.0)]
    assert values(functools.partial(excess_of_chosen, strategy=HALVING)) == [("6 W", 0.9), ("8 W", 1.01)]
    assert values(functools.partial(excess_of_chosen, strategy=CLOSED_LOOP)) == [("6 W", 0.9), ("8 W", 0.9)]
    assert values(slowdown_by_halving) == [("6 W", 1.2), ("8 W", 1.0)]
    assert values(closed_loop_over_halving) == [("2 goals", pytest.approx(1.0))]


def test_without_a_known_best_mode_only_the_number_of_profiles_is_judged():
    outcomes = [found_by(strategy, "6 W", 7, None, None) for strategy in (HALVING, CLOSED_LOOP)]
    assert profiles_of_halving(outcomes).within(0.5, 1.2)
    for figures in (
        functools.partial(excess_of_chosen, strategy=HALVING),
        slowdown_by_halving,
        closed_loop_over_halving,
    ):
        with pytest.raises(CannotRunError, match="known only on simulated boards"):
            assert figures(outcomes) < 2


def test_a_board_whose_clocks_only_fall_is_searched_only_where_nothing_follows():
    with pytest.raises(CannotRunError, match="name this file to run it alone"):
        ModeSearches().search(FallingBoard("orin-nano"), CASE, Progress(io.StringIO()))


def test_a_goal_that_no_mode_attains_is_said_and_the_others_count(monkeypatch):
    searches, said = ModeSearches(), io.StringIO()
    first, second = [
        SearchOutcome(goal, HALVING, 100, 7, over, None, None, "measured")
        for goal, over in (("6 W", 1.2), ("8 W", 0.9))
    ]
    monkeypatch.setattr(mode_search, "search", lambda profiler, true_figures: [first, second])
    assert searches.search(SimulatedDevice("orin-nano"), CASE, Progress(said)) == [second]
    assert says(said.getvalue(), "6 W", "no mode")
    monkeypatch.setattr(mode_search, "search", lambda profiler, true_figures: [first])
    with pytest.raises(CannotRunError, match="no mode keeps the limits: 6 W"):
        searches.search(SimulatedDevice("orin-nano"), CASE, Progress(said))
