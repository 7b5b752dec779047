"""Strategies that search a grid of modes by profiling alone: random, brute force, binary and coordinate search."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.strategies.goals import QUANTITIES, Goal
from predictors.strategies.protocol import Candidates, Choice, History, MeasuredMode, Strategy

DIMENSIONS = ("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz", "batch_size")
BATCH = DIMENSIONS.index("batch_size")


class Grid:
    """The distinct values of cores, CPU, GPU and memory clocks (and batch sizes) that candidates are made of.

    Where a combination is no candidate, or is not `usable` (bool of shape (n,), all by default), the nearest stands for
    it. What becomes unusable later counts, too.
    """

    def __init__(self, candidates: Candidates, usable: Optional[np.ndarray] = None) -> None:
        self.usable = np.ones(len(candidates.modes), dtype=bool) if usable is None else usable
        self._rows = np.column_stack([candidates.known_modes, candidates.batch_size])
        self._values = [np.unique(column) for column in self._rows.T]
        self.steps = np.column_stack([np.searchsorted(*pair) for pair in zip(self._values, self._rows.T)])
        self.shape = tuple(len(values) for values in self._values)  # how many values each dimension has

    def at(self, step: Sequence[float], among: Optional[np.ndarray] = None) -> int:
        """The candidate at a step of each dimension, or the nearest one: by steps, each as a share of its dimension.

        `among` are those to choose from, bool of shape (n,); all by default.
        """
        scale = np.maximum(np.array(self.shape) - 1.0, 1.0)
        distance = (np.abs(self.steps - np.asarray(step)) / scale).sum(axis=1)
        usable = self.usable if among is None else self.usable & among
        return int(np.where(usable, distance, np.inf).argmin())

    def greatest(self) -> int:
        """The candidate with the greatest value of every dimension, or the nearest to it."""
        return self.at([size - 1 for size in self.shape])

    def nearest(self, mode: Sequence[int]) -> int:
        """The candidate nearest to any mode, with the greatest batch size: clocks by ratio, cores by difference."""
        cores = np.abs(self._rows[:, 0] - mode[0]) / self._values[0][-1]
        clocks = np.abs(np.log(self._rows[:, 1:4] / np.maximum(mode[1:4], 1.0))).sum(axis=1)
        ordered = np.lexsort((-self._rows[:, 4], cores + clocks))
        return int(ordered[self.usable[ordered]][0])


class RandomSearch(Strategy):
    """Profiles random candidates and takes the best of them (RND, 001 sec. 5.1)."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        profile_random(history, history.left, self.seed)
        return [history.choose_measured(goal, f"best of {len(history.taken)} random modes") for goal in goals]


def profile_random(history: History, count: int, seed: int) -> None:
    """Profile `count` candidates, or as many as are left, drawn uniformly among those not profiled yet."""
    generator = np.random.default_rng(seed)
    end = history.spent.profiles + min(count, history.left)
    while history.left > 0 and history.spent.profiles < end:
        untried = np.flatnonzero(history.untried)
        size = min(end - history.spent.profiles, len(untried))
        history.profile_all(generator.choice(untried, size=size, replace=False).tolist())


class BruteForce(Strategy):
    """Profiles every candidate (001 Table 1); the ground truth where noise allows it."""

    def choose(self, history: History, goal: Goal) -> Choice:
        count = len(history.profiler.candidates.modes)
        if history.limit < count:
            raise InvalidValueError(f"brute force profiles all {count} candidates, {history.limit} are allowed")
        for index in range(count):
            history.profile(index)
        return history.choose_measured(goal, f"best of all {len(history.taken)} modes")


class Probed(NamedTuple):
    """What a search makes of one candidate."""

    objective: float
    excess: float  # as of `Goal.excess`: 0 and below is within all limits
    lowers: Tuple[str, str]  # which way clocks, and the batch size, lower what is worst: `up` or `down`
    by_clocks_alone: bool  # whether the batch size hardly matters for it


