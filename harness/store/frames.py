"""A results file as pandas frames, and the rule for which profiles count: where every reader starts.

Two frames: a row for each profile, and a long one of raw series, keyed by `profile_id`.

`profiles()` has a row for each profile, indexed by `profile_id`, with the columns of a corpus as `harness.core.corpus`
documents them, those of `columns.csv`, which names their sources, and the aggregates of `harness.core.metrics`.
Numbers that are missing are NaN (NA in whole-number columns), texts None. `minibatches()` has a row for each minibatch
of the profiles asked for, `telemetry()` one for each sample of a channel; their checksums are verified.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.corpus import CORPUS, CORPUS_COLUMNS, Column
from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import AGGREGATES, CONCURRENT_AGGREGATES
from harness.core.power_modes import PowerMode
from harness.core.profiles import Minibatches, flag_kinds, is_disqualified
from harness.store.conditions import board_instance, device_labels, key
from harness.store.rows import Record

if TYPE_CHECKING:
    import pandas as pd

    from harness.store.archive import ArchiveFile
    from harness.store.results import ResultsStore

    StoredProfiles = Union[ResultsStore, ArchiveFile]

with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as _file:
    _TABLE = list(csv.DictReader(_file))

_PLACES = [(row["column"], *row["source"].split(".")) for row in _TABLE if row["source"]]

_KINDS = {"str": str, "int": int, "float": float, "bool": bool}


def _columns(group: str) -> List[Column]:
    rows = [row for row in _TABLE if row["group"] == group]
    return [Column(row["column"], _KINDS.get(row["kind"], object), row["meaning"]) for row in rows]


def _aggregates(meanings: Mapping[str, str]) -> List[Column]:
    return [Column(name, float, meaning) for name, meaning in meanings.items() if name not in CORPUS_COLUMNS]


FURTHER: Tuple[Column, ...] = (*_columns("requested"), *_aggregates(AGGREGATES), *_columns("recorded"))
"""The columns that follow those of the schema in an exported corpus."""

_ALL = (*CORPUS, *FURTHER, *_columns("frame"), *_aggregates(CONCURRENT_AGGREGATES))  # the columns of `profiles()`

MINIBATCH_COLUMNS = (
    "profile_id", "position", "epoch", "index", "phase", "start_s", "stall_ms", "compute_ms", "e2e_ms", "counted",
)  # fmt: skip
"""Of `minibatches()`; `counted`: whether the minibatch counts for the profile's figures."""

TELEMETRY_COLUMNS = ("profile_id", "channel", "time_s", "value")
"""Of `telemetry()`; `time_s` is of the monotonic clock."""

STORES = (".sqlite", ".db")
"""Suffixes of results files."""

FLAGGED, OLDER, WITHOUT_TIME, OTHER_TASK, REPLAYED = "flagged", "older", "without time", "other task", "replayed"
"""Reasons for leaving a profile out."""

FOLLOWS: Dict[str, Tuple[str, ...]] = {
    "storage": ("storage", "storage_medium"),
    "clocks": ("clocks", "dvfs"),
    "workers": ("workers", "worker_start_method"),
    "power_mode": ("power_mode", "tpc_mask", "threads"),
    "device": (
        *("device", "device_model", "device_specification", "board_instance", "accelerator", "threads", "power_mode"),
        *("tpc_mask", "dvfs", "storage_medium", "torch", "cuda", "python", "l4t", "jetpack", "omp_wait_policy"),
        *("provenance", "data_source", "worker_start_method"),
    ),
}
"""The comparable conditions that change with a varied condition; any other condition changes alone."""

FOLLOWS_IN_CLAIMS: Dict[str, Tuple[str, ...]] = {
    **FOLLOWS,
    "workload": ("device_specification", "data_source", "data_samples"),
    "data_scale": ("data_samples", "data_source"),
    "task": (
        *("workload", "workers", "batch_size", "cache", "storage_medium", "accelerator", "threads", "torch", "cuda"),
        *("python", "device_specification", "data_source", "data_samples", "worker_start_method"),
    ),
}
"""The same for two cases of a claim; parameters of its workload are part of a simulated board."""


