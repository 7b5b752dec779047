"""E12, E13: time against power of every mode with its Pareto front, and the greatest mode against the slowest one.

001 sec. 1.1; 004 sec. 5.6, Figs 8 and 11 to 16.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import khz_to_mhz, ms_to_s, mw_to_w, mws_to_j
from harness.judge.evidence import WARM
from harness.report.colours import INK, LISTED
from harness.report.figure import Axis, Figure, Layer, LegendEntry, Mark, Panel, Spacing, Value, figure_of
from harness.report.material import OF_WORKLOAD, Material, file_name
from harness.report.mode_tables import LETTER, VARIES, ModeTable, evenly, mode_tables
from harness.stats.estimates import quotient

MOST_POINTS, MOST_TABLES = 800, 10
FEW = 40
"""Up to here points are large, have intervals, and are named where their names are short."""

MOST_FACETS = 5
"""Memory clocks that have a panel each; points are coloured by the first of the others that varies."""

RESOURCES = (("gpu_khz", "GPU clock (MHz)"), ("cpu_khz", "CPU clock (MHz)"), ("cpu_cores", "CPU cores"))
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


class Cost(NamedTuple):
    """What time is drawn against: the axis, and the figure of a time in ms and a power in mW."""

    label: str
    spacing: Spacing
    of: Callable[[float, float], float]


POWER = Cost("median power (W)", Spacing.LINEAR, lambda _, power_mw: mw_to_w(power_mw))
ENERGY = Cost("energy of a minibatch (J)", Spacing.LOG, lambda time_ms, power_mw: mws_to_j(ms_to_s(time_ms) * power_mw))


def front_figures(material: Material) -> Iterator[Figure]:
    """A figure for each table of modes: time against power, a panel for each memory clock, and time against energy."""
    tables = mode_tables(material)
    for number, table in enumerate(tables[:MOST_TABLES], 1):
        energies = table.energy_mws
        on_power, on_energy = set(table.front), set(pareto_front(table.time_ms, energies).tolist())
        shown = evenly(len(table.modes), MOST_POINTS, on_power | on_energy)
        clocks = sorted({mode.mem_khz for mode in table.modes})
        if len(table.modes) > FEW and 1 < len(clocks) <= MOST_FACETS:
            parts = [
                (f"memory at {khz_to_mhz(clock):,.0f} MHz", [one for one in shown if table.modes[one].mem_khz == clock])
                for clock in clocks
            ]
        else:
            parts = [("time and power", shown)]
        panels = [_scatter(material, table, title, POWER, places) for title, places in parts]
        panels.append(_scatter(material, table, "time and energy", ENERGY, shown))
        some = f" {len(shown)} of {len(table.modes)} modes are drawn, evenly taken; those on a front all are."
        more = "" if len(tables) <= MOST_TABLES else f" The first {MOST_TABLES} of {len(tables)} tables have figures."
        rows = [
            (
                *(*table[:4], table.names[place], *mode, table.time_ms[place], table.power_mw[place], energies[place]),
                *(int(place in on_power), int(place in on_energy), table.provenance),
            )
            for place, mode in enumerate(table.modes)
        ]
        name = file_name(f"front-{number}", table.device, table.workload)
        series = [LegendEntry("Pareto front", INK)]
        details = {"table": table.title, "count": len(table.modes), "more": more}
        details["some"] = some if len(shown) < len(table.modes) else ""
        yield figure_of("front", name, panels, series, COLUMNS, rows, **details)


def _scatter(material: Material, table: ModeTable, title: str, cost: Cost, places: Sequence[int]) -> Panel:
    """Points of some places of a table in the colours of one resource, with the front of all."""
    field, resource = next(
        (one for one in RESOURCES if len({getattr(mode, one[0]) for mode in table.modes}) > 1), RESOURCES[0]
    )
    shade = float if field == "cpu_cores" else khz_to_mhz
    xs = [cost.of(*one) for one in zip(table.time_ms, table.power_mw)]

    def layer(mark: Mark, shown: Sequence[int], more: Callable[[int], Dict[str, Any]]) -> Layer:
        values = (Value("", xs[one], table.time_ms[one], table.provenance)._replace(**more(one)) for one in shown)
        return Layer(mark, tuple(values))

    def with_ends(place: int) -> Dict[str, Any]:
        return dict(zip(("low", "high"), material.ends(table.profiles[place], table.time_ms[place], "time")))

    front = pareto_front(table.time_ms, xs).tolist()
    shades = [shade(getattr(mode, field)) for mode in table.modes]
    dots = layer(Mark.DOTS, places, lambda one: {"series": shades[one], "note": resource})
    layers = [
        dots._replace(ends=(min(shades), max(shades)), many=len(table.modes) > FEW),
        layer(Mark.STEPS, front, lambda _: {"series": "Pareto front"}),
    ]
    if len(table.modes) <= FEW:
        if table.profiles:
            layers.append(layer(Mark.WHISKERS, places, with_ends))
        if max(map(len, table.names)) <= LETTER:
            layers.append(layer(Mark.NAMES, places, lambda one: {"note": table.names[one]}))
    rings = [Value("disturbed", cost.of(*one), one[0], table.provenance, apart=True) for one in table.disturbed]
    axes = (
        Axis(cost.label, cost.spacing, from_zero=False, ends=(min(xs), max(xs))),
        Axis("time of a minibatch (ms)", Spacing.LOG),
    )
    return Panel(title, *axes, (*layers, Layer(Mark.DOTS, tuple(rings))), table.profiles, VARIES)


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


def extreme_figures(material: Material) -> Iterator[Figure]:
    """A figure for each device: ratios of time, power and energy for each workload."""
    found = [one for one in map(extremes_of, mode_tables(material)) if one is not None]
    for device in dict.fromkeys(one.table.device for one in found):
        groups: Dict[Tuple[Any, ...], List[Extremes]] = {}
        for one in found:
            if one.table.device == device:
                alike = material.conditions(one.table.profiles[:1], ACROSS_WORKLOADS)
                groups.setdefault((one.table.task, one.table.origin, one.table.provenance, *alike), []).append(one)
        panels = [_ratios_panel(material, members) for members in groups.values()]
        series = [LegendEntry(what, colour) for what, colour in zip(QUANTITIES, LISTED)]
        rows = [_row_of(one) for members in groups.values() for one in members]
        details = {"device": device, "paper": PAPER.get(device, "")}
        name = file_name("extremes", device)
        yield figure_of("extremes", name, panels, series, EXTREME_COLUMNS, rows, **details)


def _ratios_panel(material: Material, members: Sequence[Extremes]) -> Panel:
    values = []
    names = [
        one.table.workload + ("" if one.table.batch_size == 16 else f", bs {one.table.batch_size}") for one in members
    ]
    for name, one in zip(names, members):
        note = f"of {len(one.table.modes)} modes"
        profiles = [one.table.profiles[place] for place in (one.greatest, one.slowest)] if one.table.profiles else []
        for what, ratio in zip(QUANTITIES, one.ratios):
            estimates = [material.estimates.get(number, {}).get((what, WARM)) for number in profiles]
            ends = (None, None)
            if estimates and None not in estimates:
                ends = quotient(*estimates)._replace(value=ratio).interval()[1:]
            values.append(Value(what, ratio, name, one.table.provenance, *ends, note=note))
    axes = Axis("times as much (1)"), Axis("", names=tuple(names))
    ids = tuple(number for one in members for number in one.table.profiles)
    table = members[0].table
    layers = (Layer(Mark.BESIDE, tuple(values)),)
    return Panel(f"{table.task}, {table.origin}", *axes, layers, ids, ACROSS_WORKLOADS)


def _row_of(one: Extremes) -> Tuple[Any, ...]:
    table, *places = one
    columns = (table.time_ms, table.power_mw, table.energy_mws)
    return (
        *(*table[:4], table.origin, len(table.modes)),
        *(value for place in places for value in table.modes[place]),
        *(column[place] for place in places for column in columns),
        *(*one.ratios, table.provenance),
    )
