"""Strategies that search a grid of modes by profiling alone: random, brute force, binary and coordinate search."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import Candidates, Choice, History, MeasuredMode, Strategy

DIMENSIONS = ("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz", "batch_size")


class Grid:
    """The distinct values of cores, CPU, GPU and memory clocks (and batch sizes) that candidates are made of.

    Where not every combination is a candidate, the nearest that is stands for it.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._rows = np.column_stack([candidates.known_modes, candidates.batch_size])
        self.dimensions: List[np.ndarray] = [np.unique(column) for column in self._rows.T]
        self.steps = np.column_stack([np.searchsorted(*pair) for pair in zip(self.dimensions, self._rows.T)])
        self._places: Dict[Tuple[int, ...], int] = {tuple(step): i for i, step in enumerate(self.steps.tolist())}
        self._scale = np.array([max(len(values) - 1, 1) for values in self.dimensions], dtype=float)

    @property
    def shape(self) -> Tuple[int, ...]:
        """How many values each dimension has."""
        return tuple(len(values) for values in self.dimensions)

    def at(self, step: Sequence[int], usable: Optional[np.ndarray] = None) -> int:
        """The candidate at a step of each dimension, or the nearest one: by steps, each as a share of its dimension.

        Only candidates that are `usable` are taken: bool of shape (n,), at least one; None for all.
        """
        found = self._places.get(tuple(int(value) for value in step))
        if found is not None and (usable is None or usable[found]):
            return found
        distance = (np.abs(self.steps - np.asarray(step)) / self._scale).sum(axis=1)
        return int(distance.argmin() if usable is None else np.where(usable, distance, np.inf).argmin())

    def greatest(self, usable: Optional[np.ndarray] = None) -> int:
        """The candidate with the greatest value of every dimension, or the nearest to it; `usable` as of `at`."""
        return self.at([size - 1 for size in self.shape], usable)

    def nearest(self, mode: Sequence[int], usable: Optional[np.ndarray] = None) -> int:
        """The candidate nearest to any mode, with the greatest batch size: clocks by ratio, cores by difference.

        `usable` is as of `at`.
        """
        cores = np.abs(self._rows[:, 0] - mode[0]) / self.dimensions[0][-1]
        clocks = np.abs(np.log(self._rows[:, 1:4] / np.maximum(mode[1:4], 1.0))).sum(axis=1)
        behind = self.dimensions[4][-1] - self._rows[:, 4]
        ordered = np.lexsort((behind, cores + clocks))
        return int((ordered if usable is None else ordered[usable[ordered]])[0])


