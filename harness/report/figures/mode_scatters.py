"""E12, E13: time against power of all modes with their Pareto front, and the greatest mode against the slowest one.

001 sec. 1.1; 004 sec. 5.6, Figs 8 and 11 to 16.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.power_modes import PowerMode
from harness.core.units import khz_to_mhz, ms_to_s, mw_to_w, mws_to_j
from harness.report.colours import INK, LISTED
from harness.report.figure import Axis, Figure, Layer, LegendEntry, Mark, Panel, Spacing, Value, figure_of, panel_of
from harness.report.material import OF_WORKLOAD, Material, file_name, grouped
from harness.report.mode_tables import INTERVALS, LETTER, PREDICTED, VARIES, ModeTable

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS, MOST_TABLES = 800, 10
FEW = 40  # up to this number, points are large, have intervals, and are labelled if their names are short
MOST_FACETS = 5  # memory clocks that have a panel each; points are coloured by the first of the others that varies
RESOURCES = (("gpu_khz", "GPU clock (MHz)"), ("cpu_khz", "CPU clock (MHz)"), ("cpu_cores", "CPU cores"))
OF_TABLE = ("device", "workload", "task", "batch_size")
OF_MODE = (
    *("power_mode", *PowerMode._fields, "minibatch_time_ms", "power_mw", "energy_mws"),
    *("on_time_power_front", "on_time_energy_front"),
)

PAPER = {"orin-agx": " For ResNet-18 on ImageNet 001 sec. 1.1 has 36 times the time and 4.3 times the power."}
"""Published ratios of a device's extreme modes."""

QUANTITIES = ("time", "power", "energy")
ACROSS_WORKLOADS = (*VARIES, *OF_WORKLOAD, "batch_size", "epochs", "cache")
"""Conditions in which workloads in one panel may differ; their labels state the batch size."""


COSTS = {
    "power": ("median power (W)", Spacing.LINEAR, "power_mw", mw_to_w),
    "energy": ("energy of a minibatch (J)", Spacing.LOG, "energy_mws", mws_to_j),
}
"""Quantities on the horizontal axis: label and spacing of the axis, column, conversion of its unit."""


def front_figures(material: Material) -> Iterator[Figure]:
    """A figure for each table of modes: time against power, a panel for each memory clock, and time against energy."""
    tables = material.tables
    for number, table in enumerate(tables[:MOST_TABLES], 1):
        modes, shown = table.modes, table.some(MOST_POINTS)
        if len(modes) > FEW and 1 < modes["mem_khz"].nunique() <= MOST_FACETS:
            facets = [(f"memory at {khz_to_mhz(clock):,.0f} MHz", part) for clock, part in shown.groupby("mem_khz")]
        else:
            facets = [("time and power", shown)]
        panels = [_scatter(material, table, title, "power", part) for title, part in facets]
        panels.append(_scatter(material, table, "time and energy", "energy", shown))
        some = f" {len(shown)} of {len(modes)} modes are drawn, evenly taken; those on a front all are."
        more = "" if len(tables) <= MOST_TABLES else f" The first {MOST_TABLES} of {len(tables)} tables have figures."
        of_table = (table.device, table.workload, table.task, table.batch_size)
        columns = (*OF_MODE, *(INTERVALS if table.origin == PREDICTED else ()))
        rows = [(*of_table, *row, table.provenance) for row in modes[list(columns)].itertuples(index=False, name=None)]
        columns = (*OF_TABLE, *columns, "provenance")
        details: Dict[str, Any] = {"table": table.title, "count": len(modes), "more": more}
        details["some"] = some if len(shown) < len(modes) else ""
        name = file_name(f"front-{number}", table.device, table.workload)
        yield figure_of("front", name, panels, [LegendEntry("Pareto front", INK)], columns, rows, **details)


