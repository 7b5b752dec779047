"""E12, E13: time against power of every mode with its Pareto front, and the greatest mode against the slowest one.

001 sec. 1.1; 004 sec. 5.6, Figs 8 and 11 to 16.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import khz_to_mhz, mw_to_w, mws_to_j
from harness.report.colours import listed, ramp
from harness.report.drawing import Height, bars, evenly
from harness.report.figure import CATEGORY, LOG, Axis, Curve, Dots, Figure, Label, LegendEntry, Mark, Panel, Ramp
from harness.report.layout import figure_text
from harness.report.material import OF_WORKLOAD, Material, file_name
from harness.report.mode_tables import LETTER, VARIES, ModeTable, mode_tables

MOST_POINTS, MOST_TABLES = 1200, 10
FEW = 40
"""Up to here points are large, and named where their names are short."""

RESOURCES = (
    ("cpu_cores", "CPU cores"),
    ("cpu_khz", "CPU clock"),
    ("gpu_khz", "GPU clock"),
    ("mem_khz", "memory clock"),
)
OF_TABLE = ("device", "workload", "task", "batch_size")
COLUMNS = (
    *(*OF_TABLE, "power_mode", *PowerMode._fields, "minibatch_time_ms", "power_mw", "energy_mws"),
    *("on_time_power_front", "on_time_energy_front", "provenance"),
)

PAPER = {"orin-agx": " For ResNet-18 on ImageNet 001 sec. 1.1 has 36 times the time and 4.3 times the power."}
"""What is published of a device's extreme modes."""

QUANTITIES, ENDS = ("time", "power", "energy"), ("slowest", "greatest")
EXTREME_COLUMNS = (
    *(*OF_TABLE, "origin", "modes"),
    *(f"{end}_{field}" for end in ENDS for field in PowerMode._fields),
    *(f"{end}_{figure}" for end in ENDS for figure in ("minibatch_time_ms", "power_mw", "energy_mws")),
    *("time_ratio", "power_ratio", "energy_ratio", "provenance"),
)
ACROSS_WORKLOADS = (*VARIES, *OF_WORKLOAD, "batch_size", "epochs", "cache")
"""Conditions in which workloads may differ whose ratios of medians stand side by side; their names tell batch sizes."""


def front_figures(material: Material) -> List[Figure]:
    """A figure for each table of modes: grouped by each resource that varies, and time against energy."""
    tables = mode_tables(material)
    figures = []
    for number, table in enumerate(tables[:MOST_TABLES], 1):
        shown = evenly(len(table.modes), MOST_POINTS, table.front)
        panels = [
            _by_resource(table, field, name, shown) for field, name in RESOURCES if len(_values(table, field)) > 1
        ]
        joules = [mws_to_j(energy) for energy in table.energy_mws]
        marks = [_dots("c7", table, joules, shown), *_front_and_names(table, joules)]
        panels.append(_scatter(table, "time and energy", "energy of a minibatch (J)", marks))
        some = f" {len(shown)} of {len(table.modes)} modes are drawn, evenly taken; those on the front all are."
        more = "" if len(tables) <= MOST_TABLES else f" The first {MOST_TABLES} of {len(tables)} tables have figures."
        caption = (
            "E12: which modes are worth having? Median time of a minibatch (ms, logarithmic) against median power"
            " (W) or energy of a minibatch (J); each point is a power mode, coloured by one resource (MHz for"
            f" clocks); line: Pareto front of the observed modes.{some if len(shown) < len(table.modes) else ''}{more}"
        )
        energies = table.energy_mws
        on_power, on_energy = set(table.front), set(pareto_front(table.time_ms, energies).tolist())
        rows = [
            (
                *(*table[:4], table.names[place], *mode, table.time_ms[place], table.power_mw[place], energies[place]),
                *(int(place in on_power), int(place in on_energy), table.provenance),
            )
            for place, mode in enumerate(table.modes)
        ]
        name = file_name(f"front-{number}", table.device, table.workload)
        series = [LegendEntry("Pareto front", "ink")]
        figures.append(Figure(name, f"{table.title}: {len(table.modes)} modes", caption, panels, series, COLUMNS, rows))
    return figures


def _values(table: ModeTable, field: str) -> List[int]:
    return sorted({getattr(mode, field) for mode in table.modes})


def _by_resource(table: ModeTable, field: str, name: str, shown: Sequence[int]) -> Panel:
    values = _values(table, field)
    low, high = (str(end) if field == "cpu_cores" else f"{khz_to_mhz(end):.0f}" for end in (values[0], values[-1]))
    watts = [mw_to_w(power) for power in table.power_mw]
    marks: List[Mark] = [Ramp(low, high)]
    for number, value in enumerate(values):
        places = [place for place in shown if getattr(table.modes[place], field) == value]
        if places:
            marks.append(_dots(ramp(number / (len(values) - 1)), table, watts, places, len(shown)))
    return _scatter(table, f"by {name}", "median power (W)", [*marks, *_front_and_names(table, watts)])


