"""Panels and figures as SVG: with the page's colours inside it, with fixed ones in files of their own."""

from __future__ import annotations

import math
from html import escape
from typing import Dict, List, Sequence, Tuple

from harness.core.metrics import quartiles
from harness.report.colours import RAMP, css_value, light_value
from harness.report.figure import (
    CATEGORY,
    Bar,
    Curve,
    Dots,
    Figure,
    Label,
    LegendEntry,
    Mark,
    Panel,
    Ramp,
    Rule,
    Violin,
)
from harness.report.layout import FONT_PX, WIDTH, Layout, density, lay_out, text_width, truncated

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


def _legend(series: Sequence[LegendEntry], brush: Brush, width: float, y: float) -> Tuple[List[str], float]:
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


def legend_key(entry: LegendEntry) -> str:
    """The sign of an entry of the page's legend."""
    return f'<svg width="12" height="12" aria-hidden="true">{_key(entry, 1, 1, Brush(False))}</svg>'


def _key(entry: LegendEntry, x: float, y: float, brush: Brush) -> str:
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


_HATCH = (
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.4" height="5" {fill} fill-opacity="0.55"/></pattern>'
)


class Brush:
    """Writes colours and tips as the page or as a file of its own needs them."""

    def __init__(self, standalone: bool) -> None:
        """Choose which."""
        self.standalone = standalone

    def paint(self, **colours: str) -> str:
        """Attributes for `fill="stall"`, `stroke="ink"`, ...; with the page's variables outside a standalone file."""
        if self.standalone:
            return " ".join(f'{name}="{light_value(colour)}"' for name, colour in colours.items())
        return 'style="' + ";".join(f"{name}:{css_value(colour)}" for name, colour in colours.items()) + '"'

    def tip(self, text: str) -> Tuple[str, str]:
        """The attribute and the child that say something on hovering."""
        if not text:
            return "", ""
        return ("", f"<title>{escape(text)}</title>") if self.standalone else (f' data-tip="{escape(text)}"', "")

    def text(self, x: float, y: float, content: str, anchor: str = "start", colour: str = "ink", more: str = "") -> str:
        """A text."""
        return (
            f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" {self.paint(fill=colour)}{more}>'
            f"{escape(content)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
        """A line, a pixel wide."""
        return f'<line x1="{px(x1)}" y1="{px(y1)}" x2="{px(x2)}" y2="{px(y2)}" {self.paint(stroke=colour)}{more}/>'

    def hatch(self) -> str:
        """The pattern of what is simulated; once in a document."""
        return _HATCH.format(fill=self.paint(fill="page"))


def px(value: float) -> str:
    """A length with a tenth of a pixel."""
    text = f"{value:.1f}" if math.isfinite(value) else "0"
    return text[:-2] if text.endswith(".0") else text


Box = Tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


MOST_HALF_PX = 36.0
"""Half the width of a violin at the most: one alone does not fill its panel."""


def draw_mark(mark: Mark, layout: Layout, brush: Brush) -> List[str]:
    """A mark's elements; labels are drawn together, by `draw_labels`."""
    if isinstance(mark, Bar):
        return _bar(mark, layout, brush)
    if isinstance(mark, Curve):
        return _curve(mark, layout, brush)
    if isinstance(mark, Dots):
        return [_dots(mark, layout, brush)]
    if isinstance(mark, Violin):
        return _violin(mark, layout, brush)
    if isinstance(mark, Rule):
        if mark.vertical:
            x = layout.x(mark.value)
            ends = (x, layout.top, x, layout.bottom)
        else:
            y = layout.y(mark.value)
            ends = (layout.left, y, layout.right, y)
        return [brush.line(*ends, "muted", ' stroke-dasharray="2 3"')]
    if isinstance(mark, Ramp):
        return _ramp(mark, layout, brush)
    return []


def _bar(bar: Bar, layout: Layout, brush: Brush) -> List[str]:
    category, value = (layout.y, layout.x) if layout.horizontal else (layout.x, layout.y)
    first, last = sorted((category(bar.place - bar.width / 2), category(bar.place + bar.width / 2)))
    attribute, child = brush.tip(bar.tip)
    parts = [f"<g{attribute}>{child}"]
    total = 0.0
    for colour, height in bar.parts:
        low, high = sorted((value(total), value(total + height)))
        total += height
        box = (low, first, high, last) if layout.horizontal else (first, low, last, high)
        shape = f'x="{px(box[0])}" y="{px(box[1])}" width="{px(box[2] - box[0])}" height="{px(box[3] - box[1])}"'
        parts.append(f"<rect {shape} {brush.paint(fill=colour)}/>")
        if bar.hatched:
            parts.append(f'<rect {shape} fill="url(#hatch)"/>')
    parts.append("</g>")
    return parts


def _curve(curve: Curve, layout: Layout, brush: Brush) -> List[str]:
    points = [(layout.x(x), layout.y(y)) for x, y in zip(curve.xs, curve.ys)]
    if not points:
        return []
    moves = [f"M{px(points[0][0])},{px(points[0][1])}"]
    for (_, before), (x, y) in zip(points, points[1:]):
        moves.append(f"H{px(x)}V{px(y)}" if curve.step and before != y else f"L{px(x)},{px(y)}")
    dashes = ' stroke-dasharray="5 3"' if curve.dashed else ""
    attribute, child = brush.tip(curve.tip)
    parts = [
        f'<g{attribute}>{child}<path d="{"".join(moves)}" fill="none" stroke-width="1.6" stroke-linejoin="round"'
        f"{dashes} {brush.paint(stroke=curve.colour)}/>"
    ]
    for (x, y), low, high in zip(points, curve.lows or [None] * len(points), curve.highs or [None] * len(points)):
        if low is not None and high is not None:
            path = f"M{px(x)},{px(layout.y(low))}V{px(layout.y(high))}"
            parts.append(f'<path d="{path}" fill="none" {brush.paint(stroke=curve.colour)}/>')
        if curve.marker is not None:
            parts.append(f'<path d="{marker_path(curve.marker, x, y)}" {brush.paint(fill=curve.colour)}/>')
    return [*parts, "</g>"]


def marker_path(kind: int, x: float, y: float) -> str:
    """The path of a marker: shapes beside colours, for those who do not tell colours apart."""
    shapes: Dict[int, str] = {
        0: "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
        1: "m-3,-3h6v6h-6z",
        2: "m0,-4l3.6,6.4h-7.2z",
        3: "m0,-4l4,4l-4,4l-4,-4z",
        4: "m0,4l3.6,-6.4h-7.2z",
        5: "m-1.3,-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
    }
    return f"M{px(x)},{px(y)}{shapes[kind % len(shapes)]}"


def _dots(dots: Dots, layout: Layout, brush: Brush) -> str:
    """All of them as one path of points without length, each a round end: a few bytes a dot."""
    path = "".join(f"M{px(layout.x(x))},{px(layout.y(y))}h0" for x, y in zip(dots.xs, dots.ys))
    return (
        f'<path d="{path}" fill="none" stroke-linecap="round" stroke-width="{dots.diameter:g}"'
        f" {brush.paint(stroke=dots.colour)}/>"
    )


def _violin(violin: Violin, layout: Layout, brush: Brush) -> List[str]:
    category, value = (layout.y, layout.x) if layout.horizontal else (layout.x, layout.y)
    half = min(abs(category(1.0) - category(0.0)) * 0.42, MOST_HALF_PX)
    middle = category(violin.place)
    attribute, child = brush.tip(violin.tip)
    parts = [f"<g{attribute}>{child}"]
    pixels = [value(one) for one in violin.values]
    outline = density(pixels)  # as the axis spaces the values

    def point(along: float, across: float) -> str:
        return f"{px(along)},{px(across)}" if layout.horizontal else f"{px(across)},{px(along)}"

    if outline:
        edge = [(along, half * share) for along, share in outline]
        corners = [(along, middle + reach) for along, reach in edge]
        corners += [(along, middle - reach) for along, reach in reversed(edge)]
        path = "M" + "L".join(point(*corner) for corner in corners) + "z"
        parts.append(f'<path d="{path}" fill-opacity="0.5" {brush.paint(fill=violin.colour, stroke=violin.colour)}/>')
        if violin.hatched:
            parts.append(f'<path d="{path}" fill="url(#hatch)"/>')
    else:
        places = (violin.place,) * len(violin.values)
        ends = (violin.values, places) if layout.horizontal else (places, violin.values)
        parts.append(_dots(Dots(violin.colour, *ends, 5.0), layout, brush))
    first, median, third = (value(one) for one in quartiles(violin.values))
    box = f"M{point(first, middle)}L{point(third, middle)}"
    parts.append(f'<path d="{box}" stroke-width="3" fill="none" {brush.paint(stroke="ink")}/>')
    centre = (median, middle) if layout.horizontal else (middle, median)
    parts.append(f'<path d="{marker_path(0, *centre)}" {brush.paint(fill="page", stroke="ink")}/></g>')
    return parts


def _ramp(mark: Ramp, layout: Layout, brush: Brush) -> List[str]:
    y, step = 22.0, 14.0
    end = layout.right - text_width(mark.high, 10) - 4
    start = end - step * len(RAMP)
    parts = [brush.text(start - 4, y + 8, mark.low, "end", "muted", ' font-size="10"')]
    parts += [
        f'<rect x="{px(start + step * place)}" y="{px(y + 1)}" width="{px(step)}" height="8" fill="{colour}"/>'
        for place, colour in enumerate(RAMP)
    ]
    parts.append(brush.text(end + 4, y + 8, mark.high, "start", "muted", ' font-size="10"'))
    return parts


def draw_labels(marks: Sequence[Mark], layout: Layout, brush: Brush) -> List[str]:
    """Each beside its point where there is room, off the lines if it can be; one that would cover another is left out.

    Args:
        marks: all of the panel.
        layout: of the panel.
        brush: writes them.
    """
    labels = [mark for mark in marks if isinstance(mark, Label)]
    points = [(layout.x(label.x), layout.y(label.y)) for label in labels]
    taken: List[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    lines = [box for mark in marks if isinstance(mark, Curve) for box in _lines(mark, layout)] if labels else []
    parts = []
    for label, (x, y) in zip(labels, points):
        width = text_width(label.text, 10)
        free = []
        for dx, dy in (
            *((6, 3.5), (-6 - width, 3.5), (-width / 2, -6), (-width / 2, 13)),
            *((5, -5), (5, 12), (-5 - width, -5), (-5 - width, 12)),
        ):
            box = (x + dx, y + dy - 9, x + dx + width, y + dy + 2)
            across = layout.left <= box[0] and box[2] <= WIDTH - 2
            down = layout.top - 4 <= box[1] and box[3] <= layout.bottom
            if across and down and not any(_overlap(box, other) for other in taken):
                crossed = sum(_overlap(box, line) for line in lines)
                free.append((crossed, len(free), box))
        if free:
            _, _, box = min(free)
            taken.append(box)
            parts.append(brush.text(box[0], box[1] + 9, label.text, more=' font-size="10"'))
    return parts


def _lines(curve: Curve, layout: Layout) -> List[Box]:
    """The boxes around a curve's lines, those of steps in two parts."""
    points = [(layout.x(x), layout.y(y)) for x, y in zip(curve.xs, curve.ys)]
    found: List[Box] = []
    for (x1, y1), (x2, y2) in zip(points, points[1:]):
        corners = ((x1, y1, x2, y1), (x2, y1, x2, y2)) if curve.step else ((x1, y1, x2, y2),)
        found += [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    return found


def _overlap(a: Box, b: Box) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]
