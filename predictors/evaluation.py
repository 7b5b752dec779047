"""How good predictors are: fitted on some modes of a table, tested on the modes that were not used, and on all.

Two protocols stand side by side. The papers' (001 sec. 4) tests on every mode of the corpus, those used to fit
included; the stricter one, which results lead with, only on the others. Both give the median and the quartiles over
repeats, each with other modes to fit on. Within a repeat every predictor gets the same modes.

Where part of a table is known to be odd, the stricter errors are also given without it; modes to fit on are drawn from
all of the table either way, because whoever profiles does not know what is odd.
"""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import minibatch_energy_mws, quartiles
from harness.core.units import share_to_percent
from predictors.models.base import Prediction, Predictor
from predictors.models.tables import Table
from predictors.sampling import choose_by_profiling, profiling_seconds

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("time_mape", "power_mape", "energy_mape")
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


def mape(observed: np.ndarray, predicted: np.ndarray) -> float:
    """Mean absolute percentage error (001 sec. 4), in %, of observed values above 0, shape (n,).

    NaN where there is nothing to compare, or where the predictor does not answer: a prediction is not finite.
    """
    observed, predicted = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if len(observed) == 0 or not np.isfinite(predicted).all():
        return float("nan")
    return float(share_to_percent(np.mean(np.abs(predicted - observed) / observed)))


def coverage(observed: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The share of observed values within their interval, in %; NaN as in `mape`."""
    if len(observed) == 0 or np.isnan(low).any() or np.isnan(high).any():
        return float("nan")
    return float(share_to_percent(np.mean((low <= observed) & (observed <= high))))


def spread(values: Sequence[Optional[float]]) -> Optional[Spread]:
    """Median and quartiles over repeats (001 sec. 4); None where a repeat has no figure, or there is none."""
    known = np.array(values, dtype=float)
    if len(known) == 0 or np.isnan(known).any():
        return None
    q1, median, q3 = quartiles(known)
    return Spread(median, q1, q3)


def odd_rows(table: Table) -> Optional[np.ndarray]:
    """Which rows belong to the odd part of a table, bool of shape (n,); None where no such part is known."""
    greatest = None if table.provenance == "simulated" else ODD_PARTS.get(table.device)
    return None if greatest is None else np.all(table.modes <= np.array(greatest), axis=1)


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
) -> Dict[str, float]:
    """Fit a predictor on some rows of a table and test it.

    Args:
        predictor: not fitted yet.
        table: complete, no row twice.
        fitted: places of the rows to fit on.
        tested: places of the rows that it is tested on; all by default.
        profiled: the same rows as they were profiled for the fit, where that was another measurement than the one to
            test with: another instance of the board, fewer minibatches.

    Returns:
        A row of the frame of trials: `n_modes` fitted; MAPE in % of time, power and energy on the modes that were not
        used to fit (`time_mape`), on every mode (`all_modes_time_mape`) and, where an odd part of the table is known,
        outside it (`without_slice_time_mape`); the share in % of held-out observations within their interval
        (`time_80`, `power_95`); `profiling_seconds` that the fitted modes cost; seconds that `fit` and `predict` of all
        modes took. A figure that cannot be had is NaN.
    """
    learned = (table if profiled is None else profiled).take(fitted)
    start_s = time.perf_counter()
    fit_to(predictor, learned)
    fitted_s = time.perf_counter()
    prediction = predict_rows(predictor, table)
    predicted_s = time.perf_counter()
    every_mode = np.zeros(len(table), dtype=bool)
    every_mode[slice(None) if tested is None else tested] = True
    held_out = every_mode.copy()
    held_out[fitted] = False
    odd = odd_rows(table)
    parts = {"": held_out, "all_modes_": every_mode, "without_slice_": None if odd is None else held_out & ~odd}
    found: Dict[str, float] = {
        f"{part}{figure}": error
        for part, rows in parts.items()
        if rows is not None
        for figure, error in errors(table, prediction, rows).items()
    }
    for level in LEVELS:
        low, high = (end[held_out] for end in prediction.time_interval_ms(level / 100))
        found[f"time_{level}"] = coverage(table.time_ms[held_out], low, high)
        low, high = (end[held_out] for end in prediction.power_interval_mw(level / 100))
        found[f"power_{level}"] = coverage(table.power_mw[held_out], low, high)
    return {
        "n_modes": len(fitted),
        **found,
        "profiling_seconds": profiling_seconds(learned.time_ms),
        "fit_seconds": fitted_s - start_s,
        "predict_seconds": predicted_s - fitted_s,
    }


def errors(table: Table, prediction: Prediction, rows: Any = slice(None)) -> Dict[str, float]:
    """MAPE of time, power and energy of some rows of a table, in %."""
    observed, predicted = (
        (one.time_ms, one.power_mw, minibatch_energy_mws(one.time_ms, one.power_mw)) for one in (table, prediction)
    )
    return {name: mape(one[rows], other[rows]) for name, one, other in zip(FIGURES, observed, predicted)}


def fit_to(predictor: Predictor, table: Table) -> None:
    predictor.fit(table.modes, table.time_ms, table.power_mw, batch_size=table.batch_size, task=table.task)


def predict_rows(predictor: Predictor, table: Table) -> Prediction:
    return predictor.predict(table.modes, batch_size=table.batch_size, task=table.task)


def summarise(trials: pd.DataFrame) -> Dict[str, Any]:
    """The figures over repeats, a row of `judge` each, as plain values; those that cannot be had are None.

    Returns:
        `time_mape_median`, `time_mape_q1`, `time_mape_q3` and the same of power and energy for the stricter protocol,
        and under `all_modes` for the papers' and under `without_slice`; `coverage` (means over repeats); medians of
        `profiling_seconds`, `fit_seconds` and `predict_seconds`; the errors of each repeat as `time_mape`, ...
    """

    def spreads(part: str) -> Dict[str, Optional[float]]:
        return {
            f"{figure}_{name}": value
            for figure in FIGURES
            for name, value in zip(Spread._fields, spread(trials[f"{part}{figure}"]) or (None, None, None))
        }

    def plain(value: float) -> Optional[float]:
        return None if np.isnan(value) else float(value)

    held = [f"{what}_{level}" for level in LEVELS for what in ("time", "power")]
    seconds = ("profiling_seconds", "fit_seconds", "predict_seconds")
    return {
        "n_modes": int(trials["n_modes"].iloc[0]),
        **spreads(""),
        "all_modes": spreads("all_modes_"),
        "without_slice": spreads("without_slice_") if "without_slice_time_mape" in trials else None,
        "coverage": {name: plain(trials[name].mean(skipna=False)) for name in held},
        **{name: float(trials[name].median()) for name in seconds},
        **{figure: [plain(value) for value in trials[figure]] for figure in FIGURES},
        "repeats": len(trials),
    }


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
