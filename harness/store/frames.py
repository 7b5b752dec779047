"""What a results file holds as pandas frames, and the rule for which profiles count: where every reader starts.

`profiles()` has a row for each profile, indexed by `profile_id`, with the columns

    CORPUS      device (board type), workload, task, cpu_cores, cpu_khz, gpu_khz, mem_khz, batch_size,
                minibatch_time_ms, power_mw, provenance: as `harness.core.corpus` documents them
    FURTHER     what `export` writes behind them: case_id, power_mode (its name), workers, storage, cache, clocks, seed,
                ..., every aggregate, conditions, environment, flags (one text), started_at, created_at, run_id, key
    device_name         str, the device as asked for: `sim:orin-agx@2`
    device_label        str, the same with the board instance, where the frame has several of it: `orin-agx@orin3`
    data_scale_asked    float, settings as asked for; NaN where they were not given
    idle_s, duration_s, max_temperature_c, limit_s      float, likewise
    storage_limit_bytes_per_s   float, what reads of the storage were held down to; NaN where they were not
    latency_median_ms, latency_p95_ms, inference_time_ms, inference_per_s, training_samples_per_s, waiting
                        float, of training and inference together: `CONCURRENT_AGGREGATES`
    flag_list           tuple of str, the flags one by one; flag_kinds: the kind of each
    usable              bool: neither disturbed nor throttled, see `DISQUALIFYING`
    case                Case, what was asked for
    comparable, conditions, environment     dict

Numbers that are missing are NaN (NA in whole-number columns), texts None. Raw series are read by `minibatches()` and
`telemetry()`, with their checksums verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import Case
from harness.core.corpus import CORPUS, CORPUS_COLUMNS, Column
from harness.core.metrics import AGGREGATES, CONCURRENT_AGGREGATES
from harness.core.power_modes import PowerMode
from harness.core.profiles import counted_minibatches
from harness.store.conditions import board_instance, device_labels, is_disqualified, key, kinds
from harness.store.rows import Record

if TYPE_CHECKING:
    import pandas as pd

    from harness.store.results import ResultsStore

_CONDITIONS = (
    Column("board_instance", str, "which one of several devices of a type; empty where nothing tells"),
    Column("power_definition", str, "what the total power is made of"),
    Column("device_model", str, "the device in words"),
    Column("accelerator", str, "cpu, or the GPU's name"),
    Column("threads", int, "CPU threads that training used"),
    Column("torch", str, "version of PyTorch"),
    Column("cuda", str, "version of CUDA that PyTorch was built with"),
    Column("python", str, "version of Python"),
    Column("l4t", str, "release of Jetson Linux"),
    Column("jetpack", str, "release of JetPack"),
    Column("tpc_mask", int, "clusters of the GPU that are off since the boot, a bit for each"),
    Column("dvfs", str, "whether clocks could move below the power mode's, as read back: on or off"),
    Column("data_source", str, "where the samples came from"),
    Column("data_samples", int, "samples in the data set as used"),
    Column("data_scale", float, "samples as a share of the real data set's"),
    Column("cache_residency_before", float, "share of the data set in the page cache at the start"),
    Column("cache_residency_after", float, "share of the data set in the page cache at the end"),
)
_ENVIRONMENT = (
    Column("host_name", str, "name of the machine"),
    Column("kernel", str, "release of the kernel"),
    Column("jetwatt", str, "version of this suite"),
    Column("suite_commit", str, "commit of this suite, + where changed"),
)

FURTHER: Tuple[Column, ...] = (
    Column("case_id", str, "id of the case"),
    Column("power_mode", str, "name of the power mode as asked for"),
    Column("workers", int, "num_workers of the DataLoader"),
    Column("storage", str, "name of the storage medium"),
    Column("storage_kind", str, "what the medium was found to be"),
    Column("cache", str, "what was done to the page cache before"),
    Column("minibatches", int, "clean minibatches asked for; empty where epochs were"),
    Column("epochs_asked", int, "epochs asked for, epoch 0 included; empty where minibatches were"),
    Column("interval_s", float, "seconds between telemetry samples asked for"),
    Column("clocks", str, "what clocks were to do: static or dvfs"),
    Column("seed", int, "of weights, sampling order and written data sets"),
    *(Column(name, float, meaning) for name, meaning in AGGREGATES.items() if name not in CORPUS_COLUMNS),
    *_CONDITIONS,
    *_ENVIRONMENT,
    Column("flags", str, "what to know before trusting the figures"),
    Column("started_at", str, "when the measurement began"),
    Column("created_at", str, "when the profile was stored"),
    Column("run_id", str, "run of the suite"),
    Column("key", str, "hash of the comparable conditions"),
)
"""The columns that follow those of the schema in an exported corpus."""

_SETTINGS = ("idle_s", "duration_s", "max_temperature_c", "limit_s")
_KINDS: Dict[str, type] = {
    **{column.name: column.kind for column in (*CORPUS, *FURTHER)},
    **dict.fromkeys(("device_name", "device_label"), str),
    **dict.fromkeys(("data_scale_asked", *_SETTINGS, "storage_limit_bytes_per_s", *CONCURRENT_AGGREGATES), float),
    **dict.fromkeys(("flag_list", "flag_kinds"), tuple),
    "usable": bool,
    "case": Case,
    **dict.fromkeys(("comparable", "conditions", "environment"), dict),
}
"""What each column of `profiles()` holds."""

MINIBATCH_COLUMNS = (
    "profile_id", "position", "epoch", "index", "phase", "start_s", "stall_ms", "compute_ms", "e2e_ms", "counted",
)  # fmt: skip
"""Of `minibatches()`; `counted`: whether the profile's figures are made of it."""

