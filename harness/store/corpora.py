"""From a results file to a corpus, and rows of either on their way into another corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Sequence

from harness.core.corpus import (
    CORPUS,
    CORPUS_COLUMNS,
    TASKS,
    Fault,
    Row,
    faults_of,
    rows_of,
    scan_corpus,
    write_corpus,
)
from harness.core.errors import StoreError
from harness.core.power_modes import PowerMode
from harness.store.conditions import LEFT_OUT
from harness.store.frames import FLAGGED, FURTHER, OTHER_TASK, WITHOUT_TIME, profiles
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

STORES = (".sqlite", ".db")
"""Suffixes of results files."""


class Exported(NamedTuple):
    """What an export wrote and left out."""

    rows: int  # rows written
    older: int  # profiles left out because there is a newer one of the same conditions
    without_time: int  # profiles left out because they have no clean minibatch
    flagged: int = 0  # profiles left out because of their flags
    mixed: int = 0  # profiles of training with inference in between, for which a corpus has no task


def export(store: ResultsStore, out: Path, all_runs: bool = False, include_flagged: bool = False) -> Exported:
    """Write the profiles of a results file as a corpus, a row for each distinct comparable conditions.

    `all_runs` keeps every profile, not only the newest of each comparable conditions. `out` ends in `.csv` or
    `.parquet`, and is replaced whole or not at all.

    Raises:
        StoreError: there is no profile, or `out` cannot be written.
        InvalidValueError: `out` has another suffix.
        DependencyError: Parquet was asked for and pyarrow is not installed.
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
    """Rows on their way into a corpus."""

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
