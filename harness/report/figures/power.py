"""E9 to E11: clocks that may fall against clocks that are held, power while nothing runs, and a few power modes.

004 Figs 6, 7 and 9.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import DVFS, IDLE, LOGGING, QUIET, STATIC
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w, mwh_to_wh, share_to_percent
from harness.judge.evidence import WARM
from harness.report.colours import LISTED, PARTS
from harness.report.figure import (
    BESIDE,
    CATEGORY,
    STACKED,
    Axis,
    Figure,
    LegendEntry,
    Panel,
    Value,
    figure_of,
    figure_text,
    panel_of,
)
from harness.report.figures.epochs import COLUMNS as TIME_COLUMNS
from harness.report.figures.epochs import LEGEND, EpochBar, parts_of, sizes_of, stacked_panel
from harness.report.material import Family, Material, Row, by_device, file_name
from harness.report.mode_tables import LETTER
from harness.stats.estimates import quotient
from harness.stats.experiments import split_load
from harness.store.frames import FOLLOWS, telemetry

CHANGES = (("time", "minibatch_time_ms"), ("power", "power_mw"), ("energy", "energy_per_sample_mws"))
STEPS = (0, 20, 40, 60, 80, 100)
"""Of a clock, in % of the power mode's."""

IDLE_STATES = {(LOGGING, STATIC): "(i)", (QUIET, STATIC): "(ii)", (QUIET, DVFS): "(iii)"}
"""The paper's names of the idle states that a device can tell by itself."""

_OF_BOARDS = tuple(name for name in FOLLOWS["device"] if name not in ("device", "provenance", "data_source"))
IDLE_VARIES = ("workload", "clocks", "idle_s", "storage", "cache", "seed", *_OF_BOARDS)
"""What idle states may differ in: their axes, and what does not bear on a device on which nothing runs."""

LEAST_MODES = 3
MOST_MODES = 30
"""Power modes that have room side by side; more are a scatter's."""

ENERGY = tuple(
    LegendEntry(part, PARTS[part])
    for part in ("incremental energy", "baseload energy", "energy, baseload not measured")
)

Rows = List[Tuple[Any, ...]]


def dvfs_figures(material: Material) -> List[Figure]:
    """Change by DVFS, and where clocks then stay, a figure for each device."""
    figures = []
    for device, members in by_device(material.families(material.trained(), "clocks")).items():
        panels: List[Panel] = []
        rows: Rows = []
        for family in members:
            if set(family.values) == {STATIC, DVFS}:
                panels.append(_change_panel(material, family, rows))
                panels += _residency_panel(material, family.rows[family.values.index(DVFS)], rows)
        if panels:
            series = [LegendEntry(name, colour) for name, colour in zip(("CPU clock", "GPU clock", "change"), LISTED)]
            columns = ("device", "workload", "quantity", "clocks_pct_of_max", "value_pct", "provenance")
            name = file_name("dvfs", device)
            figures.append(figure_of("dvfs", name, panels, series, columns, rows, device=device))
    return figures


def _change_panel(material: Material, family: Family, rows: Rows) -> Panel:
    pair = dict(zip(family.values, family.rows))
    before, after = pair[STATIC], pair[DVFS]
    values = []
    for name, key in CHANGES:
        old, new = getattr(before, key), getattr(after, key)
        if not old or new is None:
            continue
        change, ends = share_to_percent(new / old - 1), (None, None)
        estimates = [material.estimates.get(row.id, {}).get((name, WARM)) for row in (before, after)]
        if None not in estimates:
            _, low, high = quotient(*estimates)._replace(value=new / old).interval()
            ends = share_to_percent(low - 1), share_to_percent(high - 1)
        values.append(Value("change", name, change, family.provenance, *ends, before.apart or after.apart))
        rows.append((family.device, family.workload, f"change of {name}", None, change, family.provenance))
    names = tuple(value.x for value in values)
    axes = Axis("with DVFS against without", CATEGORY, names), Axis("change (%)")
    return panel_of(family.workload, *axes, BESIDE, values, family.rows, family.varies)


def _residency_panel(material: Material, row: Row, rows: Rows) -> List[Panel]:
    """The share of time in each step of the clocks; none where they were not sampled."""
    samples = telemetry(material.store, [row.id])
    names = tuple(f"{low}-{high}" for low, high in zip(STEPS, STEPS[1:]))
    found = []
    for name, pattern, top in (("CPU clock", r"cpu\d+_khz", row.cpu_khz), ("GPU clock", "gpu_khz", row.gpu_khz)):
        values = samples["value"][samples["channel"].str.fullmatch(pattern)].to_numpy()
        if not len(values) or not top:
            continue
        counts, _ = np.histogram(np.clip(share_to_percent(values / top), 0, 100), STEPS)
        for step, count in zip(names, counts):
            share = float(share_to_percent(count / len(values)))
            found.append(Value(name, step, share, row.provenance, apart=row.apart))
            rows.append((row.device_name, row.workload, name, step, share, row.provenance))
    if not found:
        return []
    axes = Axis("clock (% of the power mode's)", CATEGORY, names), Axis("share of time (%)")
    return [panel_of(f"{row.workload}: clocks with DVFS", *axes, BESIDE, found, [row])]


def state_of(row: Row) -> str:
    """What an idle state is called: the paper's number, or what a socket meter's record was given as."""
    return IDLE_STATES.get((row.workload, row.case.settings.clocks), row.workload.partition("-")[2])


