"""E9 to E11: clocks that may fall against clocks that are held, power while nothing runs, and a few power modes.

004 Figs 6, 7 and 9.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from harness.core.cases import DVFS, IDLE, LOGGING, QUIET, STATIC
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w, percent_to_share, share_to_percent
from harness.report.colours import LISTED, PARTS
from harness.report.figure import Axis, Figure, LegendEntry, Mark, Panel, Value, figure_of, figure_text, panel_of
from harness.report.figures.epochs import COLUMNS as TIME_COLUMNS
from harness.report.figures.epochs import ENERGY as ENERGY_LABEL
from harness.report.figures.epochs import LEGEND, EpochBar, energy_j, parts_of, sizes_of, stacked_panel
from harness.report.material import Family, Material, Row, file_name, grouped
from harness.report.mode_tables import LETTER
from harness.stats.experiments import baseload_share
from harness.store.frames import FOLLOWS

CHANGES = (("time", "minibatch_time_ms"), ("power", "power_mw"), ("energy", "energy_per_sample_mws"))
STEPS = (0, 20, 40, 60, 80, 100)  # of a clock, in % of the power mode's

IDLE_STATES = {(LOGGING, STATIC): "(i)", (QUIET, STATIC): "(ii)", (QUIET, DVFS): "(iii)"}
"""The paper's names of the idle states that a device can measure by itself."""

IDLE_LEGEND = {
    "(i)": "(i) static clocks, all telemetry",
    "(ii)": "(ii) static clocks, little telemetry",
    "(iii)": "(iii) DVFS, little telemetry",
}

_OF_BOARDS = tuple(name for name in FOLLOWS["device"] if name not in ("device", "provenance", "data_source"))
IDLE_VARIES = ("workload", "clocks", "idle_s", "storage", "cache", "seed", *_OF_BOARDS)
"""Conditions in which idle states may differ: the axes, and conditions without influence on an idle device."""

LEAST_MODES = 3
MOST_MODES = 30  # power modes that fit side by side; more need a scatter plot

ENERGY = tuple(
    LegendEntry(part, PARTS[part])
    for part in ("incremental energy", "baseload energy", "energy, baseload not measured")
)

Rows = List[Tuple[Any, ...]]


def dvfs_figures(material: Material) -> Iterator[Figure]:
    for device, members in grouped(material.families(material.trained(), "clocks"), attrgetter("device")).items():
        panels: List[Panel] = []
        rows: Rows = []
        for family in members:
            if set(family.values) == {STATIC, DVFS}:
                panels.append(_change_panel(material, family, rows))
                panels.append(_residency_panel(material, family.rows[family.values.index(DVFS)], rows))
        series = [LegendEntry(name, colour) for name, colour in zip(("CPU clock", "GPU clock", "change"), LISTED)]
        columns = ("device", "workload", "quantity", "clocks_pct_of_max", "value_pct", "provenance")
        yield figure_of("dvfs", file_name("dvfs", device), panels, series, columns, rows, device=device)


def _change_panel(material: Material, family: Family, rows: Rows) -> Panel:
    pair = dict(zip(family.values, family.rows))
    before, after = pair[STATIC], pair[DVFS]
    values = []
    for name, key in CHANGES:
        old, new = getattr(before, key), getattr(after, key)
        if not old or new is None:
            continue
        change, low, high = (
            None if ratio is None else share_to_percent(ratio - 1)
            for ratio in (new / old, *material.ends_of_ratio(before.id, after.id, name, new / old))
        )
        values.append(Value("change", name, change, family.provenance, low, high, before.apart or after.apart))
        rows.append((family.device, family.workload, f"change of {name}", None, change, family.provenance))
    axes = Axis("with DVFS against without"), Axis("change (%)")
    return panel_of(family.workload, *axes, Mark.BESIDE, values, family.rows, family.varies)


def _residency_panel(material: Material, row: Row, rows: Rows) -> Panel:
    """The share of time in each step of the clocks; empty if they were not sampled."""
    samples = material.telemetry(row)
    names = tuple(f"{low}-{high}" for low, high in zip(STEPS, STEPS[1:]))
    bars = []
    for name, pattern, top in (("CPU clock", r"cpu\d+_khz", row.cpu_khz), ("GPU clock", "gpu_khz", row.gpu_khz)):
        channels = [channel for channel in samples["channel"].unique() if re.fullmatch(pattern, channel)]
        values = samples.loc[samples["channel"].isin(channels), "value"].to_numpy()
        if not len(values) or not top:
            continue
        counts, _ = np.histogram(np.clip(share_to_percent(values / top), 0, 100), STEPS)
        for step, count in zip(names, counts):
            share = float(share_to_percent(count / len(values)))
            bars.append(Value(name, step, share, row.provenance, apart=row.apart))
            rows.append((row.device_name, row.workload, name, step, share, row.provenance))
    axes = Axis("clock (% of the power mode's)"), Axis("share of time (%)")
    return panel_of(f"{row.workload}: clocks with DVFS", *axes, Mark.BESIDE, bars, [row])


def state_of(row: Row) -> str:
    """The name of an idle state: the paper's number, or the name given to a socket meter's record."""
    return IDLE_STATES.get((row.workload, row.case.settings.clocks), row.workload.partition("-")[2])


