"""E13: the greatest power mode against the slowest one (001 sec. 1.1, 004 sec. 5.6)."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.power_modes import PowerMode
from harness.report.colours import listed
from harness.report.figure import CATEGORY, Axis, Bar, Figure, Panel, Series
from harness.report.mode_tables import ModeTable, mode_tables
from harness.report.scales import figure_text
from harness.report.selection import Material, file_name

PAPER = {"orin-agx": " For ResNet-18 on ImageNet 001 sec. 1.1 has 36 times the time and 4.3 times the power."}
"""What is published of a device."""

QUANTITIES = ("time", "power", "energy")
ENDS = ("slowest", "greatest")
COLUMNS = (
    *("device", "workload", "task", "batch_size", "origin", "modes"),
    *(f"{end}_{field}" for end in ENDS for field in PowerMode._fields),
    *(f"{end}_{figure}" for end in ENDS for figure in ("minibatch_time_ms", "power_mw", "energy_mws")),
    *("time_ratio", "power_ratio", "energy_ratio", "provenance"),
)


class Extremes(NamedTuple):
    """Places in a table of the slowest mode and of the one that no other exceeds in any setting."""

    table: ModeTable
    slowest: int
    greatest: int

    @property
    def ratios(self) -> Tuple[float, float, float]:
        """Time and energy of the slowest mode over those of the greatest, power of the greatest over the slowest's."""
        table, slow, great = self.table, self.slowest, self.greatest
        energy = table.energy_mws
        return (
            table.time_ms[slow] / table.time_ms[great],
            table.power_mw[great] / table.power_mw[slow],
            energy[slow] / energy[great],
        )


def extremes_of(table: ModeTable) -> Optional[Extremes]:
    """None where no mode is the greatest in every setting: a sample without MAXN says nothing of it."""
    top = PowerMode(*map(max, zip(*table.modes)))
    if top not in table.modes:
        return None
    slowest = max(range(len(table.modes)), key=lambda place: table.time_ms[place])
    greatest = table.modes.index(top)
    return None if slowest == greatest else Extremes(table, slowest, greatest)


def extreme_figures(material: Material) -> List[Figure]:
    """A figure for each device: ratios of time, power and energy for each workload."""
    found = [one for one in map(extremes_of, mode_tables(material)) if one is not None]
    figures = []
    for device in dict.fromkeys(one.table.device for one in found):
        groups: Dict[Tuple[str, str, str], List[Extremes]] = {}
        for one in found:
            if one.table.device == device:
                groups.setdefault((one.table.task, one.table.origin, one.table.provenance), []).append(one)
        panels = tuple(_panel(*place, members) for place, members in groups.items())
        caption = (
            "E13: how much do power modes change at all? For each workload, times as much: time of a minibatch in the"
            " slowest mode / in the greatest one (all cores, all clocks at their highest); power in the greatest /"
            " in the slowest; energy of a minibatch in the slowest / in the greatest; of all modes run. The CSV"
            f" file names them.{PAPER.get(device, '')} Hatched: simulated."
        )
        series = tuple(Series(what, listed(place)) for place, what in enumerate(QUANTITIES))
        rows = tuple(_row(one) for members in groups.values() for one in members)
        name, title = f"extremes-{file_name(device)}", f"Extreme modes of {device}"
        figures.append(Figure(name, title, caption, panels, series, COLUMNS, rows))
    return figures


def _panel(task: str, origin: str, provenance: str, members: Sequence[Extremes]) -> Panel:
    width = 0.8 / len(QUANTITIES)
    marks, names = [], []
    for place, one in enumerate(members):
        table = one.table
        names.append(_name(table))
        for offset, (what, ratio) in enumerate(zip(QUANTITIES, one.ratios)):
            ends = ("greatest", "slowest") if what == "power" else ("slowest", "greatest")
            tip = (
                f"{names[-1]}: {what} in the {ends[0]} mode is {figure_text(ratio)} times that in the {ends[1]} one,"
                f" of {len(table.modes)} modes; {provenance}"
            )
            where = place + (offset - (len(QUANTITIES) - 1) / 2) * width
            marks.append(Bar(where, width * 0.92, ((listed(offset), ratio),), tip, provenance == "simulated"))
    axes = Axis("times as much (1)"), Axis("", CATEGORY, tuple(names))
    return Panel(f"{task}, {origin}", *axes, tuple(marks), provenance)


def _name(table: ModeTable) -> str:
    """What tells it from the others of a panel."""
    return table.workload + ("" if table.batch_size == 16 else f", bs {table.batch_size}")


def _row(one: Extremes) -> Tuple[Any, ...]:
    table, places = one.table, (one.slowest, one.greatest)
    columns = (table.time_ms, table.power_mw, table.energy_mws)
    return (
        *(table.device, table.workload, table.task, table.batch_size, table.origin, len(table.modes)),
        *(value for place in places for value in table.modes[place]),
        *(column[place] for place in places for column in columns),
        *one.ratios,
        table.provenance,
    )
