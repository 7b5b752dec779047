"""Stacked bars of where time goes: fetch stall, compute and framework overhead (004 sec. 4.5)."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.units import ms_to_s, s_to_ms
from harness.report.figure import CATEGORY, Axis, Bar, Panel, Series, joined
from harness.report.scales import figure_text
from harness.report.selection import Family, device_name
from harness.store.rows import Record

LATER, FIRST, MINIBATCH = "epochs 1 and later", "epoch 0", "minibatch"

LEGEND = (Series("fetch stall", "stall"), Series("compute", "compute"), Series("framework overhead", "overhead"))

COLUMNS = (
    *("device", "workload", "workers", "storage", "batch_size", "cache", "power_mode", "of"),
    *("time_s", "stall_s", "compute_s", "overhead_s", "energy_mwh", "provenance", "flags"),
)

HOW = (
    "Bars: sums over the minibatches of an epoch, the mean of epochs 1 and later where whole epochs were run; else"
    " medians of a minibatch. Stall is the visible wait for a minibatch. Hatched: simulated."
)

WITH_FIRST = (
    "Epoch 0 has the first minibatch in it, in which kernels are chosen and workers start: much of a small epoch."
)


class Parts(NamedTuple):
    """The time of an epoch or a minibatch in parts, in seconds, its energy in mWh, and what it is of."""

    stall_s: float
    compute_s: float
    overhead_s: float
    energy_mwh: Optional[float]
    of: str

    @property
    def time_s(self) -> float:
        """All parts."""
        return self.stall_s + self.compute_s + self.overhead_s


class Column(NamedTuple):
    """A bar to be: its name on the axis, the record, and whether epoch 0 is meant."""

    name: str
    record: Record
    first_epoch: bool = False


def parts_of(record: Record, first_epoch: bool = False) -> Optional[Parts]:
    """The parts of an epoch 1 or later, of a minibatch where no whole epochs were run, or of epoch 0; None without."""
    found = record.aggregates
    prefix, of = ("epoch0", FIRST) if first_epoch else ("epoch", LATER)
    values = [found.get(f"{prefix}_{part}_s") for part in ("stall", "compute", "overhead")]
    if all(value is not None for value in values):
        return Parts(*(float(value or 0.0) for value in values), found.get(f"{prefix}_energy_mwh"), of)  # type: ignore[arg-type]
    medians = [found.get(f"{part}_ms") for part in ("fetch_stall", "compute", "overhead")]
    if first_epoch or any(value is None for value in medians):
        return None
    return Parts(*(ms_to_s(value or 0.0) for value in medians), None, MINIBATCH)  # type: ignore[arg-type]


def stacked_panel(title: str, columns: Sequence[Column], x_label: str) -> Optional[Tuple[Panel, List[Tuple[Any, ...]]]]:
    """A panel with a stacked bar for each column, and its rows of `COLUMNS`; None where none has parts."""
    known = [(column, parts_of(column.record, column.first_epoch)) for column in columns]
    bars = [(column, parts) for column, parts in known if parts is not None]
    if not bars:
        return None
    of_minibatches = all(parts.of == MINIBATCH for _, parts in bars)
    change, unit = (s_to_ms, "ms") if of_minibatches else (float, "s")
    marks = tuple(_bar(place, column, parts, change, unit) for place, (column, parts) in enumerate(bars))
    provenance = joined(column.record.provenance for column, _ in bars)
    names = tuple(column.name for column, _ in bars)
    what = "time of a minibatch" if of_minibatches else "time of an epoch"
    panel = Panel(title, Axis(x_label, CATEGORY, names), Axis(f"{what} ({unit})"), marks, provenance)
    return panel, [row_of(column.record, parts) for column, parts in bars]


def family_columns(family: Family, first_epoch: bool = False) -> List[Column]:
    """A column for each record of a family, named by its value."""
    return [Column(str(value), record, first_epoch) for value, record in zip(family.values, family.records)]


def row_of(record: Record, parts: Parts) -> Tuple[Any, ...]:
    """A row of `COLUMNS`."""
    case = record.case
    return (
        *(device_name(record), case.workload, case.workers, case.storage, case.batch_size, case.settings.cache),
        *(case.power_mode, parts.of, parts.time_s, parts.stall_s, parts.compute_s, parts.overhead_s),
        *(parts.energy_mwh, record.provenance, "; ".join(record.flags)),
    )


def _bar(place: int, column: Column, parts: Parts, change: Any, unit: str) -> Bar:
    shares = [("stall", parts.stall_s), ("compute", parts.compute_s), ("overhead", parts.overhead_s)]
    name = column.name.replace("\n", " ")
    told = ", ".join(f"{part} {figure_text(change(seconds))} {unit}" for part, seconds in shares)
    energy = f", energy {figure_text(parts.energy_mwh)} mWh" if parts.energy_mwh is not None else ""
    return Bar(
        float(place),
        0.72,
        tuple((colour, change(seconds)) for colour, seconds in shares),
        f"{name}: {figure_text(change(parts.time_s))} {unit} per {parts.of} ({told}{energy});"
        f" {column.record.provenance}",
        column.record.provenance == "simulated",
    )
