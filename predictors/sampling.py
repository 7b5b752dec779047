"""Samplers by name: the choice of power modes to profile.

`random` is the papers' sampler. `space-filling` spreads modes evenly over the ranks of the settings, and of batch sizes
if there are several; `greatest-first` does so after the mode with the greatest settings, which helps with one to three
modes. `sequential`, for one batch size, chooses the modes that inform the physical model most about its predictions,
given those profiled so far; it chooses from a space-filling pool, because alone it would prefer corners, where boards
behave least regularly.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from harness.core.units import ms_to_s
from predictors.models.base import one_blas_thread
from predictors.profiles import Profiles
from predictors.settings import ModesLike, Settings

SAMPLERS = ("random", "space-filling", "greatest-first", "sequential")

MINIBATCHES = 40  # that one profile times (001 sec. 2.5)
SETTLING_S = 3.0  # time until power settles after a change of mode: 2-3 s in 001 sec. 2.5

_POOL = 64  # size of the pool of a design; at least four times the number of chosen modes
_PREDICTED = 300  # modes that represent all modes to predict
_FIRST_SHARE = 0.5  # share of the modes of a sequential design that is chosen before the first profile
_ROUNDS = 15  # the most rounds for the rest


def check_sampling(sampling: str) -> None:
    """Refuse the name of no sampler."""
    if sampling not in SAMPLERS:
        raise UnknownNameError(f"sampling {sampling!r} is unknown", available_hint(str(sampling), SAMPLERS))


def choose(
    candidates: ModesLike,
    count: int,
    *,
    sampling: str = "random",
    seed: int = 0,
    references: Sequence[Profiles] = (),
    board: Optional[str] = None,
    history: Optional[Profiles] = None,
) -> np.ndarray:
    """The indices of the modes to profile, the most useful first, distinct and not profiled before.

    Candidates are settings, or modes of shape (n, 4); `sampling` is a name of `SAMPLERS`, and the same seed chooses
    the same modes.
    `sequential` uses `references`, tables of other workloads, and the name of the `board`, None if it is unknown.
    """
    check_sampling(sampling)
    rows = Settings.of(candidates)
    profiled_modes = set() if history is None else set(map(tuple, history.modes.tolist()))
    places = np.flatnonzero([tuple(row) not in profiled_modes for row in rows.modes.tolist()])
    if not 1 <= count <= len(places):
        raise InvalidValueError(f"cannot choose {count} power modes", f"{len(places)} are not profiled yet")
    rows = rows.take(places)
    if sampling == "random":
        return places[np.random.default_rng(seed).permutation(len(places))[:count]]
    if sampling == "space-filling":
        return places[_nearest_to_sobol(rows, count, seed)]
    if sampling == "greatest-first":
        # of several batch sizes the middle one, which is closest to the others
        off_middle = np.abs(np.log(rows.batch_size / np.median(np.unique(rows.batch_size))))
        speed = np.log(rows.modes).sum(1)
        if rows.power_limit_mw is not None:
            speed = speed + np.log(rows.power_limit_mw)
        greatest = int(np.lexsort((off_middle, -speed))[0])
        others = np.delete(np.arange(len(places)), greatest)
        rest = _nearest_to_sobol(rows.take(others), count - 1, seed) if count > 1 else np.empty(0, dtype=np.int64)
        return places[[greatest, *others[rest]]]

    from predictors.models.physical_gp import PhysicalGP
    from predictors.models.physical_gp.design import after_profiling, before_profiling, most_informative
    from predictors.models.physical_gp.posterior import ParameterPosterior
    from predictors.models.physical_gp.prior import priors_for
    from predictors.models.physical_gp.response import features

    profiled = history if profiled_modes else None
    draw = seed + (len(profiled) if profiled else 0)  # another pool in each round
    pool = _nearest_to_sobol(rows, min(len(places), max(_POOL, 4 * count)), draw)
    predicted = features(rows.take(np.random.default_rng(draw).permutation(len(places))[:_PREDICTED]))
    with one_blas_thread():
        if profiled is None:
            taught = before_profiling(priors_for(references, board), predicted, seed)
        else:
            predictor = PhysicalGP(references=tuple(references), board=board, seed=seed)
            # The physical form of boards, which has no power limit.
            posterior = predictor.fit(dataclasses.replace(profiled, power_limit_mw=None)).posterior_
            assert isinstance(posterior, ParameterPosterior), "it is fitted without power limits"
            taught = after_profiling(posterior)
        return places[pool[most_informative(taught, features(rows.take(pool)), predicted, count)]]


def _nearest_to_sobol(rows: Settings, count: int, seed: int) -> np.ndarray:
    """Indices of the rows nearest to a Sobol sequence, by the ranks of each setting's distinct values, from 0 to 1."""
    from scipy.stats import qmc

    columns = [*rows.modes.T, *([rows.batch_size] if np.ptp(rows.batch_size) else [])]
    columns += [] if rows.power_limit_mw is None else [rows.power_limit_mw]
    points = qmc.Sobol(len(columns), seed=seed).random_base2(int(np.ceil(np.log2(count))))[:count]
    distinct = [np.unique(column, return_inverse=True) for column in columns]
    ranks = np.column_stack([(place.reshape(-1) + 0.5) / len(values) for values, place in distinct])
    taken: List[int] = []
    for point in points:
        distance = ((ranks - point) ** 2).sum(1)
        distance[taken] = np.inf
        taken.append(int(np.argmin(distance)))
    return np.array(taken, dtype=int)


