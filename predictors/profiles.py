"""Profiles as arrays: the table of one device, workload and task, from the rows of a corpus."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import CONTRADICTION, POWER_LIMIT
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint, counted
from predictors.goals import BREAKING_SHARE
from predictors.settings import Settings, places_of_equals

TABLE_KEY = ("device", "workload", "task", "provenance")  # corpus columns that are constant within a table
ARRAYS = ("modes", "batch_size", "time_ms", "power_mw")
SHOWN = 5  # profiles of a kind listed by name


@dataclasses.dataclass(frozen=True, eq=False)
class Profiles(Settings):
    """Settings with measured figures: the profiles of one workload on one device; immutable, compared by content."""

    device: str  # as in the corpus
    workload: str  # as in the corpus
    provenance: str  # `measured`, `simulated` or `replayed`
    time_ms: np.ndarray = dataclasses.field(repr=False)  # median minibatch time, shape (n,)
    power_mw: np.ndarray = dataclasses.field(repr=False)  # median power, shape (n,); NaN if it was not measured
    # time and power of the first minibatches of each row, shape (n, k, 2), powers NaN in minibatches without a sample;
    # None if only medians are available
    entries: Optional[np.ndarray] = dataclasses.field(default=None, repr=False)

    @staticmethod
    def at(
        settings: Settings,
        time_ms: np.ndarray,
        power_mw: np.ndarray,
        *,
        device: str = "",
        workload: str = "",
        provenance: str = "",
        entries: Optional[np.ndarray] = None,
    ) -> Profiles:
        """The figures of settings; device, workload and provenance are empty for figures of unknown origin."""
        rows = settings.modes, settings.batch_size, settings.task, settings.power_limit_mw
        return Profiles(*rows, device, workload, provenance, time_ms, power_mw, entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profiles) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def has_power(self) -> bool:
        return not np.isnan(self.power_mw).all()

    def complete(self) -> Profiles:
        """The rows with measured power; rows of the same settings are merged into their median."""
        return self.take(~np.isnan(self.power_mw)).merged()

    def usable(self) -> Profiles:
        """The rows to fit predictors on: those with power or, if none has it, all rows."""
        return self.complete() if self.has_power else self.merged()

    def learnable(self) -> Profiles:
        """The rows of `usable`; refused if they are fewer than two, one to fit on and one to test on."""
        usable = self.usable()
        if len(usable) < 2:
            what = "profiles with power" if self.has_power else "profiles"
            raise InvalidValueError(
                f"{self.workload} on {self.device} has {len(usable)} {what}",
                "give at least two, one to fit on and one to test on",
            )
        return usable

    def admissible(self, references: Sequence[Profiles]) -> Tuple[Profiles, ...]:
        """Those references that share no profile with this table, and have power if it does."""
        learnable = [reference for reference in references if reference.has_power or not self.has_power]
        return tuple(reference for reference in learnable if not reference.overlaps(self))

    def merged(self) -> Profiles:
        """Each mode, batch size and power limit once, with the medians of its rows."""
        places = places_of_equals(np.column_stack([self.table, self.inference]))
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

    def by_minibatch(self) -> Profiles:
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

    def first_minibatches(self, count: int) -> Profiles:
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
        groups = [self.time_ms[group] for group in places_of_equals(self.table)]
        return sum(times.max() > CONTRADICTION * times.min() for times in groups)

    def unapplied(self) -> np.ndarray:
        """Indices of profiles that are faster and draw more than those at the next higher GPU clock, ascending.

        Their GPU clock was probably not applied. Noise of a percent or so does not count.
        """
        cores, cpu, gpu, memory = self.modes.T
        limits = np.zeros(len(self)) if self.power_limit_mw is None else self.power_limit_mw
        order = np.lexsort((gpu, memory, cpu, cores, self.batch_size, limits))
        low, high = order[:-1], order[1:]
        others = np.delete(self.table, PowerMode._fields.index("gpu_khz"), axis=1)
        alike = (others[low] == others[high]).all(axis=1)
        odd = (self.time_ms[low] < 0.9 * self.time_ms[high]) & (self.power_mw[low] > 1.05 * self.power_mw[high])
        return np.sort(low[alike & odd])

    def applied(self) -> Profiles:
        """The rows to learn from: without those whose GPU clock was probably not applied."""
        return self.take(np.setdiff1d(np.arange(len(self)), self.unapplied()))

    def notes_on_unapplied(self) -> List[str]:
        """A caveat that names the rows that are not learned from; none without any."""
        places = self.unapplied()
        if not len(places):
            return []
        what = (
            "are left out: faster and drawing more than at the next higher GPU clock, so probably not run at their own"
        )
        return [note_on_modes(what, [self.mode_name(index) for index in places])]

    def least_kept_limit_mw(self) -> float:
        """The least power limit from which on no profile drew more than its limit, in mW; infinite without any.

        Below some limit a GPU draws more than it allows, as its clocks do not fall any further.
        """
        limits_mw = self.power_limit_mw
        assert limits_mw is not None, "profiles without power limits"
        is_broken = self.power_mw > (1 + BREAKING_SHARE) * limits_mw
        greatest_broken_mw = limits_mw[is_broken].max(initial=0.0)
        return float(limits_mw[limits_mw > greatest_broken_mw].min(initial=np.inf))

    def overlaps(self, other: Profiles) -> bool:
        """Whether both hold profiles of the same workload on the same device that share a mode and batch size."""
        if (self.device, self.workload, self.task) != (other.device, other.workload, other.task):
            return False
        rows = [{*map(tuple, table.table.tolist())} for table in (self, other)]
        return not rows[0].isdisjoint(rows[1])

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the table's content, in hexadecimal: the same rows in the same order give the same."""
        digest = hashlib.sha256("\0".join((self.device, self.workload, self.task, self.provenance)).encode())
        whole = (self.modes.astype(np.int64), self.batch_size.astype(np.int64), self.time_ms, self.power_mw)
        limits_mw = None if self.power_limit_mw is None else self.power_limit_mw.astype(np.int64)
        for values in (*whole, self.entries, limits_mw):
            if values is not None:
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


