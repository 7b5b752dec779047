"""Closed loop: profile the mode that promises most, learn from it, and answer with the best mode that was measured.

Each step weighs by how much a mode would improve on the best one so far against how likely it keeps the limits:
expected improvement of the objective's logarithm times the chance of being within (Gelbart et al. 2014, constrained
Bayesian optimisation). The answer was measured, so its promise rests on no prediction.
"""

from __future__ import annotations

import math
from typing import Callable, List, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.models.protocol import Predictor
from predictors.strategies.goals import Goal
from predictors.strategies.posterior import Posterior, learn
from predictors.strategies.protocol import Choice, History, Strategy

UNLIKELY = 0.01
"""Where no mode has a greater chance of keeping the limits, the nearest one is looked for."""

Designer = Callable[[History, int], Sequence[int]]
"""From a history and a count to the places of the candidates to begin with."""


class ClosedLoop(Strategy):
    """Profiles where a predictor expects the best mode within the limits, and answers with the best one measured."""

    name = "closed-loop"

    def __init__(
        self,
        predictor: Callable[[], Predictor],
        design: Designer,
        *,
        initial: int = 3,
        least_gain: float = 0.0,
        batch: int = 1,
    ) -> None:
        """Search by the predictors that a function makes.

        Args:
            predictor: makes a predictor that has learned nothing.
            design: chooses the modes to begin with.
            initial: how many those are.
            least_gain: stop where the expected improvement, as a share of the objective, is below this; 0 spends all
                profiles.
            batch: modes chosen at once, and profiled from high to low clocks; 1 learns from each.

        Raises:
            InvalidValueError: `batch` or `initial` is below 1.
        """
        for name, value in (("batch", batch), ("initial", initial)):
            if value < 1:
                raise InvalidValueError(f"{name} is {value}, expected 1 or more")
        self._predictor = predictor
        self._design = design
        self.initial = initial
        self.least_gain = least_gain
        self.batch = batch

    def choose(self, history: History, goal: Goal) -> Choice:
        """Search for one goal."""
        return self.choose_all(history, [goal])[0]

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        """Search for all goals at once: each step takes the mode that promises most over all of them."""
        for index in from_high_to_low(history, self._design(history, min(self.initial, history.left))):
            history.profile(index)
        posterior: Optional[Posterior] = None
        while history.left > 0:
            posterior = learn(self._predictor(), history)
            gains = expected_gains(posterior, history, goals)
            chosen = [int(index) for index in np.argsort(-gains)[: min(self.batch, history.left)]]
            if gains[chosen[0]] <= self.least_gain:
                break
            for index in from_high_to_low(history, [index for index in chosen if gains[index] > 0]):
                history.profile(index)
        return [self._answer(history, goal, posterior) for goal in goals]

    def _answer(self, history: History, goal: Goal, posterior: Optional[Posterior]) -> Choice:
        best = history.best_measured(goal)
        predicted = None if best is None or posterior is None else posterior.at(best)
        if best is None:
            return history.choose_measured(goal, "")
        return history.choice(best, goal, f"best of {len(history.taken)} profiled modes", predicted)


def from_high_to_low(history: History, places: Sequence[int]) -> List[int]:
    """Candidates in the order of falling GPU, CPU and memory clocks: some boards take no other (001 sec. 2.5)."""
    modes = history.profiler.candidates.modes
    return sorted((int(place) for place in places), key=lambda place: tuple(-modes[place][[2, 1, 3, 0]]))


def expected_gains(posterior: Posterior, history: History, goals: Sequence[Goal]) -> np.ndarray:
    """What profiling each candidate promises, summed over goals, shape (n,); 0 for those tried already.

    For a goal with a measured mode within its limits it is the expected improvement of the objective's logarithm on
    that mode, times the chance of keeping the limits. For a goal without one it is that chance, weighted by how good
    the objective looks, so that the first feasible mode is found, and a good one.
    """
    total, untried = np.zeros(len(posterior.log_time)), history.untried
    for goal in goals:
        chance = posterior.chance(goal, {})
        mean, sd = posterior.log_objective(goal)
        best = history.best_measured(goal)
        sizes = posterior.batch_size
        within = best is not None and posterior.excess(goal)[best] <= 0
        if within:
            incumbent = math.log(goal.objective(*_measured(history, best), sizes[best]))
            total += chance * expected_improvement(mean, sd, incumbent)
        elif chance[untried].max(initial=0.0) > UNLIKELY:
            total += chance * (1 + np.clip(mean.max() - mean, 0, None))
        else:  # nothing will keep the limits: what comes nearest is to be known, and then nothing more
            total[int(np.where(history.usable, posterior.excess(goal), np.inf).argmin())] += 1.0
    return np.where(untried, total / max(len(goals), 1), 0.0)


def expected_improvement(mean: np.ndarray, sd: np.ndarray, incumbent: float) -> np.ndarray:
    """Expected fall below `incumbent` of normal variables (Jones et al. 1998), shape (n,)."""
    from scipy.special import ndtr

    score = (incumbent - mean) / sd
    return sd * (score * ndtr(score) + np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi))


def _measured(history: History, index: int) -> Sequence[np.ndarray]:
    found = history.taken[index]
    return np.array(found.time_ms), np.array(found.power_mw)
