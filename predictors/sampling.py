"""Which power modes to profile: samplers by name, within a number of modes or of seconds.

`random` is what the papers do. `space-filling` spreads modes evenly over the ranks of the settings. `d-optimal` and
`v-optimal` ask the physical model which modes teach it most, about its parameters and about what it is to predict; they
choose from a space-filling pool, since alone they would sit in the corners, where boards are strangest. `sequential`
does the same from what the modes profiled so far have taught.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.units import ms_to_s
from predictors.models.base import DEFAULT_BATCH_SIZE, TASKS, Inputs, Some, check_inputs, one_blas_thread
from predictors.models.tables import Table

MINIBATCHES = 40  # that one profile times (001 sec. 2.5)
SETTLING_S = 3.0  # how long power takes to settle after a change of mode: 001 sec. 2.5 says 2-3 s

_POOL = 64  # of which designs choose; at least four times what they choose
_PREDICTED = 300  # modes that stand for all to be predicted
_FIRST_SHARE = 0.5  # of the modes of a sequential design that are chosen before any was profiled
_ROUNDS = 15  # in which the rest is chosen, at most


class Profiled(NamedTuple):
    """Modes, shape (n, 4), that were profiled already, and their times and powers, (n,)."""

    modes: np.ndarray
    time_ms: np.ndarray
    power_mw: np.ndarray


class Request(NamedTuple):
    """What a sampler is asked."""

    rows: Inputs  # the candidates with the batch size and task they would be profiled at
    count: int  # how many to choose, at most as many as there are
    seed: int  # the same seed gives the same modes
    references: Tuple[Table, ...]  # tables of other workloads
    board: Optional[str]  # the device, as the corpus calls it; None where it is not known
    history: Optional[Profiled]  # what was profiled already
    cost_s: Optional[np.ndarray]  # what profiling each candidate costs, for samplers that weigh it


def choose(
    candidates: Any,
    count: Optional[int] = None,
    *,
    sampling: str = "random",
    seconds: Optional[float] = None,
    cost_s: Optional[Sequence[float]] = None,
    seed: int = 0,
    references: Sequence[Table] = (),
    board: Optional[str] = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    task: str = "training",
    history: Optional[Profiled] = None,
) -> np.ndarray:
    """The places of the modes to profile, the most wanted first, none twice and none that was profiled already.

    Args:
        candidates: power modes, shape (n, 4).
        count: how many; as many as the seconds allow where it is None.
        sampling: a name of `SAMPLERS`.
        seconds: what profiling them may take in all; modes that would exceed it are left out.
        cost_s: what profiling each candidate takes, shape (n,); estimated from `history` where it is None.
        seed: the same seed chooses the same modes.
        references: tables of other workloads, for the designs.
        board: the device, as the corpus calls it.
        batch_size: that the modes are profiled at.
        task: that the modes are profiled at.
        history: what was profiled already.
    """
    if sampling not in SAMPLERS:
        raise UnknownNameError(f"sampling {sampling!r} is unknown", f"known: {', '.join(SAMPLERS)}")
    rows = check_inputs(candidates, batch_size, task)
    known = set() if history is None else set(map(tuple, np.asarray(history.modes, dtype=float).tolist()))
    open_places = np.flatnonzero([tuple(row) not in known for row in rows.modes.tolist()])
    left = rows.take(open_places)
    if count is None and seconds is None:
        raise InvalidValueError("neither a number of modes nor of seconds to profile is given", "give one, or both")
    if count is not None and not 1 <= count <= len(open_places):
        raise InvalidValueError(f"cannot choose {count} power modes", f"there are {len(open_places)} not profiled yet")
    costs = None
    if seconds is not None:
        costs = _costs(left, cost_s, open_places, history, seed)
        affordable = int(np.searchsorted(np.cumsum(np.sort(costs)), seconds, side="right"))
        count = min(affordable, len(open_places) if count is None else count)
        if count == 0:
            return np.array([], dtype=int)
    request = Request(left, int(count), seed, tuple(references), board, history, costs)
    places = SAMPLERS[sampling](request)
    if seconds is not None:
        kept, spent = [], 0.0
        for place in places:
            if spent + costs[place] <= seconds:
                kept.append(int(place))
                spent += costs[place]
        places = np.array(kept, dtype=int)
    return open_places[places]


def choose_by_profiling(
    candidates: Any,
    count: int,
    profile: Callable[[np.ndarray], Tuple[np.ndarray, np.ndarray]],
    *,
    sampling: str = "sequential",
    **options: Any,
) -> np.ndarray:
    """Places of modes that were chosen in rounds, each from what those before it taught; for other samplers in one.

    `profile` takes places of candidates and returns their times in ms and powers in mW; the rest is as in `choose`.
    """
    if sampling != "sequential":
        return choose(candidates, count, sampling=sampling, **options)
    table = np.asarray(candidates)
    places = choose(table, max(1, round(_FIRST_SHARE * count)), sampling=sampling, **options)
    time_ms, power_mw = profile(places)
    step = max(1, (count - len(places)) // _ROUNDS)
    while len(places) < count:
        known = Profiled(table[places], time_ms, power_mw)
        more = choose(table, min(step, count - len(places)), sampling=sampling, history=known, **options)
        measured = profile(more)
        places = np.concatenate([places, more])
        time_ms, power_mw = np.concatenate([time_ms, measured[0]]), np.concatenate([power_mw, measured[1]])
    return places


def profiling_seconds(time_ms: np.ndarray) -> float:
    """What profiling modes takes, in s: for each, settling, a first minibatch that is discarded, and 40 that count.

    The sum over modes of 3 s + 41 x minibatch time. For ResNet-18 on the 4,368 modes of an Orin AGX it gives 16.6 s a
    mode on average; the 13.4 s of 001 sec. 3 (16.3 h) are those of 40 minibatches alone.

    Args:
        time_ms: minibatch times of the profiled modes, any shape.
    """
    times = np.asarray(time_ms, dtype=float)
    return float(SETTLING_S * times.size + (1 + MINIBATCHES) * ms_to_s(times.sum()))


SAMPLERS: Dict[str, Callable[[Request], np.ndarray]] = {
    "random": lambda asked: np.random.default_rng(asked.seed).permutation(len(asked.rows.modes))[: asked.count],
    "space-filling": lambda asked: _nearest_to_sobol(asked.rows.modes, asked.count, asked.seed),
    "d-optimal": lambda asked: _design(asked._replace(history=None), "d"),
    "v-optimal": lambda asked: _design(asked._replace(history=None), "v"),
    "sequential": lambda asked: _design(asked, "v"),  # as `v-optimal` while nothing was profiled
}
"""The samplers by name. Each takes a request and returns places among its rows, as many as asked for."""


def _design(request: Request, criterion: str) -> np.ndarray:
    from predictors.models.physical_gp.design import after_profiling, before_profiling, most_telling
    from predictors.models.physical_gp.predictor import PhysicalGP, priors_for
    from predictors.models.physical_gp.response import features

    rows, history = request.rows, request.history
    count = len(rows.modes)
    profiled = 0 if history is None else len(history.modes)
    seed = request.seed + profiled  # a pool of its own in each round
    pool = _nearest_to_sobol(rows.modes, min(count, max(_POOL, 4 * request.count)), seed)
    few = np.random.default_rng(seed).permutation(count)[:_PREDICTED]
    predicted, candidates = features(rows.take(few)), features(rows.take(pool))
    cost_s = None if request.cost_s is None else request.cost_s[pool]
    with one_blas_thread():
        if not profiled:
            known = before_profiling(priors_for(request.references, request.board), predicted, request.seed)
        else:
            predictor = PhysicalGP(references=request.references, board=request.board, seed=request.seed)
            known = after_profiling(_fit(predictor, rows, history).posterior_)
        return pool[most_telling(known, candidates, predicted, request.count, criterion=criterion, cost_s=cost_s)]


def _nearest_to_sobol(modes: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Places of modes nearest to a Sobol sequence, in the ranks of each setting among the different ones, 0 to 1."""
    from scipy.stats import qmc

    points = qmc.Sobol(modes.shape[1], seed=seed).random_base2(int(np.ceil(np.log2(count))))[:count]
    distinct = [np.unique(column, return_inverse=True) for column in modes.T]
    ranks = np.column_stack([(place.reshape(-1) + 0.5) / len(values) for values, place in distinct])
    taken: List[int] = []
    for point in points:
        distance = ((ranks - point) ** 2).sum(1)
        distance[taken] = np.inf
        taken.append(int(np.argmin(distance)))
    return np.array(taken, dtype=int)