def _scatter(material: Material, table: ModeTable, title: str, against: str, shown: pd.DataFrame) -> Panel:
    """Some modes of a table in the colours of one resource, with the front of all."""
    label, spacing, column, change = COSTS[against]
    modes, provenance = table.modes, table.provenance
    field, resource = next((candidate for candidate in RESOURCES if modes[candidate[0]].nunique() > 1), RESOURCES[0])
    shade = khz_to_mhz if field.endswith("_khz") else np.asarray
    points = [
        Value(
            shade(getattr(mode, field)),
            change(getattr(mode, column)),
            mode.minibatch_time_ms,
            provenance,
            note=resource,
        )
        for mode in shown.itertuples()
    ]
    on_front = modes[modes[f"on_time_{against}_front"] == 1].sort_values(column)
    front = [
        Value("Pareto front", change(cost), time, provenance)
        for cost, time in zip(on_front[column], on_front["minibatch_time_ms"])
    ]
    ramp = (float(shade(modes[field].min())), float(shade(modes[field].max())))
    layers = [Layer(Mark.DOTS, tuple(points), ramp, len(modes) > FEW), Layer(Mark.STEPS, tuple(front))]
    if len(modes) <= FEW and table.profiles:
        ends = [material.ends(number, point.y, "time") for number, point in zip(shown["profile"], points)]
        whiskers = [point._replace(series="", low=low, high=high) for point, (low, high) in zip(points, ends)]
        layers.append(Layer(Mark.WHISKERS, tuple(whiskers)))
    if len(modes) <= FEW and max(map(len, modes["power_mode"])) <= LETTER:
        names = [point._replace(series="", note=name) for point, name in zip(points, shown["power_mode"])]
        layers.append(Layer(Mark.NAMES, tuple(names)))
    rings = [
        Value("disturbed", change(mw if against == "power" else ms_to_s(ms) * mw), ms, provenance, apart=True)
        for ms, mw in table.disturbed
    ]
    layers.append(Layer(Mark.DOTS, tuple(rings)))
    least_range = (change(modes[column].min()), change(modes[column].max()))
    axes = Axis(label, spacing, from_zero=False, ends=least_range), Axis("time of a minibatch (ms)", Spacing.LOG)
    return Panel(title, *axes, tuple(layers), table.profiles, VARIES)


class Extremes(NamedTuple):
    """The slowest mode of a table, and the mode that no other exceeds in any setting."""

    table: ModeTable
    slowest_profile: int
    greatest_profile: int
    row: Dict[str, Any]  # of the CSV file


def extremes_of(table: ModeTable) -> Optional[Extremes]:
    """None if no mode is the greatest in every setting, as in a sample without MAXN."""
    settings = table.modes[list(PowerMode._fields)]
    slowest = table.modes["minibatch_time_ms"].idxmax()
    greatest = settings.index[(settings == settings.max()).all(axis=1)]
    if not len(greatest) or slowest in greatest:
        return None
    slow, great = (table.modes.loc[place] for place in (slowest, greatest[0]))
    ends, figures = {"slowest": slow, "greatest": great}, ("minibatch_time_ms", "power_mw", "energy_mws")
    row = {
        **{name: getattr(table, name) for name in (*OF_TABLE, "origin")},
        "modes": len(table.modes),
        **{f"{end}_{name}": mode[name] for end, mode in ends.items() for name in PowerMode._fields},
        **{f"{end}_{name}": mode[name] for end, mode in ends.items() for name in figures},
        "time_ratio": slow["minibatch_time_ms"] / great["minibatch_time_ms"],
        "power_ratio": great["power_mw"] / slow["power_mw"],
        "energy_ratio": slow["energy_mws"] / great["energy_mws"],
        "provenance": table.provenance,
    }
    return Extremes(table, slow["profile"], great["profile"], row)


def extreme_figures(material: Material) -> Iterator[Figure]:
    extremes = [pair for pair in map(extremes_of, material.tables) if pair is not None]

    def alike(pair: Extremes) -> Tuple[Any, ...]:
        shared = material.conditions(pair.table.profiles[:1], ACROSS_WORKLOADS)
        return (pair.table.task, pair.table.origin, pair.table.provenance, *shared)

    for device, of_device in grouped(extremes, lambda pair: pair.table.device).items():
        groups = grouped(of_device, alike)
        panels = [_ratios_panel(material, members) for members in groups.values()]
        series = [LegendEntry(what, colour) for what, colour in zip(QUANTITIES, LISTED)]
        rows = [pair.row for members in groups.values() for pair in members]
        details = {"device": device, "paper": PAPER.get(device, "")}
        name = file_name("extremes", device)
        cells = [tuple(row.values()) for row in rows]
        yield figure_of("extremes", name, panels, series, tuple(rows[0]), cells, **details)


def _ratios_panel(material: Material, members: Sequence[Extremes]) -> Panel:
    values = []
    for pair in members:
        table = pair.table
        name = table.workload + ("" if table.batch_size == 16 else f", bs {table.batch_size}")
        for what in QUANTITIES:
            ratio = pair.row[f"{what}_ratio"]
            ends = material.ends_of_ratio(pair.greatest_profile, pair.slowest_profile, what, ratio)
            values.append(Value(what, ratio, name, table.provenance, *ends, note=f"of {len(table.modes)} modes"))
    axes = Axis("one extreme mode / the other (ratio)"), Axis("")
    panel = panel_of(f"{table.task}, {table.origin}", *axes, Mark.BESIDE, values)
    ids = tuple(number for pair in members for number in pair.table.profiles)
    return dataclasses.replace(panel, profiles=ids, varies=ACROSS_WORKLOADS)
