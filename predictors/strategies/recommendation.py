"""A recommendation: a choice with everything that a person wants to know of it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.metrics import minibatch_energy_mws
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import S_PER_HOUR, ms_to_s, mwh_to_wh, mws_to_mwh, s_to_ms
from predictors.models.base import DEFAULT_BATCH_SIZE, Predictor
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
    samples: Optional[float]  # that the savings are over; None for those of an hour's training in the chosen mode
    unprofiled: bool = False  # whether the front holds what no profile tells of

    @property
    def several_sizes(self) -> bool:
        """Whether the batch size was free, so that times compare by the sample."""
        return len(set(self.posterior.batch_size.tolist())) > 1


def recommend(
    history: History,
    goals: Sequence[Goal],
    strategy: Strategy,
    predictor: Predictor,
    presets: Tuple[VendorPreset, ...] = (),
    samples: Optional[float] = None,
    unprofiled: bool = False,
) -> List[Recommendation]:
    """Choose for each goal by a strategy, with one set of profiles, and collect what there is to say of the choices.

    `predictor` is fitted anew to all profiles, for what was not measured. Where the strategy took none, the modes that
    it chose are profiled. `samples` are those of the whole training, for the savings; None counts them over an hour's
    training in the chosen mode. What no profile tells of is not on the front, unless `unprofiled`.
    """
    choices = strategy.choose_all(history, goals)
    if not history.taken:
        choices = [_profiled(history, goal, choice) for goal, choice in zip(goals, choices)]
    posterior = learn(predictor, history)
    spent = history.spent  # of all goals together
    return [
        _recommend(posterior, history, goal, choice._replace(spent=spent), presets, samples, unprofiled)
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
    samples: Optional[float],
    unprofiled: bool,
) -> Recommendation:
    chosen = describe(posterior, history, choice.index, "recommended")
    total = s_to_ms(S_PER_HOUR) / chosen.time_ms.value if samples is None else samples / chosen.batch_size
    greatest = Maxn().choose(history, goal).index
    is_maxn = greatest == Grid(history.profiler.candidates).greatest()
    others = {greatest: "MAXN" if is_maxn else "the greatest mode that did not fail"}
    if presets:
        best = Presets(presets).choose(history, goal)
        others.setdefault(best.index, best.reason)
    usual = history.usable & (posterior.batch_size == DEFAULT_BATCH_SIZE) & (posterior.excess(goal) <= 0)
    if choice.batch_size != DEFAULT_BATCH_SIZE and usual.any():
        best = int(np.where(usual, posterior.objective(goal), np.inf).argmin())
        others.setdefault(best, f"the best at batch size {DEFAULT_BATCH_SIZE}")
    savings = []
    for index, label in others.items():
        if index != choice.index:
            other = describe(posterior, history, index, label)
            as_many = total * chosen.batch_size / other.batch_size  # minibatches for as many samples
            hours = ms_to_s(other.time_ms.value * as_many - chosen.time_ms.value * total) / S_PER_HOUR
            saved_wh = energy_wh(other, as_many) - energy_wh(chosen, total)
            savings.append(Saving(other, hours, saved_wh, bool(posterior.excess(goal)[index] <= 0)))
    shown = history.usable if unprofiled else history.usable & (posterior.admitted | posterior.measured)
    per_sample = np.exp(posterior.log_time) / posterior.batch_size
    places = pareto_front(per_sample, np.where(shown, np.exp(posterior.log_power), np.nan))
    front = tuple(describe(posterior, history, int(place), "") for place in places)
    return Recommendation(goal, choice, chosen, front, tuple(savings), posterior, history, samples, unprofiled)


class SharedMode(NamedTuple):
    """One mode for several workloads of a board."""

    modes: Tuple[ModeFigures, ...]  # its figures with each workload
    longer: float  # how much greater the objective is than with a choice for each, as a share, on average


def shared_mode(found: Sequence[Recommendation], risk: float) -> Optional[SharedMode]:
    """The one mode that serves all workloads best, each recommended for on the same candidates; None where none does.

    What was profiled keeps each limit; anything else breaks it with at most the probability `risk`.
    """
    allowed, longer = np.ones(len(found[0].posterior.measured), dtype=bool), 0.0
    for one in found:
        posterior, goal = one.posterior, one.goal
        kept = np.where(posterior.measured, posterior.excess(goal) <= 0, posterior.risk(goal) <= risk)
        allowed &= one.history.usable & (posterior.admitted | posterior.measured) & kept
        objective = posterior.objective(goal)
        longer = longer + (objective / objective[one.choice.index] - 1) / len(found)
    if not allowed.any():
        return None
    best = int(np.where(allowed, longer, np.inf).argmin())
    modes = tuple(describe(one.posterior, one.history, best, "shared") for one in found)
    return SharedMode(modes, float(longer[best]))


def describe(posterior: CandidatePosterior, history: History, index: int, label: str) -> ModeFigures:
    """A candidate with its posterior."""
    reach = posterior.reach((1 - LEVEL) / 2)[index]

    def interval(log_median: np.ndarray, log_sd: np.ndarray) -> FigureInterval:
        factor = float(np.exp(reach * log_sd[index]))
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