FLAGGED, OLDER, WITHOUT_TIME, OTHER_TASK, REPLAYED = "flagged", "older", "without time", "other task", "replayed"
"""Why a profile is left out."""

FOLLOWS: Dict[str, Tuple[str, ...]] = {
    "storage": ("storage", "storage_medium"),
    "clocks": ("clocks", "dvfs"),
    "power_mode": ("power_mode", "tpc_mask", "threads"),
    "device": (
        *("device", "device_model", "device_specification", "board_instance", "accelerator", "threads", "power_mode"),
        *("tpc_mask", "dvfs", "storage_medium", "torch", "cuda", "python", "l4t", "jetpack"),
        *("provenance", "data_source"),
    ),
}
"""What else changes of the comparable conditions when a thing is varied; of others only the thing itself does."""

FOLLOWS_IN_CLAIMS: Dict[str, Tuple[str, ...]] = {
    **FOLLOWS,
    "workload": ("device_specification", "data_source", "data_samples"),
    "data_scale": ("data_samples", "data_source"),
    "task": (
        *("workload", "workers", "batch_size", "cache", "storage_medium", "accelerator", "threads", "torch", "cuda"),
        *("python", "device_specification", "data_source", "data_samples"),
    ),
}
"""The same of two cases of a claim; parameters of its workload are part of a simulated board."""


