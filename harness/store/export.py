"""From a results file to a corpus: a row per distinct comparable conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from harness.core.corpus import CORPUS_COLUMNS, TASKS, Column, write_corpus
from harness.core.errors import StoreError
from harness.core.metrics import AGGREGATES
from harness.core.power_modes import PowerMode
from harness.store.flagged import LEFT_OUT, is_disqualified
from harness.store.rows import Record
from harness.store.store import ResultsStore

_CONDITIONS = (
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
    *(Column(name, float, figure.meaning) for name, figure in AGGREGATES.items() if name not in CORPUS_COLUMNS),
    *_CONDITIONS,
    *_ENVIRONMENT,
    Column("flags", str, "what to know before trusting the figures"),
    Column("started_at", str, "when the measurement began"),
    Column("created_at", str, "when the profile was stored"),
    Column("run_id", str, "run of the suite"),
    Column("key", str, "hash of the comparable conditions"),
)
"""The columns that follow those of the schema in an exported corpus."""


class Exported(NamedTuple):
    """What an export wrote and left out.

    Attributes:
        rows: rows written.
        older: profiles left out because there is a newer one of the same conditions.
        without_time: profiles left out because they have no clean minibatch.
        flagged: profiles left out because of their flags.
        mixed: profiles of training with inference in between, for which a corpus has no task.
    """

    rows: int
    older: int
    without_time: int
    flagged: int = 0
    mixed: int = 0


def export(store: ResultsStore, out: Path, all_runs: bool = False, include_flagged: bool = False) -> Exported:
    """Write the profiles of a results file as a corpus.

    Args:
        store: the results file.
        out: ends in `.csv` or `.parquet`; replaced whole or not at all.
        all_runs: keep every profile; otherwise the newest of each comparable conditions.
        include_flagged: keep profiles that were disturbed or throttled (`harness.store.flagged`).

    Raises:
        StoreError: there is no profile, or `out` cannot be written.
        InvalidValueError: `out` has another suffix.
        DependencyError: Parquet was asked for and pyarrow is not installed.
    """
    usable: List[Record] = []
    without_time = flagged = mixed = 0
    for record in store.records():
        if record.aggregates.get("minibatch_time_ms") is None:
            without_time += 1
        elif record.case.task not in TASKS:
            mixed += 1
        elif is_disqualified(record.flags) and not include_flagged:
            flagged += 1
        else:
            usable.append(record)
    if not usable:
        left_out = f": left out {flagged} {LEFT_OUT}" if flagged else ""
        raise StoreError(
            f"{store.path} holds no profile with a clean minibatch{left_out}", "measure some: pytest benchmarks"
        )
    newest = {
        record.key: record for record in usable
    }  # a later record of the same key takes the place of an earlier one
    kept = usable if all_runs else list(newest.values())
    write_corpus(out, [corpus_row(record) for record in kept], FURTHER)
    return Exported(len(kept), len(usable) - len(kept), without_time, flagged, mixed)


def corpus_row(record: Record) -> Dict[str, Any]:
    """A profile as a row of a corpus, all columns; None where there is no value.

    Raises:
        StoreError: the profile has no power mode.
    """
    case, conditions = record.case, record.conditions
    mode = conditions.get("power_mode") or {}
    lacking = [field for field in PowerMode._fields if field not in mode]
    if lacking:
        raise StoreError(f"profile {record.id} ({record.case_id}) has no {', '.join(lacking)} in its conditions")
    # How a replayed row was measured stands in the corpus that it came from; this case's settings say nothing of it.
    settings = None if record.provenance == "replayed" else case.settings
    return {
        "device": conditions.get("board", case.device),
        "workload": case.workload,
        "task": case.task,
        **{field: mode[field] for field in PowerMode._fields},
        "batch_size": case.batch_size,
        "provenance": record.provenance,
        "case_id": record.case_id,
        "power_mode": case.power_mode,
        "workers": case.workers,
        "storage": case.storage,
        "storage_kind": (conditions.get("storage_medium") or {}).get("kind"),
        "cache": getattr(settings, "cache", None),
        "minibatches": getattr(settings, "minibatches", None),
        "epochs_asked": getattr(settings, "epochs", None),
        "interval_s": getattr(settings, "interval_s", None),
        "clocks": getattr(settings, "clocks", None),
        "seed": getattr(settings, "seed", None),
        **{name: record.aggregates.get(name) for name in AGGREGATES},
        **{column.name: conditions.get(column.name) for column in _CONDITIONS},
        **{column.name: record.environment.get(column.name) for column in _ENVIRONMENT},
        "flags": "; ".join(record.flags),
        "started_at": record.started_at,
        "created_at": record.created_at,
        "run_id": record.run_id,
        "key": record.key,
    }
