"""What is wrong with rows that look right by themselves: values far from what is expected, the same case twice."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import Fault, Row
from harness.core.power_modes import PowerMode
from harness.store.corpora import Entry

FAR = 100.0
"""A value that is so many times too great or too small for its row has another unit: nothing else in a corpus is.

The slowest of 4,368 modes of an Orin AGX takes 36 times as long as the fastest (001 sec. 1.1), and is compared with
what the model or its neighbours say of that very mode.
"""

NEIGHBOURS = 5

_SAME_CASE = (
    "device", "workload", "task", *PowerMode._fields, "batch_size", "provenance",
    # of an export, where they are there; `key` is the hash of all conditions
    "workers", "storage", "cache", "clocks", "minibatches", "epochs_asked", "data_scale", "seed", "tpc_mask", "key",
)  # fmt: skip

_LARGER = {"mw": "uW", "ms": "us"}
_SMALLER = {"mw": "W", "ms": "s"}

Expected = Dict[str, Sequence[Optional[float]]]
"""About what `minibatch_time_ms` and `power_mw` of some rows should be; None where nothing is known of one."""


def check_entries(entries: Sequence[Entry], of_model: Callable[[Sequence[Row]], Optional[Expected]]) -> List[Entry]:
    """The entries, each with what is wrong with it; those that were wrong before stay so.

    A row is wrong where time or power are off by a factor of 1,000 (against the physical model, or where it knows
    nothing, against the nearest modes of the same workload), or where an earlier row is of the same case.

    `of_model` says what is expected of rows of one device, workload, task and batch size; None where it knows nothing.
    """
    return _duplicates(_wrong_units(entries, of_model))


def _wrong_units(entries: Sequence[Entry], of_model: Callable[[Sequence[Row]], Optional[Expected]]) -> List[Entry]:
    """Flag times and powers that are a factor of 1,000 off."""
    groups: Dict[Tuple[Any, ...], List[int]] = {}
    for place, (_, row, fault, _) in enumerate(entries):
        if not fault:
            like = tuple(row[name] for name in ("device", "workload", "task", "batch_size"))
            groups.setdefault(like, []).append(place)
    checked = list(entries)
    for places in groups.values():
        rows = [entries[place].row for place in places]
        neighbours = {column: _of_neighbours(rows, column) for column in ("minibatch_time_ms", "power_mw")}
        for column, expected in (of_model(rows) or neighbours).items():
            for place, row, value in zip(places, rows, expected):
                if row[column] is None or value is None or checked[place].fault:
                    continue
                ratio = row[column] / value
                if not 1 / FAR <= ratio <= FAR:
                    looks = (_LARGER if ratio > FAR else _SMALLER)[column.rpartition("_")[2]]
                    problem = f": that looks like {looks}"
                    text = f"{column} is {row[column]:g}{problem}, some {value:.3g} are expected"
                    checked[place] = checked[place]._replace(fault=Fault(text, column + problem))
    return checked


def _of_neighbours(rows: Sequence[Row], column: str) -> List[Optional[float]]:
    """The median of the nearest other modes; None where there are too few to tell a wrong one from a right one."""
    values = np.array([math.nan if row[column] is None else float(row[column]) for row in rows])
    modes = np.log(np.maximum([[row[field] for field in PowerMode._fields] for row in rows], 1).astype(float))
    expected: List[Optional[float]] = []
    for place in range(len(rows)):
        distance = np.abs(modes - modes[place]).sum(axis=1)
        distance[place] = math.inf
        distance[np.isnan(values)] = math.inf
        near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        near = near[np.isfinite(distance[near])]
        expected.append(float(np.median(values[near])) if len(near) > 1 else None)
    return expected


def _duplicates(entries: Sequence[Entry]) -> List[Entry]:
    """Flag rows of a case that a row before is of."""
    seen: Dict[Tuple[str, ...], str] = {}
    checked: List[Entry] = []
    for entry in entries:
        if not entry.fault:
            case = tuple(_text(entry.row.get(name)) for name in _SAME_CASE)
            earlier = seen.setdefault(case, entry.place)
            if earlier != entry.place:
                entry = entry._replace(fault=Fault(f"the same case as {earlier}", "same case"))
        checked.append(entry)
    return checked


def _text(value: Any) -> str:
    """A cell as text, the same from CSV, Parquet and a results file."""
    if value is None or value == "":
        return ""
    try:
        return f"{float(value):g}" if not isinstance(value, bool) else str(value)
    except ValueError:
        return str(value)
