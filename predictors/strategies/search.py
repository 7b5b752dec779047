"""Strategies that search a grid of modes by profiling alone: random, brute force, binary and coordinate search."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.goals import QUANTITIES, Goal
from predictors.settings import DIMENSIONS, Grid
from predictors.strategies.protocol import Choice, History, MeasuredMode, Strategy

BATCH, LIMIT = DIMENSIONS.index("batch_size"), "power_limit_mw"


class RandomSearch(Strategy):
    """Profiles random candidates and chooses the best of them (RND, 001 sec. 5.1)."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        profile_random(history, history.left, self.seed)
        return [history.choose_measured(goal, f"best of {len(history.taken)} random modes") for goal in goals]


def profile_random(history: History, count: int, seed: int) -> None:
    """Profile `count` candidates, or as many as are left, drawn uniformly from those without a profile."""
    generator = np.random.default_rng(seed)
    end = history.spent.profiles + min(count, history.left)
    while history.left > 0 and history.spent.profiles < end:
        untried = np.flatnonzero(history.untried)
        size = min(end - history.spent.profiles, len(untried))
        history.profile_all(generator.choice(untried, size=size, replace=False).tolist())


class BruteForce(Strategy):
    """Profiles every candidate (001 Table 1); the ground truth as far as noise allows."""

    def choose(self, history: History, goal: Goal) -> Choice:
        count = len(history.profiler.candidates.modes)
        if history.limit < count:
            raise InvalidValueError(f"brute force profiles all {count} candidates, {history.limit} are allowed")
        for index in range(count):
            history.profile(index)
        return history.choose_measured(goal, f"best of all {len(history.taken)} modes")


class Probed(NamedTuple):
    """The result of probing a candidate in a search."""

    objective: float
    excess: float  # as of `Goal.excess`: 0 and below is within all limits
    lowers: Tuple[str, str]  # direction in which clocks, and the batch size, lower the worst quantity: `up` or `down`
    by_clocks_alone: bool  # whether the batch size hardly affects that quantity