def baseload_figures(material: Material) -> Iterator[Figure]:
    """One figure with a panel for each device: a group of bars for each power mode."""
    idle = [row for row in material.rows if row.task == IDLE and row.power_mean_mw is not None]
    states = sorted({state_of(row) for row in idle})
    panels, rows = [], []
    for group in material.alike(idle, IDLE_VARIES):
        values = []
        for row in group:
            state, watts = state_of(row), mw_to_w(row.power_mean_mw)
            values.append(material.value(row, IDLE_LEGEND.get(state, state), row.power_mode, watts, "power"))
            clocks = row.case.settings.clocks
            csv_row = (
                row.label,
                row.power_mode,
                state,
                row.workload,
                clocks,
                watts,
                row.power_definition,
                row.provenance,
            )
            rows.append(csv_row)
        axes = Axis("power mode"), Axis("mean power (W)")
        panels.append(panel_of(group[0].label, *axes, Mark.BESIDE, values, group, IDLE_VARIES))
    columns = ("device", "power_mode", "state", "workload", "clocks", "power_w", "power_definition", "provenance")
    series = [LegendEntry(IDLE_LEGEND.get(state, state), colour) for state, colour in zip(states, LISTED)]
    yield figure_of("baseload", "baseload", panels, series, columns, rows)


def power_mode_figures(material: Material) -> Iterator[Figure]:
    """Stacked time, and energy with the baseload's share, for each power mode, a figure for each device."""
    families = material.families(material.trained(), "power_mode", least=LEAST_MODES)
    few = [family for family in families if len(family.values) <= MOST_MODES]
    idle_mw = {
        (row.device_name, row.mode): row.power_mean_mw
        for row in material.rows
        if row.task == IDLE and state_of(row) == "(i)" and row.mode is not None and row.power_mean_mw is not None
    }
    for device, members in grouped(few, attrgetter("device")).items():
        panels: List[Panel] = []
        rows: Rows = []
        for family in members:
            profiles = [row for row in _once_each(family.rows) if parts_of(row) is not None]
            bars = [EpochBar(row.power_mode, row) for row in profiles]
            panel, data = stacked_panel(material, family.workload, bars, "power mode", family.varies)
            shares = {}
            for row in profiles:
                held_mw = idle_mw.get((row.device_name, row.mode))
                if held_mw is not None and row.energy_mwh:
                    # Of an epoch 1 or later, or of all clean minibatches if no whole epochs were run.
                    energy, time_s = row.energy_mwh, row.e2e_s
                    if row.epoch_energy_mwh:
                        energy, time_s = row.epoch_energy_mwh, row.epoch_time_s
                    shares[row.power_mode] = share_to_percent(baseload_share(energy, held_mw, time_s))
            panels += [panel, *_energy_panels(family, profiles, shares)]
            for row, csv_row in zip(profiles, data):
                mode = row.mode or (None,) * len(PowerMode._fields)
                rows.append((*csv_row, *mode, shares.get(row.power_mode)))
        sizes = sizes_of([row for family in members for row in family.rows])
        columns = (*TIME_COLUMNS, *PowerMode._fields, "baseload_share_pct")
        name, series = file_name("power-modes", device), (*LEGEND, *ENERGY)
        yield figure_of("power-modes", name, panels, series, columns, rows, device=device, sizes=sizes)


def _once_each(rows: Sequence[Row]) -> List[Row]:
    """One profile for each power mode: a letter of the papers' table is preferred over `maxn` for the same mode.

    If the papers' table was run, modes named by their settings belong to another experiment.
    """
    named = [row for row in rows if len(row.power_mode) <= LETTER or row.power_mode == MAXN]
    chosen = named if len(named) >= LEAST_MODES else list(rows)
    others = {row.mode for row in chosen if row.power_mode != MAXN}
    return [row for row in chosen if row.power_mode != MAXN or row.mode not in others]


def _energy_panels(family: Family, rows: Sequence[Row], shares: Dict[str, float]) -> List[Panel]:
    """Energy of 1,000 samples, and the baseload's share of it if it is measured for two modes or more."""
    incremental, baseload, unsplit = (entry.name for entry in ENERGY)
    values = []
    for row in rows:
        parts, share = parts_of(row), shares.get(row.power_mode)
        energy = None if parts is None else energy_j(parts)
        if energy is None:
            continue
        stack, note = [(unsplit, energy)], f"{figure_text(energy)} J in all"
        if share is not None:
            held = energy * percent_to_share(share)
            stack = [(baseload, held), (incremental, max(energy - held, 0.0))]
            note += f", {share:.0f} % of it baseload"
        values += [Value(part, row.power_mode, of, row.provenance, apart=row.apart, note=note) for part, of in stack]
    title = f"{family.workload}: energy"
    panels = [panel_of(title, Axis("power mode"), Axis(ENERGY_LABEL), Mark.STACKED, values, rows, family.varies)]
    if len(shares) > 1:
        bars = [Value(baseload, mode, share, family.provenance) for mode, share in shares.items()]
        axes = Axis("power mode"), Axis("share of the energy (%)")
        panels.append(panel_of(f"{family.workload}: baseload", *axes, Mark.BESIDE, bars, rows, family.varies))
    return panels
