"""From a results file to a corpus; rows of either for import into another, and their faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.corpus import (
    CASE_COLUMNS,
    CONTRADICTION,
    CORPUS,
    CORPUS_COLUMNS,
    FAR,
    TASKS,
    Column,
    Fault,
    Row,
    faults_of,
    rows_of,
    scan_corpus,
    write_corpus,
)
from harness.core.errors import StoreError
from harness.core.power_modes import PowerMode
from harness.core.profiles import DISQUALIFYING, flagged_in_words
from harness.core.units import share_to_percent
from harness.store.frames import (
    FLAGGED,
    FURTHER,
    MISS_RATIO,
    OTHER_TASK,
    STORES,
    WITHOUT_TIME,
    profiles,
    with_miss_ratio,
)
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd


class Exported(NamedTuple):
    rows: int  # rows written
    older: int  # profiles left out because there is a newer one of the same conditions
    without_time: int  # profiles left out because they have no clean minibatch
    flagged: int = 0  # profiles left out because of their flags
    mixed: int = 0  # profiles of training with interleaved inference, for which a corpus has no task


def export(
    store: ResultsStore,
    out: Path,
    all_runs: bool = False,
    include_flagged: bool = False,
    period_ms: Optional[float] = None,
) -> Exported:
    """Write the newest profile of each comparable conditions, or all, as a corpus, whole or not at all.

    With `period_ms`, the share of minibatches that took longer is a further column.

    Raises StoreError, InvalidValueError or DependencyError as `write_corpus`; StoreError if there is no profile.
    """
    usable = profiles(store, include_flagged, timed=True, tasks=TASKS)
    left_out = usable.attrs["left_out"]
    if usable.empty:
        flagged = f": left out {flagged_in_words(left_out[FLAGGED])}" if left_out[FLAGGED] else ""
        raise StoreError(
            f"{store.path} has no profile with a clean minibatch{flagged}", "measure some: pytest benchmarks"
        )
    kept = usable if all_runs else newest(usable)
    further = FURTHER
    if period_ms is not None:
        kept = with_miss_ratio(store, kept, period_ms)
        further = (*FURTHER, MISS_RATIO)
    write_corpus(out, corpus_rows(kept, further), further)
    older = len(usable) - len(kept)
    return Exported(len(kept), older, left_out[WITHOUT_TIME], left_out[FLAGGED], left_out[OTHER_TASK])


def corpus_rows(frame: pd.DataFrame, further: Sequence[Column] = FURTHER) -> List[Row]:
    """Profiles as rows of a corpus, its further columns included; None for a missing value."""
    lacking = frame[list(PowerMode._fields)].isna()
    if lacking.any(axis=None):
        number = int(frame.index[lacking.any(axis=1)][0])
        fields = ", ".join(field for field in PowerMode._fields if lacking.loc[number, field])
        raise StoreError(f"profile {number} ({frame.loc[number, 'case_id']}) has no {fields} in its conditions")
    return rows_of(frame[[column.name for column in (*CORPUS, *further)]])


class Rows(NamedTuple):
    table: pd.DataFrame  # indexed by place, `c.csv line 17`; original cells, None for empty ones
    faults: Dict[str, Fault]  # by place
    flagged: int = 0  # number of profiles left out because they were disturbed or throttled


def placed(rows: Sequence[Row], places: Sequence[str], flagged: int = 0) -> Rows:
    """Rows with their places, checked one by one."""
    import pandas as pd

    table = pd.DataFrame(list(rows), list(places), columns=None if rows else list(CORPUS_COLUMNS), dtype=object)
    return Rows(table, faults_of(table), flagged)


def rows_with_faults(table: pd.DataFrame, name: str) -> Rows:
    """Rows of a table whose index has their places in the file `name`, checked one by one."""
    named = table.rename(index=lambda place: f"{name} {place}")
    return Rows(named, faults_of(named))


def read_rows(path: Path, include_flagged: bool = False) -> Rows:
    """The rows of a corpus, or of a results file: the newest profile of each conditions that a corpus can hold."""
    if path.suffix.lower() in STORES:
        with ResultsStore(path, read_only=True) as store:
            usable = profiles(store, include_flagged, timed=True, tasks=TASKS)
        kept = newest(usable)
        places = [f"{path} profile {number}" for number in kept.index]
        return placed(corpus_rows(kept), places, usable.attrs["left_out"][FLAGGED])
    table, faults = scan_corpus(path)
    table = table.astype(object).where(table.notna(), None).rename(index=lambda place: f"{path} {place}")
    return Rows(table, {f"{path} {place}": fault for place, fault in faults.items()})


def for_corpus(frame: pd.DataFrame) -> Tuple[pd.DataFrame, pd.DataFrame]:
    """Of a frame of `profiles()`, those that a corpus can hold, the newest of each comparable conditions; and the rest.

    The second frame has device, workload, task and `reason`: why a profile is left out.
    """
    in_order = frame.sort_values("created_at", kind="stable")
    reason = np.full(len(in_order), "", dtype=object)  # by place: frames of several files have equal indices
    reason[~in_order["usable"].to_numpy(bool)] = f"flagged {' or '.join(DISQUALIFYING)}"
    reason[~in_order["task"].isin(TASKS).to_numpy()] = f"neither {' nor '.join(TASKS)}"
    reason[in_order["minibatch_time_ms"].isna().to_numpy()] = "without a clean minibatch"
    usable = np.flatnonzero(reason == "")
    newest_places = usable[_newest_places(in_order["key"].iloc[usable])]
    reason[np.setdiff1d(usable, newest_places)] = "older than another of the same conditions"
    is_left_out = reason != ""
    left_out = in_order.loc[is_left_out, ["device", "workload", "task"]]
    return in_order.iloc[newest_places], left_out.assign(reason=reason[is_left_out])


def newest(frame: pd.DataFrame) -> pd.DataFrame:
    """The newest profile of each comparable conditions, in the order of their first profiles."""
    return frame.iloc[_newest_places(frame["key"])]


def _newest_places(keys: pd.Series) -> List[int]:
    """The place of the last of each key, in the order of the first ones."""
    return list({key: place for place, key in enumerate(keys)}.values())


NEIGHBOURS = 5

_TOO_LARGE = {"minibatch_time_ms": "us", "power_mw": "uW"}
_TOO_SMALL = {"minibatch_time_ms": "s", "power_mw": "W"}

Expected = Mapping[str, Union[Sequence[float], np.ndarray]]
"""Approximate `minibatch_time_ms` and `power_mw` of some rows; NaN if unknown."""


def check_rows(
    table: pd.DataFrame, faults: Mapping[str, Fault], of_model: Callable[[pd.DataFrame], Optional[Expected]]
) -> Dict[str, Fault]:
    """Faults of rows, by their place and in their order; earlier faults are kept.

    Time or power are off by a factor of 1,000, against `of_model` of rows of one device, workload, task and batch size,
    or if that is None, against the nearest modes; or an earlier row of the same case has a time that contradicts it.
    """
    problems = dict(faults)
    sound = table.drop(list(problems))
    for _, part in sound.groupby(["device", "workload", "task", "batch_size"], sort=False):
        expected = of_model(part) or {column: _of_neighbours(part, column) for column in _TOO_LARGE}
        for column, values in expected.items():
            for place, value, about in zip(part.index, part[column].astype(float), values):
                ratio = value / about
                if place not in problems and (ratio > FAR or ratio < 1 / FAR):  # false if either is unknown
                    problem = f": that looks like {(_TOO_LARGE if ratio > FAR else _TOO_SMALL)[column]}"
                    near = float(f"{about:.3g}")  # without an exponent
                    text = f"{column} is {value:g}{problem}, about {near:,.12g} expected"
                    problems[place] = Fault(text, column + problem)
    times_ms = table["minibatch_time_ms"].to_dict()
    for place, earlier in repeats(table.drop(list(problems))).items():
        slower_ms, faster_ms = (choose(times_ms[place], times_ms[earlier]) for choose in (max, min))
        if slower_ms > CONTRADICTION * faster_ms:
            apart = f"{share_to_percent(CONTRADICTION - 1):.0f} %"
            problems[place] = Fault(f"the same case as {earlier}, with a time over {apart} apart", "same case")
    return {place: problems[place] for place in table.index if place in problems}


def repeats(table: pd.DataFrame) -> Dict[str, str]:
    """The rows of a case that an earlier row has, and the first such row, by place. Their medians count, everywhere."""
    first: Dict[Tuple[str, ...], str] = {}
    repeated = {}
    for place, *cells in table.reindex(columns=CASE_COLUMNS).itertuples(name=None):
        earlier = first.setdefault(tuple(map(_cell_text, cells)), place)
        if earlier != place:
            repeated[place] = earlier
    return repeated


def _of_neighbours(part: pd.DataFrame, column: str) -> np.ndarray:
    """The median of the nearest other modes; NaN if there are too few of them."""
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
    if isinstance(value, (bool, str)):
        return str(value)
    return f"{float(value):.15g}"
