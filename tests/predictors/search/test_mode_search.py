"""Searches of a run: what they come to, what they keep, and which are refused."""

from __future__ import annotations

import io

import pytest

from harness.core.cases import Case
from harness.core.errors import CannotRunError
from harness.core.terminal import Progress
from harness.devices.simulated import SimulatedDevice
from predictors.search import mode_search
from predictors.search.mode_search import CLOSED_LOOP, HALVING, ModeSearches, SearchOutcome
from tests.named_modes import mode_on

CASE = Case("sim:orin-nano", "mobilenetv3-gld23k", mode_on("sim:orin-nano"), 4, "ssd", 16)


class FallingBoard(SimulatedDevice):
    """A board whose clocks may only fall during a run."""

    provenance = "measured"
    clocks_only_fall = True


def test_both_searches_of_each_budget_are_told_and_judged():
    searches, told = ModeSearches(), io.StringIO()
    found = searches.search(SimulatedDevice("orin-nano"), CASE, Progress(told))
    assert [one.strategy for one in found] == [HALVING, CLOSED_LOOP] * 2
    assert all(one.over <= 1.0 and one.slower is not None for one in found)
    assert told.getvalue().count("times as long as the best mode") == 4
    lines = searches.judge(CASE.device)
    assert any("confirmed (simulated): halving takes about log2 N profiles" in line for line, _ in lines)
    assert searches.judge("sim:orin-agx") == []


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
    assert "6 W: no mode that was profiled keeps the limits" in said.getvalue()
    monkeypatch.setattr(mode_search, "search", lambda profiler, true_figures: [first])
    with pytest.raises(CannotRunError, match="no mode keeps the limits: 6 W"):
        searches.search(SimulatedDevice("orin-nano"), CASE, Progress(said))
