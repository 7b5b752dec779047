"""What a search on a device has beyond its profiles: the device's profiler, peaks of power, and a limit that they keep.

Importing it loads nothing that measures.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, List, Mapping, NamedTuple, Optional, Sequence, Set, cast

from harness.core.errors import CannotRunError
from predictors.goals import Goal
from predictors.strategies.closed_loop import OneShot
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.recommendation import Recommendation

if TYPE_CHECKING:
    from predictors.choose.device_profiler import DeviceProfiler

PEAK_CHECKS = 2  # profiles for each goal that a strategy which chooses by prediction leaves, to check its choices


class PowerPeak(NamedTuple):
    """The greatest power sample of a profile."""

    peak_mw: float
    window_s: Optional[float]  # interval of the samples: much shorter peaks are missed
    exceeded: str  # the limits of board and supply that it exceeds, or empty


def profiler_of(history: History) -> DeviceProfiler:
    """The device of a search that runs on one."""
    assert hasattr(history.profiler, "device"), "its profiles come from a table"
    return cast("DeviceProfiler", history.profiler)


def peak_of(recommendation: Recommendation) -> Optional[PowerPeak]:
    return profiler_of(recommendation.history).peaks.get(recommendation.choice.index)


class WithinPeak(Strategy):
    """A strategy whose choice is profiled and keeps a peak limit; if it does not, the power limit is lowered.

    The profile that broke the limit determines by how much: no predictor models peaks. If no profile is left for a
    choice, it is not feasible.
    """

    def __init__(self, strategy: Strategy, limit_mw: float, peaks: Mapping[int, PowerPeak]) -> None:
        self._strategy = strategy
        self._limit_mw = limit_mw
        self._peaks = peaks

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        goals = [self._at_most(goal, self._limit_mw) for goal in goals]
        kept = min(PEAK_CHECKS * len(goals), history.left - 1) if isinstance(self._strategy, OneShot) else 0
        with history.holding_back(kept):
            choices = self._strategy.choose_all(history, goals)
        return [self._checked(history, *each) for each in zip(goals, choices)]

    def _checked(self, history: History, goal: Goal, choice: Choice) -> Choice:
        refused: Set[int] = set()
        while choice.feasible:
            name = history.profiler.candidates.name(choice.index)
            if choice.index not in history.taken and history.left <= 0:
                reason = f"{choice.reason}; no profile is left to check its peak"
                return dataclasses.replace(choice, feasible=False, reason=reason)
            if history.profile(choice.index) is None:
                raise CannotRunError(f"{name} cannot be profiled: {history.failed[choice.index]}")
            if choice.index not in self._peaks:
                raise CannotRunError(f"the profile of {name} has no peak power", "omit peak_w=")
            is_within = choice.index not in refused and history.figures(choice.index, goal)[1] <= 0
            choice = history.choice(choice.index, choice.reason, is_within)
            peak_mw = self._peaks[choice.index].peak_mw
            if peak_mw <= self._limit_mw or not is_within:
                break
            refused.add(choice.index)
            drawn_mw = history.taken[choice.index].power_mw
            goal = self._at_most(goal, drawn_mw * self._limit_mw / peak_mw)
            with history.holding_back(history.left if isinstance(self._strategy, OneShot) else 0):
                choice = self._strategy.choose(history, goal)
        return choice

    @staticmethod
    def _at_most(goal: Goal, power_mw: float) -> Goal:
        return Goal(goal.minimise, {**goal.limits, "power_mw": min(power_mw, goal.limits.get("power_mw", math.inf))})
