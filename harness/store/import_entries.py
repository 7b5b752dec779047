"""Entries: rows on their way into a corpus, each with its place and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional

from harness.core.corpus import TASKS, Row, fault_of, scan_corpus
from harness.store.export import corpus_row
from harness.store.flagged import is_disqualified
from harness.store.store import ResultsStore

STORES = (".sqlite", ".db")
"""Suffixes of results files."""


class Entry(NamedTuple):
    """A row from somewhere.

    Attributes:
        place: file and line, `c.csv line 17`.
        row: its values; None where they cannot be read.
        fault: what is wrong with it; empty where nothing is.
        is_flagged: whether it is a profile that was disturbed or throttled, and is left out for that.
    """

    place: str
    row: Optional[Row]
    fault: str
    is_flagged: bool = False


def read_entries(path: Path, include_flagged: bool = False) -> Iterator[Entry]:
    """The rows of a corpus, or of a results file.

    Args:
        path: of the file.
        include_flagged: of a results file, keep profiles that were disturbed or throttled (`harness.store.flagged`).

    Raises:
        HarnessError: the file is neither, or cannot be read.
    """
    if path.suffix.lower() in STORES:
        yield from _from_store(path, include_flagged)
        return
    for place, row, fault in scan_corpus(path):
        yield Entry(f"{path} {place}", row, fault)


def _from_store(path: Path, include_flagged: bool) -> Iterator[Entry]:
    """The newest profile of each comparable conditions that a corpus has a row for: none for idle or mixed ones."""
    with ResultsStore(path, read_only=True) as store:
        newest: Dict[str, Entry] = {}
        for record in store.records():
            place = f"{path} profile {record.id}"
            if record.case.task not in TASKS or record.aggregates.get("minibatch_time_ms") is None:
                continue
            if is_disqualified(record.flags) and not include_flagged:
                yield Entry(place, None, "", is_flagged=True)
                continue
            row = corpus_row(record)
            newest[record.key] = Entry(place, row, fault_of(row))
        yield from newest.values()
