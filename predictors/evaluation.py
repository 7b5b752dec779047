"""How good predictors are: fitted on some modes of a table, tested on the modes that were not used, and on all.

Two protocols stand side by side. The papers' (001 sec. 4) tests on every mode of the corpus, those used to fit
included; the stricter one, which results lead with, only on the others. Both give the median and the quartiles over
repeats, each with other modes to fit on. Within a repeat every predictor gets the same modes.

Where part of a table is known to be odd, the stricter errors are also given without it; modes to fit on are drawn from
all of the table either way, because whoever profiles does not know what is odd.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import minibatch_energy_mws, quartiles
from harness.core.units import share_to_percent
from predictors.models.base import Prediction, Predictor
from predictors.models.tables import Table
from predictors.sampling import choose_by_profiling, profiling_seconds

LEVELS = (80, 95)  # predictive intervals whose coverage is checked, in %

# Share of the modes that is not fitted where all are to be: without it nothing would be left for the stricter test.
# 001 sec. 3.1 holds back as much of its full corpus for validation.
HELD_OUT_SHARE = 0.1

# The odd part of a device's measured tables: all modes up to these values, in the order of `PowerMode`. In the public
# tables behind 001, whole GPU-clock rows of two slow cores run 1.2 to 9 times faster than their neighbours: they were
# measured in different sessions.
ODD_PARTS = {"orin-agx": (2, 576_000, np.inf, np.inf)}


class Spread(NamedTuple):
    """A median over repeats and its quartiles."""

    median: float
    q1: float
    q3: float


def mape(observed: np.ndarray, predicted: np.ndarray) -> Optional[float]:
    """Mean absolute percentage error (001 sec. 4), in %, of observed values above 0, shape (n,).

    None where there is nothing to compare, or where the predictor does not answer: a prediction is not finite.
    """
    observed, predicted = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if len(observed) == 0 or not np.isfinite(predicted).all():
        return None
    return float(share_to_percent(np.mean(np.abs(predicted - observed) / observed)))


def coverage(observed: np.ndarray, low: np.ndarray, high: np.ndarray) -> Optional[float]:
    """The share of observed values within their interval, in %; None as in `mape`."""
    if len(observed) == 0 or np.isnan(low).any() or np.isnan(high).any():
        return None
    return float(share_to_percent(np.mean((low <= observed) & (observed <= high))))


def spread(values: Sequence[Optional[float]]) -> Optional[Spread]:
    """Median and quartiles over repeats (001 sec. 4); None where a repeat has no figure, or there is none."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    q1, median, q3 = quartiles(known)
    return Spread(median, q1, q3)


def odd_rows(table: Table) -> Optional[np.ndarray]:
    """Which rows belong to the odd part of a table, bool of shape (n,); None where no such part is known."""
    greatest = None if table.provenance == "simulated" else ODD_PARTS.get(table.device)
    return None if greatest is None else np.all(table.modes <= np.array(greatest), axis=1)


class Errors(NamedTuple):
    """MAPE in % over a set of modes; None where the predictor does not answer or nothing is in the set."""

    time_mape: Optional[float]
    power_mape: Optional[float]
    energy_mape: Optional[float]


@dataclasses.dataclass(frozen=True)
class Score:
    """What one predictor did in one repeat."""

    n_modes: int  # how many modes it was fitted on
    held_out: Errors  # errors on the modes that were not used to fit
    all_modes: Errors  # errors on every mode of the table
    without_slice: Optional[Errors]  # errors on the held-out modes outside the odd part; None where none is known
    # share in % of held-out observations within their interval, by `time_80`, `power_95`, ...
    coverage: Dict[str, Optional[float]]
    profiling_seconds: float  # what profiling the fitted modes costs
    fit_seconds: float  # how long `fit` took
    predict_seconds: float  # how long `predict` of all modes of the table took


def rows_to_fit(
    table: Table,
    count: Optional[int],
    sampling: str,
    repeat: int,
    seed: int = 0,
    references: Sequence[Table] = (),
) -> np.ndarray:
    """The places of the rows that a repeat fits on: a function of the arguments alone, so the same for all predictors.

    Args:
        table: what is to be learned.
        count: how many; None for all but `HELD_OUT_SHARE`.
        sampling: how they are chosen, a name of `predictors.sampling.SAMPLERS`.
        repeat: which repeat, from 0.
        seed: of all repeats.
        references: tables of other workloads, which some samplers learn from.
    """
    wanted = len(table) - max(1, round(HELD_OUT_SHARE * len(table))) if count is None else count
    if not 1 <= wanted <= len(table):
        raise InvalidValueError(
            f"cannot fit on {wanted} modes of {table.workload}", f"the corpus has {len(table)} with time and power"
        )
    sizes = np.unique(table.batch_size)
    if sampling == "sequential" and len(sizes) > 1:
        raise InvalidValueError(
            f"sequential sampling of {table.workload} at {len(sizes)} batch sizes is not defined", "choose another one"
        )
    target = zlib.crc32("/".join((table.device, table.workload, table.task)).encode())
    drawn = np.random.SeedSequence([seed, repeat, target, wanted]).generate_state(1)[0]
    places = choose_by_profiling(
        table.modes,
        wanted,
        lambda chosen: (table.time_ms[chosen], table.power_mw[chosen]),
        sampling=sampling,
        seed=int(drawn),
        references=references,
        board=table.device,
        batch_size=table.batch_size,
        task=table.task,
    )
    return np.sort(places)