class BinarySearch(Strategy):
    """Multi-dimensional binary search, MDBS (000 sec. 4.2).

    Keeps a range of values in each dimension and profiles the middle of all ranges. Within the limits: the upper half
    of the current dimension is kept, with too much power the lower half, under a latency limit and too slow the upper
    half, of batch sizes the lower one; then comes the next dimension that has more than one value left, until one mode
    remains, which is profiled too. The answer is the best mode profiled within the limits.

    The report leaves open (and this class has as parameters): the order of the dimensions, which of the two middle
    values of an even range is profiled, and what is dropped when a mode is within the limits but not better than the
    best so far. It does not say what happens when nothing fits: then the search goes on, as far as there are profiles,
    in the middle of those modes that no profile rules out, and is infeasible where that finds none either. Nor what
    happens when a middle cannot be profiled: the nearest mode that can stands for it.
    """

    def __init__(
        self, order: Sequence[str] = DIMENSIONS, middle: str = "upper", when_not_better: str = "lower"
    ) -> None:
        self.order = tuple(order)  # in which the dimensions are halved, again and again
        self.middle = middle  # `upper` or `lower` of the two middle values
        # The half dropped within the limits without an improvement: that of worse values, `lower`, or the other.
        self.when_not_better = when_not_better

    def choose(self, history: History, goal: Goal) -> Choice:
        sizes = history.profiler.candidates.batch_size

        def probe(index: int) -> Optional[Probed]:
            found = history.profile(index)
            if found is None:
                return None
            worst = QUANTITIES[goal.worst(*found[:2], sizes[index])]
            return Probed(*history.figures(index, goal), worst.lowered_by, worst.time == worst.batch == 0)

        grid = Grid(history.profiler.candidates, history.usable)
        self.search(grid, lambda index: index in history.taken or history.left > 0, probe)
        return history.choose_measured(goal, f"binary search over {len(grid.shape)} dimensions")

    def search(self, grid: Grid, may_probe: Callable[[int], bool], probe: Callable[[int], Optional[Probed]]) -> None:
        """Probe a grid; `probe` is None of what cannot be profiled and is not usable any more: the nearest follows.

        `may_probe` says whether a candidate was probed already, or profiles are left.
        """
        if sorted(self.order) != sorted(DIMENSIONS):
            raise InvalidValueError(f"order {self.order!r} is none of the dimensions", f"order {', '.join(DIMENSIONS)}")
        found: Dict[int, Probed] = {}

        def probe_nearest(step: Sequence[int], among: Optional[np.ndarray] = None) -> Optional[int]:
            while True:
                index = grid.at(step, among)
                if not may_probe(index):
                    return None
                one = probe(index)
                if one is not None:
                    found[index] = one
                    return index

        ranges = [(0, size - 1) for size in grid.shape]
        turns = itertools.cycle([DIMENSIONS.index(name) for name in self.order])
        best = np.inf
        while True:
            middle = [(low + high + (self.middle == "upper")) // 2 for low, high in ranges]
            index = probe_nearest(middle)
            if index is None or all(low == high for low, high in ranges):
                break
            one = found[index]
            better = one.excess <= 0 and one.objective < best
            open_places = [place for place in range(len(ranges)) if ranges[place][0] < ranges[place][1]]
            if one.by_clocks_alone and open_places != [BATCH]:
                open_places = [place for place in open_places if place != BATCH]
            place = next(place for place in turns if place in open_places)
            goes_up = one.lowers[place == BATCH] == "up"
            if one.excess <= 0 and not better and self.when_not_better != "lower":
                goes_up = not goes_up
            best = min(best, one.objective) if better else best
            ranges[place] = self._half(ranges[place], middle[place], goes_up)
        # Where nothing fitted: what was too slow rules out all that is nowhere above it, and the other way round.
        open_still = np.ones(len(grid.steps), dtype=bool)
        while all(one.excess > 0 for one in found.values()):
            for index, one in found.items():
                signs = np.array([1 if one.lowers[place == BATCH] == "up" else -1 for place in range(len(DIMENSIONS))])
                open_still &= ((grid.steps - grid.steps[index]) * signs > 0).any(axis=1)
            open_still &= grid.usable
            if not open_still.any() or probe_nearest(np.median(grid.steps[open_still], axis=0), open_still) is None:
                break
        best_found = self._best(found)
        # Clocks have moved since the batch size was halved.
        while best_found is not None and found[best_found].lowers[1] == "up":
            step = grid.steps[best_found].copy()
            step[BATCH] += 1
            if step[BATCH] == grid.shape[BATCH] or probe_nearest(step) is None or self._best(found) == best_found:
                break
            best_found = self._best(found)

    @staticmethod
    def _best(found: Dict[int, Probed]) -> Optional[int]:
        kept = [index for index, one in found.items() if one.excess <= 0]
        return min(kept, key=lambda index: found[index].objective, default=None)

    def _half(self, bounds: Tuple[int, int], middle: int, keep_upper: bool) -> Tuple[int, int]:
        """The half of a range that is kept; never empty, and smaller than the range."""
        low, high = bounds
        if self.middle == "upper":
            return (middle, high) if keep_upper else (low, middle - 1)
        return (middle + 1, high) if keep_upper else (low, middle)


class CoordinateSearch(Strategy):
    """Coordinate search from the middle of the grid, the dimension that pays most first.

    Profiles the middle mode and, in each dimension, a step towards where the limits lead: up where the middle mode
    keeps them, down where it breaks them. Then it takes the dimensions in turn, the one with the greatest fall of log
    time for the rise of log power first when going up, the one with the least rise of time for the fall of power when
    going down, and finds by bisection how far to go. A search by the gradient in each dimension is what the literature
    calls GMD; this is one of that kind, not a copy.
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
        """The dimensions in the order in which they pay; those that cannot move, or not be tried, are left out."""
        rates: List[Tuple[float, int]] = []
        for place, size in enumerate(grid.shape):
            there = list(here)
            there[place] = (here[place] + size) // 2 if upwards else here[place] // 2
            index = None if there == list(here) else profile_nearest(history, grid, there)
            if index is None:
                continue
            found = history.taken[index]
            time = np.log(found.time_ms / middle.time_ms)
            power = np.log(found.power_mw / middle.power_mw)
            # Gain per cost when going up, cost per gain when going down: least first both times.
            rates.append((time / max(power, 1e-3) if upwards else max(time, 0.0) / max(-power, 1e-3), place))
        return [place for _, place in sorted(rates)]

    def _bisect(self, history: History, goal: Goal, grid: Grid, here: Sequence[int], place: int, upwards: bool) -> int:
        """How far to go in a dimension: the highest value within the limits, as far as the profiles reach."""
        low, high = (here[place], grid.shape[place] - 1) if upwards else (0, here[place])
        known = low
        while low < high:
            middle = (low + high + 1) // 2
            there = list(here)
            there[place] = middle
            index = profile_nearest(history, grid, there)
            if index is None:
                break
            if history.figures(index, goal)[1] <= 0:
                low = known = middle
            else:
                high = middle - 1
        return known


def profile_nearest(history: History, grid: Grid, step: Sequence[int]) -> Optional[int]:
    """Profile the candidate at a step, or the nearest that can be; its place, or None where no profile is left."""
    while True:
        index = grid.at(step)
        if index not in history.taken and history.left <= 0:
            return None
        if history.profile(index) is not None:
            return index