def profiles(
    store: StoredProfiles,
    include_flagged: bool = False,
    newest_only: bool = False,
    timed: bool = False,
    tasks: Optional[Sequence[str]] = None,
    replayed: bool = True,
) -> pd.DataFrame:
    """The profiles of a results file that count, oldest first; columns as in the module's docstring.

    `include_flagged` keeps disturbed and throttled ones; `newest_only` the newest of each comparable conditions and
    case id, because a power mode may have two names; `timed` those with a clean minibatch; `tasks` these tasks; without
    `replayed`, repeated figures of a corpus are dropped. `attrs["left_out"]` counts the profiles left out, each under
    the first of `WITHOUT_TIME`, `OTHER_TASK`, `REPLAYED`, `FLAGGED`, `OLDER` that applies. StoreError if the file is
    damaged.
    """
    left_out = dict.fromkeys((FLAGGED, OLDER, WITHOUT_TIME, OTHER_TASK, REPLAYED), 0)
    kept: List[Record] = []
    for record in store.records():
        if timed and record.aggregates.get("minibatch_time_ms") is None:
            left_out[WITHOUT_TIME] += 1
        elif tasks is not None and record.case.task not in tasks:
            left_out[OTHER_TASK] += 1
        elif not replayed and record.provenance == "replayed":
            left_out[REPLAYED] += 1
        elif not include_flagged and is_disqualified(record.flags):
            left_out[FLAGGED] += 1
        else:
            kept.append(record)
    kept.sort(key=lambda record: record.created_at)  # a merged file has the runs of one board after those of another
    if newest_only:
        newest = {(record.key, record.case_id): record for record in kept}
        left_out[OLDER] = len(kept) - len(newest)
        kept = sorted(newest.values(), key=lambda record: (record.created_at, record.id))
    frame = framed_of(store, kept)
    frame.attrs["left_out"] = left_out
    return frame


def minibatches(store: StoredProfiles, profile_ids: Optional[Iterable[int]] = None) -> pd.DataFrame:
    """The minibatches of some profiles, or of all, in their order: `MINIBATCH_COLUMNS`."""
    parts: _Parts = {name: [] for name in MINIBATCH_COLUMNS}
    for number in _numbers(store, profile_ids):
        profile = store.profile(number)
        steps = Minibatches.of(profile.minibatches)
        parts["profile_id"].append(np.full(len(steps), number))
        parts["position"].append(np.arange(len(steps)))
        parts["counted"].append(steps.counted(profile.case.settings.epochs is not None))
        for name, column in steps.columns.items():
            parts[name].append(column)
    return _joined(parts, {"phase": object, "counted": bool, **dict.fromkeys(_WHOLE, np.int64)})


MISS_RATIO = Column("miss_ratio", float, "share of the clean minibatches that took longer than a given period")


def with_miss_ratio(store: StoredProfiles, frame: pd.DataFrame, period_ms: float) -> pd.DataFrame:
    """A frame of `profiles()` with the share of the minibatches that count and took longer; NaN if none counts."""
    if not period_ms > 0:
        raise InvalidValueError(f"the period is {period_ms:g} ms", "give a time above 0, such as 33")
    steps = minibatches(store, frame.index)
    counted = steps[steps["counted"]]
    shares = (counted["e2e_ms"] > period_ms).groupby(counted["profile_id"]).mean()
    return frame.copy().assign(**{MISS_RATIO.name: shares.reindex(frame.index).astype(float)})


def telemetry(
    store: StoredProfiles, profile_ids: Optional[Iterable[int]] = None, channels: Optional[Sequence[str]] = None
) -> pd.DataFrame:
    """Telemetry samples of some profiles, or of all: `TELEMETRY_COLUMNS`."""
    parts: _Parts = {name: [] for name in TELEMETRY_COLUMNS}
    for number in _numbers(store, profile_ids):
        for channel, series in store.profile(number).telemetry.series.items():
            if channels is None or channel in channels:
                parts["profile_id"].append(np.full(len(series.values), number))
                parts["channel"].append(np.full(len(series.values), channel, object))
                parts["time_s"].append(np.array(series.times_s))
                parts["value"].append(np.array(series.values))
    return _joined(parts, {"profile_id": np.int64, "channel": object})


_Parts = Dict[str, List[np.ndarray]]  # columns of a long frame, in the parts that profiles have of them
_WHOLE = ("profile_id", "position", "epoch", "index")


def _joined(parts: _Parts, kinds_of: Mapping[str, Any]) -> pd.DataFrame:
    """A frame of the parts of each column, floats unless a kind is given."""
    import pandas as pd

    def column(name: str) -> pd.Series:
        kind = kinds_of.get(name, float)
        values = np.concatenate([np.empty(0, kind), *(part.astype(kind) for part in parts[name])])
        return pd.Series(values, dtype=kind)

    return pd.DataFrame({name: column(name) for name in parts})


