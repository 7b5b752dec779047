"""The page of `history`: each case over time, a colour for each board instance, levels and changes drawn in."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

from harness.core.files import write_output
from harness.core.units import s_to_days, s_to_hours, s_to_minutes
from harness.judge.history import RULES, CaseHistories, CaseSeries
from harness.judge.quantities import quantity_named
from harness.report.colours import colours_of
from harness.report.figure import Axis, Layer, LegendEntry, Mark, Panel, Value
from harness.report.material import grouped
from harness.report.template import fill
from harness.report.vega import draw_panel

MOST_FIGURES = 80  # the first ones are drawn: those that changed


def write_page(histories: CaseHistories, out: Path) -> None:
    """Write the page: one self-contained HTML file without scripts."""
    from markupsafe import Markup

    def panel(series: CaseSeries) -> Tuple[str, str, str]:  # boards of a type share a panel
        case_id = (
            series.case_id.replace(f"@{series.board_instance}", "", 1) if series.board_instance else series.case_id
        )
        return case_id, series.figure, series.provenance

    groups, figures = grouped(histories.series, panel), []
    for place, ((case_id, figure, provenance), members) in enumerate(list(groups.items())[:MOST_FIGURES]):
        members.sort(key=lambda series: series.board_instance or "")
        boards = [f"board {series.board_instance or ''}".strip() for series in members]
        colours = colours_of(boards)
        legend = [LegendEntry(board, colours[board], "circle") for board in boards]
        drawn = draw_panel(_panel(figure, members, boards), legend, f"history-{place}")
        figures.append((case_id, figure, provenance, legend, Markup(drawn.svg), list(zip(boards, members))))
    page = fill(
        "history.html",
        figures=figures,
        more=len(groups) - len(figures),
        worse=sum(series.is_worse for series in histories.series),
        count=len(histories.series),
        left_out=histories.left_out,
        explained=[f"tolerance: {histories.thresholds}", *RULES],
    )
    write_output(out, page.encode("utf-8"))


def _panel(figure: str, members: Sequence[CaseSeries], boards: Sequence[str]) -> Panel:
    """Runs as points over the time since the first one, with the level of each segment."""
    moments = [[datetime.datetime.fromisoformat(point.created_at) for point in series.points] for series in members]
    first = min(min(own) for own in moments)
    unit, in_unit = unit_of((max(max(own) for own in moments) - first).total_seconds())
    layers: List[Layer] = []
    for series, board, own in zip(members, boards, moments):
        times = [in_unit((moment - first).total_seconds()) for moment in own]
        of_unit = series.quantity.to_shown
        notes = [", ".join(f"{name} {version}" for name, version in point.software.items()) for point in series.points]
        runs = [
            Value(board, at, of_unit(point.value), series.provenance, note=f"{point.created_at[:16]}, {note}")
            for at, point, note in zip(times, series.points, notes)
        ]
        levels = [Value(board, at, of_unit(series.level(place)), series.provenance) for place, at in enumerate(times)]
        changes = [Value(board, times[step.at.place], 0.0, series.provenance) for step in series.steps]
        layers += [Layer(Mark.RULES, tuple(changes)), Layer(Mark.STEPS, tuple(levels)), Layer(Mark.CURVES, tuple(runs))]
    axis = f"{figure} ({quantity_named(figure).unit_shown})"
    since = str(first.date()) if unit == "days" else f"{first:%Y-%m-%d %H:%M}"
    return Panel(figure, Axis(f"{unit} since {since}"), Axis(axis, from_zero=False), tuple(layers))


def unit_of(span_s: float) -> Tuple[str, Callable[[float], float]]:
    """The greatest unit of which a span has two, by its name and its conversion from seconds."""
    units = {"days": s_to_days, "hours": s_to_hours, "minutes": s_to_minutes}
    for name, from_s in units.items():
        if from_s(span_s) >= 2:
            return name, from_s
    return "seconds", float
