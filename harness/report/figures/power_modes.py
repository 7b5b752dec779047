"""E11: a few power modes: where time goes, and how much of the energy is baseload (004 Fig 9)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from harness.core.cases import IDLE
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.units import mwh_to_wh, share_to_percent
from harness.report.figure import CATEGORY, Axis, Bar, Figure, Panel, Series
from harness.report.figures.baseload import idle_power_mw, state_of
from harness.report.figures.stacks import COLUMNS as TIME_COLUMNS
from harness.report.figures.stacks import HOW, LEGEND, Column, parts_of, row_of, stacked_panel
from harness.report.mode_tables import LETTER
from harness.report.scales import figure_text
from harness.report.selection import Family, Material, by_device, families, file_name, mode_of, trained
from harness.stats.baseload import split_load
from harness.store.rows import Record

LEAST = 3
MOST = 30
"""Power modes that have room side by side; more are a scatter's."""

ENERGY = (
    Series("incremental energy", "incremental"),
    Series("baseload energy", "baseload"),
    Series("energy, baseload not measured", "c5"),
)


def power_mode_figures(material: Material) -> List[Figure]:
    """Stacked time, and energy with the baseload's share, for each power mode, a figure for each device."""
    found = families(trained(material.records), "power_mode", lambda record: record.case.power_mode, least=LEAST)
    idle = _idle_power(material)
    figures = []
    for device, members in by_device([family for family in found if len(family.values) <= MOST]).items():
        panels: List[Panel] = []
        rows: List[Tuple[Any, ...]] = []
        for family in members:
            records = [record for record in _once_each(family.records) if parts_of(record) is not None]
            made = stacked_panel(
                family.workload, [Column(record.case.power_mode, record) for record in records], "power mode"
            )
            energy = _energy(family, records, idle)
            panels += [made[0]] if made else []
            shares = energy[1] if energy else {}
            panels += [energy[0]] if energy else []
            panels += [_share_panel(family, shares)] if len(shares) > 1 else []
            rows += [
                (*row_of(record, parts), *_mode_cells(record), shares.get(record.case.power_mode))
                for record in records
                for parts in [parts_of(record)]
                if parts is not None
            ]
        if panels:
            caption = (
                f"E11: what does a power mode cost? First time. {HOW} Then energy of an epoch (Wh) or a minibatch"
                " (mWh), and the baseload's share of it (%), for modes whose idle power was measured: baseload is the"
                " mean power of idle state (i) in the same power mode times the time, incremental energy the rest."
                " The CSV file says what each mode is."
            )
            columns = (*TIME_COLUMNS, *PowerMode._fields, "baseload_share_pct")
            name, title = f"power-modes-{file_name(device)}", f"Power modes on {device}"
            figures.append(Figure(name, title, caption, tuple(panels), (*LEGEND, *ENERGY), columns, tuple(rows)))
    return figures


def _once_each(records: Sequence[Record]) -> List[Record]:
    """One record for each power mode: a letter of the papers' table stands before `maxn` where both name the same.

    Where the papers' table was run, modes that are told by their numbers were run for another question.
    """
    named = [record for record in records if len(record.case.power_mode) <= LETTER or record.case.power_mode == MAXN]
    shown = named if len(named) >= LEAST else records
    others = {mode_of(record) for record in shown if record.case.power_mode != MAXN}
    return [record for record in shown if record.case.power_mode != MAXN or mode_of(record) not in others]


def _idle_power(material: Material) -> Dict[Tuple[str, PowerMode], float]:
    """Power in mW in idle state (i), by device and power mode."""
    found: Dict[Tuple[str, PowerMode], float] = {}
    for record in material.records:
        mode = mode_of(record)
        power = idle_power_mw(record)
        if record.case.task == IDLE and state_of(record) == "(i)" and mode is not None and power == power:
            found[record.case.device, mode] = power
    return found


def _energy(
    family: Family, records: List[Record], idle: Dict[Tuple[str, PowerMode], float]
) -> Optional[Tuple[Panel, Dict[str, float]]]:
    marks, names, shares = [], [], {}
    whole = any(record.aggregates.get("epoch_energy_mwh") is not None for record in records)
    what, unit, change = ("an epoch", "Wh", mwh_to_wh) if whole else ("a minibatch", "mWh", float)
    for record in records:
        energy, time_s = _energy_and_time(record)
        mode = mode_of(record)
        if not energy or time_s is None:
            continue
        idle_mw = None if mode is None else idle.get((record.case.device, mode))
        parts = [("c5", change(energy))]
        told = ""
        if idle_mw is not None:
            load = split_load(energy, idle_mw, time_s)
            parts = [
                ("baseload", change(load.baseload_mwh)),
                ("incremental", change(max(load.incremental_mwh, 0.0))),
            ]
            shares[record.case.power_mode] = share_to_percent(load.baseload_share)
            told = f", {shares[record.case.power_mode]:.0f} % of it baseload"
        name = record.case.power_mode
        tip = f"{name}: energy of {what} {figure_text(change(energy))} {unit}{told}; {record.provenance}"
        marks.append(Bar(float(len(names)), 0.72, tuple(parts), tip, record.provenance == "simulated"))
        names.append(record.case.power_mode)
    if not marks:
        return None
    axes = Axis("power mode", CATEGORY, tuple(names)), Axis(f"energy of {what} ({unit})")
    return Panel(f"{family.workload}: energy", *axes, tuple(marks), family.provenance), shares


def _share_panel(family: Family, shares: Dict[str, float]) -> Panel:
    """The baseload's share of the energy, for each mode whose idle power was measured."""
    simulated = family.provenance == "simulated"
    marks = tuple(
        Bar(float(place), 0.72, (("baseload", share),), f"{mode}: {share:.0f} % of the energy is baseload", simulated)
        for place, (mode, share) in enumerate(shares.items())
    )
    axes = Axis("power mode", CATEGORY, tuple(shares)), Axis("share of the energy (%)")
    return Panel(f"{family.workload}: baseload", *axes, marks, family.provenance)


def _energy_and_time(record: Record) -> Tuple[Optional[float], Optional[float]]:
    """Energy in mWh and time in s of an epoch 1 or later, or of a minibatch where no whole epochs were run."""
    found = record.aggregates
    if found.get("epoch_energy_mwh") is not None:
        return found["epoch_energy_mwh"], found.get("epoch_time_s")
    minibatches = found.get("clean_minibatches")
    energy, time_s = found.get("energy_mwh"), found.get("e2e_s")
    return (energy / minibatches, time_s / minibatches) if energy and time_s and minibatches else (None, None)


def _mode_cells(record: Record) -> Tuple[Any, ...]:
    return tuple(mode_of(record) or (None,) * len(PowerMode._fields))
