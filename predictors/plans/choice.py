"""Training and inference on one device: the power mode and inference batch that train fastest within a latency limit.

The two kinds of work are interleaved minibatch by minibatch, or overlap; `harness/core/interleaving.py` has the loop
and its arithmetic. The search is a closed loop: both workloads are profiled in the modes of the most promising plan,
both predictors are updated, and so on; the result is the best plan whose modes were profiled. Until a profiled plan
keeps the limits, the most promising one is the best that is likely to keep them; after that, the one with the greatest
expected improvement on the best plan so far, over draws from both posteriors, as in `ClosedLoop`. Both kinds of work
share one mode, or each may have its own and a change costs time (000 sec. 6); in that case shared modes are searched
first, and separate modes get the remaining profiles, so that the larger choice never ends with a worse plan. A shared
mode can also be searched by binary search, as in 000 (sec. 2.1, 4.2): each probe is a mode with an inference batch
size, and profiles both kinds of work.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterable, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.interleaving import Expected, expect
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.core.units import ms_to_s
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.settings import Grid
from predictors.strategies.closed_loop import (
    DRAWS,
    INITIAL,
    UNLIKELY,
    Designer,
    from_high_to_low,
    learn,
)
from predictors.strategies.protocol import History
from predictors.strategies.search import BinarySearch, Probed

SEARCHES = (CLOSED_LOOP, HALVING, BRUTE_FORCE) = ("closed-loop", "mdbs", "brute-force")

LEAST_GAIN = 0.002  # profiling ends when no plan is expected to train faster by this share


@dataclasses.dataclass(frozen=True)
class ConcurrentGoal:
    """Train as fast as possible while serving requests."""

    arrivals_per_s: float  # requests per second
    latency_ms: float  # the greatest latency of a request
    power_mw: Optional[float] = None  # greatest mean power; None for any
    switching_ms: Optional[float] = None  # cost of a change of mode; None if both kinds of work must share one
    # measured factors on the time of a training minibatch and of an inference batch while both run at once; None if
    # they are interleaved
    slowdowns: Optional[Tuple[float, float]] = None
    percentile: int = 95  # of the requests that must keep the latency

    def __post_init__(self) -> None:
        """Refuse values that no plan can meet."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            may_be_0 = field.name == "switching_ms"
            if isinstance(value, tuple) or value is None or value > 0 or (may_be_0 and value == 0):
                continue
            expected = "a number of 0 or more" if may_be_0 else "a number above 0"
            raise InvalidValueError(f"{field.name} is {value:g}, expected {expected}")


class ConcurrentChoice(NamedTuple):
    """The candidates for training and inference, their expected figures, and the cost of the search."""

    training: int
    inference: int
    expected: Expected
    feasible: bool  # whether it is expected to keep the limits
    training_mode: PowerMode
    inference_mode: PowerMode  # the same if they share one
    inference_batch: int  # requests in a batch
    training_batch: int  # samples in a minibatch
    profiles: int  # of both kinds together
    profiling_s: float  # that they took
    failed: Tuple[Tuple[PowerMode, str], ...]  # modes that could not be profiled, with the reason, of both kinds


