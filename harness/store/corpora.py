"""From a results file to a corpus, and rows of either on their way into another, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import CORPUS, CORPUS_COLUMNS, TASKS, Fault, Row, faults_of, rows_of, scan_corpus, write_corpus
from harness.core.errors import StoreError
from harness.core.power_modes import PowerMode
from harness.store.conditions import LEFT_OUT
from harness.store.frames import FLAGGED, FURTHER, OTHER_TASK, STORES, WITHOUT_TIME, profiles
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd


class Exported(NamedTuple):
    rows: int  # rows written
    older: int  # profiles left out because there is a newer one of the same conditions
    without_time: int  # profiles left out because they have no clean minibatch
    flagged: int = 0  # profiles left out because of their flags
    mixed: int = 0  # profiles of training with inference in between, for which a corpus has no task


def export(store: ResultsStore, out: Path, all_runs: bool = False, include_flagged: bool = False) -> Exported:
    """Write the newest profile of each comparable conditions, or all, as a corpus, whole or not at all.

    Raises StoreError, InvalidValueError or DependencyError as `write_corpus`; StoreError where there is no profile.
    """
    usable = profiles(store, include_flagged, timed=True, tasks=TASKS)
    left_out = usable.attrs["left_out"]
    if usable.empty:
        flagged = f": left out {left_out[FLAGGED]} {LEFT_OUT}" if left_out[FLAGGED] else ""
        raise StoreError(
            f"{store.path} holds no profile with a clean minibatch{flagged}", "measure some: pytest benchmarks"
        )
    kept = usable if all_runs else newest(usable)
    write_corpus(out, corpus_rows(kept), FURTHER)
    older = len(usable) - len(kept)
    return Exported(len(kept), older, left_out[WITHOUT_TIME], left_out[FLAGGED], left_out[OTHER_TASK])


def corpus_rows(frame: pd.DataFrame) -> List[Row]:
    """Profiles as rows of a corpus, its further columns included; None where there is no value."""
    lacking = frame[list(PowerMode._fields)].isna()
    if lacking.any(axis=None):
        number = int(frame.index[lacking.any(axis=1)][0])
        fields = ", ".join(field for field in PowerMode._fields if lacking.loc[number, field])
        raise StoreError(f"profile {number} ({frame.loc[number, 'case_id']}) has no {fields} in its conditions")
    return rows_of(frame[[column.name for column in (*CORPUS, *FURTHER)]])


class Rows(NamedTuple):
    table: pd.DataFrame  # indexed by place, `c.csv line 17`; cells are what they were, None where they were empty
    faults: Dict[str, Fault]  # what is wrong with some of them, by place
    flagged: int = 0  # how many profiles were left out because they were disturbed or throttled


def placed(rows: Sequence[Row], places: Sequence[str], flagged: int = 0) -> Rows:
    """Rows with their places, checked one by one."""
    import pandas as pd

    table = pd.DataFrame(list(rows), list(places), columns=None if rows else list(CORPUS_COLUMNS), dtype=object)
    return Rows(table, faults_of(table), flagged)


def read_rows(path: Path, include_flagged: bool = False) -> Rows:
    """The rows of a corpus, or of a results file: the newest of each conditions that a corpus has a row for."""
    if path.suffix.lower() in STORES:
        with ResultsStore(path, read_only=True) as store:
            found = profiles(store, include_flagged, timed=True, tasks=TASKS)
        kept = newest(found)
        places = [f"{path} profile {number}" for number in kept.index]
        return placed(corpus_rows(kept), places, found.attrs["left_out"][FLAGGED])
    table, faults = scan_corpus(path)
    table = table.astype(object).where(table.notna(), None).rename(index=lambda place: f"{path} {place}")
    return Rows(table, {f"{path} {place}": fault for place, fault in faults.items()})


def newest(frame: pd.DataFrame) -> pd.DataFrame:
    """The newest profile of each comparable conditions, in the order in which those were first met."""
    return frame.loc[list(dict(zip(frame["key"], frame.index)).values())]


FAR = 100.0  # a value so many times too great or too small for its mode has another unit: nothing else in a corpus is

NEIGHBOURS = 5

_SAME_CASE = (
    "device", "workload", "task", *PowerMode._fields, "batch_size", "provenance",
    # of an export, where they are there; `key` is the hash of all conditions
    "workers", "storage", "cache", "clocks", "minibatches", "epochs_asked", "data_scale", "seed", "tpc_mask", "key",
)  # fmt: skip

_TOO_LARGE = {"minibatch_time_ms": "us", "power_mw": "uW"}
_TOO_SMALL = {"minibatch_time_ms": "s", "power_mw": "W"}

Expected = Dict[str, Sequence[float]]
"""About what `minibatch_time_ms` and `power_mw` of some rows should be; NaN where nothing is known of one."""


def check_rows(
    table: pd.DataFrame, faults: Mapping[str, Fault], of_model: Callable[[pd.DataFrame], Optional[Expected]]
) -> Dict[str, Fault]:
    """What is wrong with rows, by their place and in their order; those with a fault before keep it.

    Time or power are off by a factor of 1,000, against what `of_model` says of rows of one device, workload, task and
    batch size, or where that is None, against the nearest modes; or an earlier row is of the same case.
    """
    found = dict(faults)
    sound = table.drop(list(found))
    for _, part in sound.groupby(["device", "workload", "task", "batch_size"], sort=False):
        expected = of_model(part) or {column: _of_neighbours(part, column) for column in _TOO_LARGE}
        for column, values in expected.items():
            for place, value, about in zip(part.index, part[column].astype(float), values):
                ratio = value / about
                if place not in found and (ratio > FAR or ratio < 1 / FAR):  # neither where one of them is unknown
                    problem = f": that looks like {(_TOO_LARGE if ratio > FAR else _TOO_SMALL)[column]}"
                    text = f"{column} is {value:g}{problem}, some {about:.3g} are expected"
                    found[place] = Fault(text, column + problem)
    seen: Dict[Tuple[str, ...], str] = {}
    cases = table.reindex(columns=_SAME_CASE)
    for place, *cells in cases.drop(list(found)).itertuples(name=None):
        earlier = seen.setdefault(tuple(map(_cell_text, cells)), place)
        if earlier != place:
            found[place] = Fault(f"the same case as {earlier}", "same case")
    return {place: found[place] for place in table.index if place in found}


def _of_neighbours(part: pd.DataFrame, column: str) -> np.ndarray:
    """The median of the nearest other modes; NaN where there are too few to tell a wrong one from a right one."""
    values = part[column].to_numpy(float)
    modes = np.log(np.maximum(part[list(PowerMode._fields)].to_numpy(float), 1))
    expected = np.full(len(values), np.nan)
    for place, mode in enumerate(modes):
        distance = np.abs(modes - mode).sum(axis=1)
        distance[place] = np.inf
        distance[np.isnan(values)] = np.inf
        near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        near = near[np.isfinite(distance[near])]
        if len(near) > 1:
            expected[place] = np.median(values[near])
    return expected


def _cell_text(value: Any) -> str:
    """A cell as text, the same from CSV, Parquet and a results file."""
    if value is None or value == "" or value != value:  # NaN
        return ""
    try:
        return f"{float(value):g}" if not isinstance(value, bool) else str(value)
    except ValueError:
        return str(value)
