"""Which profiles belong into a figure: those that differ in one thing and agree in all others."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import TRAINING
from harness.core.power_modes import PowerMode
from harness.devices.simulated import INSTANCE_MARK
from harness.store.conditions import canonical_json
from harness.store.results import ResultsStore
from harness.store.rows import Record

Value = Callable[[Record], Any]
"""What of a record is varied."""

FOLLOWS: Dict[str, Tuple[str, ...]] = {
    "workers": ("workers",),
    "batch_size": ("batch_size",),
    "workers and storage": ("workers", "storage", "storage_medium"),
    "cache": ("cache",),
    "clocks": ("clocks", "dvfs"),
    "power_mode": ("power_mode", "tpc_mask", "threads"),
    "data_samples": ("data_samples",),
    "device": (
        *("device", "device_model", "device_specification", "accelerator", "threads", "power_mode", "tpc_mask"),
        *("dvfs", "storage_medium", "torch", "cuda", "python", "l4t", "jetpack", "provenance", "data_source"),
    ),
}
"""What changes of the comparable conditions, by name, when one thing is varied."""


@dataclasses.dataclass(frozen=True)
class Material:
    """What a report is made of.

    Attributes:
        store: the results file.
        records: its newest profile of each comparable conditions and case, oldest first.
        corpus: rows of a corpus.
        predictors: results of `python -m predictors evaluate --json`.
        strategies: results of `python -m predictors strategies evaluate --json`.
    """

    store: ResultsStore
    records: Tuple[Record, ...]
    corpus: Tuple[Dict[str, Any], ...] = ()
    predictors: Tuple[Dict[str, Any], ...] = ()
    strategies: Tuple[Dict[str, Any], ...] = ()


class Family(NamedTuple):
    """Records that differ in one thing.

    Attributes:
        device: as it is called, without `sim:` and `replay:`.
        workload: of all of them.
        values: what differs, ascending.
        records: one for each value.
    """

    device: str
    workload: str
    values: Tuple[Any, ...]
    records: Tuple[Record, ...]

    @property
    def provenance(self) -> str:
        """Of all of them, each once."""
        return ", ".join(sorted({record.provenance for record in self.records}))


def newest(records: Iterable[Record]) -> Tuple[Record, ...]:
    """The newest of each comparable conditions and case, oldest first: a power mode may go by two names."""
    by_key = {(record.key, record.case_id): record for record in records}
    return tuple(sorted(by_key.values(), key=lambda record: record.id))


def trained(records: Iterable[Record]) -> List[Record]:
    """Those of training with at least one clean minibatch."""
    return [
        record
        for record in records
        if record.case.task == TRAINING and record.aggregates.get("minibatch_time_ms") is not None
    ]


def families(
    records: Iterable[Record], thing: str, value: Value, least: int = 2, split_by: Sequence[str] = ()
) -> List[Family]:
    """Families in which a thing is varied: of each device and workload the one with the most values.

    Args:
        records: to choose from.
        thing: a key of `FOLLOWS`.
        value: the varied value of a record; a record of which it is None is left out.
        least: how many values a family must have.
        split_by: names of comparable conditions; the best family is taken for each of their values.
    """
    alike: Dict[str, Dict[Any, Record]] = collections.defaultdict(dict)
    for record in records:
        what = value(record)
        if what is not None:
            rest = {name: one for name, one in record.comparable.items() if name not in FOLLOWS[thing]}
            if thing not in ("power_mode", "device"):
                rest["power_mode_name"] = record.case.power_mode
            alike[canonical_json(rest)][what] = record
    best: Dict[Tuple[str, ...], Dict[Any, Record]] = {}
    for members in alike.values():
        record = next(iter(members.values()))
        place = (
            "" if thing == "device" else record.case.device,
            record.case.workload,
            *(str(record.comparable.get(name)) for name in split_by),
        )
        if len(members) >= least and _rank(members) >= _rank(best.get(place, {})):  # of equal ones the newer
            best[place] = members
    found = []
    for members in best.values():
        values = sorted(members)
        first = members[values[0]]
        found.append(
            Family(device_name(first), first.case.workload, tuple(values), tuple(members[one] for one in values))
        )
    return found


def _rank(members: Dict[Any, Record]) -> Tuple[int, float, int]:
    """What makes a family better: more values, then more data, then the papers' defaults (004 sec. 4.4).

    Data sets of the real size are what an experiment is about; a sweep's small ones fit into any page cache.
    """
    scales = [record.case.settings.data_scale or 0.0 for record in members.values()]
    return len(members), max(scales, default=0.0), max(map(by_defaults, members.values()), default=0)


def by_defaults(record: Record) -> int:
    """In how many settings a record is at the papers' defaults (004 sec. 4.4)."""
    case = record.case
    return sum((case.workers == 4, case.storage == "ssd", case.batch_size == 16, case.power_mode == "maxn"))


def by_device(found: Iterable[Family]) -> Dict[str, List[Family]]:
    """Families of each device."""
    groups: Dict[str, List[Family]] = {}
    for family in found:
        groups.setdefault(family.device, []).append(family)
    return groups


def device_name(record: Record) -> str:
    """What a device is called beside its provenance."""
    return bare(record.case.device)


def base_name(record: Record) -> str:
    """The same without the number of the board, where several simulated ones are of a type."""
    return device_name(record).partition(INSTANCE_MARK)[0]


def bare(device: str) -> str:
    """The name of a device without `sim:` and `replay:`."""
    return device.partition(":")[2] or device


def mode_of(record: Record) -> Optional[PowerMode]:
    """The power mode as it was read back; None where it is not known."""
    mode = record.conditions.get("power_mode") or {}
    return PowerMode(*(mode[name] for name in PowerMode._fields)) if set(PowerMode._fields) <= set(mode) else None


def file_name(text: str) -> str:
    """A text as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text).strip("-").lower()
