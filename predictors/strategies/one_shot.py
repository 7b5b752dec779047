"""One-shot strategies: profile some modes, fit once, and choose among all modes without measuring again."""

from __future__ import annotations

import dataclasses
from typing import Callable, ClassVar, List, Mapping, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.models.protocol import Predictor
from predictors.strategies.goals import Goal
from predictors.strategies.posterior import Posterior, learn
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.search import profile_random

TOLERANCE = {"power_mw": 1000.0}
"""A choice counts as breaking a power limit when it exceeds it by more (A/L+1, 001 sec. 5.2)."""

WIDENING = 8.0


def widening(profiles: int) -> float:
    """By how much to widen a predictor's standard deviations where one of very many modes is chosen.

    The best-looking of thousands of modes is one whose power was likely predicted too low (the winner's curse), so
    intervals that hold for any mode are too narrow for a chosen one, the more so the fewer profiles there are. The
    factor was set on the tables behind 001; docs/strategies.md says what it gives there.
    """
    return 1.0 + WIDENING / profiles**0.5


class OneShot(Strategy):
    """Chooses by a predictor that was fitted to random modes (PT and NN, 001 sec. 5).

    Without `risk` the choice is the papers': the best mode whose predicted figures keep the limits. With it, only modes
    count that break a limit by more than the tolerance with at most that probability.
    """

    name: ClassVar[str] = "one-shot"

    def __init__(
        self,
        predictor: Callable[[], Predictor],
        *,
        name: Optional[str] = None,
        risk: Optional[float] = None,
        tolerance: Optional[Mapping[str, float]] = None,
        widen: Optional[float] = None,
        seed: int = 0,
    ) -> None:
        """Choose by the predictors that a function makes.

        Args:
            predictor: makes a predictor that has learned nothing.
            name: how the command line calls this strategy.
            risk: greatest probability, 0 to 1, of breaking a limit by more than the tolerance; None for none.
            tolerance: by quantity, in its unit; None for `TOLERANCE`.
            widen: factor on the predictor's standard deviations, of which only a risk takes notice; None for
                `widening` of the number of profiles.
            seed: draws the modes.
        """
        if risk is not None and not 0 < risk < 1:
            raise InvalidValueError(f"risk is {risk}, expected a probability between 0 and 1")
        self.name = name or type(self).name  # type: ignore[misc]
        self._predictor = predictor
        self.risk = risk
        self.tolerance = TOLERANCE if tolerance is None else tolerance
        self.widen = widen
        self.seed = seed

    def choose(self, history: History, goal: Goal) -> Choice:
        """Profile as many random modes as are left, fit, and choose."""
        return self.choose_all(history, [goal])[0]

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        """One fit serves every goal."""
        profile_random(history, history.left, self.seed)
        posterior = learn(self._predictor(), history, self.widen or widening(len(history.taken)))
        return [self._pick(posterior, history, goal) for goal in goals]

    def _pick(self, posterior: Posterior, history: History, goal: Goal) -> Choice:
        if self.risk is None:
            allowed, nearest = posterior.excess(goal) <= 0, posterior.excess(goal)
            promise = "predicted to keep the limits"
        else:
            chance = posterior.chance(goal, self.tolerance)
            allowed, nearest = chance >= 1 - self.risk, -chance
            promise = f"at most {self.risk:.0%} likely to break a limit by more than the tolerance"
        allowed = allowed & history.usable
        if not allowed.any():
            index = int(np.where(history.usable, nearest, np.inf).argmin())
            reason = f"no mode is {promise}; this one comes nearest"
        else:
            index = int(np.where(allowed, posterior.objective(goal), np.inf).argmin())
            reason = f"best of the modes {promise}"
        choice = history.choice(index, goal, reason, posterior.at(index))
        return dataclasses.replace(choice, feasible=bool(allowed.any()))