def note_on_modes(what: str, names: Sequence[str]) -> str:
    """`3 profiles are ...: A, B, C`, with the first few names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{counted(len(names), 'profile')} {what}: {', '.join(names[:SHOWN])}{more}"


def tables_of(rows: Any) -> List[Profiles]:
    """The tables of corpus rows (a frame, or mappings by column), in order of first appearance.

    A frame may have a column `entries`, as in `Profiles`; rows may differ in their number of minibatches.
    """
    import pandas as pd

    settings = list(PowerMode._fields)
    columns = [*TABLE_KEY, *settings, "batch_size", "minibatch_time_ms", "power_mw", "entries", POWER_LIMIT.name]
    frame = pd.DataFrame(rows, columns=columns)
    return [
        Profiles.at(
            Settings.of(
                part[settings], part["batch_size"], task, _limits(part[POWER_LIMIT.name], f"{workload} on {device}")
            ),
            part["minibatch_time_ms"].to_numpy(dtype=float),
            part["power_mw"].to_numpy(dtype=float),
            device=device,
            workload=workload,
            provenance=provenance,
            entries=_stacked(part["entries"]),
        )
        for (device, workload, task, provenance), part in frame.groupby(list(TABLE_KEY), sort=False)
    ]


def _stacked(entries: Sequence[Any]) -> Optional[np.ndarray]:
    """Entries of all rows, those of shorter profiles repeated (001 sec. 4); None if a row has none."""
    lengths = [0 if row is None or np.ndim(row) == 0 else len(row) for row in entries]
    return np.stack([np.resize(row, (max(lengths), 2)) for row in entries]) if min(lengths) else None


def _limits(cells: Any, profiles: str) -> Optional[np.ndarray]:
    """The power limits of all rows; None if no row has one."""
    if cells.isna().all():
        return None
    if cells.isna().any():
        what = f"{cells.isna().sum()} of {len(cells)} profiles of {profiles}"
        raise InvalidValueError(f"{what} have no {POWER_LIMIT.name}", "give it for all of them, or for none")
    return cells.to_numpy(dtype=float)


def find_table(
    tables: Sequence[Profiles], workload: str, task: str = "training", device: Optional[str] = None
) -> Profiles:
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


def find_reference(tables: Sequence[Profiles], workload: str, task: str, device: Optional[str]) -> Profiles:
    """The usable rows of a reference workload: of the device if it was profiled there, else of the only other one."""
    is_here = any((table.workload, table.task, table.device) == (workload, task, device) for table in tables)
    return find_table(tables, workload, task, device if is_here else None).usable()
