"""What is wrong with rows that keep to the corpus schema: clocks nobody has, wrong units, the same case twice."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import BOARDS, known_variants, load_board
from harness.core.corpus import Row
from harness.core.power_modes import PowerMode
from harness.store.corpora import Entry

FAR = 100.0
"""A value that is so many times too great or too small for its row has another unit: nothing else in a corpus is.

The slowest of 4,368 modes of an Orin AGX takes 36 times as long as the fastest (001 sec. 1.1), and is compared with
what the model or its neighbours say of that very mode.
"""

UNIT = 1_000.0
NEIGHBOURS = 5
_NEAR = 0.02  # a clock in another unit is the clock, but for rounding

_SAME_CASE = (
    "device", "workload", "task", *PowerMode._fields, "batch_size", "provenance",
    # of an export, where they are there; `key` is the hash of all conditions
    "workers", "storage", "cache", "clocks", "minibatches", "epochs_asked", "data_scale", "seed", "tpc_mask", "key",
)  # fmt: skip

_LARGER = {"khz": "Hz", "mw": "uW", "ms": "us"}
_SMALLER = {"khz": "MHz", "mw": "W", "ms": "s"}

Expected = Dict[str, Sequence[Optional[float]]]
"""About what `minibatch_time_ms` and `power_mw` of some rows should be; None where nothing is known of one."""


def check_entries(entries: Sequence[Entry], of_model: Callable[[Sequence[Row]], Optional[Expected]]) -> List[Entry]:
    """The entries, each with what is wrong with it; those that were wrong before stay so.

    A row is wrong where a named board has no such core count or clock, where clock, time or power are off by a factor
    of 1,000 (against the board's clocks; against the physical model, or where it knows nothing, against the nearest
    modes of the same workload), or where an earlier row is of the same case.

    `of_model` says what is expected of rows of one device, workload, task and batch size; None where it knows nothing.
    """
    checked = [
        entry if entry.fault or entry.row is None else entry._replace(fault=_unknown_clock(entry.row))
        for entry in entries
    ]
    return _duplicates(_wrong_units(checked, of_model))


@functools.lru_cache(maxsize=None)
def _clocks_of(board: str) -> Tuple[int, Dict[str, FrozenSet[int]], FrozenSet[str]]:
    """Of a board's modules on any release: most cores, clocks by dimension, dimensions whose list may lack some."""
    specs = [load_board(board, variant) for variant in known_variants(board)]
    khz = {
        field: frozenset(value for spec in specs for value in getattr(spec.clocks, field))
        for field in PowerMode._fields[1:]
    }
    khz["gpu_khz"] |= {value for spec in specs for value in spec.clocks.newer_gpu_khz}
    incomplete = {*specs[0].clocks.incomplete, *(field for field, known in khz.items() if not known)}
    return max(spec.cpu_cores for spec in specs), khz, frozenset(incomplete)


def _unknown_clock(row: Row) -> str:
    """What of a row's mode a named board does not have; of other devices any mode is taken."""
    if row["device"] not in BOARDS:
        return ""
    cores, clocks, is_open = _clocks_of(row["device"])
    if row["cpu_cores"] > cores:
        return f"cpu_cores is {row['cpu_cores']}, {row['device']} has {cores}"
    for field, known in clocks.items():
        value = row[field]
        if value in known:
            continue
        for factor, unit in ((UNIT, _SMALLER["khz"]), (1 / UNIT, _LARGER["khz"])):
            if any(abs(value * factor / khz - 1) < _NEAR for khz in known):
                return f"{field} is {value}: that looks like {unit}, expected kHz"
        if field not in is_open:
            nearest = min(known, key=lambda khz: abs(khz - value))
            return f"{field} is {value}, which {row['device']} does not have; the nearest is {nearest}"
    return ""


def _wrong_units(entries: List[Entry], of_model: Callable[[Sequence[Row]], Optional[Expected]]) -> List[Entry]:
    """Flag times and powers that are a factor of 1,000 off."""
    groups: Dict[Tuple[Any, ...], List[int]] = {}
    for place, (_, row, fault, _) in enumerate(entries):
        if row is not None and not fault:
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
                    fault = f"{column} is {row[column]:g}: that looks like {looks}, some {value:.3g} are expected"
                    checked[place] = checked[place]._replace(fault=fault)
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
        if not entry.fault and entry.row is not None:
            case = tuple(_text(entry.row.get(name)) for name in _SAME_CASE)
            earlier = seen.setdefault(case, entry.place)
            if earlier != entry.place:
                entry = entry._replace(fault=f"the same case as {earlier}")
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