def choose_by_profiling(
    candidates: ModesLike,
    count: int,
    profile: Callable[[np.ndarray], Tuple[np.ndarray, np.ndarray]],
    *,
    sampling: str = "sequential",
    **options: Any,
) -> np.ndarray:
    """Indices of modes chosen in rounds, each from the profiles of those before; in one round for other samplers.

    `profile` takes indices of candidates and returns their times in ms and powers in mW; the rest is as in `choose`.
    """
    if sampling != "sequential":
        return choose(candidates, count, sampling=sampling, **options)
    settings, places, figures = Settings.of(candidates), np.array([], dtype=int), np.empty((2, 0))
    wanted = max(1, round(_FIRST_SHARE * count))
    step = max(1, (count - wanted) // _ROUNDS)
    while len(places) < count:
        history = Profiles.at(settings.take(places), *figures) if len(places) else None
        more = choose(settings, min(wanted, count - len(places)), sampling=sampling, history=history, **options)
        places, figures = np.concatenate([places, more]), np.column_stack([figures, profile(more)])
        wanted = step
    return places


def rows_to_fit(
    table: Profiles, count: int, sampling: str, seed: int, references: Sequence[Profiles] = (), repeat: int = 0
) -> np.ndarray:
    """The rows of a table to fit on, as ascending indices: a function of the arguments, so equal for all predictors.

    Raises:
        InvalidValueError: the table has fewer rows, or batch sizes that the sampler is not defined for.
    """
    if count == 0:
        return np.array([], dtype=int)
    if not 1 <= count <= len(table):
        raise InvalidValueError(
            f"cannot fit on {count} modes of {table.workload}",
            f"the corpus has {len(table)} with time and power: give fewer modes",
        )
    sizes = np.unique(table.batch_size)
    if sampling == "sequential" and len(sizes) > 1:
        raise InvalidValueError(
            f"sequential sampling of {table.workload} at {len(sizes)} batch sizes is not defined",
            "choose another sampling",
        )
    key = zlib.crc32("/".join((table.device, table.workload, table.task)).encode())
    places = choose_by_profiling(
        table,
        count,
        lambda chosen: (table.time_ms[chosen], table.power_mw[chosen]),
        sampling=sampling,
        seed=int(np.random.SeedSequence([seed, repeat, key, count]).generate_state(1)[0]),
        references=references,
        board=table.device,
    )
    return np.sort(places)


def profiling_seconds(time_ms: np.ndarray) -> float:
    """The time of profiling modes, in s: for each, settling, a discarded first minibatch, and 40 that count.

    For ResNet-18 on the 4,368 modes of an Orin AGX it gives 16.6 s a mode on average; the 13.4 s of 001 sec. 3 (16.3 h)
    are those of 40 minibatches alone.
    """
    times = np.asarray(time_ms, dtype=float)
    return float(SETTLING_S * times.size + (1 + MINIBATCHES) * ms_to_s(times.sum()))
