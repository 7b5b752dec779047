"""The evaluation of predictors: fitted on some modes of a table, tested on the held-out modes, and on all.

There are two protocols. The papers' (001 sec. 4) tests on every mode of the corpus, fitted ones included; the stricter
one, which results show first, only on held-out modes. Both give the median and the quartiles over repeats, each with
other modes to fit on. Within a repeat every predictor gets the same modes.

If part of a table is anomalous (the odd slice), the stricter errors are also given without it; the modes to fit on are
drawn from the whole table either way, because users who profile cannot tell the odd slice.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.metrics import minibatch_energy_mws, quartiles
from harness.core.units import share_to_percent
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.models.registry import make_predictor, parameters_of, predictor_class
from predictors.profiles import Profiles
from predictors.sampling import profiling_seconds, rows_to_fit

if TYPE_CHECKING:
    import pandas as pd

    from predictors.models.physical_gp.prior import Counts, Hierarchy

FIGURES = ("time_mape", "power_mape", "energy_mape")
LEVELS = (80, 95)  # predictive intervals whose coverage is checked, in %

# Share of modes held out of a fit on `all` modes: otherwise nothing would be left for the stricter test. 001 sec. 3.1
# holds back as much of its full corpus for validation.
HELD_OUT_SHARE = 0.1

# The anomalous parts of measured tables by device and task: ranges of modes, ends included, as in `PowerMode`.
# In the public tables behind 001, whole GPU-clock rows of slow cores run 1.2 to 9 times faster than their neighbours:
# they were measured in different sessions. In inference, rows show the power and speed of another GPU clock.
ODD_PARTS = {
    ("orin-agx", "training"): (
        ((0, 0, 0, 0), (2, 576_000, np.inf, np.inf)),
        *(((cores, 0, 1_300_500, 0), (cores, 576_000, 1_300_500, np.inf)) for cores in (6, 10)),
    ),
    ("orin-agx", "inference"): (
        ((0, 0, 318_750, 2_133_000), (np.inf, np.inf, 318_750, 2_133_000)),
        ((4, 0, 522_750, 2_133_000), (4, np.inf, 522_750, 2_133_000)),
    ),
}


class Spread(NamedTuple):
    """A median over repeats and its quartiles."""

    median: float
    q1: float
    q3: float


def mape(observed: np.ndarray, predicted: np.ndarray) -> float:
    """Mean absolute percentage error (001 sec. 4), in %, of observed values above 0, shape (n,).

    NaN without observations, or if a prediction is not finite.
    """
    observed, predicted = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if len(observed) == 0 or not np.isfinite(predicted).all():
        return float("nan")
    return float(share_to_percent(np.mean(np.abs(predicted - observed) / observed)))


def bias(observed: np.ndarray, predicted: np.ndarray) -> float:
    """Mean signed error of the natural logarithm, in % (+5: about 5 % too much), of values of shape (n,).

    NaN as in `mape`, and if a prediction is 0 or less. A factor on all predictions changes it by the logarithm of that
    factor, however large the errors are.
    """
    observed, predicted = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if len(observed) == 0 or not (np.isfinite(predicted) & (predicted > 0)).all():
        return float("nan")
    return float(share_to_percent(np.mean(np.log(predicted / observed))))


def coverage(observed: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The share of observed values within their interval, in %; NaN as in `mape`."""
    if len(observed) == 0 or np.isnan(low).any() or np.isnan(high).any():
        return float("nan")
    return share_to_percent(float(np.mean((low <= observed) & (observed <= high))))


def spread(values: Union[Sequence[Optional[float]], np.ndarray]) -> Optional[Spread]:
    """Median and quartiles over repeats (001 sec. 4); None if a repeat has no figure, or there are no repeats."""
    figures = np.array(values, dtype=float)
    if len(figures) == 0 or np.isnan(figures).any():
        return None
    q1, median, q3 = quartiles(figures)
    return Spread(median, q1, q3)


def odd_rows(table: Profiles) -> Optional[np.ndarray]:
    """Which rows are in the anomalous part of a table or faulty (`Profiles.unapplied`), bool of shape (n,).

    None if there are none, as in all simulated tables.
    """
    if table.provenance == "simulated":
        return None
    odd = np.isin(np.arange(len(table)), table.unapplied())
    for least, greatest in ODD_PARTS.get((table.device, table.task), ()):
        odd |= np.all((table.modes >= np.array(least)) & (table.modes <= np.array(greatest)), axis=1)
    return odd if odd.any() else None


