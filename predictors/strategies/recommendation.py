"""A recommendation: a choice with everything that a person wants to know of it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.metrics import minibatch_energy_mws
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import S_PER_HOUR, ms_to_s, mwh_to_wh, mws_to_mwh, s_to_ms
from predictors.models.base import Predictor
from predictors.strategies.closed_loop import CandidatePosterior, learn
from predictors.strategies.fixed import Maxn, Presets, VendorPreset
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.search import Grid

LEVEL = 0.8  # share of measurements that the intervals are to hold


class FigureInterval(NamedTuple):
    """A figure with the interval that is to hold it with probability `LEVEL`; predicted where it was not profiled."""

    value: float
    low: float
    high: float
    profiled: bool


class ModeFigures(NamedTuple):
    """A mode with its minibatch time and power; `label` says which it is."""

    label: str
    power_mode: PowerMode
    batch_size: int
    time_ms: FigureInterval
    power_mw: FigureInterval


class Saving(NamedTuple):
    """What the choice saves against another mode over a whole training; below 0 it costs more.

    `keeps_limits` says whether the other mode is expected to keep the goal's limits.
    """

    other: ModeFigures
    hours: float
    energy_wh: float
    keeps_limits: bool


class Recommendation(NamedTuple):
    """What is recommended, and why."""

    goal: Goal  # what was asked for
    choice: Choice  # the answer
    mode: ModeFigures  # the chosen mode with its figures
    front: Tuple[ModeFigures, ...]  # the modes that no other beats in both time and power, by rising power
    savings: Tuple[Saving, ...]  # against the greatest mode and against the best preset that claims to keep the limit
    posterior: CandidatePosterior  # of every candidate
    history: History  # what was profiled
    minibatches: Optional[float]  # that the savings are over; None for those of an hour's training in the chosen mode


def recommend(
    history: History,
    goals: Sequence[Goal],
    strategy: Strategy,
    predictor: Predictor,
    presets: Tuple[VendorPreset, ...] = (),
    minibatches: Optional[float] = None,
) -> List[Recommendation]:
    """Choose for each goal by a strategy, with one set of profiles, and collect what there is to say of the choices.

    `predictor` is fitted anew to all profiles, for what was not measured. Where the strategy took none, the modes that
    it chose are profiled. `minibatches` are those of the whole training, for the savings; None counts them over an
    hour's training in the chosen mode.
    """
    choices = strategy.choose_all(history, goals)
    if not history.taken:
        choices = [_profiled(history, goal, choice) for goal, choice in zip(goals, choices)]
    posterior = learn(predictor, history)
    spent = history.spent  # of all goals together
    return [
        _recommend(posterior, history, goal, choice._replace(spent=spent), presets, minibatches)
        for goal, choice in zip(goals, choices)
    ]


def _profiled(history: History, goal: Goal, choice: Choice) -> Choice:
    """A choice that nothing was profiled for, with what profiling its mode gives."""
    if history.left <= 0 and choice.index not in history.taken:
        raise InvalidValueError("a recommendation needs profiles", "allow some with --profiles")
    if history.profile(choice.index) is None:
        raise CannotRunError(f"{choice.reason} cannot be profiled: {history.failed[choice.index]}")
    return history.choice(choice.index, choice.reason, history.figures(choice.index, goal)[1] <= 0)


def _recommend(
    posterior: CandidatePosterior,
    history: History,
    goal: Goal,
    choice: Choice,
    presets: Tuple[VendorPreset, ...],
    minibatches: Optional[float],
) -> Recommendation:
    chosen = describe(posterior, history, choice.index, "recommended")
    total = minibatches if minibatches is not None else s_to_ms(S_PER_HOUR) / chosen.time_ms.value
    greatest = Maxn().choose(history, goal).index
    is_maxn = greatest == Grid(history.profiler.candidates).greatest()
    others = {greatest: "MAXN" if is_maxn else "the greatest mode that did not fail"}
    if presets:
        best = Presets(presets).choose(history, goal)
        others.setdefault(best.index, best.reason)
    savings = []
    for index, label in others.items():
        if index != choice.index:
            other = describe(posterior, history, index, label)
            hours = ms_to_s((other.time_ms.value - chosen.time_ms.value) * total) / S_PER_HOUR
            saved_wh = energy_wh(other, total) - energy_wh(chosen, total)
            savings.append(Saving(other, hours, saved_wh, bool(posterior.excess(goal)[index] <= 0)))
    places = pareto_front(np.exp(posterior.log_time), np.where(history.usable, np.exp(posterior.log_power), np.nan))
    front = tuple(describe(posterior, history, int(place), "") for place in places)
    return Recommendation(goal, choice, chosen, front, tuple(savings), posterior, history, minibatches)


def describe(posterior: CandidatePosterior, history: History, index: int, label: str) -> ModeFigures:
    """A candidate with its posterior."""
    from scipy.special import ndtri

    def interval(log_median: np.ndarray, log_sd: np.ndarray) -> FigureInterval:
        factor = float(np.exp(ndtri((1 + LEVEL) / 2) * log_sd[index]))
        value = float(np.exp(log_median[index]))
        return FigureInterval(value, value / factor, value * factor, bool(posterior.measured[index]))

    return ModeFigures(
        label,
        history.mode(index),
        int(posterior.batch_size[index]),
        interval(posterior.log_time, posterior.log_time_sd),
        interval(posterior.log_power, posterior.log_power_sd),
    )


def energy_wh(mode: ModeFigures, minibatches: float) -> float:
    """Module energy of so many minibatches."""
    return mwh_to_wh(mws_to_mwh(float(minibatch_energy_mws(mode.time_ms.value, mode.power_mw.value)) * minibatches))


def thinned(modes: Tuple[ModeFigures, ...], count: int) -> List[ModeFigures]:
    """At most `count` modes of a front, spread evenly over its power, both ends kept."""
    if len(modes) <= count:
        return list(modes)
    powers = np.array([mode.power_mw.value for mode in modes])
    wanted = np.linspace(powers[0], powers[-1], count)
    return [modes[place] for place in sorted({int(np.abs(powers - power).argmin()) for power in wanted})]