def choose_concurrent(
    histories: Tuple[History, History],
    goal: ConcurrentGoal,
    predictor: Callable[[], Predictor],
    first: Designer,
    search: str = SEARCHES[0],
) -> ConcurrentChoice:
    """Search a plan by profiles of training and of inference, within their common limit.

    Existing profiles of the `histories` are used, so that a plan for another goal continues from there. The best plan
    trains the most samples. `first` chooses the initial modes of each; `predictor` makes an unfitted predictor.
    `search` is one of `SEARCHES`; brute force profiles everything, regardless of the limit.
    """
    training, inference = histories
    sizes = training.profiler.candidates.batch_size
    if search not in SEARCHES:
        raise UnknownNameError(f"search {search!r} is unknown", available_hint(search, SEARCHES))
    if search == HALVING and np.ptp(sizes):
        raise InvalidValueError(
            f"{HALVING} halves modes and inference batches, but several training batches are given",
            f"give one of them, or strategy={CLOSED_LOOP!r}",
        )
    everything = sum(len(history.profiler.candidates.modes) for history in histories)
    for history in histories:
        history.limit = everything if search == BRUTE_FORCE else history.limit
    if training.limit < 2:
        hint = "allow at least one of training and one of inference"
        raise InvalidValueError(f"{training.limit} profiles are not enough", hint)
    halves = search == HALVING and everything > training.limit
    if halves:
        _halve(histories, goal)
    for history in () if halves else histories:
        begin: Sequence[int] = ()
        if everything <= training.limit:
            begin = range(len(history.profiler.candidates.modes))
        elif not history.taken:
            begin = first(history, min(INITIAL, training.limit // 2))
        for index in from_high_to_low(history, begin):
            history.profile(index)
    if not halves and everything > training.limit and goal.switching_ms is not None and _shared_modes(histories).size:
        _search(histories, dataclasses.replace(goal, switching_ms=None), predictor)
    weighed = _search(histories, goal, predictor, profiling=not halves)
    best = weighed.best(measured=halves)
    train_in, infer_in = int(weighed.training[best]), int(weighed.inference[best])
    return ConcurrentChoice(
        train_in,
        infer_in,
        Expected(*(values[best] for values in dataclasses.astuple(weighed.expected))),
        bool(weighed.excess[best] <= 0),
        training.mode(train_in),
        inference.mode(infer_in),
        int(inference.profiler.candidates.batch_size[infer_in]),
        int(sizes[train_in]),
        training.limit - training.unspent,
        sum(history.spent.seconds for history in histories),
        tuple((history.mode(index), why) for history in histories for index, why in history.failed.items()),
    )


def _search(
    histories: Tuple[History, History], goal: ConcurrentGoal, predictor: Callable[[], Predictor], profiling: bool = True
) -> _Weighed:
    """Profile the most promising plan until no gain is expected or the profiles are spent; returns all plans."""
    training, inference = histories
    while True:
        trained, served = (learn(predictor(), history, draws=DRAWS) for history in histories)
        likely = trained.over_draws(), served.over_draws()
        plans = _pairs(*likely, histories, goal)
        weighed = _weigh(*likely, *plans, goal)
        draws = (_weigh(trained.draw(place), served.draw(place), *plans, goal) for place in range(DRAWS))
        place = weighed.most_promising(draws) if profiling else None
        wanted = [] if place is None else [(training, weighed.training[place]), (inference, weighed.inference[place])]
        wanted = [(history, int(index)) for history, index in wanted if index not in history.taken]
        if not wanted or len(wanted) > training.unspent:
            return weighed
        for history, index in wanted:
            history.profile(index)  # a mode that fails is dropped from all plans


class _Weighed(NamedTuple):
    """Plans with their expected figures; all arrays of shape (n,)."""

    training: np.ndarray  # the candidate that each trains in
    inference: np.ndarray  # the candidate that each infers in
    expected: Expected  # of each
    trained_per_s: np.ndarray  # expected training throughput in samples
    trained_sd: np.ndarray  # its standard deviation
    chance: np.ndarray  # probability that the limits are kept
    excess: np.ndarray  # expected share by which the worst limit is exceeded; 0 or less if all are kept
    profiled: np.ndarray  # whether both modes were profiled

    def best(self, measured: bool = False) -> int:
        """The best profiled plan that keeps the limits; if there is none, the most promising or nearest one.

        With `measured`, only profiled plans count.
        """
        kept = self.profiled & (self.excess <= 0)
        if kept.any():
            return int(np.where(kept, self.trained_per_s, -np.inf).argmax())
        if measured:
            return int(np.where(self.profiled, self.excess, np.inf).argmin())
        likely = self.chance.max() > UNLIKELY
        return int((self.trained_per_s * self.chance).argmax() if likely else self.excess.argmin())

    def expected_rise(self, trained_per_s: float) -> np.ndarray:
        """The expected improvement on a training throughput, as a share of it (Jones et al. 1998).

        Of the throughput, not its logarithm, which is unboundedly uncertain if inference leaves next to no time.
        """
        from scipy.special import ndtr

        above = self.trained_per_s - trained_per_s
        score = above / self.trained_sd
        density = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
        return (above * ndtr(score) + self.trained_sd * density) / trained_per_s

    def most_promising(self, draws: Iterable[_Weighed]) -> Optional[int]:
        """The plan to profile next, by the same plans in each draw; None if none is worth it."""
        best = self.best()
        if not (self.profiled[best] and self.excess[best] <= 0):
            return best
        incumbent = self.trained_per_s[best]
        gains = [draw.expected_rise(incumbent) * draw.chance for draw in draws]
        mean = np.where(self.profiled, 0.0, np.mean(gains, axis=0))
        index = int(mean.argmax())
        return index if mean[index] > LEAST_GAIN else None


def _halve(histories: Sequence[History], goal: ConcurrentGoal) -> None:
    """Profile both kinds of work at each probe of a binary search over shared modes and batch sizes."""
    training, inference = histories
    place = {tuple(mode): index for index, mode in enumerate(training.profiler.candidates.modes.tolist())}
    modes, sizes = inference.profiler.candidates.modes, inference.profiler.candidates.batch_size
    partner = [place.get(tuple(mode)) for mode in modes.tolist()]
    inference.usable[[index for index, partner_index in enumerate(partner) if partner_index is None]] = False
    if not inference.usable.any():
        raise InvalidValueError("training and inference have no power mode in common")

    def may_probe(index: int) -> bool:
        wanted = (partner[index] not in training.taken) + (index not in inference.taken)
        return bool(inference.usable[index]) and wanted <= training.unspent

    def probe(index: int) -> Optional[Probed]:
        partner_index = partner[index]
        assert partner_index is not None, "a mode that training lacks is not usable"
        trained = training.profile(partner_index)
        served = None if trained is None else inference.profile(index)
        if trained is None or served is None:
            inference.usable[index] = False
            return None
        train_ms, train_mw = np.array([trained.time_ms, trained.power_mw])
        infer_ms, infer_mw = np.array([served.time_ms, served.power_mw])
        expected = expect(
            train_ms, train_mw, infer_ms, infer_mw, sizes[index], goal.arrivals_per_s, slowdowns=goal.slowdowns
        )
        # Of each limit: the used share, the directions of clocks and batch size that lower it, and by clocks alone.
        used = [
            (float(expected.latency_ms / goal.latency_ms), ("up", "down"), False),
            (float(expected.load), ("up", "up"), False),
        ]
        if goal.power_mw is not None:
            used.append((float(expected.power_mw / goal.power_mw), ("down", "down"), True))
        worst = max(used, key=lambda limit: limit[0])
        directions = worst[1:] if worst[0] > 1 else (("up", "up"), False)
        return Probed(-float(expected.training_per_s), worst[0] - 1, *directions)

    BinarySearch().search(Grid(inference.profiler.candidates, inference.usable), may_probe, probe)


def _weigh(
    training: Forecast,
    inference: Forecast,
    first: np.ndarray,
    second: np.ndarray,
    changes_mode: np.ndarray,
    goal: ConcurrentGoal,
) -> _Weighed:
    """Plans of a candidate for training and one for inference each, with their expected figures.

    A switch costs time only in plans that change the mode.
    """
    from scipy.special import ndtr

    train_ms, infer_ms = np.exp(training.log_time[first]), np.exp(inference.log_time[second])
    expected = expect(
        train_ms,
        np.exp(training.log_power[first]),
        infer_ms,
        np.exp(inference.log_power[second]),
        inference.batch_size[second],
        goal.arrivals_per_s,
        np.where(changes_mode, goal.switching_ms or 0.0, 0.0),
        goal.slowdowns,
    )
    train_sd, infer_sd = training.log_time_sd[first], inference.log_time_sd[second]
    takes_turns = goal.slowdowns is None
    trained_per_s = expected.training_per_s * training.batch_size[first]
    # Training gets the share of time that inference leaves, 1 - load.
    displaced_per_s = takes_turns * expected.load * training.batch_size[first] / ms_to_s(train_ms)
    # The errors of both kinds of work are assumed independent and normal.
    slowed_ms = infer_ms if goal.slowdowns is None else infer_ms * goal.slowdowns[1]
    latency_sd = np.hypot(takes_turns * train_ms * train_sd, slowed_ms * infer_sd)
    chance = ndtr((goal.latency_ms - expected.latency_ms) / latency_sd) * (expected.load < 1)
    worst = np.maximum(expected.latency_ms / goal.latency_ms, expected.load)
    if goal.power_mw is not None:
        power_sd = expected.power_mw * np.maximum(training.log_power_sd[first], inference.log_power_sd[second])
        chance = np.minimum(chance, ndtr((goal.power_mw - expected.power_mw) / power_sd))
        worst = np.maximum(worst, expected.power_mw / goal.power_mw)
    return _Weighed(
        first,
        second,
        expected,
        trained_per_s,
        np.hypot(trained_per_s * train_sd, displaced_per_s * infer_sd),
        chance,
        np.round(worst - 1, 12),  # exp(log(limit)) is above the limit by a rounding, and keeps it
        training.measured[first] & inference.measured[second],
    )


def _pairs(
    training: Forecast, inference: Forecast, histories: Sequence[History], goal: ConcurrentGoal
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plans to weigh: candidates of training, of inference, and whether the two modes differ; all of shape (n,).

    With separate modes, one that takes longer and draws more than another at the same batch size is dropped, unless it
    was profiled.
    """
    if goal.switching_ms is None:
        shared = _shared_modes(histories)
        if not shared.size:
            raise InvalidValueError("training and inference have no power mode in common")
        return shared[0], shared[1], np.zeros(shared.shape[1], dtype=bool)
    first, second = (
        np.concatenate(
            [
                _front(posterior, np.flatnonzero(history.usable & (posterior.batch_size == size)))
                for size in np.unique(posterior.batch_size[history.usable])
            ]
        )
        for posterior, history in zip((training, inference), histories)
    )
    first, second = (places.ravel() for places in np.meshgrid(first, second, indexing="ij"))
    modes = [history.profiler.candidates.modes[places] for history, places in zip(histories, (first, second))]
    return first, second, (modes[0] != modes[1]).any(axis=1)


def _shared_modes(histories: Sequence[History]) -> np.ndarray:
    """Usable candidates of training and of inference with the same power mode, shape (2, n)."""
    import pandas as pd

    first, second = (
        pd.DataFrame(history.profiler.candidates.modes[history.usable]).assign(place=np.flatnonzero(history.usable))
        for history in histories
    )
    shared = second.merge(first, on=list(range(4)), suffixes=("_inference", "_training"))
    return shared[["place_training", "place_inference"]].to_numpy(dtype=int).T


def _front(posterior: Forecast, places: np.ndarray) -> np.ndarray:
    """The Pareto front of some candidates in time and power, and all profiled ones of them."""
    front = places[pareto_front(np.exp(posterior.log_time[places]), np.exp(posterior.log_power[places]))]
    return np.union1d(front, places[posterior.measured[places]])
