"""E12: time against power of every mode, its Pareto front, and modes grouped by each resource (004 Figs 8, 11-16)."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import khz_to_mhz, mw_to_w, mws_to_j
from harness.report.colours import ramp
from harness.report.figure import LOG, Axis, Curve, Dots, Figure, Label, Mark, Panel, Ramp, Series
from harness.report.figures.thinning import evenly
from harness.report.mode_tables import LETTER, ModeTable, mode_tables
from harness.report.selection import Material, file_name
from harness.stats.pareto import grouped

MOST_POINTS = 1200
MOST_TABLES = 10
FEW = 40
"""Up to here points are large."""

RESOURCES = (
    ("cpu_cores", "CPU cores"),
    ("cpu_khz", "CPU clock"),
    ("gpu_khz", "GPU clock"),
    ("mem_khz", "memory clock"),
)
COLUMNS = (
    *("device", "workload", "task", "batch_size", "power_mode", *PowerMode._fields),
    *("minibatch_time_ms", "power_mw", "energy_mws", "on_time_power_front", "on_time_energy_front", "provenance"),
)


def front_figures(material: Material) -> List[Figure]:
    """A figure for each table of modes: grouped by each resource that varies, and time against energy."""
    tables = mode_tables(material)
    figures = []
    for place, table in enumerate(tables[:MOST_TABLES]):
        front = table.front
        shown = evenly(len(table.modes), MOST_POINTS, front)
        panels = [
            _grouped_panel(table, field, name, shown, front) for field, name in RESOURCES if _varies(table, field)
        ]
        panels.append(_energy_panel(table, shown))
        left_out = (
            ""
            if len(shown) == len(table.modes)
            else f" {len(shown)} of {len(table.modes)} modes are drawn, evenly taken; those on the front all are."
        )
        more = "" if len(tables) <= MOST_TABLES else f" The first {MOST_TABLES} of {len(tables)} tables have figures."
        caption = (
            "E12: which modes are worth having? Median time of a minibatch (ms, logarithmic) against median power"
            " (W) or energy of a minibatch (J); each point is a power mode, coloured by one resource (MHz for"
            f" clocks); line: Pareto front of the observed modes.{left_out}{more}"
        )
        name = f"front-{place + 1}-{file_name(table.device)}-{file_name(table.workload)}"
        title = f"{table.title}: {len(table.modes)} modes"
        series = (Series("Pareto front", "ink"),)
        figures.append(Figure(name, title, caption, tuple(panels), series, COLUMNS, tuple(_rows(table, front))))
    return figures


def _varies(table: ModeTable, field: str) -> bool:
    return len({getattr(mode, field) for mode in table.modes}) > 1


def _grouped_panel(table: ModeTable, field: str, name: str, shown: Sequence[int], front: Sequence[int]) -> Panel:
    values = sorted({getattr(mode, field) for mode in table.modes})
    marks: List[Mark] = [Ramp(_amount(field, values[0]), _amount(field, values[-1]))]
    diameter = 3.0 if len(shown) > FEW else 7.0
    watts = [mw_to_w(power) for power in table.power_mw]
    for value, places in grouped([getattr(table.modes[place], field) for place in shown]).items():
        colour = ramp(values.index(value) / (len(values) - 1))
        mine = [shown[place] for place in places]
        marks.append(
            Dots(colour, tuple(watts[one] for one in mine), tuple(table.time_ms[one] for one in mine), diameter)
        )
    xs, ys = tuple(watts[one] for one in front), tuple(table.time_ms[one] for one in front)
    marks.append(Curve("ink", xs, ys, f"Pareto front of {len(front)} modes", step=True))
    marks += _labels(table, watts, table.time_ms)
    axes = Axis("median power (W)", from_zero=False), Axis("time of a minibatch (ms)", LOG)
    return Panel(f"by {name}", *axes, tuple(marks), table.provenance)


def _energy_panel(table: ModeTable, shown: Sequence[int]) -> Panel:
    joules = [mws_to_j(energy) for energy in table.energy_mws]
    front = pareto_front(table.time_ms, joules).tolist()
    diameter = 3.0 if len(shown) > FEW else 7.0
    xs, ys = tuple(joules[one] for one in front), tuple(table.time_ms[one] for one in front)
    marks: Tuple[Mark, ...] = (
        Dots("c7", tuple(joules[one] for one in shown), tuple(table.time_ms[one] for one in shown), diameter),
        Curve("ink", xs, ys, f"Pareto front of {len(front)} modes", step=True),
        *_labels(table, joules, table.time_ms),
    )
    axes = Axis("energy of a minibatch (J)", from_zero=False), Axis("time of a minibatch (ms)", LOG)
    return Panel("time and energy", *axes, marks, table.provenance)


def _labels(table: ModeTable, xs: Sequence[float], ys: Sequence[float]) -> List[Mark]:
    if len(table.modes) > FEW or max(map(len, table.names)) > LETTER:
        return []
    return [Label(x, y, name) for x, y, name in zip(xs, ys, table.names)]


def _amount(field: str, value: int) -> str:
    return str(value) if field == "cpu_cores" else f"{khz_to_mhz(value):.0f}"


def _rows(table: ModeTable, front: Sequence[int]) -> List[Tuple[Any, ...]]:
    energy_mws = table.energy_mws
    on_power, on_energy = set(front), set(pareto_front(table.time_ms, energy_mws).tolist())
    return [
        (
            *(table.device, table.workload, table.task, table.batch_size, table.names[place], *mode),
            *(table.time_ms[place], table.power_mw[place], energy_mws[place]),
            *(int(place in on_power), int(place in on_energy), table.provenance),
        )
        for place, mode in enumerate(table.modes)
    ]
