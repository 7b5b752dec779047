"""E10: what devices draw while nothing runs (004 Fig 7)."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from harness.core.cases import DVFS, IDLE, LOGGING, QUIET
from harness.core.units import mw_to_w
from harness.report.colours import listed
from harness.report.figure import CATEGORY, Axis, Bar, Figure, Panel, Series, joined
from harness.report.scales import figure_text
from harness.report.selection import Material, device_name
from harness.store.rows import Record

STATES = {(LOGGING, "static"): "(i)", (QUIET, "static"): "(ii)", (QUIET, DVFS): "(iii)"}
"""The paper's names of the idle states that a device can tell by itself."""


def state_of(record: Record) -> str:
    """What an idle state is called: the paper's number, or what a socket meter's record was given as."""
    return STATES.get((record.case.workload, record.case.settings.clocks), record.case.workload.partition("-")[2])


def idle_power_mw(record: Record) -> float:
    """Mean power of an idle state, NaN where it was not measured."""
    value = record.aggregates.get("power_mean_mw")
    return float("nan") if value is None else value


def baseload_figures(material: Material) -> List[Figure]:
    """One figure with a panel for each device: a group of bars for each power mode."""
    devices: Dict[str, List[Record]] = {}
    for record in material.records:
        if record.case.task == IDLE and record.aggregates.get("power_mean_mw") is not None:
            devices.setdefault(device_name(record), []).append(record)
    if not devices:
        return []
    states = sorted({state_of(record) for records in devices.values() for record in records})
    panels = tuple(_panel(device, records, states) for device, records in devices.items())
    caption = (
        "E10: what does a device draw while nothing runs? Mean power in W, of the device's own total where no meter"
        " is named: (i) static clocks and telemetry as while training, (ii) static clocks and next to no telemetry,"
        " (iii) the same with DVFS; other names: a socket meter's records, such as Wake on LAN."
    )
    columns = ("device", "power_mode", "state", "workload", "clocks", "power_w", "power_definition", "provenance")
    series = tuple(Series(state, listed(place)) for place, state in enumerate(states))
    rows = tuple(_row(device, record) for device, records in devices.items() for record in records)
    return [Figure("baseload", "Baseload", caption, panels, series, columns, rows)]


def _panel(device: str, records: Sequence[Record], states: Sequence[str]) -> Panel:
    modes = list(dict.fromkeys(record.case.power_mode for record in records))
    width = 0.84 / len(states)
    marks = []
    for record in records:
        place = states.index(state_of(record))
        watts = mw_to_w(idle_power_mw(record))
        tip = f"{record.case.power_mode} {states[place]}: {figure_text(watts)} W; {record.provenance}"
        x = modes.index(record.case.power_mode) + (place - (len(states) - 1) / 2) * width
        marks.append(Bar(x, width * 0.92, ((listed(place), watts),), tip, record.provenance == "simulated"))
    axes = Axis("power mode", CATEGORY, tuple(modes)), Axis("mean power (W)")
    return Panel(device, *axes, tuple(marks), joined(record.provenance for record in records))


def _row(device: str, record: Record) -> Tuple[Any, ...]:
    case = record.case
    return (
        *(device, case.power_mode, state_of(record), case.workload, case.settings.clocks),
        *(mw_to_w(idle_power_mw(record)), record.conditions.get("power_definition"), record.provenance),
    )