def judge(
    predictor: Predictor,
    table: Table,
    fitted: np.ndarray,
    tested: Optional[np.ndarray] = None,
    profiled: Optional[Table] = None,
) -> Score:
    """Fit a predictor on some rows of a table and test it.

    Args:
        predictor: not fitted yet.
        table: complete, no row twice.
        fitted: places of the rows to fit on.
        tested: places of the rows that it is tested on; all by default.
        profiled: the same rows as they were profiled for the fit, where that was another measurement than the one to
            test with: another instance of the board, fewer minibatches.
    """
    learned = (table if profiled is None else profiled).take(fitted)
    start_s = time.perf_counter()
    fit_to(predictor, learned)
    fit_seconds = time.perf_counter() - start_s
    start_s = time.perf_counter()
    prediction = predict_rows(predictor, table)
    predict_seconds = time.perf_counter() - start_s
    everything = np.zeros(len(table), dtype=bool)
    everything[slice(None) if tested is None else tested] = True
    held_out = everything.copy()
    held_out[fitted] = False
    odd = odd_rows(table)
    return Score(
        n_modes=len(fitted),
        held_out=_errors(table, prediction, held_out),
        all_modes=_errors(table, prediction, everything),
        without_slice=None if odd is None else _errors(table, prediction, held_out & ~odd),
        coverage=_coverage(table, prediction, held_out),
        profiling_seconds=profiling_seconds(learned.time_ms),
        fit_seconds=fit_seconds,
        predict_seconds=predict_seconds,
    )


def fit_to(predictor: Predictor, table: Table) -> None:
    predictor.fit(table.modes, table.time_ms, table.power_mw, batch_size=table.batch_size, task=table.task)


def predict_rows(predictor: Predictor, table: Table) -> Prediction:
    return predictor.predict(table.modes, batch_size=table.batch_size, task=table.task)


def summarise(scores: Sequence[Score]) -> Dict[str, Any]:
    """The figures over repeats, as plain values; those that cannot be had are None.

    Returns:
        `time_mape_median`, `time_mape_q1`, `time_mape_q3` and the same of power and energy for the stricter protocol,
        and under `all_modes` for the papers' and under `without_slice`; `coverage` (means over repeats); medians of
        `profiling_seconds`, `fit_seconds` and `predict_seconds`; the errors of each repeat as `time_mape`, ...
    """
    without = [score.without_slice for score in scores]
    return {
        "n_modes": scores[0].n_modes,
        **_spreads([score.held_out for score in scores]),
        "all_modes": _spreads([score.all_modes for score in scores]),
        "without_slice": None if without[0] is None else _spreads([errors for errors in without if errors is not None]),
        "coverage": {name: _mean([score.coverage[name] for score in scores]) for name in scores[0].coverage},
        **{
            name: float(np.median([getattr(score, name) for score in scores]))
            for name in ("profiling_seconds", "fit_seconds", "predict_seconds")
        },
        **{name: [getattr(score.held_out, name) for score in scores] for name in Errors._fields},
        "repeats": len(scores),
    }


def _errors(table: Table, prediction: Prediction, rows: np.ndarray) -> Errors:
    observed, predicted = (
        (figures.time_ms, figures.power_mw, minibatch_energy_mws(figures.time_ms, figures.power_mw))
        for figures in (table, prediction)
    )
    return Errors(*(mape(one[rows], other[rows]) for one, other in zip(observed, predicted)))


def _coverage(table: Table, prediction: Prediction, rows: np.ndarray) -> Dict[str, Optional[float]]:
    found: Dict[str, Optional[float]] = {}
    for level in LEVELS:
        for what, observed, (low, high) in (
            ("time", table.time_ms, prediction.time_interval_ms(level / 100)),
            ("power", table.power_mw, prediction.power_interval_mw(level / 100)),
        ):
            found[f"{what}_{level}"] = coverage(observed[rows], low[rows], high[rows])
    return found


def _spreads(errors: Sequence[Errors]) -> Dict[str, Optional[float]]:
    over_repeats = {what: spread([getattr(one, what) for one in errors]) for what in Errors._fields}
    return {
        f"{what}_{part}": None if found is None else getattr(found, part)
        for what, found in over_repeats.items()
        for part in Spread._fields
    }


def _mean(values: Sequence[Optional[float]]) -> Optional[float]:
    return None if None in values else float(np.mean([value for value in values if value is not None]))


def read_recorded(path: Path) -> List[Dict[str, Any]]:
    """The entries of `baselines/recorded`, which gates hold later errors or penalties against; none without a file."""
    if not path.exists():
        return []
    try:
        return json.loads(path.read_text(encoding="utf-8"))["entries"]
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(f"{path} holds no recorded errors: {error!r}", "record them again") from error