class RandomSearch(Strategy):
    """Profiles random candidates and takes the best of them (RND, 001 sec. 5.1)."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def choose(self, history: History, goal: Goal) -> Choice:
        return self.choose_all(history, [goal])[0]

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
        for index in generator.choice(untried, size=size, replace=False):
            history.profile(int(index))


class BruteForce(Strategy):
    """Profiles every candidate (001 Table 1); the ground truth where noise allows it."""

    name = "brute-force"
    deterministic = True

    def choose(self, history: History, goal: Goal) -> Choice:
        count = len(history.profiler.candidates.modes)
        if history.limit < count:
            raise InvalidValueError(f"brute force profiles all {count} candidates, {history.limit} are allowed")
        for index in range(count):
            history.profile(index)
        return history.choose_measured(goal, f"best of all {len(history.taken)} modes")


class BinarySearch(Strategy):
    """Multi-dimensional binary search, MDBS (000 sec. 4.2).

    Keeps a range of values in each dimension and profiles the middle of all ranges. Within the limits: the upper half
    of the current dimension is kept, above them the lower half; then comes the next dimension that has more than one
    value left, until one mode remains, which is profiled too. The answer is the best mode profiled within the limits.

    The report leaves open (and this class has as parameters): the order of the dimensions, which of the two middle
    values of an even range is profiled, and what is dropped when a mode is within the limits but not faster than the
    best so far. It does not say what happens when nothing fits: the answer is then infeasible. Nor what happens when a
    middle cannot be profiled: the nearest mode that can stands for it.
    """

    name = "mdbs"
    deterministic = True

    def __init__(
        self, order: Sequence[str] = DIMENSIONS, middle: str = "upper", when_not_better: str = "lower"
    ) -> None:
        self.order = tuple(order)  # in which the dimensions are halved, again and again
        self.middle = middle  # `upper` or `lower` of the two middle values
        # The half dropped within the limits without an improvement: `lower` (there is room to go up), or `upper`.
        self.when_not_better = when_not_better

    def choose(self, history: History, goal: Goal) -> Choice:
        if sorted(self.order) != sorted(DIMENSIONS):
            raise InvalidValueError(f"order {self.order!r} is none of the dimensions", f"order {', '.join(DIMENSIONS)}")
        grid = Grid(history.profiler.candidates)
        ranges = [(0, size - 1) for size in grid.shape]
        best = np.inf
        turn = 0
        while True:
            middle = [self._middle(low, high) for low, high in ranges]
            index = profile_nearest(history, grid, middle)
            if index is None:
                break
            objective, excess = figures(history, index, goal)
            better = excess <= 0 and objective < best
            best = objective if better else best
            open_dimensions = [place for place, (low, high) in enumerate(ranges) if low < high]
            if not open_dimensions:
                break
            place, turn = self._next(open_dimensions, turn)
            keep_upper = excess <= 0 and (better or self.when_not_better == "lower")
            ranges[place] = self._half(ranges[place], middle[place], keep_upper)
        return history.choose_measured(goal, f"binary search over {len(grid.shape)} dimensions")

    def _middle(self, low: int, high: int) -> int:
        return (low + high + (self.middle == "upper")) // 2

    def _half(self, bounds: Tuple[int, int], middle: int, keep_upper: bool) -> Tuple[int, int]:
        """The half of a range that is kept; never empty, and smaller than the range."""
        low, high = bounds
        if self.middle == "upper":
            return (middle, high) if keep_upper else (low, middle - 1)
        return (middle + 1, high) if keep_upper else (low, middle)

    def _next(self, open_dimensions: Sequence[int], turn: int) -> Tuple[int, int]:
        """The dimension whose turn it is, and whose turn comes then."""
        for ahead in range(len(self.order)):
            place = DIMENSIONS.index(self.order[(turn + ahead) % len(self.order)])
            if place in open_dimensions:
                return place, (turn + ahead + 1) % len(self.order)
        raise AssertionError("there is an open dimension")


class CoordinateSearch(Strategy):
    """Coordinate search from the middle of the grid, the dimension that pays most first.

    Profiles the middle mode and, in each dimension, a step towards where the limits lead: up where the middle mode
    keeps them, down where it breaks them. Then it takes the dimensions in turn, the one with the greatest fall of log
    time for the rise of log power first when going up, the one with the least rise of time for the fall of power when
    going down, and finds by bisection how far to go. A search by the gradient in each dimension is what the literature
    calls GMD; this is one of that kind, not a copy.
    """

    name = "gmd"
    deterministic = True

    def choose(self, history: History, goal: Goal) -> Choice:
        grid = Grid(history.profiler.candidates)
        here = [(size - 1) // 2 for size in grid.shape]
        middle = profile_nearest(history, grid, here)
        if middle is not None:
            upwards = figures(history, middle, goal)[1] <= 0
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
            if figures(history, index, goal)[1] <= 0:
                low = known = middle
            else:
                high = middle - 1
        return known


def profile_nearest(history: History, grid: Grid, step: Sequence[int]) -> Optional[int]:
    """Profile the candidate at a step, or the nearest that can be; its place, or None where no profile is left."""
    while True:
        index = grid.at(step, history.usable)
        if index not in history.taken and history.left <= 0:
            return None
        if history.profile(index) is not None:
            return index


def figures(history: History, index: int, goal: Goal) -> Tuple[float, float]:
    """Objective and excess over the limits of a candidate that was profiled."""
    found = history.taken[index]
    size = history.profiler.candidates.batch_size[index]
    time_ms, power_mw = np.array(found.time_ms), np.array(found.power_mw)
    return float(goal.objective(time_ms, power_mw, size)), float(goal.excess(time_ms, power_mw, size))