def baseload_figures(material: Material) -> List[Figure]:
    """One figure with a panel for each device: a group of bars for each power mode."""
    idle = [row for row in material.rows if row.task == IDLE and row.power_mean_mw is not None]
    if not idle:
        return []
    states = sorted({state_of(row) for row in idle})
    panels, rows = [], []
    for group in material.alike(idle, IDLE_VARIES):
        values = []
        for row in group:
            state, watts = state_of(row), mw_to_w(row.power_mean_mw)
            values.append(material.value(row, state, row.power_mode, watts, "power"))
            rows.append(
                (
                    *(row.label, row.power_mode, state, row.workload, row.case.settings.clocks, watts),
                    *(row.power_definition, row.provenance),
                )
            )
        modes = tuple(dict.fromkeys(row.power_mode for row in group))
        axes = Axis("power mode", CATEGORY, modes), Axis("mean power (W)")
        panels.append(panel_of(group[0].label, *axes, BESIDE, values, group, IDLE_VARIES))
    columns = ("device", "power_mode", "state", "workload", "clocks", "power_w", "power_definition", "provenance")
    series = [LegendEntry(state, colour) for state, colour in zip(states, LISTED)]
    return [figure_of("baseload", "baseload", panels, series, columns, rows)]


def power_mode_figures(material: Material) -> List[Figure]:
    """Stacked time, and energy with the baseload's share, for each power mode, a figure for each device."""
    found = material.families(material.trained(), "power_mode", least=LEAST_MODES)
    idle_mw = {
        (row.device_name, row.mode): row.power_mean_mw
        for row in material.rows
        if row.task == IDLE and state_of(row) == "(i)" and row.mode is not None and row.power_mean_mw is not None
    }
    figures = []
    for device, members in by_device([family for family in found if len(family.values) <= MOST_MODES]).items():
        panels: List[Panel] = []
        rows: Rows = []
        for family in members:
            shown = [row for row in _once_each(family.rows) if parts_of(row) is not None]
            made = stacked_panel(
                material, family.workload, [EpochBar(row.power_mode, row) for row in shown], "power mode", family.varies
            )
            if made is None:
                continue
            shares: Dict[str, float] = {}
            panels += [made[0], *_energy_panels(family, shown, idle_mw, shares)]
            for row, cells in zip(shown, made[1]):
                mode = row.mode or (None,) * len(PowerMode._fields)
                rows.append((*cells, *mode, shares.get(row.power_mode)))
        if panels:
            sizes = sizes_of([row for family in members for row in family.rows])
            columns = (*TIME_COLUMNS, *PowerMode._fields, "baseload_share_pct")
            name, series = file_name("power-modes", device), (*LEGEND, *ENERGY)
            figures.append(figure_of("power-modes", name, panels, series, columns, rows, device=device, sizes=sizes))
    return figures


def _once_each(rows: Sequence[Row]) -> List[Row]:
    """One profile for each power mode: a letter of the papers' table stands before `maxn` where both name the same.

    Where the papers' table was run, modes that are told by their numbers were run for another question.
    """
    named = [row for row in rows if len(row.power_mode) <= LETTER or row.power_mode == MAXN]
    shown = named if len(named) >= LEAST_MODES else list(rows)
    others = {row.mode for row in shown if row.power_mode != MAXN}
    return [row for row in shown if row.power_mode != MAXN or row.mode not in others]


def _energy_panels(
    family: Family, rows: Sequence[Row], idle_mw: Dict[Tuple[str, PowerMode], float], shares: Dict[str, float]
) -> List[Panel]:
    """Energy of an epoch or a minibatch, and the baseload's share of it where it is known of two modes or more."""
    whole = any(row.epoch_energy_mwh is not None for row in rows)
    what, unit, change = ("an epoch", "Wh", mwh_to_wh) if whole else ("a minibatch", "mWh", float)
    whole_energy, baseload, incremental = (entry.name for entry in (ENERGY[2], ENERGY[1], ENERGY[0]))
    values = []
    for row in rows:
        name, (energy, time_s) = row.power_mode, _energy_and_time(row, whole)
        if not energy or time_s is None:
            continue
        parts, note = [(whole_energy, energy)], f"{figure_text(change(energy))} {unit} in all"
        if (row.device_name, row.mode) in idle_mw:
            load = split_load(energy, idle_mw[row.device_name, row.mode], time_s)
            parts = [(baseload, load.baseload_mwh), (incremental, max(load.incremental_mwh, 0.0))]
            shares[name] = share_to_percent(load.baseload_share)
            note += f", {shares[name]:.0f} % of it baseload"
        values += [Value(part, name, change(of), row.provenance, apart=row.apart, note=note) for part, of in parts]
    if not values:
        return []
    names = tuple(dict.fromkeys(value.x for value in values))
    axes = Axis("power mode", CATEGORY, names), Axis(f"energy of {what} ({unit})")
    panels = [panel_of(f"{family.workload}: energy", *axes, STACKED, values, rows, family.varies)]
    if len(shares) > 1:
        bars = [Value(baseload, mode, share, family.provenance) for mode, share in shares.items()]
        axes = Axis("power mode", CATEGORY, tuple(shares)), Axis("share of the energy (%)")
        panels.append(panel_of(f"{family.workload}: baseload", *axes, BESIDE, bars, rows, family.varies))
    return panels


def _energy_and_time(row: Row, whole_epochs: bool) -> Tuple[Optional[float], Optional[float]]:
    """Energy in mWh and time in s of an epoch 1 or later, or of a minibatch where no whole epochs were run."""
    if whole_epochs:
        return row.epoch_energy_mwh, row.epoch_time_s
    count, energy, time_s = row.clean_minibatches, row.energy_mwh, row.e2e_s
    return (energy / count, time_s / count) if energy and time_s and count else (None, None)
