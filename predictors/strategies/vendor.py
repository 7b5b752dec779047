"""The vendor's power estimate as a strategy: no profile, and no idea of time."""

from __future__ import annotations

import numpy as np

from harness.core.units import mw_to_w
from predictors.models.registry import make_predictor, predictor_class
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import Choice, History, Measured, Strategy


class VendorEstimate(Strategy):
    """The mode with the greatest estimated power within the budget (NPE, 001 sec. 1.4).

    The estimator says nothing of time; the more power a mode is estimated to draw, the faster it is taken to be. Limits
    on anything but power are not looked at.
    """

    name = "npe"
    deterministic = True

    def __init__(self, device: str) -> None:
        """Estimate for the board of that name."""
        self.device = device

    def choose(self, history: History, goal: Goal) -> Choice:
        """Choose by estimate alone; costs no profile."""
        candidates = history.profiler.candidates
        estimator = make_predictor(predictor_class("npe"), board=self.device)
        power_mw = estimator.predict(candidates.known_modes, batch_size=candidates.batch_size).power_mw
        budget_mw = goal.limits.get("power_mw", np.inf)
        within = (power_mw <= budget_mw) & history.usable
        if within.any():
            index = int(np.where(within, power_mw, -np.inf).argmax())
        else:
            index = int(np.where(history.usable, power_mw, np.inf).argmin())
        predicted = Measured(float("nan"), float(power_mw[index]), 0.0)
        size = int(candidates.batch_size[index])
        reason = f"greatest estimated power within the budget: {mw_to_w(power_mw[index]):.1f} W"
        return Choice(
            history.mode(index),
            size,
            bool(within.any()),
            predicted,
            None,
            history.spent,
            (),
            reason,
            index,
            tuple(history.failed.items()),
        )
