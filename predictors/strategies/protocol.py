"""What every strategy is: from a goal to a power mode, by profiles that are counted.

A `Strategy` sees a device only through its `History`, which takes profiles from a `Profiler` and counts them.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w
from predictors.models.tables import Table
from predictors.sampling import profiling_seconds
from predictors.strategies.goals import Goal

MOST_FAILURES = 3
"""A search ends where so many candidates in a row cannot be profiled: the cause is not the candidates then."""


class Candidates(NamedTuple):
    """What can be chosen: power modes, each with a batch size."""

    modes: np.ndarray  # int64 of shape (n, 4), columns as in `PowerMode`; a clock that the device does not tell is 0
    batch_size: np.ndarray  # int64 of shape (n,)

    @property
    def known_modes(self) -> np.ndarray:
        """The modes as predictors take them: an unknown clock is the same in all, so any number above 0 will do."""
        return np.maximum(self.modes, 1)


class MeasuredMode(NamedTuple):
    """What profiling one candidate gave: median minibatch time and module power, and the seconds that it took."""

    time_ms: float
    power_mw: float
    seconds: float


class FailedMode(NamedTuple):
    """Why one candidate cannot be profiled, where others may."""

    reason: str  # a sentence, for people
    seconds: float  # what trying took
    rules_out: Tuple[int, ...] = ()  # candidates that would fail for the same reason and are not to be tried


class Profiler(Protocol):
    """A device with a workload on it: what can be chosen, and what a choice gives."""

    candidates: Candidates  # what can be chosen; everywhere else a candidate is its index here
    task: str  # `training` or `inference`

    def profile(self, index: int) -> Union[MeasuredMode, FailedMode]:
        """Profile one candidate; raises a `HarnessError` where nothing can be measured any more."""


class TableProfiler:
    """Profiles from the rows of a table, which are its candidates; costs what profiling on the device would."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.task = table.task
        self.candidates = Candidates(table.modes, table.batch_size)

    def profile(self, index: int) -> MeasuredMode:
        """The row's figures."""
        time_ms = float(self.table.time_ms[index])
        return MeasuredMode(time_ms, float(self.table.power_mw[index]), profiling_seconds(np.array(time_ms)))


class Spent(NamedTuple):
    """What a choice has cost: profiles, failed ones included, and the seconds that they took."""

    profiles: int
    seconds: float


class Choice(NamedTuple):
    """What a strategy answers."""

    index: int  # the chosen candidate
    power_mode: PowerMode
    batch_size: int
    feasible: bool  # whether it is held to keep the goal's limits; if not, it is the nearest that is known
    measured: Optional[MeasuredMode]  # what profiling it gave; None where it was not profiled
    spent: Spent
    reason: str  # why this one, in a sentence


class History:
    """The profiles taken so far, at most `limit` of them; nothing is profiled twice, and nothing that failed is chosen.

    Candidates that fail count towards `limit`, and so do the profiles of what is searched `beside` this. `report` takes
    a line for each profile.
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
        for one in self._together:
            one.limit = min(limit, sum(len(each.profiler.candidates.modes) for each in self._together))
        self.taken: Dict[int, MeasuredMode] = {}  # by candidate, in the order of profiling
        self.failed: Dict[int, str] = {}  # why they could not be profiled, likewise
        self.usable = np.ones(len(profiler.candidates.modes), dtype=bool)  # may be profiled and chosen, as far as known
        self._failed_in_a_row = 0
        self._seconds = 0.0
        self._report = report

    def profile(self, index: int) -> Optional[MeasuredMode]:
        """The profile of a candidate, taken now if it was not before; None where it cannot be profiled.

        Raises:
            InvalidValueError: no profile is left.
            CannotRunError: `MOST_FAILURES` candidates in a row failed, or all there are.
        """
        if index in self.taken:
            return self.taken[index]
        if not self.usable[index]:
            return None
        if self.left <= 0:
            raise InvalidValueError(f"all {self.limit} profiles are spent", "allow more profiles")
        found = self.profiler.profile(index)
        self._seconds += found.seconds
        if isinstance(found, FailedMode):
            # It is spent, and is neither tried nor chosen any more.
            self.failed[index] = found.reason
            self.usable[[index, *found.rules_out]] = False
            self.usable[self.places] = True  # what was profiled is known to run
            self._failed_in_a_row += 1
            self._tell(index, f"cannot be profiled: {found.reason}")
            if self._failed_in_a_row >= MOST_FAILURES or (self.left <= 0 and not self.taken):
                tried = ", ".join(self.mode(place).name for place in list(self.failed)[-self._failed_in_a_row :])
                raise CannotRunError(f"of the last modes none could be profiled: {tried}; the last: {found.reason}")
            return None
        self.taken[index] = found
        self._failed_in_a_row = 0
        power = "no power" if np.isnan(found.power_mw) else f"{mw_to_w(found.power_mw):.1f} W"
        self._tell(index, f"{found.time_ms:.1f} ms, {power}")
        return found

    def profile_all(self, indices: Sequence[int]) -> None:
        """Profile candidates; a profiler that has several boards is told of all of them first."""
        begin = getattr(self.profiler, "begin", None)
        if begin is not None:
            begin([index for index in indices if self.untried[index]])
        for index in indices:
            self.profile(index)

    def _tell(self, index: int, what: str) -> None:
        self._report(f"profile {self.limit - self.unspent} of {self.limit}: {self.mode(index).name} {what}")

    @property
    def untried(self) -> np.ndarray:
        """Which candidates may still be profiled, bool of shape (n,)."""
        untried = self.usable.copy()
        untried[self.places] = False
        return untried

    @property
    def unspent(self) -> int:
        return self.limit - sum(one.spent.profiles for one in self._together)

    @property
    def left(self) -> int:
        return min(self.unspent, int(self.untried.sum()))

    @property
    def spent(self) -> Spent:
        return Spent(len(self.taken) + len(self.failed), self._seconds)

    @property
    def places(self) -> np.ndarray:
        """The profiled candidates, in the order of profiling."""
        return np.fromiter(self.taken, dtype=np.int64, count=len(self.taken))

    @property
    def time_ms(self) -> np.ndarray:
        return np.array([found.time_ms for found in self.taken.values()])

    @property
    def power_mw(self) -> np.ndarray:
        return np.array([found.power_mw for found in self.taken.values()])

    def mode(self, index: int) -> PowerMode:
        return PowerMode(*self.profiler.candidates.modes[index].tolist())

    def figures(self, index: int, goal: Goal) -> Tuple[float, float]:
        """Objective, and excess over the limits, of a candidate that was profiled."""
        found, size = self.taken[index], self.profiler.candidates.batch_size[index]
        how = found.time_ms, found.power_mw, size
        return float(goal.objective(*how)), float(goal.excess(*how))

    def best_measured(self, goal: Goal) -> Optional[int]:
        """The best profiled candidate within the limits, else the one that breaks them least; None without profiles."""
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
        size = int(self.profiler.candidates.batch_size[index])
        return Choice(index, self.mode(index), size, feasible, self.taken.get(index), self.spent, reason)


class Strategy:
    """From a goal to a power mode; a subclass has `choose`, or `choose_all` where one set of profiles serves all."""

    def choose(self, history: History, goal: Goal) -> Choice:
        """Choose for one goal, by profiles through `history`, within its limit; what it holds already may be used.

        Raises:
            InvalidValueError: it needs more profiles than there are.
            CannotRunError: too many candidates could not be profiled.
        """
        return self.choose_all(history, [goal])[0]

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        return [self.choose(history, goal) for goal in goals]
