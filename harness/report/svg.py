"""Panels and figures as SVG: with the page's colours inside it, with fixed ones in files of their own."""

from __future__ import annotations

from html import escape
from typing import List, Sequence, Tuple

from harness.report.brush import Brush, px
from harness.report.figure import CATEGORY, Figure, Panel, Series
from harness.report.layout import FONT_PX, WIDTH, Layout, lay_out, text_width, truncated
from harness.report.marks import draw_labels, draw_mark, marker_path

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
GAP, PER_ROW = 14.0, 3


def panel_svg(panel: Panel, summary: str) -> str:
    """A panel for the page, with a name and a description for those who do not see it.

    Args:
        panel: what is drawn.
        summary: the description.
    """
    layout = lay_out(panel)
    name = f"{panel.title} ({panel.provenance})"
    return (
        f'<svg class="panel" viewBox="0 0 {px(WIDTH)} {px(layout.height)}" role="img" font-size="{FONT_PX}">'
        f"<title>{escape(name)}</title><desc>{escape(summary)}</desc>{_panel(panel, layout, Brush(False))}</svg>"
    )


def figure_svg(figure: Figure) -> str:
    """A figure as a file of its own: title, legend, panels, provenance; its colours are those of a light page."""
    brush = Brush(True)
    columns = min(PER_ROW, len(figure.panels))
    width = columns * WIDTH + (columns + 1) * GAP
    y = 40.0
    title = truncated(figure.title, width - 2 * GAP, 15)
    content = [brush.text(GAP, 24, title, more=' font-size="15" font-weight="600"')]
    legend, y = _legend(figure.series, brush, width, y)
    content += legend
    for start in range(0, len(figure.panels), columns):
        row = [(panel, lay_out(panel)) for panel in figure.panels[start : start + columns]]
        for place, (panel, layout) in enumerate(row):
            x = GAP + place * (WIDTH + GAP)
            content.append(f'<g transform="translate({px(x)} {px(y)})">{_panel(panel, layout, brush)}</g>')
        y += max(layout.height for _, layout in row) + GAP
    content.append(brush.text(GAP, y + 4, f"provenance: {figure.provenance}", colour="muted"))
    size = f'viewBox="0 0 {px(width)} {px(y + 16)}" width="{px(width)}" height="{px(y + 16)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escape(FONT)}" font-size="{FONT_PX}" role="img">'
        f"<title>{escape(figure.title)} ({escape(figure.provenance)})</title><desc>{escape(figure.caption)}</desc>"
        f'<defs>{brush.hatch()}</defs><rect width="100%" height="100%" {brush.paint(fill="page")}/>'
        + "".join(content)
        + "</svg>\n"
    )


def _legend(series: Sequence[Series], brush: Brush, width: float, y: float) -> Tuple[List[str], float]:
    """The legend's elements from `y` down, and where what follows may begin."""
    found, x = [], GAP
    for entry in series:
        room = text_width(entry.name) + 30
        if x + room > width - GAP and x > GAP:
            x, y = GAP, y + 16
        found.append(_key(entry, x, y, brush))
        found.append(brush.text(x + 15, y + 9, entry.name))
        x += room
    return found, y + (22 if series else 0)


def legend_key(entry: Series) -> str:
    """The sign of an entry of the page's legend."""
    return f'<svg width="12" height="12" aria-hidden="true">{_key(entry, 1, 1, Brush(False))}</svg>'


def _key(entry: Series, x: float, y: float, brush: Brush) -> str:
    """A square in the entry's colour, or its curve's marker, with its corner at x and y."""
    if entry.marker is None:
        return f'<rect x="{px(x)}" y="{px(y)}" width="10" height="10" {brush.paint(fill=entry.colour)}/>'
    return f'<path d="{marker_path(entry.marker, x + 5, y + 5)}" {brush.paint(fill=entry.colour)}/>'


def _panel(panel: Panel, layout: Layout, brush: Brush) -> str:
    parts = [*_frame(panel, layout, brush)]
    for mark in panel.marks:
        parts += draw_mark(mark, layout, brush)
    parts += draw_labels(panel.marks, layout, brush)
    return "".join(parts)


def _frame(panel: Panel, layout: Layout, brush: Brush) -> List[str]:
    badge = text_width(panel.provenance, 10) + 10
    parts = [
        brush.text(4, 14, truncated(panel.title, WIDTH - badge - 12, 12), more=' font-size="12" font-weight="600"'),
        _badge(panel.provenance, badge, brush),
    ]
    for y, text in layout.y_ticks:
        if not layout.horizontal:
            parts.append(brush.line(layout.left, y, layout.right, y, "grid"))
        parts.append(brush.text(layout.left - 6, y + 3.5, text, "end", "muted"))
    for x, lines in layout.x_ticks:
        if layout.horizontal or panel.x.kind != CATEGORY:
            parts.append(brush.line(x, layout.top, x, layout.bottom, "grid"))
        if layout.slanted:
            y = layout.bottom + 15
            turn = f' transform="rotate(-40 {px(x + 3)} {px(y)})"'
            parts.append(brush.text(x + 3, y, lines[0], "end", "muted", turn))
        else:
            parts += [
                brush.text(x, layout.bottom + 13 + 12 * place, line, "middle", "muted")
                for place, line in enumerate(lines)
            ]
    axis = layout.zero if layout.zero is not None else layout.bottom
    if layout.horizontal:
        parts.append(brush.line(layout.left, layout.top, layout.left, layout.bottom, "muted"))
    else:
        parts.append(brush.line(layout.left, axis, layout.right, axis, "muted"))
    middle = (layout.left + layout.right) / 2
    parts.append(brush.text(middle, layout.height - 5, panel.x.label, "middle"))
    if panel.y.label:
        centre = (layout.top + layout.bottom) / 2
        turn = f' transform="rotate(-90 11 {px(centre)})"'
        parts.append(brush.text(11, centre, panel.y.label, "middle", more=turn))
    return parts


def _badge(provenance: str, width: float, brush: Brush) -> str:
    """The provenance, in the corner of every panel, so that it stays when a panel is cut out."""
    x = WIDTH - width - 2
    simulated = "simulated" in provenance
    colour, dashes = ("unsure", ' stroke-dasharray="3 2"') if simulated else ("muted", "")
    box = (
        f'<rect x="{px(x)}" y="3" width="{px(width)}" height="15" rx="7.5" fill-opacity="0.14" stroke-opacity="0.6"'
        f"{dashes} {brush.paint(fill=colour, stroke=colour)}/>"
    )
    return box + brush.text(x + width / 2, 14, provenance, "middle", colour, ' font-size="10"')
