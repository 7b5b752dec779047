"""The page of `history`: each case over time, a colour for each board instance, levels and changes drawn in."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import List, Sequence, Tuple

from harness.core.files import write_output
from harness.judge.history import TEST, CaseHistories, CaseSeries
from harness.judge.quantities import quantity_named
from harness.report.colours import colours_of
from harness.report.figure import Axis, Layer, LegendEntry, Mark, Panel, Value
from harness.report.material import grouped
from harness.report.template import fill
from harness.report.vega import draw_panel

MOST_FIGURES = 80  # of more series the first ones, which changed, are drawn


def write_page(found: CaseHistories, out: Path) -> None:
    """Write the page: one HTML file that needs nothing else, and runs no script."""
    from markupsafe import Markup

    def panel(one: CaseSeries) -> Tuple[str, str, str]:  # boards of a type in one
        case_id = one.case_id.replace(f"@{one.board_instance}", "", 1) if one.board_instance else one.case_id
        return case_id, one.figure, one.provenance

    groups, figures = grouped(found.series, panel), []
    for place, ((case_id, figure, provenance), members) in enumerate(list(groups.items())[:MOST_FIGURES]):
        members.sort(key=lambda one: one.board_instance or "")
        boards = [f"board {one.board_instance or ''}".strip() for one in members]
        colours = colours_of(boards)
        legend = [LegendEntry(board, colours[board], "circle") for board in boards]
        drawn = draw_panel(_panel(figure, members, boards), legend, f"history-{place}")
        figures.append((case_id, figure, provenance, legend, Markup(drawn.svg), list(zip(boards, members))))
    page = fill(
        "history.html",
        figures=figures,
        more=len(groups) - len(figures),
        worse=sum(one.is_worse for one in found.series),
        count=len(found.series),
        left_out=found.left_out,
        test=f"Threshold {found.threshold:.1%}. {TEST}",
    )
    write_output(out, page.encode("utf-8"))


def _panel(figure: str, members: Sequence[CaseSeries], boards: Sequence[str]) -> Panel:
    """Runs as points over the days since the first one, with the level of each segment."""
    moments = [[datetime.datetime.fromisoformat(point.created_at) for point in one.points] for one in members]
    first = min(min(own) for own in moments)
    layers: List[Layer] = []
    for one, board, own in zip(members, boards, moments):
        days = [(moment - first).total_seconds() / 86_400 for moment in own]
        of_unit = one.quantity.to_shown
        notes = [", ".join(f"{name} {told}" for name, told in point.software.items()) for point in one.points]
        runs = [
            Value(board, day, of_unit(point.value), one.provenance, note=f"{point.created_at[:16]}, {note}")
            for day, point, note in zip(days, one.points, notes)
        ]
        levels = [Value(board, day, of_unit(one.level(place)), one.provenance) for place, day in enumerate(days)]
        changes = [Value(board, days[step.at.place], 0.0, one.provenance) for step in one.steps]
        layers += [Layer(Mark.RULES, tuple(changes)), Layer(Mark.STEPS, tuple(levels)), Layer(Mark.CURVES, tuple(runs))]
    axis = f"{figure} ({quantity_named(figure).unit_shown})"
    return Panel(figure, Axis(f"days since {first.date()}"), Axis(axis, from_zero=False), tuple(layers))
