"""The posterior of every candidate, measured ones included, and what it means for a goal."""

from __future__ import annotations

import dataclasses
from typing import Mapping, Tuple

import numpy as np

from predictors.models.base import Predictor
from predictors.strategies.goals import Goal, log_distribution
from predictors.strategies.protocol import History, MeasuredMode

MEASURED_LOG_SD = 0.005
"""By about so much a second profile of a mode differs from the first: what is measured is known, but not exactly."""


@dataclasses.dataclass(frozen=True)
class CandidatePosterior:
    """Normal distributions of log time (ms) and log power (mW) of n candidates; all arrays have shape (n,)."""

    log_time: np.ndarray
    log_time_sd: np.ndarray
    log_power: np.ndarray
    log_power_sd: np.ndarray
    batch_size: np.ndarray
    measured: np.ndarray

    def log_objective(self, goal: Goal) -> Tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the objective's logarithm."""
        return self._log(goal.minimise)

    def objective(self, goal: Goal) -> np.ndarray:
        """The objective at the median of the distribution."""
        return goal.objective(np.exp(self.log_time), np.exp(self.log_power), self.batch_size)

    def excess(self, goal: Goal) -> np.ndarray:
        """The excess over the limits at the median of the distribution."""
        return goal.excess(np.exp(self.log_time), np.exp(self.log_power), self.batch_size)

    def chance(self, goal: Goal, slack: Mapping[str, float]) -> np.ndarray:
        """How likely each candidate keeps all limits: the probability of its least likely one.

        The limits' probabilities are not multiplied, because they are not independent. `slack` is by how much a limit
        may be exceeded, by the quantity's name and in its unit.
        """
        from scipy.special import ndtr

        least = np.ones(len(self.log_time))
        for name, limit in goal.limits.items():
            mean, sd = self._log(name)
            least = np.minimum(least, ndtr((np.log(limit + slack.get(name, 0.0)) - mean) / sd))
        return least

    def at(self, index: int) -> MeasuredMode:
        """The medians of a candidate's distributions."""
        return MeasuredMode(float(np.exp(self.log_time[index])), float(np.exp(self.log_power[index])), 0.0)

    def _log(self, name: str) -> Tuple[np.ndarray, np.ndarray]:
        times, powers = (self.log_time, self.log_time_sd), (self.log_power, self.log_power_sd)
        return log_distribution(name, times, powers, self.batch_size)


def learn(predictor: Predictor, history: History, widen: float = 1.0) -> CandidatePosterior:
    """Fit a predictor anew to the profiles taken and predict every candidate.

    What was profiled is known: there the posterior is the measurement. Where all was tried, nothing is predicted: power
    may be missing (NaN), and what failed has no figures (NaN). `widen` is a factor on the standard deviations of what
    was not profiled.
    """
    candidates, task, places = history.profiler.candidates, history.profiler.task, history.places
    count, sizes = len(candidates.modes), candidates.batch_size
    if history.untried.any():
        known = candidates.known_modes
        predictor.fit(known[places], history.time_ms, history.power_mw, batch_size=sizes[places], task=task)
        predicted = predictor.predict(known, batch_size=sizes, task=task)
        log_time, log_power = np.log(predicted.time_ms), np.log(predicted.power_mw)
        log_time_sd, log_power_sd = widen * predicted.time_log_sd, widen * predicted.power_log_sd
    else:
        log_time, log_power, log_time_sd, log_power_sd = (np.full(count, np.nan) for _ in range(4))
    log_time[places], log_power[places] = np.log(history.time_ms), np.log(history.power_mw)
    log_time_sd[places] = log_power_sd[places] = MEASURED_LOG_SD
    measured = np.zeros(count, dtype=bool)
    measured[places] = True
    return CandidatePosterior(log_time, log_time_sd, log_power, log_power_sd, sizes, measured)
