"""Strategies that choose by a predictor: the posterior of all candidates, closed loop, and one shot.

Closed loop profiles the most promising mode, updates the predictor, and returns the best measured mode, so that its
result does not rest on a prediction. The acquisition function is the expected improvement of the objective over the
best mode so far, as a share, times the probability of keeping the limits (constrained Bayesian optimisation: Gelbart et
al. 2014). It is averaged over draws from the posterior, in each of which a faster mode draws more power.

One shot profiles some modes, fits once, and chooses among all modes without measuring again.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Callable, List, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.units import share_to_percent
from predictors.forecast import Forecast
from predictors.goals import Goal
from predictors.models.base import Predictor
from predictors.sampling import choose
from predictors.settings import Grid
from predictors.strategies.protocol import Choice, History, MeasuredMode, Strategy
from predictors.strategies.search import profile_random

UNLIKELY = 0.01  # if no mode has a greater probability of keeping the limits, the nearest one is searched

# Number of initial modes with several goals or workloads. For one goal a single mode is better: the physical model
# fitted to it leads closer to the goal than two more arbitrary modes.
INITIAL = 3

# Profiles from which on a search tries a setting that none of them varied. With fewer in all, the most promising mode
# is worth more: tried at the fifth of 8, YOLOv8n on Orin AGX comes out 1.4 % behind the best mode, else 0.0.
VARIED_BY = 7

DRAWS = 32  # from the posterior, to average an expected gain over
MEASURED_LOG_SD = 0.005  # the typical difference between two profiles of a mode
ANY_POWER_MW = 10_000.0  # training value if no power was measured; predicted power is ignored then

Designer = Callable[[History, int], Sequence[int]]  # from a history and a count to the initial candidates


def learn(predictor: Predictor, history: History, widen: float = 1.0, draws: int = 0) -> Forecast:
    """Fit a predictor anew to the profiles and predict every candidate.

    For a profiled candidate the posterior is the measurement. Once every candidate was tried, nothing is predicted, and
    failed ones have no figures (NaN). Without measured power, power is NaN. `widen` is a factor on the standard
    deviations of predictions.
    """
    candidates, places = history.profiler.candidates, history.places
    power_mw = history.power_mw
    if history.untried.any():
        has_power = bool(np.isfinite(power_mw).all())
        profiles = history.profiles.applied()
        if not has_power:
            profiles = dataclasses.replace(profiles, power_mw=np.full(len(profiles), ANY_POWER_MW))
        predictor.fit(profiles)
        predicted = predictor.draw(candidates, draws, len(places)) if draws else predictor.predict(candidates)
        log_time, log_time_sd = predicted.log_time.copy(), widen * predicted.log_time_sd
        log_power, log_power_sd = predicted.log_power.copy(), widen * predicted.log_power_sd
        if not has_power:
            log_power[:], log_power_sd[:] = np.nan, np.nan
    else:
        log_time, log_power, log_time_sd, log_power_sd = np.full((4, len(candidates)), np.nan)
        predicted = Forecast(candidates, log_time, log_time_sd, log_power, log_power_sd)
    log_time[..., places], log_power[..., places] = np.log(history.time_ms), np.log(power_mw)
    log_time_sd[..., places] = log_power_sd[..., places] = MEASURED_LOG_SD
    measured = np.zeros(len(candidates), dtype=bool)
    measured[places] = True
    return Forecast(
        candidates, log_time, log_time_sd, log_power, log_power_sd, predicted.freedom, measured, predicted.unprofiled
    )


def design_for(seed: int, all_sizes: bool = False) -> Designer:
    """A designer of the first modes of a search; designs by the physical model were no better.

    The modes are spread over power limits and, with `all_sizes`, over batch sizes; otherwise all have the middle one.
    """

    def design(history: History, count: int) -> Sequence[int]:
        candidates = history.profiler.candidates
        grid = Grid(candidates, history.usable)
        # The middle of all settings informs about the scale of each part of the time, a corner about one part only.
        middle = grid.at([size // 2 for size in grid.shape])
        sizes = candidates.batch_size
        wanted_sizes = sizes if all_sizes or candidates.power_limit_mw is not None else sizes[middle]
        places = np.flatnonzero(history.usable & (sizes == wanted_sizes))
        places = places[places != middle]
        wanted = min(count - 1, len(places))
        if wanted < 1:
            return [middle]
        spread = choose(candidates.take(places), wanted, sampling="space-filling", seed=seed)
        return [middle, *places[spread].tolist()]

    return design


class ClosedLoop(Strategy):
    """Profiles the mode that a predictor expects to be best within the limits, and returns the best measured one.

    A predictor knows next to nothing of a setting that had one value in all profiles, such as the memory clock, and may
    never find a mode with another value promising. So from half of the profiles on (`VARIED_BY` at least), and before
    the search ends early, the next one is the most promising of the modes that vary such settings.
    """

    def __init__(
        self,
        predictor: Callable[[], Predictor],
        design: Designer,
        *,
        least_gain: float = 0.0,
        batch: int = 1,
    ) -> None:
        """Search with predictors made by `predictor`, beginning with the modes of `design`.

        The search ends when the expected improvement, as a share of the objective, is below `least_gain`; 0 spends all
        profiles. A `batch` of modes is chosen at once, and profiled from high to low clocks; 1 updates after each.
        """
        if batch < 1:
            raise InvalidValueError(f"batch is {batch}, expected 1 or more")
        self._predictor = predictor
        self._design = design
        self.least_gain = least_gain
        self.batch = batch

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        begin = self._design(history, min(INITIAL if len(goals) > 1 else 1, history.left)) if history.left > 0 else []
        history.profile_all(from_high_to_low(history, begin))
        while history.left > 0 and not history.taken:  # none of these could be profiled
            profile_random(history, 1, seed=0)
        ended_early = False
        while history.left > 0 and not ended_early:
            chosen = self._next(history, goals)
            ended_early = not chosen
            if chosen:
                history.profile_all(from_high_to_low(history, chosen))
        choices = [history.choose_measured(goal, f"best of {len(history.taken)} profiled modes") for goal in goals]
        if not ended_early:
            return choices
        least = f" of {share_to_percent(self.least_gain):g} %" if self.least_gain else ""
        gain = f"promises a gain{least}" + (" over all goals" if len(goals) > 1 else "")
        promises = [gain if choice.feasible else "is likely to keep the limits" for choice in choices]
        return [
            dataclasses.replace(choice, reason=f"{choice.reason}; no other {promise}")
            for choice, promise in zip(choices, promises)
        ]

    def _next(self, history: History, goals: Sequence[Goal]) -> List[int]:
        """Up to `batch` candidates with an expected gain, each as if those before it had been measured as predicted.

        The best few of one posterior are neighbours, which inform little more than one of them (the "kriging believer"
        of Ginsbourger et al. 2010).
        """
        believed = copy.copy(history)
        believed.taken = dict(history.taken)
        chosen: List[int] = []
        while len(chosen) < min(self.batch, history.left):
            posterior = learn(self._predictor(), believed, draws=DRAWS)
            gains = expected_gains(posterior, believed, goals)
            is_worth_it = gains.max() > (0.0 if chosen else self.least_gain)
            is_late = len(believed.taken) >= max(VARIED_BY, believed.limit // 2)
            if not is_worth_it or (is_late and believed.left > 1):
                of_varying = np.where(varies_most(believed), gains, 0.0)
                if of_varying.max() > 0:
                    gains, is_worth_it = of_varying, True
            if not is_worth_it:
                break
            best = int(np.argmax(gains))
            chosen.append(best)
            logs = posterior.log_time[..., best].mean(), posterior.log_power[..., best].mean()
            time_ms, power_mw = np.exp(logs).tolist()
            believed.taken[best] = MeasuredMode(time_ms, power_mw, seconds=0.0)
        return chosen


def varies_most(history: History) -> np.ndarray:
    """Which untried candidates change most of the settings that have one value in all profiles, bool of shape (n,).

    None if each setting that has several values was varied.
    """
    table = history.profiler.candidates.table
    profiled = table[history.places]
    is_unvaried = (profiled == profiled[0]).all(axis=0)
    changes = (table[:, is_unvaried] != profiled[0, is_unvaried]).sum(axis=1)
    most = changes[history.untried].max(initial=0)
    return history.untried & (changes == most) & (changes > 0)


def from_high_to_low(history: History, places: Sequence[int]) -> List[int]:
    """Candidates by falling GPU, CPU and memory clocks: some boards accept no other order (001 sec. 2.5)."""
    candidates = history.profiler.candidates
    modes = candidates.modes[:, [2, 1, 3, 0]]
    if candidates.power_limit_mw is not None:
        modes = np.column_stack([candidates.power_limit_mw, modes])
    return sorted((int(place) for place in places), key=lambda place: tuple(-modes[place]))


def expected_gains(posterior: Forecast, history: History, goals: Sequence[Goal]) -> np.ndarray:
    """The acquisition function of each candidate, summed over goals, shape (n,); 0 for those tried already.

    For a goal with a measured mode within its limits it is the expected improvement of the objective on that mode, as a
    share of it, times the probability of keeping the limits. For a goal without one it is that probability, weighted by
    how good the objective looks, so that the first feasible mode is found, and a good one.
    """
    total, untried = np.zeros(len(posterior.measured)), history.untried
    for goal in goals:
        chance = posterior.chance(goal)
        mean, sd = posterior.log_objective(goal)
        best = history.best_measured(goal)
        if best is not None and history.figures(best, goal)[1] <= 0:
            incumbent, _ = history.figures(best, goal)
            total += over_draws(chance * expected_improvement(mean, sd, math.log(incumbent)))
        elif over_draws(chance)[untried].max(initial=0.0) > UNLIKELY:
            total += over_draws(chance * (1 + np.clip(over_draws(mean).max() - mean, 0, None)))
        else:  # no candidate is likely to keep the limits: profile the nearest one and the extremes, then stop
            nearest = int(np.where(history.usable, over_draws(posterior.excess(goal)), np.inf).argmin())
            last = [place for place in (nearest, *_extremes(history, goal)) if untried[place]]
            total[last[:1]] += 1.0
    return np.where(untried, total / max(len(goals), 1), 0.0)


_ENDS = {  # the end of each dimension with the least value of a quantity: of modes, batch sizes and power limits
    "time_ms": (1, 1, 1, 1, 0, 1),
    "sample_time_ms": (1, 1, 1, 1, 1, 1),
    "power_mw": (0, 0, 0, 0, 0, 0),
}


def _extremes(history: History, goal: Goal) -> List[int]:
    """The candidates with the least values of limited quantities by their settings, whatever a predictor expects."""
    grid = Grid(history.profiler.candidates, history.usable)
    steps = np.array(grid.shape) - 1
    return [grid.at((steps * _ENDS[name]).tolist()) for name in goal.limits if name in _ENDS]


def over_draws(values: np.ndarray) -> np.ndarray:
    """The mean over draws, shape (n,), of values of shape (draws, n) or (n,)."""
    return np.atleast_2d(values).mean(axis=0)


def expected_improvement(mean: np.ndarray, sd: np.ndarray, incumbent: float) -> np.ndarray:
    """Expected fall below exp(incumbent), as a share of it, of variables whose logarithms are normal, shape (n,).

    The expected improvement of the logarithms (Jones et al. 1998) has no upper bound: a candidate uncertain by a factor
    of three would be tried before one that is probably a tenth better.
    """
    from scipy.special import log_ndtr, ndtr

    score = (incumbent - mean) / sd
    return np.maximum(ndtr(score) - np.exp(mean + sd**2 / 2 - incumbent + log_ndtr(score - sd)), 0.0)


class OneShot(Strategy):
    """Chooses by a predictor that was fitted to random modes (PT and NN, 001 sec. 5).

    Without `risk` the choice is the papers': the best mode whose predicted figures keep the limits. With it, only modes
    that break a limit (as of `Goal.breaks`) with at most that probability count, and the best is the one with the least
    upper bound of the objective at that probability: of two similar ones the more certain one. If no mode is that safe,
    it is the best of those that are about as safe as any. Settings outside the profiled range are excluded, unless
    `unprofiled`.

    With several batch sizes, each of which informs little about the others, standard deviations are widened by
    1 + 1 / sqrt(profiles), a factor chosen on measured tables (docs/strategies.md).
    """

    def __init__(
        self,
        predictor: Callable[[], Predictor],
        *,
        risk: Optional[float] = None,
        seed: int = 0,
        unprofiled: bool = False,
    ) -> None:
        """Choose by a predictor that `predictor` makes; `seed` draws the modes, `risk` is a probability."""
        if risk is not None and not 0 < risk < 1:
            raise InvalidValueError(f"risk is {risk}, expected a probability between 0 and 1")
        self._predictor = predictor
        self.risk = risk
        self.seed = seed
        self.unprofiled = unprofiled

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        profile_random(history, history.left, self.seed)
        several_sizes = np.ptp(history.profiler.candidates.batch_size) > 0
        widen = 1 + len(history.taken) ** -0.5 if several_sizes and history.taken else 1.0
        posterior = learn(self._predictor(), history, widen)
        return [self._pick(posterior, history, goal) for goal in goals]

    def _pick(self, posterior: Forecast, history: History, goal: Goal) -> Choice:
        if self.risk is None:
            danger, allowed, objective = posterior.excess(goal), 0.0, posterior.objective(goal)
            promise = "predicted to keep the limits"
        else:
            mean, sd = posterior.log_objective(goal)
            danger, allowed, objective = posterior.risk(goal), self.risk, mean + posterior.reach(self.risk) * sd
            promise = f"at most {self.risk:.0%} likely to break a limit"
        pickable = history.usable if self.unprofiled else history.usable & posterior.admitted
        least = danger[pickable].min(initial=np.inf)
        most = allowed if least <= allowed else least + allowed
        index = int(np.where(pickable & (danger <= most), objective, np.inf).argmin())
        if least <= allowed:
            return history.choice(index, f"best of the modes {promise}", feasible=True)
        return history.choice(index, f"no mode is {promise}; this one comes nearest", feasible=False)
