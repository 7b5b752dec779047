"""The protocol of strategies: from a goal to a power mode, by a limited number of profiles.

A `Strategy` accesses a device only through its `History`, which takes profiles from a `Profiler` and counts them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.power_modes import MOST_FAILURES, PowerMode
from harness.core.units import mw_to_w
from predictors.goals import Goal
from predictors.profiles import Profiles
from predictors.sampling import profiling_seconds
from predictors.settings import Settings


class MeasuredMode(NamedTuple):
    """The profile of a candidate: median minibatch time and module power, and the seconds that it took."""

    time_ms: float
    power_mw: float
    seconds: float


class FailedMode(NamedTuple):
    """A candidate that cannot be profiled, while others may."""

    reason: str  # a sentence for the user
    seconds: float  # that the attempt took
    rules_out: Tuple[int, ...] = ()  # candidates that would fail for the same reason and must not be tried
    last_lines: Optional[Tuple[str, ...]] = None  # of the output of the command that failed; None: it was no command


class Profiler(Protocol):
    """A device with a workload: the candidates, and their profiles."""

    candidates: Settings  # of one task; everywhere else a candidate is its index here

    def profile(self, index: int) -> Union[MeasuredMode, FailedMode]:
        """Profile one candidate; raises a `HarnessError` if nothing can be measured any more."""


class TableProfiler:
    """Takes profiles from the rows of a table, its candidates, at the cost of profiling on the device."""

    def __init__(self, table: Profiles) -> None:
        self.table = table
        self.candidates: Settings = table

    def profile(self, index: int) -> MeasuredMode:
        """The figures of a row."""
        time_ms = float(self.table.time_ms[index])
        return MeasuredMode(time_ms, float(self.table.power_mw[index]), profiling_seconds(np.array(time_ms)))


class Spent(NamedTuple):
    """The cost of a choice: the number of profiles, failed ones included, and the seconds that they took."""

    profiles: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Choice:
    """The result of a strategy."""

    index: int  # the chosen candidate
    power_mode: PowerMode
    batch_size: int
    feasible: bool  # whether it is expected to keep the goal's limits; if not, it comes nearest to them
    measured: Optional[MeasuredMode]  # its profile; None if it was not profiled
    spent: Spent
    reason: str  # of the choice, in a sentence
    power_limit_mw: Optional[int] = None  # of a discrete GPU


class History:
    """The profiles taken so far, at most `limit`; no candidate is profiled twice, and a failed one is never chosen.

    Failed candidates count towards `limit`, and so do the profiles of a search `beside` this one. `report` receives a
    line for each profile.
    """

    def __init__(
        self,
        profiler: Profiler,
        limit: int,
        report: Callable[[str], None] = lambda line: None,
        beside: Optional[History] = None,
    ) -> None:
        if limit < 0:
            raise InvalidValueError(f"the number of profiles must be 0 or more, got {limit}")
        self.profiler = profiler
        self._together: List[History] = beside._together if beside else []
        self._together.append(self)
        self.limit = limit
        for history in self._together:
            history.limit = min(limit, sum(len(member.profiler.candidates.modes) for member in self._together))
        self.taken: Dict[int, MeasuredMode] = {}  # by candidate, in the order of profiling
        self.failed: Dict[int, str] = {}  # the reasons of failures, likewise
        self.usable = np.ones(len(profiler.candidates.modes), dtype=bool)  # whether each may be profiled and chosen
        self._failed_in_a_row: Dict[int, FailedMode] = {}
        self._held_back = 0
        self._seconds = 0.0
        self._report = report

    def profile(self, index: int) -> Optional[MeasuredMode]:
        """The profile of a candidate, taken now unless it exists; None if the candidate cannot be profiled.

        Raises:
            InvalidValueError: no profile is left.
            CannotRunError: `MOST_FAILURES` candidates in a row failed, of a command without any that did not, or all
                candidates did.
        """
        if index in self.taken:
            return self.taken[index]
        if not self.usable[index]:
            return None
        if self.left <= 0:
            raise InvalidValueError(f"all {self.limit} profiles are spent", "allow more profiles")
        outcome = self.profiler.profile(index)
        self._seconds += outcome.seconds
        if isinstance(outcome, FailedMode):
            # It counts as spent, and is neither tried nor chosen again.
            self.failed[index] = outcome.reason
            self.usable[[index, *outcome.rules_out]] = False
            self.usable[self.places] = True  # profiled candidates do run
            self._failed_in_a_row[index] = outcome
            self._report_profile(index, f" cannot be profiled: {outcome.reason}")
            self._refuse_hopeless()
            return None
        self.taken[index] = outcome
        self._failed_in_a_row.clear()
        power = "no power" if np.isnan(outcome.power_mw) else f"{mw_to_w(outcome.power_mw):.1f} W"
        self._report_profile(index, f": {outcome.time_ms:.1f} ms, {power}")
        return outcome

    def _refuse_hopeless(self) -> None:
        """End the search if the candidates that failed in a row show that others would fail too."""
        failures = list(self._failed_in_a_row.values())
        is_command = all(failure.last_lines is not None for failure in failures)
        # A command may fail in a whole region of modes, of which neighbours are tried in a row, and run in others.
        are_many = len(failures) >= MOST_FAILURES and not (is_command and self.taken)
        are_all = not self.taken and self.left <= 0
        if not are_many and not are_all:
            return
        names = ", ".join(map(self.profiler.candidates.name, self._failed_in_a_row))
        if not is_command:
            raise CannotRunError(f"none of the last modes could be profiled: {names}; the last: {failures[-1].reason}")
        first = failures[0]
        lines = "".join(f"\n    {line}" for line in first.last_lines or ())
        raise CannotRunError(
            f"the command failed in each mode that was tried: {names}; in the first, {first.reason}",
            f"the last lines of its output:{lines}" if lines else "it wrote nothing",
        )

    def profile_all(self, indices: Sequence[int]) -> None:
        """Profile candidates; a profiler with several boards receives all of them first."""
        begin = getattr(self.profiler, "begin", None)
        if begin is not None:
            begin([index for index in indices if self.untried[index]])
        for index in indices:
            self.profile(index)

    def _report_profile(self, index: int, what: str) -> None:
        self._report(
            f"profile {self.limit - self.unspent} of {self.limit}: {self.profiler.candidates.name(index)}{what}"
        )

    @property
    def untried(self) -> np.ndarray:
        """Which candidates may still be profiled, bool of shape (n,)."""
        untried = self.usable.copy()
        untried[self.places] = False
        return untried

    @property
    def unspent(self) -> int:
        return self.limit - sum(history.spent.profiles for history in self._together)

    @property
    def left(self) -> int:
        return max(min(self.unspent - self._held_back, int(self.untried.sum())), 0)

    @contextlib.contextmanager
    def holding_back(self, profiles: int) -> Iterator[None]:
        """Leave so many of the profiles that are left to what comes later."""
        before = self._held_back
        self._held_back = before + profiles
        try:
            yield
        finally:
            self._held_back = before

    @property
    def spent(self) -> Spent:
        return Spent(len(self.taken) + len(self.failed), self._seconds)

    @property
    def places(self) -> np.ndarray:
        """The profiled candidates, in the order of profiling."""
        return np.fromiter(self.taken, dtype=np.int64, count=len(self.taken))

    @property
    def time_ms(self) -> np.ndarray:
        return np.array([measured.time_ms for measured in self.taken.values()])

    @property
    def power_mw(self) -> np.ndarray:
        return np.array([measured.power_mw for measured in self.taken.values()])

    @property
    def profiles(self) -> Profiles:
        """The profiles taken so far."""
        return Profiles.at(self.profiler.candidates.take(self.places), self.time_ms, self.power_mw)

    def mode(self, index: int) -> PowerMode:
        return self.profiler.candidates.mode(index)

    def figures(self, index: int, goal: Goal) -> Tuple[float, float]:
        """Objective of a profiled candidate, and its excess over the limits."""
        measured, size = self.taken[index], self.profiler.candidates.batch_size[index]
        figures = measured.time_ms, measured.power_mw, size
        return float(goal.objective(*figures)), float(goal.excess(*figures))

    def best_measured(self, goal: Goal) -> Optional[int]:
        """The best profiled candidate within the limits, or the one that breaks them least; None without profiles."""
        if not self.taken:
            return None
        sizes = self.profiler.candidates.batch_size[self.places]
        objective = goal.objective(self.time_ms, self.power_mw, sizes)
        excess = goal.excess(self.time_ms, self.power_mw, sizes)
        within = excess <= 0
        best = np.where(within, objective, np.inf).argmin() if within.any() else excess.argmin()
        return int(self.places[best])

    def choose_measured(self, goal: Goal, reason: str) -> Choice:
        best = self.best_measured(goal)
        if best is None:
            raise InvalidValueError("a choice by profiles needs at least one profile", "allow more profiles")
        return self.choice(best, reason, self.figures(best, goal)[1] <= 0)

    def choice(self, index: int, reason: str, feasible: bool) -> Choice:
        candidates, measured = self.profiler.candidates, self.taken.get(index)
        size, limit_mw = int(candidates.batch_size[index]), candidates.limit_mw(index)
        return Choice(index, self.mode(index), size, feasible, measured, self.spent, reason, limit_mw)


class Strategy:
    """Chooses a power mode for a goal; a subclass has `choose`, or `choose_all` if one set of profiles serves all."""

    def choose(self, history: History, goal: Goal) -> Choice:
        """Choose for one goal by profiles from `history`, within its limit; existing profiles may be used.

        Raises:
            InvalidValueError: it needs more profiles than are left.
            CannotRunError: too many candidates could not be profiled.
        """
        return self.choose_all(history, [goal])[0]

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        return [self.choose(history, goal) for goal in goals]
