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
from harness.report.colours import listed
from harness.report.drawing import Height, bars, panel_of
from harness.report.figure import CATEGORY, Axis, Bar, Figure, LegendEntry, Panel
from harness.report.figures.epochs import COLUMNS as TIME_COLUMNS
from harness.report.figures.epochs import HOW, LEGEND, EpochBar, parts_of, sizes_of, stacked_panel
from harness.report.layout import figure_text
from harness.report.material import Family, Material, Row, by_device, file_name
from harness.report.mode_tables import LETTER
from harness.stats.experiments import split_load
from harness.store.frames import FOLLOWS, telemetry

CHANGES = (("time", "minibatch_time_ms"), ("power", "power_mw"), ("energy", "energy_per_sample_mws"))
STEPS = (0, 20, 40, 60, 80, 100)
"""Of a clock, in % of the power mode's."""

IDLE_STATES = {(LOGGING, STATIC): "(i)", (QUIET, STATIC): "(ii)", (QUIET, DVFS): "(iii)"}
"""The paper's names of the idle states that a device can tell by itself."""

IDLE_VARIES = ("workload", "clocks", "idle_s", "storage", "cache", "seed", *FOLLOWS["device"][1:-2])
"""What idle states may differ in: their axes, and what does not bear on a device on which nothing runs."""

LEAST_MODES = 3
MOST_MODES = 30
"""Power modes that have room side by side; more are a scatter's."""

