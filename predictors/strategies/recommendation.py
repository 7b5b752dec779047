"""A recommendation: a choice with its figures, alternatives and savings."""

from __future__ import annotations

import dataclasses
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.metrics import minibatch_energy_mws
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode, name_under_limit
from harness.core.units import S_PER_HOUR, ms_to_s, mwh_to_wh, mws_to_mwh, s_to_ms
from predictors.forecast import LEVEL, Forecast
from predictors.goals import Goal, standardised
from predictors.models.base import Predictor
from predictors.settings import DEFAULT_BATCH_SIZE, Grid, Settings
from predictors.strategies.closed_loop import learn
from predictors.strategies.fixed import Maxn, Presets, VendorPreset
from predictors.strategies.protocol import Choice, History, Strategy


class FigureInterval(NamedTuple):
    """A figure with the interval that contains it with probability `LEVEL`; predicted unless it was profiled."""

    value: float
    low: float
    high: float
    profiled: bool


class ModeFigures(NamedTuple):
    """A mode with its minibatch time and power, and a `label` for its role."""

    label: str
    power_mode: PowerMode
    batch_size: int
    time_ms: FigureInterval
    power_mw: FigureInterval
    power_limit_mw: Optional[int] = None  # of a discrete GPU

    @property
    def name(self) -> str:
        """The mode as text, with its power limit."""
        return name_under_limit(self.power_mode, self.power_limit_mw)


class Saving(NamedTuple):
    """The savings of the choice over another mode during a whole training; below 0 it costs more.

    `keeps_limits`: whether the other mode is expected to keep the goal's limits.
    """

    other: ModeFigures
    hours: float
    energy_wh: float
    keeps_limits: bool


class Recommendation(NamedTuple):
    """A recommended mode, and the reasons for it."""

    goal: Goal
    choice: Choice
    mode: ModeFigures  # the chosen mode with its figures
    savings: Tuple[Saving, ...]  # over the greatest mode and over the best preset that claims to keep the limit
    posterior: Forecast  # of all candidates
    history: History  # the profiles
    samples: Optional[float]  # of the training that savings refer to; None: those of an hour in the chosen mode
    unprofiled: bool = False  # whether modes outside the profiled range may be chosen
    outlying: bool = False  # whether the profile of the chosen mode contradicts all others

    @property
    def pickable(self) -> np.ndarray:
        """The candidates that may be chosen, bool of shape (n,)."""
        return _pickable(self.history, self.posterior, self.unprofiled)

    @property
    def front(self) -> List[ModeFigures]:
        """The Pareto front of power and the time of a sample among the pickable candidates, by rising power."""
        per_sample = np.exp(self.posterior.log_time) / self.posterior.batch_size
        places = pareto_front(per_sample, np.where(self.pickable, np.exp(self.posterior.log_power), np.nan))
        return describe_all(self.posterior, self.history, places.tolist())

    @property
    def several_sizes(self) -> bool:
        """Whether there were several batch sizes, so that times compare per sample."""
        return bool(np.ptp(self.posterior.batch_size) > 0)


def _pickable(history: History, posterior: Forecast, unprofiled: bool) -> np.ndarray:
    """Candidates that can be set, and unless `unprofiled` lie within the profiled range or were measured."""
    return history.usable if unprofiled else history.usable & posterior.admitted


def choose_and_describe(
    history: History,
    goals: Sequence[Goal],
    strategy: Strategy,
    predictor: Predictor,
    presets: Tuple[VendorPreset, ...] = (),
    samples: Optional[float] = None,
    unprofiled: bool = False,
) -> List[Recommendation]:
    """Choose for each goal by a strategy, with one set of profiles, and describe the choices.

    `predictor` is fitted anew to all profiles, to predict the candidates that were not measured. If the strategy took
    no profiles, its choices are profiled. `samples` are those of the whole training, for the savings; None means those
    of an hour in the chosen mode. The front excludes modes outside the profiled range, unless `unprofiled`.
    """
    choices = strategy.choose_all(history, goals)
    if not history.taken:
        choices = [_profiled(history, goal, choice) for goal, choice in zip(goals, choices)]
    posterior = learn(predictor, history)
    spent = history.spent  # of all goals together
    recommendations = []
    for goal, choice in zip(goals, choices):
        choice = dataclasses.replace(choice, spent=spent)
        recommendations.append(_described(posterior, history, goal, choice, presets, samples, unprofiled))
    chosen = {choice.index for choice in choices}  # several goals may choose one mode
    outlying = {index for index in chosen if _is_outlying(predictor, history, index)}
    return [each._replace(outlying=each.choice.index in outlying) for each in recommendations]


CONTRADICTION = 1e-3  # the probability under which a profile contradicts the prediction from all others
LEAST_OTHERS = 5  # profiles from which one is predicted


def _is_outlying(predictor: Predictor, history: History, index: int) -> bool:
    """Whether time or power of a profiled candidate is far from what the other profiles predict for it."""
    places = np.asarray(history.places)
    others = np.flatnonzero(places != index)
    if index not in history.taken or len(others) < LEAST_OTHERS or not np.isfinite(history.power_mw).all():
        return False
    predictor.fit(history.profiles.take(others).applied())
    predicted = predictor.predict(history.profiler.candidates.take([index]))
    measured = history.taken[index]
    distances = [
        (np.log(measured.time_ms) - predicted.log_time[0]) / predicted.log_time_sd[0],
        (np.log(measured.power_mw) - predicted.log_power[0]) / predicted.log_power_sd[0],
    ]
    return bool(2 * standardised(predicted.freedom).sf(np.max(np.abs(distances))) < CONTRADICTION)


