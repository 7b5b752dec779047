"""Tables: the rows of a corpus that belong to one device, workload and task, as arrays."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from harness.core.corpus import POWER_LIMIT
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode, PowerModeSpace
from harness.core.terminal import available_hint
from predictors.settings import places_of_equals

TABLE_KEY = ("device", "workload", "task", "provenance")  # corpus columns that are constant within a table
ARRAYS = ("modes", "batch_size", "time_ms", "power_mw")
OPTIONAL_ARRAYS = ("entries", "power_limit_mw")
CONTRADICTION = 1.25  # ratio of two times of the same setting; runs that were repeated differ by a few percent


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Profiles of one workload on one device; immutable, compared by content."""

    device: str  # as in the corpus
    workload: str  # as in the corpus
    task: str  # `training` or `inference`
    provenance: str  # `measured`, `simulated` or `replayed`
    modes: np.ndarray = dataclasses.field(repr=False)  # power modes, int64 of shape (n, 4), columns as in `PowerMode`
    batch_size: np.ndarray = dataclasses.field(repr=False)  # samples per minibatch, int64 of shape (n,)
    time_ms: np.ndarray = dataclasses.field(repr=False)  # median minibatch time, shape (n,)
    power_mw: np.ndarray = dataclasses.field(repr=False)  # median power, shape (n,); NaN if it was not measured
    # time and power of the first minibatches of each row, shape (n, k, 2), powers NaN in minibatches without a sample;
    # None if only medians are available
    entries: Optional[np.ndarray] = dataclasses.field(default=None, repr=False)
    # power limits of a discrete GPU, part of the mode, int64 of shape (n,); None if it has none
    power_limit_mw: Optional[np.ndarray] = dataclasses.field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.modes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def take(self, rows: Any) -> Table:
        return dataclasses.replace(
            self,
            modes=self.modes[rows],
            batch_size=self.batch_size[rows],
            time_ms=self.time_ms[rows],
            power_mw=self.power_mw[rows],
            entries=None if self.entries is None else self.entries[rows],
            power_limit_mw=None if self.power_limit_mw is None else self.power_limit_mw[rows],
        )

    @property
    def settings(self) -> np.ndarray:
        """Mode, batch size and, if it has one, power limit of each row, shape (n, 5) or (n, 6)."""
        limits = [] if self.power_limit_mw is None else [self.power_limit_mw]
        return np.column_stack([self.modes, self.batch_size, *limits])

    @property
    def conditions(self) -> Dict[str, Any]:
        """What predictors take beside the modes, by the names of their arguments."""
        return {"batch_size": self.batch_size, "task": self.task, "power_limit_mw": self.power_limit_mw}

    @property
    def has_power(self) -> bool:
        return not np.isnan(self.power_mw).all()

    def complete(self) -> Table:
        """The rows with measured power; rows of the same settings are merged into their median."""
        return self.take(~np.isnan(self.power_mw)).merged()

    def usable(self) -> Table:
        """The rows to fit predictors on: those with power or, if none has it, all rows."""
        return self.complete() if self.has_power else self.merged()

    def with_clocks(self) -> Table:
        """The table as predictors take it: a clock that the device does not report is 1 kHz, the same in all rows."""
        return self if (self.modes > 0).all() else dataclasses.replace(self, modes=np.maximum(self.modes, 1))

    def merged(self) -> Table:
        """Each mode, batch size and power limit once, with the medians of its rows."""
        places = places_of_equals(self.settings)
        if len(places) == len(self):
            return self
        time_ms, power_mw = (
            np.array([np.median(figures[group]) for group in places]) for figures in (self.time_ms, self.power_mw)
        )
        entries = None
        if self.entries is not None:
            most = self.entries.shape[1] * max(map(len, places))
            entries = np.stack([np.resize(self.entries[group], (most, 2)) for group in places])
        rows = self.take([group[0] for group in places])
        return dataclasses.replace(rows, time_ms=time_ms, power_mw=power_mw, entries=entries)

    def by_minibatch(self) -> Table:
        """A row per minibatch, with its time and a power; without single minibatches the table itself.

        There are fewer powers than minibatches: they are repeated (001 sec. 4). A row without a power sample in its
        minibatches gets its median.
        """
        if self.entries is None:
            return self
        time_ms, power_mw = np.moveaxis(self.entries, 2, 0)
        count = time_ms.shape[1]
        sampled = [row[~np.isnan(row)] for row in power_mw]
        repeated = [np.resize(row if len(row) else own, count) for row, own in zip(sampled, self.power_mw)]
        rows = dataclasses.replace(self, entries=None).take(np.repeat(np.arange(len(self)), count))
        return dataclasses.replace(rows, time_ms=time_ms.ravel(), power_mw=np.concatenate(repeated))

    def first_minibatches(self, count: int) -> Table:
        """The table as profiles of only the first `count` minibatches would have given it, with their medians.

        If no power was sampled in them, the next sample counts: the papers' profiles wait for one (001 sec. 2.5).
        """
        if self.entries is None:
            raise InvalidValueError(f"the table of {self.workload} has medians only", "use one with single minibatches")
        kept, power_mw = self.entries[:, :count], self.power_mw.copy()
        for place, row in enumerate(self.entries[:, :, 1]):
            sampled = np.flatnonzero(~np.isnan(row))
            if len(sampled):
                power_mw[place] = np.median(row[sampled[: max(1, (sampled < count).sum())]])
        return dataclasses.replace(self, time_ms=np.median(kept[:, :, 0], axis=1), power_mw=power_mw, entries=kept)

    def contradictions(self) -> int:
        """How many settings were measured more than once, with times further apart than noise explains."""
        groups = [self.time_ms[group] for group in places_of_equals(self.settings)]
        return sum(times.max() > CONTRADICTION * times.min() for times in groups)

    def unapplied(self) -> np.ndarray:
        """Indices of profiles that are faster and draw more than those at the next higher GPU clock, ascending.

        Their GPU clock was probably not applied. Noise of a percent or so does not count.
        """
        cores, cpu, gpu, memory = self.modes.T
        limits = np.zeros(len(self)) if self.power_limit_mw is None else self.power_limit_mw
        order = np.lexsort((gpu, memory, cpu, cores, self.batch_size, limits))
        low, high = order[:-1], order[1:]
        others = np.delete(self.settings, PowerMode._fields.index("gpu_khz"), axis=1)
        alike = (others[low] == others[high]).all(axis=1)
        odd = (self.time_ms[low] < 0.9 * self.time_ms[high]) & (self.power_mw[low] > 1.05 * self.power_mw[high])
        return np.sort(low[alike & odd])

    def space(self) -> PowerModeSpace:
        return PowerModeSpace.spanned_by(self.modes.tolist())

    def overlaps(self, other: Table) -> bool:
        """Whether both hold profiles of the same workload on the same device that share a mode and batch size."""
        if (self.device, self.workload, self.task) != (other.device, other.workload, other.task):
            return False
        rows = [{*map(tuple, table.settings.tolist())} for table in (self, other)]
        return not rows[0].isdisjoint(rows[1])

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the table's content, in hexadecimal: the same rows in the same order give the same."""
        digest = hashlib.sha256("\0".join((self.device, self.workload, self.task, self.provenance)).encode())
        for name in ARRAYS:
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        for name in OPTIONAL_ARRAYS:
            if getattr(self, name) is not None:
                digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()