def _fit(predictor: Some, rows: Inputs, history: Profiled) -> Some:
    """Fit to what was profiled, at the batch size and task of the candidates."""
    task = TASKS[int(rows.inference[0])]
    return predictor.fit(history.modes, history.time_ms, history.power_mw, batch_size=rows.batch_size[0], task=task)


def _costs(
    rows: Inputs, cost_s: Optional[Sequence[float]], places: np.ndarray, history: Optional[Profiled], seed: int
) -> np.ndarray:
    """What profiling each row takes, in s: as given, or as predicted from the history."""
    if cost_s is not None:
        costs = np.asarray(cost_s, dtype=float)[places]
        if not (np.isfinite(costs) & (costs > 0)).all():
            raise InvalidValueError("a profile would cost no positive number of seconds", "give what each mode takes")
        return costs
    if history is None or len(history.modes) == 0:
        raise InvalidValueError(
            "a budget in seconds needs to know what a profile costs", "give cost_s, or profile one mode first"
        )
    from predictors.models.physical_gp import PhysicalGP

    task = TASKS[int(rows.inference[0])]
    predictor = _fit(PhysicalGP(seed=seed), rows, history)
    time_ms = predictor.predict(rows.modes, batch_size=rows.batch_size[0], task=task).time_ms
    return np.array([profiling_seconds(one) for one in time_ms])