def _profiled(history: History, goal: Goal, choice: Choice) -> Choice:
    """A choice made without profiles, after profiling its mode."""
    if history.left <= 0 and choice.index not in history.taken:
        raise InvalidValueError("a recommendation needs profiles", "allow some with profiles=")
    if history.profile(choice.index) is None:
        raise CannotRunError(f"{choice.reason} cannot be profiled: {history.failed[choice.index]}")
    return history.choice(choice.index, choice.reason, history.figures(choice.index, goal)[1] <= 0)


def _described(
    posterior: Forecast,
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
        preset = Presets(presets).choose(history, goal)
        others.setdefault(preset.index, preset.reason)
    usual = history.usable & (posterior.batch_size == DEFAULT_BATCH_SIZE) & (posterior.excess(goal) <= 0)
    if choice.batch_size != DEFAULT_BATCH_SIZE and usual.any():
        usual_best = int(np.where(usual, posterior.objective(goal), np.inf).argmin())
        others.setdefault(usual_best, f"the best at batch size {DEFAULT_BATCH_SIZE}")
    savings = []
    for index, label in others.items():
        if index != choice.index:
            other = describe(posterior, history, index, label)
            as_many = total * chosen.batch_size / other.batch_size  # minibatches for as many samples
            hours = ms_to_s(other.time_ms.value * as_many - chosen.time_ms.value * total) / S_PER_HOUR
            saved_wh = energy_wh(other, as_many) - energy_wh(chosen, total)
            savings.append(Saving(other, hours, saved_wh, bool(posterior.excess(goal)[index] <= 0)))
    return Recommendation(goal, choice, chosen, tuple(savings), posterior, history, samples, unprofiled)


class SharedMode(NamedTuple):
    """One mode for several workloads of a board."""

    modes: Tuple[ModeFigures, ...]  # its figures for each workload
    longer: float  # mean increase of the objective over a choice for each workload, as a share


def shared_mode(recommendations: Sequence[Recommendation], risk: float) -> Optional[SharedMode]:
    """The mode that serves all workloads best, of the candidates that all have; None if none is feasible.

    A profiled mode must keep all limits; any other may break one with at most the probability `risk`.
    """
    shared = _shared_candidates([each.history.profiler.candidates for each in recommendations])
    allowed, longer = np.ones(len(shared[0]), dtype=bool), np.zeros(len(shared[0]))
    for recommendation, places in zip(recommendations, shared):
        posterior, goal = recommendation.posterior, recommendation.goal
        kept = posterior.keeps(goal, risk) & _pickable(recommendation.history, posterior, unprofiled=False)
        objective = posterior.objective(goal)
        allowed &= kept[places]
        longer += (objective[places] / objective[recommendation.choice.index] - 1) / len(recommendations)
    if not allowed.any():
        return None
    best = int(np.where(allowed, longer, np.inf).argmin())
    modes = [
        describe(each.posterior, each.history, int(places[best]), "shared")
        for each, places in zip(recommendations, shared)
    ]
    return SharedMode(tuple(modes), float(longer[best]))


def _shared_candidates(candidates: Sequence[Settings]) -> List[np.ndarray]:
    """Indices of the candidates that all of these have, in the order of the first: an array for each."""
    places = [{setting: place for place, setting in enumerate(map(tuple, one.table.tolist()))} for one in candidates]
    shared = [setting for setting in places[0] if all(setting in other for other in places)]
    return [np.array([own[setting] for setting in shared], dtype=int) for own in places]


def describe(posterior: Forecast, history: History, index: int, label: str) -> ModeFigures:
    """The figures of a candidate, from its posterior."""
    [mode] = describe_all(posterior, history, [index], label)
    return mode


def describe_all(posterior: Forecast, history: History, places: Sequence[int], label: str = "") -> List[ModeFigures]:
    """The figures of some candidates, given by their indices."""
    reach = posterior.reach((1 - LEVEL) / 2)

    def interval(log_median: np.ndarray, log_sd: np.ndarray, index: int) -> FigureInterval:
        factor = float(np.exp(reach[index] * log_sd[index]))
        value = float(np.exp(log_median[index]))
        return FigureInterval(value, value / factor, value * factor, bool(posterior.measured[index]))

    return [
        ModeFigures(
            label,
            history.mode(index),
            int(posterior.batch_size[index]),
            interval(posterior.log_time, posterior.log_time_sd, index),
            interval(posterior.log_power, posterior.log_power_sd, index),
            history.profiler.candidates.limit_mw(index),
        )
        for index in places
    ]


def energy_wh(mode: ModeFigures, minibatches: float) -> float:
    """Module energy of a number of minibatches."""
    return mwh_to_wh(mws_to_mwh(float(minibatch_energy_mws(mode.time_ms.value, mode.power_mw.value)) * minibatches))


def thinned(modes: Sequence[ModeFigures], count: int) -> List[ModeFigures]:
    """At most `count` modes of a front, spread evenly over its power, both ends kept."""
    if len(modes) <= count:
        return list(modes)
    powers = np.array([mode.power_mw.value for mode in modes])
    wanted = np.linspace(powers[0], powers[-1], count)
    return [modes[place] for place in sorted({int(np.abs(powers - power).argmin()) for power in wanted})]