@dataclasses.dataclass(frozen=True)
class Target:
    table: Profiles  # complete, rows distinct
    references: Tuple[Profiles, ...] = ()  # tables for transfer predictors and some samplers
    label: str = ""  # name in results; the workload by default
    fitted: Optional[np.ndarray] = None  # indices of the rows to fit on; drawn by default
    tested: Optional[np.ndarray] = None  # indices of the rows to test on; all by default
    # the same rows as measured for the fit, if that was a separate measurement: another instance, fewer minibatches
    profiled: Optional[Profiles] = None
    hierarchy: Optional[Hierarchy] = None  # the prior of physical-gp; the one that comes with the suite by default
    counts: Optional[Dict[str, Counts]] = None  # operation counts of networks, by workload
    params: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # defaults overridden, of predictors that have them

    @property
    def name(self) -> str:
        return self.label or self.table.workload

    def make(self, predictor: str, seed: int, within_table: bool = True) -> Predictor:
        """A predictor for this target; with `within_table` it refuses clocks that the table does not have."""
        table, kind = self.table, predictor_class(predictor)
        params = {name: value for name, value in self.params.items() if name in parameters_of(kind)}
        return make_predictor(
            kind,
            references=self.references,
            space=table.space() if within_table else None,
            board=table.device,
            workload=table.workload,
            hierarchy=self.hierarchy,
            counts=self.counts,
            seed=seed,
            **params,
        )

    def rows(self, count: Optional[int], sampling: str, repeat: int, seed: int = 0) -> np.ndarray:
        """The indices of the rows to fit on in a repeat, as of `rows_to_fit`.

        `count` is None for all but `HELD_OUT_SHARE`; `sampling` is a name of `predictors.sampling.SAMPLERS`.
        """
        if self.fitted is not None:
            return self.fitted
        table = self.table if self.profiled is None else self.profiled
        wanted = len(table) - max(1, round(HELD_OUT_SHARE * len(table))) if count is None else count
        return rows_to_fit(table, wanted, sampling, seed, self.references, repeat)

    def judge(self, predictor: Predictor, fitted: np.ndarray) -> Dict[str, float]:
        """Fit an unfitted predictor on the rows with the given indices, and test it.

        Returns:
            A row of the frame of trials: the values of `figures`; `profiling_seconds`, the cost of the fitted modes;
            the seconds of `fit` and of `predict` for all modes.
        """
        learned = self.profiles(fitted)
        start_s = time.perf_counter()
        predictor.fit(learned.applied())
        fitted_s = time.perf_counter()
        prediction = predictor.predict(self.table)
        predicted_s = time.perf_counter()
        return {
            **self.figures(prediction, fitted),
            "profiling_seconds": profiling_seconds(learned.time_ms),
            "fit_seconds": fitted_s - start_s,
            "predict_seconds": predicted_s - fitted_s,
        }

    def profiles(self, fitted: np.ndarray) -> Profiles:
        """The rows with the given indices, as profiled for the fit."""
        return (self.table if self.profiled is None else self.profiled).take(fitted)

    def figures(self, prediction: Forecast, fitted: np.ndarray) -> Dict[str, float]:
        """The errors of a prediction of all rows of the table, after a fit on the rows with the given indices.

        Returns:
            `n_modes` fitted; MAPE in % of time, power and energy on the modes that were not used to fit (`time_mape`),
            on every mode (`all_modes_time_mape`) and, if part of the table is anomalous, outside that part
            (`without_slice_time_mape`); on held-out modes the bias in % (`time_bias`) and the share in % of
            observations within their interval (`time_80`, `power_95`). An unavailable figure is NaN.
        """
        table = self.table
        every_mode = np.zeros(len(table), dtype=bool)
        every_mode[slice(None) if self.tested is None else self.tested] = True
        held_out = every_mode.copy()
        held_out[fitted] = False
        parts = {"": held_out, "all_modes_": every_mode}
        odd = odd_rows(table)
        if odd is not None:
            parts["without_slice_"] = held_out & ~odd
        figures: Dict[str, float] = {"n_modes": len(fitted)}
        for part, rows in parts.items():
            figures.update({f"{part}{name}": error for name, error in errors(table, prediction, rows).items()})
        for level in LEVELS:
            intervals = prediction.interval("time_ms", level / 100), prediction.interval("power_mw", level / 100)
            for what, observed, (low, high) in zip(("time", "power"), (table.time_ms, table.power_mw), intervals):
                figures[f"{what}_{level}"] = coverage(observed[held_out], low[held_out], high[held_out])
        figures["time_bias"] = bias(table.time_ms[held_out], prediction.time_ms[held_out])
        figures["power_bias"] = bias(table.power_mw[held_out], prediction.power_mw[held_out])
        return figures


def errors(table: Profiles, prediction: Forecast, rows: Any = slice(None)) -> Dict[str, float]:
    observed, predicted = (
        (side.time_ms, side.power_mw, minibatch_energy_mws(side.time_ms, side.power_mw)) for side in (table, prediction)
    )
    return {name: mape(side[rows], other[rows]) for name, side, other in zip(FIGURES, observed, predicted)}


def make_target(
    table: Profiles,
    references: Sequence[Profiles],
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Dict[str, Counts]] = None,
) -> Target:
    """A target with those references that are admissible for it."""
    learnable = table.learnable()
    return Target(learnable, learnable.admissible(references), hierarchy=hierarchy, counts=counts)


def summarise(trials: pd.DataFrame) -> Dict[str, Any]:
    """The figures over repeats, a row of `Target.judge` each, as plain values; unavailable ones are None.

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