ENERGY = (
    LegendEntry("incremental energy", "incremental"),
    LegendEntry("baseload energy", "baseload"),
    LegendEntry("energy, baseload not measured", "c5"),
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
                panels.append(_change_panel(family, rows))
                panels += _residency_panel(material, family.rows[family.values.index(DVFS)], rows)
        if panels:
            caption = (
                "E9: what does DVFS change? By workload: change in % of the median time of a minibatch, of median"
                " power and of energy per sample when clocks may fall, against clocks held at the power mode's; and"
                " the share of the run's time (%) that clocks spent in each fifth of their greatest value."
            )
            series = [LegendEntry(name, listed(place)) for place, name in enumerate(("CPU clock", "GPU clock"))]
            columns = ("device", "workload", "quantity", "clocks_pct_of_max", "value_pct", "provenance")
            name, title = file_name("dvfs", device), f"DVFS on {device}"
            figures.append(Figure(name, title, caption, panels, series, columns, rows))
    return figures


def _change_panel(family: Family, rows: Rows) -> Panel:
    pair = dict(zip(family.values, family.rows))
    heights: List[Height] = []
    names = []
    for name, key in CHANGES:
        before, after = getattr(pair[STATIC], key), getattr(pair[DVFS], key)
        if before and after is not None:
            change = share_to_percent(after / before - 1)
            tip = f"{name}: {change:+.2g} % with DVFS"
            heights.append(Height(len(names), 0, change, tip, family.provenance))
            names.append(name)
            rows.append((family.device, family.workload, f"change of {name}", None, change, family.provenance))
    axes = Axis("with DVFS against without", CATEGORY, tuple(names)), Axis("change (%)")
    return panel_of(family.workload, *axes, bars(heights, ["c5"], 0.6), family.rows, family.varies)


def _residency_panel(material: Material, row: Row, rows: Rows) -> List[Panel]:
    """The share of time in each step of the clocks; none where they were not sampled."""
    samples = telemetry(material.store, [row.id])
    names = tuple(f"{low}-{high}" for low, high in zip(STEPS, STEPS[1:]))
    heights = []
    for place, (name, pattern, top) in enumerate(
        (("CPU", r"cpu\d+_khz", row.cpu_khz), ("GPU", "gpu_khz", row.gpu_khz))
    ):
        values = samples["value"][samples["channel"].str.fullmatch(pattern)].to_numpy()
        if not len(values) or not top:
            continue
        counts, _ = np.histogram(np.clip(share_to_percent(values / top), 0, 100), STEPS)
        for step, count in enumerate(counts):
            share = float(share_to_percent(count / len(values)))
            tip = f"{name} clock at {names[step]} % of its greatest for {figure_text(share)} % of the time"
            heights.append(Height(step, place, share, tip, row.provenance))
            rows.append((row.device_name, row.workload, f"{name} clock", names[step], share, row.provenance))
    if not heights:
        return []
    axes = Axis("clock (% of the power mode's)", CATEGORY, names), Axis("share of time (%)")
    marks = bars(heights, [listed(0), listed(1)], 0.72)
    return [panel_of(f"{row.workload}: clocks with DVFS", *axes, marks, [row])]


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
        modes = list(dict.fromkeys(row.power_mode for row in group))
        heights = []
        for row in group:
            state, watts = state_of(row), mw_to_w(row.power_mean_mw)
            tip = f"{row.power_mode} {state}: {figure_text(watts)} W; {row.provenance}"
            heights.append(Height(modes.index(row.power_mode), states.index(state), watts, tip, row.provenance))
            rows.append(
                (
                    *(row.label, row.power_mode, state, row.workload, row.case.settings.clocks, watts),
                    *(row.power_definition, row.provenance),
                )
            )
        axes = Axis("power mode", CATEGORY, tuple(modes)), Axis("mean power (W)")
        marks = bars(heights, [listed(place) for place in range(len(states))], 0.84)
        panels.append(panel_of(group[0].label, *axes, marks, group, IDLE_VARIES))
    caption = (
        "E10: what does a device draw while nothing runs? Mean power in W, of the device's own total where no meter"
        " is named: (i) static clocks and telemetry as while training, (ii) static clocks and next to no telemetry,"
        " (iii) the same with DVFS; other names: a socket meter's records, such as Wake on LAN."
    )
    columns = ("device", "power_mode", "state", "workload", "clocks", "power_w", "power_definition", "provenance")
    series = [LegendEntry(state, listed(place)) for place, state in enumerate(states)]
    return [Figure("baseload", "Baseload", caption, panels, series, columns, rows)]


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
                family.workload, [EpochBar(row.power_mode, row) for row in shown], "power mode", family.varies
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
            caption = (
                f"E11: what does a power mode cost? First time. {HOW} Then energy of an epoch (Wh) or a minibatch"
                " (mWh), and the baseload's share of it (%), for modes whose idle power was measured: baseload is the"
                " mean power of idle state (i) in the same power mode times the time, incremental energy the rest."
                f"{sizes} The CSV file says what each mode is."
            )
            columns = (*TIME_COLUMNS, *PowerMode._fields, "baseload_share_pct")
            name, title = file_name("power-modes", device), f"Power modes on {device}"
            figures.append(Figure(name, title, caption, panels, (*LEGEND, *ENERGY), columns, rows))
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
    marks, names = [], []
    whole = any(row.epoch_energy_mwh is not None for row in rows)
    what, unit, change = ("an epoch", "Wh", mwh_to_wh) if whole else ("a minibatch", "mWh", float)
    for row in rows:
        name, (energy, time_s) = row.power_mode, _energy_and_time(row, whole)
        if not energy or time_s is None:
            continue
        parts, told = [("c5", change(energy))], ""
        if (row.device_name, row.mode) in idle_mw:
            load = split_load(energy, idle_mw[row.device_name, row.mode], time_s)
            parts = [("baseload", change(load.baseload_mwh)), ("incremental", change(max(load.incremental_mwh, 0.0)))]
            shares[name] = share_to_percent(load.baseload_share)
            told = f", {shares[name]:.0f} % of it baseload"
        tip = f"{name}: energy of {what} {figure_text(change(energy))} {unit}{told}; {row.provenance}"
        marks.append(Bar(float(len(names)), 0.72, tuple(parts), tip, row.provenance == "simulated"))
        names.append(name)
    if not marks:
        return []
    axes = Axis("power mode", CATEGORY, tuple(names)), Axis(f"energy of {what} ({unit})")
    panels = [panel_of(f"{family.workload}: energy", *axes, marks, rows, family.varies)]
    if len(shares) > 1:
        heights = [
            Height(place, 0, share, f"{mode}: {share:.0f} % of the energy is baseload", family.provenance)
            for place, (mode, share) in enumerate(shares.items())
        ]
        axes = Axis("power mode", CATEGORY, tuple(shares)), Axis("share of the energy (%)")
        title = f"{family.workload}: baseload"
        panels.append(panel_of(title, *axes, bars(heights, ["baseload"], 0.72), rows, family.varies))
    return panels


def _energy_and_time(row: Row, whole_epochs: bool) -> Tuple[Optional[float], Optional[float]]:
    """Energy in mWh and time in s of an epoch 1 or later, or of a minibatch where no whole epochs were run."""
    if whole_epochs:
        return row.epoch_energy_mwh, row.epoch_time_s
    count, energy, time_s = row.clean_minibatches, row.energy_mwh, row.e2e_s
    return (energy / count, time_s / count) if energy and time_s and count else (None, None)
