"""Training and inference on one device: which power mode and inference batch train fastest and keep the promise.

The two kinds of work are interleaved minibatch by minibatch; `harness/interleaving.py` has the loop and its arithmetic.
A plan is found in a closed loop: both workloads are profiled where the plan looks best, both predictors learn, and the
plan is made again, until what looks best is what was profiled. Either both kinds of work share one mode, or each has
its own and a change costs time (000 sec. 6).
"""

from __future__ import annotations

import dataclasses
from typing import Callable, NamedTuple, Optional, Tuple

import numpy as np

from harness.errors import InvalidValueError
from harness.interleaving import Expected, expect
from harness.power_modes import PowerMode
from predictors.pareto import time_power_front
from predictors.protocol import Predictor
from predictors.strategies.closed_loop import UNLIKELY, Designer, from_high_to_low
from predictors.strategies.posterior import Posterior, learn
from predictors.strategies.protocol import History, Profiler


@dataclasses.dataclass(frozen=True)
class ConcurrentGoal:
    """Train as fast as possible while requests are served.

    Attributes:
        arrivals_per_s: requests per second.
        latency_ms: the longest that a request may take.
        power_mw: greatest mean power; None for any.
        switching_ms: what a change between the two modes costs; None where both kinds of work share one mode.
    """

    arrivals_per_s: float
    latency_ms: float
    power_mw: Optional[float] = None
    switching_ms: Optional[float] = None

    def __post_init__(self) -> None:
        """Refuse what nothing can meet."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise InvalidValueError(f"{field.name} is {value:g}, expected a number above 0")


class Plan(NamedTuple):
    """What to run, and what it is expected to give.

    Attributes:
        training: place of the mode that training runs in, among its candidates.
        inference: place of mode and batch size that inference runs in, among its candidates.
        expected: of this plan; arrays of shape ().
        feasible: whether the limits are expected to be kept.
    """

    training: int
    inference: int
    expected: Expected
    feasible: bool


@dataclasses.dataclass(frozen=True)
class ConcurrentChoice:
    """A plan in words that a device understands.

    Attributes:
        plan: by places.
        training_mode: what training runs in.
        inference_mode: what inference runs in; the same where they share one.
        inference_batch: requests in a batch.
        profiles: how many profiles it took, of both kinds together.
        seconds: how long those took.
        settled: whether the plan rests on profiles of its own modes.
        failed: the modes that could not be profiled, and why, of both kinds.
    """

    plan: Plan
    training_mode: PowerMode
    inference_mode: PowerMode
    inference_batch: int
    profiles: int
    seconds: float
    settled: bool
    failed: Tuple[Tuple[PowerMode, str], ...] = ()


class _Pairs(NamedTuple):
    """Plans to weigh: places of training candidates, and of inference candidates, of the same shape (n,)."""

    training: np.ndarray
    inference: np.ndarray


def choose_concurrent(
    training: Profiler,
    inference: Profiler,
    goal: ConcurrentGoal,
    predictor: Callable[[], Predictor],
    first: Designer,
    profiles: int = 30,
    initial: int = 3,
    report: Callable[[str], None] = lambda line: None,
) -> ConcurrentChoice:
    """Find a plan.

    Args:
        training: the workload that is trained, on every mode.
        inference: the workload that answers, on every mode and batch size.
        goal: what to reach.
        predictor: makes a predictor that has learned nothing.
        first: chooses the modes to begin with, as in `predictors.strategies.closed_loop`.
        profiles: at most so many, of both kinds together; where they suffice for all there is, all is profiled.
        initial: profiles of each kind to begin with.
        report: takes a line for each profile.

    Raises:
        InvalidValueError: `profiles` does not suffice to begin.
    """
    if profiles < 2:
        raise InvalidValueError(f"{profiles} profiles do not suffice", "allow one of training and one of inference")
    histories = (History(training, profiles, report), History(inference, profiles, report))
    everything = sum(len(history.profiler.candidates.modes) for history in histories)
    for history in histories:
        begin = range(history.limit) if everything <= profiles else first(history, min(initial, profiles // 2))
        for index in from_high_to_low(history, begin):
            history.profile(index)
    while True:
        posteriors = [learn(predictor(), history) for history in histories]
        found = best_plan(posteriors[0], posteriors[1], histories, goal)
        wanted = [
            (history, place)
            for history, place in zip(histories, (found.training, found.inference))
            if place not in history.taken
        ]
        spent = sum(history.spent.profiles for history in histories)
        if not wanted or spent + len(wanted) > profiles:
            break
        for history, place in wanted:
            history.profile(place)  # a mode that fails is in no plan any more
    return ConcurrentChoice(
        found,
        histories[0].mode(found.training),
        histories[1].mode(found.inference),
        int(inference.candidates.batch_size[found.inference]),
        spent,
        sum(history.spent.seconds for history in histories),
        settled=not wanted,
        failed=tuple((history.mode(index), why) for history in histories for index, why in history.failed.items()),
    )


def best_plan(training: Posterior, inference: Posterior, histories: tuple, goal: ConcurrentGoal) -> Plan:
    """The plan with the greatest training throughput, weighed by how likely it keeps the limits."""
    pairs = _pairs(training, inference, histories, goal)
    expected = _expected(training, inference, pairs, goal)
    chance = _chance(training, inference, pairs, goal, expected)
    score = expected.training_per_s * chance
    # Where nothing is likely to keep the limits it is what comes nearest.
    best = int(score.argmax() if chance.max() > UNLIKELY else _excess(expected, goal).argmin())
    one = Expected(*(np.asarray(values[best]) for values in dataclasses.astuple(expected)))
    feasible = bool(_excess(one, goal) <= 0)
    return Plan(int(pairs.training[best]), int(pairs.inference[best]), one, feasible)


def _pairs(training: Posterior, inference: Posterior, histories: tuple, goal: ConcurrentGoal) -> _Pairs:
    modes, others = (history.profiler.candidates.modes for history in histories)
    usable = [history.usable for history in histories]
    if goal.switching_ms is None:
        place = {tuple(mode): index for index, mode in enumerate(modes.tolist()) if usable[0][index]}
        shared = [
            (place[tuple(mode)], index)
            for index, mode in enumerate(others.tolist())
            if tuple(mode) in place and usable[1][index]
        ]
        if not shared:
            raise InvalidValueError("training and inference have no power mode in common")
        return _Pairs(*(np.array(column) for column in zip(*shared)))
    # A mode that another beats in time and in power is part of no best plan.
    first = _front(training, np.flatnonzero(usable[0]))
    second = np.concatenate(
        [
            _front(inference, np.flatnonzero(usable[1] & (inference.batch_size == size)))
            for size in np.unique(inference.batch_size[usable[1]])
        ]
    )
    crossed = np.meshgrid(first, second, indexing="ij")
    return _Pairs(crossed[0].ravel(), crossed[1].ravel())


def _front(posterior: Posterior, places: np.ndarray) -> np.ndarray:
    """Those of some places that no other of them beats in time and in power."""
    return places[time_power_front(np.exp(posterior.log_time[places]), np.exp(posterior.log_power[places]))]


def _expected(training: Posterior, inference: Posterior, pairs: _Pairs, goal: ConcurrentGoal) -> Expected:
    return expect(
        np.exp(training.log_time[pairs.training]),
        np.exp(training.log_power[pairs.training]),
        np.exp(inference.log_time[pairs.inference]),
        np.exp(inference.log_power[pairs.inference]),
        inference.batch_size[pairs.inference],
        goal.arrivals_per_s,
        goal.switching_ms or 0.0,
    )


def _chance(
    training: Posterior, inference: Posterior, pairs: _Pairs, goal: ConcurrentGoal, expected: Expected
) -> np.ndarray:
    """How likely latency and power are kept, errors of both kinds of work taken as independent normal ones."""
    from scipy.special import ndtr

    train_ms, infer_ms = np.exp(training.log_time[pairs.training]), np.exp(inference.log_time[pairs.inference])
    latency_sd = np.hypot(
        train_ms * training.log_time_sd[pairs.training], infer_ms * inference.log_time_sd[pairs.inference]
    )
    chance = ndtr((goal.latency_ms - expected.latency_ms) / latency_sd) * (expected.load < 1)
    if goal.power_mw is not None:
        power_sd = expected.power_mw * np.maximum(
            training.log_power_sd[pairs.training], inference.log_power_sd[pairs.inference]
        )
        chance = np.minimum(chance, ndtr((goal.power_mw - expected.power_mw) / power_sd))
    return chance


def _excess(expected: Expected, goal: ConcurrentGoal) -> np.ndarray:
    """By which share the worst limit is broken; 0 and below where all are kept."""
    worst = np.maximum(expected.latency_ms / goal.latency_ms, expected.load)
    if goal.power_mw is not None:
        worst = np.maximum(worst, expected.power_mw / goal.power_mw)
    return worst - 1