def profiles(
    store: ResultsStore,
    include_flagged: bool = False,
    newest_only: bool = False,
    timed: bool = False,
    tasks: Optional[Sequence[str]] = None,
    replayed: bool = True,
) -> pd.DataFrame:
    """The profiles of a results file that count, oldest first; the columns stand above.

    `include_flagged` keeps those that were disturbed or throttled; `newest_only` the newest of each comparable
    conditions and case id, as a power mode may go by two names; `timed` those that have a clean minibatch; `tasks`
    these tasks; without `replayed` go those that repeat a figure of a corpus. `attrs["left_out"]` says how many were
    left out, each for the first of `WITHOUT_TIME`, `OTHER_TASK`, `REPLAYED`, `FLAGGED`, `OLDER`. StoreError where the
    file is damaged.
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
    frame = framed(kept)
    frame.attrs["left_out"] = left_out
    return frame


def minibatches(store: ResultsStore, profile_ids: Optional[Iterable[int]] = None) -> pd.DataFrame:
    """The minibatches of some profiles, or of all, in their order: `MINIBATCH_COLUMNS`."""
    import pandas as pd

    rows: List[Tuple[Any, ...]] = []
    for number in _numbers(store, profile_ids):
        profile = store.profile(number)
        counted = set(map(id, counted_minibatches(profile.minibatches, profile.case.settings.epochs is not None)))
        rows += [(number, place, *each, id(each) in counted) for place, each in enumerate(profile.minibatches)]
    frame = pd.DataFrame(rows, columns=list(MINIBATCH_COLUMNS))
    return frame.astype({"profile_id": "int64", "counted": bool})


def telemetry(
    store: ResultsStore, profile_ids: Optional[Iterable[int]] = None, channels: Optional[Sequence[str]] = None
) -> pd.DataFrame:
    """Telemetry samples of some profiles, or of all: `profile_id`, `channel`, `time_s` (monotonic), `value`."""
    import pandas as pd

    parts: Dict[str, List[Any]] = {"profile_id": [], "channel": [], "time_s": [], "value": []}
    for number in _numbers(store, profile_ids):
        for channel, series in store.profile(number).telemetry.series.items():
            if channels is None or channel in channels:
                parts["profile_id"] += [number] * len(series.values)
                parts["channel"] += [channel] * len(series.values)
                parts["time_s"] += series.times_s
                parts["value"] += series.values
    kinds_of = {"profile_id": np.int64, "channel": object, "time_s": float, "value": float}
    return pd.DataFrame({name: pd.Series(values, dtype=kinds_of[name]) for name, values in parts.items()})


def common_conditions(frame: pd.DataFrame, vary: Sequence[str] = (), ignore: Sequence[str] = ()) -> pd.Series:
    """A hash for each profile of the comparable conditions that nobody named: rows may be compared where it is equal.

    `vary` is what rows differ in, with what follows (`FOLLOWS`); `ignore` does not change what is asked, such as
    `seed`. The size of the data set is one of them unless it is named, so epochs of different sizes never meet.
    """
    left_out = {*vary, *ignore, *(name for thing in vary for name in FOLLOWS.get(thing, ()))}
    return frame["comparable"].map(
        lambda comparable: key({name: value for name, value in comparable.items() if name not in left_out})
    )


def _numbers(store: ResultsStore, profile_ids: Optional[Iterable[int]]) -> List[int]:
    return store.numbers() if profile_ids is None else [int(number) for number in profile_ids]


def labelled(case_id: str, device_name: str, device_label: str) -> str:
    """A case's id with its device as the frame's `device_label` tells it from others of its type."""
    return device_label + case_id[len(device_name) :]


def framed(records: Sequence[Record]) -> pd.DataFrame:
    """Records as `profiles()` has them, from whichever files they are."""
    import pandas as pd

    index = pd.Index([record.id for record in records], name="profile_id", dtype="int64")
    rows = [_row(record) for record in records]
    labels = device_labels([(row["device_name"], row["board_instance"]) for row in rows])
    rows = [{**row, "device_label": label} for row, label in zip(rows, labels)]
    frame = pd.DataFrame(rows, index, list(_KINDS), dtype=object)
    dtypes = {float: float, int: "Int64", bool: bool}
    return frame.astype({name: dtypes[kind] for name, kind in _KINDS.items() if kind in dtypes})


def _row(record: Record) -> Dict[str, Any]:
    case, conditions = record.case, record.conditions
    mode = conditions.get("power_mode") or {}
    # How a replayed row was measured stands in the corpus that it came from; this case's settings say nothing of it.
    settings = None if record.provenance == "replayed" else case.settings
    return {
        "device": conditions.get("board", case.device),
        **{field: mode.get(field) for field in PowerMode._fields},
        "provenance": record.provenance,
        **{
            name: getattr(case, name) for name in ("workload", "task", "batch_size", "power_mode", "workers", "storage")
        },
        "storage_kind": (conditions.get("storage_medium") or {}).get("kind"),
        "epochs_asked": getattr(settings, "epochs", None),
        **{name: getattr(settings, name, None) for name in ("cache", "minibatches", "interval_s", "clocks", "seed")},
        **{name: record.aggregates.get(name) for name in AGGREGATES},
        **{column.name: conditions.get(column.name) for column in _CONDITIONS},
        **{column.name: record.environment.get(column.name) for column in _ENVIRONMENT},
        "flags": "; ".join(record.flags),
        **{name: getattr(record, name) for name in ("case_id", "started_at", "created_at", "run_id", "key")},
        "device_name": case.device,
        "board_instance": board_instance(conditions, case.device),
        "data_scale_asked": case.settings.data_scale,
        **{name: getattr(case.settings, name) for name in _SETTINGS},
        "storage_limit_bytes_per_s": conditions.get("storage_limit_bytes_per_s"),
        **{name: record.aggregates.get(name) for name in CONCURRENT_AGGREGATES},
        "flag_list": tuple(record.flags),
        "flag_kinds": tuple(kinds(record.flags)),
        "usable": not is_disqualified(record.flags),
        "case": case,
        "comparable": record.comparable,
        "conditions": conditions,
        "environment": record.environment,
    }