def tables_of(rows: Any) -> List[Table]:
    """The tables of corpus rows (a frame, or mappings by column), in order of first appearance.

    A frame may have a column `entries`, as in `Table`; rows may differ in their number of minibatches.
    """
    import pandas as pd

    settings = list(PowerMode._fields)
    columns = [*TABLE_KEY, *settings, "batch_size", "minibatch_time_ms", "power_mw", "entries", POWER_LIMIT.name]
    frame = pd.DataFrame(rows, columns=columns)
    return [
        Table(
            device,
            workload,
            task,
            provenance,
            modes=part[settings].to_numpy(dtype=np.int64),
            batch_size=part["batch_size"].to_numpy(dtype=np.int64),
            time_ms=part["minibatch_time_ms"].to_numpy(dtype=float),
            power_mw=part["power_mw"].to_numpy(dtype=float),
            entries=_stacked(part["entries"]),
            power_limit_mw=_limits(part[POWER_LIMIT.name], (device, workload, task, provenance)),
        )
        for (device, workload, task, provenance), part in frame.groupby(list(TABLE_KEY), sort=False)
    ]


def _stacked(entries: Sequence[Any]) -> Optional[np.ndarray]:
    """Entries of all rows, those of shorter profiles repeated (001 sec. 4); None if a row has none."""
    lengths = [0 if row is None or np.ndim(row) == 0 else len(row) for row in entries]
    return np.stack([np.resize(row, (max(lengths), 2)) for row in entries]) if min(lengths) else None


def _limits(cells: Any, key: Sequence[str]) -> Optional[np.ndarray]:
    """The power limits of all rows; None if no row has one."""
    if cells.isna().all():
        return None
    if cells.isna().any():
        what = f"{cells.isna().sum()} of {len(cells)} profiles of {key[1]} on {key[0]}"
        raise InvalidValueError(f"{what} have no {POWER_LIMIT.name}", "give it for all of them, or for none")
    return cells.to_numpy(dtype=np.int64)


def find_table(tables: Sequence[Table], workload: str, task: str = "training", device: Optional[str] = None) -> Table:
    """The only table of a workload and task, of a device if one is given; refused if there is none or more than one."""
    matching = [table for table in tables if (table.workload, table.task) == (workload, task)]
    if not matching:
        there = sorted({table.workload for table in tables if table.task == task})
        hint = available_hint(workload, there) if there else f"it has no {task} at all"
        raise UnknownNameError(f"the corpus has no {task} of {workload!r}", hint)
    devices = sorted({table.device for table in matching})
    if device is not None:
        matching = [table for table in matching if table.device == device]
        if not matching:
            raise UnknownNameError(
                f"the corpus has no {task} of {workload!r} on {device!r}", available_hint(device, devices)
            )
    if len(matching) > 1:
        kinds = ", ".join(f"{table.device} ({table.provenance})" for table in matching)
        raise InvalidValueError(f"the corpus has {task} of {workload!r} more than once: {kinds}", "keep one of them")
    return matching[0]