class BinarySearch(Strategy):
    """Multi-dimensional binary search, MDBS (000 sec. 4.2).

    Keeps a range of values in each dimension and profiles the middle of all ranges. Of the current dimension, the upper
    half is kept if the middle is within the limits, the lower half if it draws too much power, and the upper half (the
    lower one of batch sizes) if it is too slow for a latency limit. Then the next dimension with more than one value
    left is halved, until one mode remains, which is profiled too. The result is the best profiled mode within the
    limits.

    The report does not give (and this class has as parameters): the order of the dimensions, which of the two middle
    values of an even range is profiled, and which half is dropped when a mode is within the limits but not better than
    the best so far. It does not cover two cases: if no mode fits, the search continues, while profiles are left, in the
    middle of the modes that no profile rules out, and ends as infeasible if none of these fits either; if a middle
    cannot be profiled, the nearest mode replaces it.
    """

    def __init__(
        self, order: Sequence[str] = DIMENSIONS, middle: str = "upper", when_not_better: str = "lower"
    ) -> None:
        # In which the dimensions are halved, repeatedly; power limits come last unless named.
        self.order = tuple(order) if LIMIT in order else (*order, LIMIT)
        self.middle = middle  # `upper` or `lower` of the two middle values
        # The half dropped within the limits without an improvement: that of worse values, `lower`, or the other one.
        self.when_not_better = when_not_better

    def choose(self, history: History, goal: Goal) -> Choice:
        sizes = history.profiler.candidates.batch_size

        def probe(index: int) -> Optional[Probed]:
            measured = history.profile(index)
            if measured is None:
                return None
            worst = QUANTITIES[goal.worst(*measured[:2], sizes[index])]
            return Probed(*history.figures(index, goal), worst.lowered_by, worst.time == worst.batch == 0)

        grid = Grid(history.profiler.candidates, history.usable)
        self.search(grid, lambda index: index in history.taken or history.left > 0, probe)
        return history.choose_measured(goal, f"binary search over {len(grid.shape)} dimensions")

    def search(self, grid: Grid, may_probe: Callable[[int], bool], probe: Callable[[int], Optional[Probed]]) -> None:
        """Probe a grid; if `probe` returns None, the candidate is unusable, and the nearest one follows.

        `may_probe` returns whether a candidate was probed already, or profiles are left.
        """
        if sorted(self.order) != sorted(DIMENSIONS):
            what = f"order {self.order!r} does not contain each dimension once"
            raise InvalidValueError(what, f"order {', '.join(DIMENSIONS)}")
        probed: Dict[int, Probed] = {}

        def probe_nearest(step: Sequence[int], among: Optional[np.ndarray] = None) -> Optional[int]:
            while True:
                index = grid.at(step, among)
                if not may_probe(index):
                    return None
                result = probe(index)
                if result is not None:
                    probed[index] = result
                    return index

        ranges = [(0, size - 1) for size in grid.shape]
        turns = itertools.cycle([DIMENSIONS.index(name) for name in self.order])
        best = np.inf
        while True:
            middle = [(low + high + (self.middle == "upper")) // 2 for low, high in ranges]
            index = probe_nearest(middle)
            if index is None or all(low == high for low, high in ranges):
                break
            result = probed[index]
            better = result.excess <= 0 and result.objective < best
            open_places = [place for place in range(len(ranges)) if ranges[place][0] < ranges[place][1]]
            if result.by_clocks_alone and open_places != [BATCH]:
                open_places = [place for place in open_places if place != BATCH]
            place = next(place for place in turns if place in open_places)
            goes_up = result.lowers[place == BATCH] == "up"
            if result.excess <= 0 and not better and self.when_not_better != "lower":
                goes_up = not goes_up
            best = min(best, result.objective) if better else best
            ranges[place] = self._half(ranges[place], middle[place], goes_up)
        # If nothing fitted: a mode that was too slow rules out all that exceed it in no dimension, and vice versa.
        open_still = np.ones(len(grid.steps), dtype=bool)
        while all(result.excess > 0 for result in probed.values()):
            for index, result in probed.items():
                signs = np.array(
                    [1 if result.lowers[place == BATCH] == "up" else -1 for place in range(len(DIMENSIONS))]
                )
                open_still &= ((grid.steps - grid.steps[index]) * signs > 0).any(axis=1)
            open_still &= grid.usable
            if not open_still.any() or probe_nearest(np.median(grid.steps[open_still], axis=0), open_still) is None:
                break
        best_index = self._best(probed)
        # Clocks have changed since the batch size was halved.
        while best_index is not None and probed[best_index].lowers[1] == "up":
            step = grid.steps[best_index].copy()
            step[BATCH] += 1
            if step[BATCH] == grid.shape[BATCH] or probe_nearest(step) is None or self._best(probed) == best_index:
                break
            best_index = self._best(probed)

    @staticmethod
    def _best(probed: Dict[int, Probed]) -> Optional[int]:
        kept = [index for index, result in probed.items() if result.excess <= 0]
        return min(kept, key=lambda index: probed[index].objective, default=None)

    def _half(self, bounds: Tuple[int, int], middle: int, keep_upper: bool) -> Tuple[int, int]:
        """The half of a range that is kept; never empty, and smaller than the range."""
        low, high = bounds
        if self.middle == "upper":
            return (middle, high) if keep_upper else (low, middle - 1)
        return (middle + 1, high) if keep_upper else (low, middle)


class CoordinateSearch(Strategy):
    """Coordinate search from the middle of the grid, in order of the gain in each dimension.

    Profiles the middle mode and a step in each dimension: up if the middle mode keeps the limits, down if it breaks
    them. Then it bisects the dimensions in turn: upwards, the one with the greatest fall of log time for the rise of
    log power comes first; downwards, the one with the least rise of time for the fall of power. The literature calls a
    search by the gradient in each dimension GMD; this is a variant of it, not a copy.
    """

    def choose(self, history: History, goal: Goal) -> Choice:
        grid = Grid(history.profiler.candidates, history.usable)
        here = [(size - 1) // 2 for size in grid.shape]
        middle = profile_nearest(history, grid, here)
        if middle is not None:
            upwards = history.figures(middle, goal)[1] <= 0
            for place in self._ranked(history, grid, here, history.taken[middle], upwards):
                here[place] = self._bisect(history, goal, grid, here, place, upwards)
        return history.choose_measured(goal, "coordinate search")

    def _ranked(
        self, history: History, grid: Grid, here: Sequence[int], middle: MeasuredMode, upwards: bool
    ) -> List[int]:
        """The dimensions by gain, best first; without those that cannot move or cannot be profiled."""
        rates: List[Tuple[float, int]] = []
        for place, size in enumerate(grid.shape):
            there = list(here)
            there[place] = (here[place] + size) // 2 if upwards else here[place] // 2
            index = None if there == list(here) else profile_nearest(history, grid, there)
            if index is None:
                continue
            stepped = history.taken[index]
            time = np.log(stepped.time_ms / middle.time_ms)
            power = np.log(stepped.power_mw / middle.power_mw)
            # Gain per cost upwards, cost per gain downwards: the least comes first in both.
            rates.append((time / max(power, 1e-3) if upwards else max(time, 0.0) / max(-power, 1e-3), place))
        return [place for _, place in sorted(rates)]

    def _bisect(self, history: History, goal: Goal, grid: Grid, here: Sequence[int], place: int, upwards: bool) -> int:
        """The highest value of a dimension within the limits, as far as the profiles reach."""
        low, high = (here[place], grid.shape[place] - 1) if upwards else (0, here[place])
        highest = low
        while low < high:
            middle = (low + high + 1) // 2
            there = list(here)
            there[place] = middle
            index = profile_nearest(history, grid, there)
            if index is None:
                break
            if history.figures(index, goal)[1] <= 0:
                low = highest = middle
            else:
                high = middle - 1
        return highest


def profile_nearest(history: History, grid: Grid, step: Sequence[int]) -> Optional[int]:
    """Profile the candidate at a step, or the nearest possible one; its index, or None if no profile is left."""
    while True:
        index = grid.at(step)
        if index not in history.taken and history.left <= 0:
            return None
        if history.profile(index) is not None:
            return index