def common_conditions(frame: pd.DataFrame, vary: Sequence[str] = (), ignore: Sequence[str] = ()) -> pd.Series:
    """A hash for each profile of its comparable conditions except the named ones: rows are comparable if it is equal.

    `vary` are the conditions in which rows differ, with those that follow (`FOLLOWS`); `ignore` are conditions that do
    not change the question, such as `seed`. The size of the data set is included unless it is named, so that epochs of
    different sizes are never compared.
    """
    left_out = {*vary, *ignore, *(name for thing in vary for name in FOLLOWS.get(thing, ()))}
    return frame["comparable"].map(
        lambda comparable: key({name: value for name, value in comparable.items() if name not in left_out})
    )


def _numbers(store: StoredProfiles, profile_ids: Optional[Iterable[int]]) -> List[int]:
    return store.numbers() if profile_ids is None else [int(number) for number in profile_ids]


def labelled(case_id: str, device_name: str, device_label: str) -> str:
    """A case's id with its device as in the frame's `device_label`, which distinguishes devices of a type."""
    return device_label + case_id[len(device_name) :]


def framed_of(store: StoredProfiles, records: Sequence[Record]) -> pd.DataFrame:
    """Records of a file in the columns of `profiles()`; StoreError if a value is not of its column's kind."""
    try:
        return framed(records)
    except InvalidValueError as error:
        raise StoreError(f"{store.path}: {error.what}", error.hint) from error


def framed(records: Sequence[Record]) -> pd.DataFrame:
    """Records of any files in the columns of `profiles()`; InvalidValueError if a value is not of its column's kind."""
    import pandas as pd

    index = pd.Index([record.id for record in records], name="profile_id", dtype="int64")
    rows = [_row(record) for record in records]
    labels = device_labels([(row["device_name"], row["board_instance"]) for row in rows])
    rows = [{**row, "device_label": label} for row, label in zip(rows, labels)]
    frame = pd.DataFrame(rows, index, [column.name for column in _ALL], dtype=object)
    dtypes = {float: float, int: "Int64", bool: bool}
    kinds_of = {column.name: dtypes[column.kind] for column in _ALL if column.kind in dtypes}
    try:
        return frame.astype(kinds_of)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValueError(_describe_misfit(frame, kinds_of), _ANOTHERS) from error


def _describe_misfit(frame: pd.DataFrame, kinds_of: Mapping[str, Any]) -> str:
    """The first value of a frame that is not of its column's kind."""
    for name, kind in kinds_of.items():
        for number, value in frame[name].items():
            try:
                frame.loc[[number], name].astype(kind)
            except (TypeError, ValueError, OverflowError):
                return f"{name} of profile {number} is {value!r}, expected a number"
    return "its profiles are not of one kind"


_ANOTHERS = "the program that wrote it may be another version; keep the file apart"


def _row(record: Record) -> Dict[str, Any]:
    case, conditions = record.case, record.conditions
    sources = {
        "record": {**vars(record), "comparable": record.comparable, "key": record.key},
        "case": {**vars(case), "power_mode": case.power_mode.name},
        "asked": vars(case.settings),
        # A replayed row was measured with settings that only its corpus knows; this case's settings do not apply to it.
        "settings": {} if record.provenance == "replayed" else vars(case.settings),
        "conditions": conditions,
        "medium": conditions.get("storage_medium") or {},
        "environment": record.environment,
    }
    mode = conditions.get("power_mode") or {}
    if not isinstance(mode, dict):
        raise InvalidValueError(f"power_mode of profile {record.id} is {mode!r}, expected a table", _ANOTHERS)
    return {
        **{name: sources[source].get(field) for name, source, field in _PLACES},
        **{name: record.aggregates.get(name) for name in (*AGGREGATES, *CONCURRENT_AGGREGATES)},
        **{field: mode.get(field) for field in PowerMode._fields},
        **{name: getattr(case, name) for name in ("workload", "task", "batch_size")},
        "device": conditions.get("board", case.device),
        "provenance": record.provenance,
        "board_instance": board_instance(conditions, case.device),
        "flags": "; ".join(record.flags),
        "flag_list": tuple(record.flags),
        "flag_kinds": tuple(flag_kinds(record.flags)),
        "usable": not is_disqualified(record.flags),
    }
