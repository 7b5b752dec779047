"""What a user of Zeus would pick on a discrete GPU: every power limit profiled at each batch size in turn.

Zeus (You, Chung and Chowdhury, NSDI 2023) minimises eta x energy + (1 - eta) x greatest power limit x time to a target
metric. At a batch size it profiles every power limit, at the beginning of a training, and keeps the cheapest (sec.
4.2). It chooses the batch size over recurring trainings, each to its end, by Thompson sampling (sec. 4.3); here batch
sizes are compared by the cost of a sample, because the effect of a batch size on convergence is unknown.
"""

from __future__ import annotations

from typing import List, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.goals import QUANTITIES, Goal
from predictors.strategies.protocol import Choice, History, Strategy

ETA_ENERGY, ETA_TIME = 1.0, 0.0
"""Weight of energy for a goal that minimises energy, and for one that minimises time."""


class PowerLimits(Strategy):
    """Profiles every power limit at a batch size, then at the next one, and chooses the cheapest profile.

    Batch sizes begin with the middle one, which a user would have set, then go outwards, as far as the profiles reach.
    """

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        candidates = history.profiler.candidates
        limits_mw = candidates.power_limit_mw
        if limits_mw is None:
            raise InvalidValueError("zeus profiles power limits, and this device has none", "choose another strategy")
        for index in self._order(candidates.batch_size, limits_mw):
            if history.left <= 0:
                break
            history.profile(index)
        return [self._cheapest(history, goal, float(limits_mw.max())) for goal in goals]

    def _order(self, batch_size: np.ndarray, limits_mw: np.ndarray) -> List[int]:
        """Candidates by batch size, from the middle outwards, and falling power limit."""
        sizes = np.unique(batch_size)
        rank = np.abs(np.searchsorted(sizes, batch_size) - len(sizes) // 2)
        return np.lexsort((-limits_mw, batch_size, rank)).tolist()

    def _cheapest(self, history: History, goal: Goal, greatest_mw: float) -> Choice:
        """The profile of least cost among those within the limits, or the one nearest to them."""
        eta = ETA_ENERGY if QUANTITIES[goal.minimise].power else ETA_TIME
        sizes = history.profiler.candidates.batch_size[history.places]
        energy = history.time_ms * history.power_mw / sizes
        time = history.time_ms / sizes
        costs = eta * energy + (1 - eta) * greatest_mw * time
        excess = goal.excess(history.time_ms, history.power_mw, sizes)
        best = np.where(excess <= 0, costs, np.inf).argmin() if (excess <= 0).any() else excess.argmin()
        reason = f"the cheapest of {len(history.taken)} profiles, eta {eta:g}"
        return history.choice(int(history.places[best]), reason, bool(excess[best] <= 0))