def _dots(colour: str, table: ModeTable, xs: Sequence[float], places: Sequence[int], count: int = 0) -> Dots:
    diameter = 3.0 if (count or len(places)) > FEW else 7.0
    return Dots(colour, tuple(xs[one] for one in places), tuple(table.time_ms[one] for one in places), diameter)


def _front_and_names(table: ModeTable, xs: Sequence[float]) -> List[Mark]:
    front = pareto_front(table.time_ms, xs).tolist()
    ends = tuple(xs[one] for one in front), tuple(table.time_ms[one] for one in front)
    marks: List[Mark] = [Curve("ink", *ends, f"Pareto front of {len(front)} modes", step=True)]
    if len(table.modes) <= FEW and max(map(len, table.names)) <= LETTER:
        marks += map(Label, xs, table.time_ms, table.names)
    return marks


def _scatter(table: ModeTable, title: str, x_label: str, marks: Sequence[Mark]) -> Panel:
    axes = Axis(x_label, from_zero=False), Axis("time of a minibatch (ms)", LOG)
    return Panel(title, *axes, tuple(marks), table.provenance, table.profiles, VARIES)


class Extremes(NamedTuple):
    """Places in a table of the slowest mode and of the one that no other exceeds in any setting."""

    table: ModeTable
    slowest: int
    greatest: int

    @property
    def ratios(self) -> Tuple[float, float, float]:
        """Time and energy of the slowest mode over those of the greatest, power of the greatest over the slowest's."""
        table, slow, great = self
        energy = table.energy_mws
        return (
            table.time_ms[slow] / table.time_ms[great],
            table.power_mw[great] / table.power_mw[slow],
            energy[slow] / energy[great],
        )


def extremes_of(table: ModeTable) -> Optional[Extremes]:
    """None where no mode is the greatest in every setting: a sample without MAXN says nothing of it."""
    top = PowerMode(*map(max, zip(*table.modes)))
    slowest = max(range(len(table.modes)), key=lambda place: table.time_ms[place])
    if top not in table.modes or table.modes[slowest] == top:
        return None
    return Extremes(table, slowest, table.modes.index(top))


def extreme_figures(material: Material) -> List[Figure]:
    """A figure for each device: ratios of time, power and energy for each workload."""
    found = [one for one in map(extremes_of, mode_tables(material)) if one is not None]
    figures = []
    for device in dict.fromkeys(one.table.device for one in found):
        groups: Dict[Tuple[Any, ...], List[Extremes]] = {}
        for one in found:
            if one.table.device == device:
                alike = material.conditions(one.table.profiles[:1], ACROSS_WORKLOADS)
                groups.setdefault((one.table.task, one.table.origin, one.table.provenance, *alike), []).append(one)
        panels = [_ratios_panel(members) for members in groups.values()]
        caption = (
            "E13: how much do power modes change at all? For each workload, times as much: time of a minibatch in the"
            " slowest mode / in the greatest one (all cores, all clocks at their highest); power in the greatest /"
            " in the slowest; energy of a minibatch in the slowest / in the greatest; of all modes run. The CSV"
            f" file names them.{PAPER.get(device, '')} Hatched: simulated."
        )
        series = [LegendEntry(what, listed(place)) for place, what in enumerate(QUANTITIES)]
        rows = [_row_of(one) for members in groups.values() for one in members]
        name, title = file_name("extremes", device), f"Extreme modes of {device}"
        figures.append(Figure(name, title, caption, panels, series, EXTREME_COLUMNS, rows))
    return figures


def _ratios_panel(members: Sequence[Extremes]) -> Panel:
    heights, names = [], []
    for category, one in enumerate(members):
        table = one.table
        names.append(table.workload + ("" if table.batch_size == 16 else f", bs {table.batch_size}"))
        for place, (what, ratio) in enumerate(zip(QUANTITIES, one.ratios)):
            first, second = ("greatest", "slowest") if what == "power" else ("slowest", "greatest")
            tip = (
                f"{names[-1]}: {what} in the {first} mode is {figure_text(ratio)} times that in the {second} one,"
                f" of {len(table.modes)} modes; {table.provenance}"
            )
            heights.append(Height(category, place, ratio, tip, table.provenance))
    axes = Axis("times as much (1)"), Axis("", CATEGORY, tuple(names))
    marks = tuple(bars(heights, [listed(place) for place in range(len(QUANTITIES))]))
    ids = tuple(number for one in members for number in one.table.profiles)
    table = members[0].table
    return Panel(f"{table.task}, {table.origin}", *axes, marks, table.provenance, ids, ACROSS_WORKLOADS)


def _row_of(one: Extremes) -> Tuple[Any, ...]:
    table, *places = one
    columns = (table.time_ms, table.power_mw, table.energy_mws)
    return (
        *(*table[:4], table.origin, len(table.modes)),
        *(value for place in places for value in table.modes[place]),
        *(column[place] for place in places for column in columns),
        *(*one.ratios, table.provenance),
    )
