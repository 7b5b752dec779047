"""Figures drawn: each panel as a Vega-Lite specification, that as SVG; a figure's file puts its panels together."""

from __future__ import annotations

import json
import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.files import write_output
from harness.core.metrics import quartiles
from harness.report.colours import GRID, INK, MARKERS, MUTED, PAGE, RAMP
from harness.report.figure import (
    LINEAR_TO,
    Axis,
    Figure,
    Layer,
    LegendEntry,
    Mark,
    Panel,
    Spacing,
    Value,
    csv_text,
    figure_text,
)

VERSION = "5.20"  # of Vega-Lite
WIDTH, HEIGHT = 260, 150  # of a plot area in pixels
ROW_HEIGHT = 24
PER_ROW = 3
FONT = "DejaVu Sans, Verdana, sans-serif"
PNG_SCALE = 2.0

MOST_POINTS_OF_CURVES = 100  # of more values only the lines are drawn
FEWEST = 12  # fewer values are drawn as points: too few for the shape of a density

LINE, WIDEST_LETTER = 42, 7.4
"""Characters in a line of a title or of an axis's label, and the largest average width of a character in pixels."""

LABEL = f' font-size="10.5" fill="{INK}"'  # of an axis

SLANTED_FROM, LONGEST_SLANTED, LONGEST_NAME = 44, 34, 44
"""Characters that fit side by side below the axis, in a slanted name, and in a name beside it (Vega's pixel limits are
slow)."""

CONFIG = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "gridColor": GRID,
        "domainColor": MUTED,
        "tickColor": MUTED,
        "labelFontSize": 10,
        "labelLimit": 0,
    },
    "legend": {"labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal", "gradientLength": 120},
    "bar": {"strokeWidth": 1},
    "rule": {"color": INK},
    "axisXBand": {"grid": False},
}

IS_SIMULATED = {"test": "datum.provenance == 'simulated'"}
TIP = {"description": {"field": "tip"}}
OUTLINE = {"y2": {"field": "y2"}, "detail": {"field": "at"}}


_NEEDLESS = re.compile(
    r'<path class="(?:back|fore)ground"[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>'
    r'| (?:opacity="1"|pointer-events="none"|font-family="[^"]*")'
)
_PLACES = re.compile(r' (?:d|transform|x2|y2)="[^"]*"')
"""Redundant parts of an SVG, a fifth of its size; and attributes for which hundredths of a pixel suffice."""


class DrawnPanel(NamedTuple):
    svg: str
    width: float
    height: float


def _number_in(svg: str, pattern: str) -> float:
    match = re.search(pattern, svg)
    assert match is not None, f"Vega draws no {pattern}"
    return float(match[1])


def draw_panel(panel: Panel, series: Sequence[LegendEntry], prefix: str) -> DrawnPanel:
    """Draw a panel; ids in it begin with `prefix`, so that one document can hold many.

    Its title and the labels of its axes are put around Vega's drawing: Vega takes longer to measure them than to draw
    the rest.
    """
    import vl_convert

    svg = vl_convert.vegalite_to_svg(specification(panel, series), vl_version=VERSION, allowed_base_urls=[])
    svg = re.sub(r'(\bid="|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = _NEEDLESS.sub("", svg)
    svg = _PLACES.sub(lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), svg)
    width, height = (_number_in(svg, rf'<svg[^>]* {name}="([\d.]+)"') for name in ("width", "height"))
    middle = _number_in(svg, r'transform="translate\(([\d.]+)') + WIDTH / 2
    shown = panel.title, axis_text(panel, "y"), axis_text(panel, "x")
    titles, above, below = (textwrap.wrap(text, LINE) for text in shown)
    texts, y = [], 4.0
    for lines, style in ((titles, f' font-size="12" font-weight="bold" fill="{INK}"'), (above, LABEL)):
        for line in lines:
            y += 14
            texts.append(_text(line, 6, y, style))
            width = max(width, 12 + WIDEST_LETTER * len(line))
    texts.append(svg.replace("<svg ", f'<svg y="{y:g}" ', 1))
    y += height
    for line in below:
        y += 12
        texts.append(_text(line, middle, y, f'{LABEL} text-anchor="middle"'))
    y += 6
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y:g}" viewBox="0 0 {width:g} {y:g}">'
    return DrawnPanel(f"{opening}{''.join(texts)}</svg>", width, y)


def write_figure(figure: Figure, folder: Path, png: bool) -> List[DrawnPanel]:
    panels = [draw_panel(panel, figure.series, f"{figure.name}-{n}") for n, panel in enumerate(figure.panels)]
    svg = figure_svg(figure, panels)
    write_output(folder / f"{figure.name}.svg", svg.encode("utf-8"))
    write_output(folder / f"{figure.name}.csv", csv_text(figure.columns, figure.rows).encode("utf-8"))
    if png:
        import vl_convert

        write_output(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    return panels


def figure_svg(figure: Figure, panels: Sequence[DrawnPanel]) -> str:
    per_row = min(PER_ROW, len(panels))
    width = per_row * max(panel.width for panel in panels) + 16
    y = 22.0
    parts = [_text(figure.title, 8, y, ' font-size="14" font-weight="bold"')]
    for line in _legend_lines(figure.series, width):
        y += 18
        parts.append(f'<text x="8" y="{y:g}" font-size="11">{line}</text>')
    y += 12
    for start in range(0, len(panels), per_row):
        row = panels[start : start + per_row]
        for place, panel in enumerate(row):
            x = 8 + place * (width - 16) / per_row
            parts.append(panel.svg.replace("<svg ", f'<svg x="{x:g}" y="{y:g}" ', 1))
        y += max(panel.height for panel in row) + 8
    y += 10
    parts.append(_text(f"provenance: {figure.provenance}", 8, y, f' font-size="11" fill="{MUTED}"'))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width:g}"'
        f' height="{y + 10:g}" viewBox="0 0 {width:g} {y + 10:g}" font-family="{FONT}" fill="{INK}">'
        f"<title>{escape(figure.title)} ({escape(figure.provenance)})</title><desc>{escape(figure.caption)}</desc>"
        f'<rect width="100%" height="100%" fill="{PAGE}"/>{"".join(parts)}</svg>\n'
    )


def _text(text: str, x: float, y: float, more: str) -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'


def _legend_lines(series: Sequence[LegendEntry], width: float) -> List[str]:
    """The legend's entries in as many lines as they need, each a sign in its colour and a name."""
    lines: List[str] = []
    room = 0.0
    for entry in series:
        needs = 7.2 * (len(entry.name) + 4)
        sign = f'<tspan fill="{entry.colour}">{MARKERS[entry.marker]}</tspan> {escape(entry.name)}\u2003'
        if needs > room:
            lines.append("")
            room = width - 16
        lines[-1] += sign
        room -= needs
    return lines


def specification(panel: Panel, series: Sequence[LegendEntry]) -> Dict[str, Any]:
    drawing = PanelDrawing(panel, series)
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VERSION}.json",
        "width": WIDTH,
        "height": max(len(panel.y.names), 2) * ROW_HEIGHT if panel.y.names else HEIGHT,
        "padding": 6,
        "config": CONFIG,
        "layer": [unit for layer in panel.layers if layer.values for unit in drawing.units(layer)],
    }


def axis_text(panel: Panel, name: str) -> str:
    """The label of an axis, with its spacing in the brackets of the unit unless it is linear."""
    axis: Axis = getattr(panel, name)
    spacing = {Spacing.LOG: "logarithmic", Spacing.SYMLOG: f"logarithmic beyond {LINEAR_TO:g}"}.get(
        _spacing(panel, name)
    )
    if spacing is None:
        return axis.label
    return f"{axis.label[:-1]}, {spacing})" if axis.label.endswith(")") else f"{axis.label} ({spacing})"


def _spacing(panel: Panel, name: str) -> Spacing:
    """As an axis is drawn: one whose values reach down to 0 cannot be logarithmic."""
    axis: Axis = getattr(panel, name)
    is_linear = axis.names or (axis.spacing == Spacing.LOG and min(_extent(panel, name), default=0.0) <= 0)
    return Spacing.LINEAR if is_linear else axis.spacing


def _axis(panel: Panel, name: str) -> Dict[str, Any]:
    axis: Axis = getattr(panel, name)
    if axis.names:
        return _categories(panel, axis, name)
    values = _extent(panel, name)
    low, high = min(values, default=0.0), max(values, default=1.0)
    scale: Dict[str, Any] = {"zero": axis.from_zero}
    options: Dict[str, Any] = {"tickCount": 5, "title": None, "labelOverlap": True}
    options["format"] = "~s" if high >= 1e5 else ",~r"
    spacing = _spacing(panel, name)
    if spacing == Spacing.LOG:
        scale = {"type": "log", "nice": False, "domain": [low / 1.15, high * 1.15]}
    elif spacing == Spacing.SYMLOG:
        scale = {"type": "symlog", "constant": LINEAR_TO, "nice": False}
        scale["domain"] = [min(low, 0.0) * 1.15, max(high, LINEAR_TO) * 1.15]
        beyond = [LINEAR_TO * factor * 10.0**power for power in range(12) for factor in (1, 4)]
        ticks = (*(-tick for tick in reversed(beyond)), 0.0, *beyond)
        options["values"] = [tick for tick in ticks if scale["domain"][0] <= tick <= scale["domain"][1]]
    elif axis.ends:
        scale["domain"] = [low, high]
    elif low == high:
        scale["domain"] = sorted((0.0, low * 1.2)) if low else [0.0, 1.0]
    return {"field": name, "type": "quantitative", "scale": scale, "axis": options}


def _categories(panel: Panel, axis: Axis, name: str) -> Dict[str, Any]:
    options: Dict[str, Any] = {"title": None, "labelExpr": f"split(truncate(datum.label, {LONGEST_NAME}), '\\n')"}
    if name == "x":
        longest = max((len(line) for text in axis.names for line in text.split("\n")), default=0)
        is_slanted = longest * len(axis.names) > SLANTED_FROM
        options["labelAngle"] = -40 if is_slanted else 0
        if is_slanted:
            options["labelExpr"] = f"truncate(replace(datum.label, '\\n', ' '), {LONGEST_SLANTED})"
            options["labelOverlap"] = True
    if any(layer.mark == Mark.VIOLINS for layer in panel.layers):  # a violin has a width, which needs a numeric axis
        options["values"] = list(range(len(axis.names)))
        options["labelExpr"] = f"truncate({json.dumps(list(axis.names))}[datum.value], {LONGEST_NAME})"
        scale = {"domain": [len(axis.names) - 0.5, -0.5], "nice": False, "zero": False}
        return {"field": name, "type": "quantitative", "scale": scale, "axis": {**options, "grid": False}}
    scale = {"domain": list(axis.names)}
    return {"field": name, "type": "nominal", "sort": None, "scale": scale, "axis": {**options, "grid": False}}


def _extent(panel: Panel, name: str) -> List[float]:
    """All numbers that an axis has to cover."""
    values: List[float] = list(getattr(panel, name).ends)
    whiskers_on = "x" if panel.y.names else "y"
    for layer in panel.layers:
        if layer.mark == Mark.RULES and name == "y":
            continue
        for value in layer.values:
            at = getattr(value, name)
            values += at if isinstance(at, tuple) else [at]
            values += [end for end in (value.low, value.high) if end is not None and name == whiskers_on]
    return values


def _tip(value: Value, panel: Panel) -> str:
    """Tooltip of a value: series, place, figure with unit and interval, provenance."""
    place, figure, axis = (value.y, value.x, panel.x) if panel.y.names else (value.x, value.y, panel.y)
    unit = axis.label.rpartition("(")[2].rstrip(")") if "(" in axis.label else ""
    where = str(place).replace("\n", " ") if isinstance(place, str) else figure_text(place)
    if isinstance(figure, tuple):
        first, median, third = map(figure_text, quartiles(figure))
        text = f"median {median} {unit}, quartiles {first} and {third}, {len(figure)} values"
    else:
        text = f"{figure_text(figure)} {unit}"
    if value.low is not None and value.high is not None:
        text += f" ({figure_text(value.low)} to {figure_text(value.high)})"
    label = ": ".join(str(part) for part in (value.series, where) if part != "")
    return "; ".join(part for part in (f"{label}: {text}", value.note, value.provenance) if part)


class PanelDrawing:
    """Draws the layers of a panel: one unit of Vega-Lite each, or several over each other."""

    def __init__(self, panel: Panel, series: Sequence[LegendEntry]) -> None:
        self.panel = panel
        self.axes = {"x": _axis(panel, "x"), "y": _axis(panel, "y")}
        self.category, self.along = ("y", "x") if panel.y.names else ("x", "y")
        names = [entry.name for entry in series]
        of_series = {"field": "series", "type": "nominal", "legend": None}
        self.colour = {**of_series, "scale": {"domain": names, "range": [entry.colour for entry in series]}}
        self.shape = {**of_series, "scale": {"domain": names, "range": [entry.marker for entry in series]}}

    def units(self, layer: Layer) -> List[Dict[str, Any]]:
        draw = {
            Mark.STACKED: self.bars,
            Mark.BESIDE: self.bars,
            Mark.CURVES: self.curves,
            Mark.STEPS: self.steps,
            Mark.DOTS: self.dots,
            Mark.NAMES: self.names,
            Mark.VIOLINS: self.violins,
            Mark.WHISKERS: self.whiskers,
            Mark.RULES: self.rules,
        }
        return draw[layer.mark](layer)

    def unit(self, values: Sequence[Value], mark: Dict[str, Any], **encoding: Any) -> Dict[str, Any]:
        """One mark for each value; its tooltip is in `tip`."""
        rows = [{**value._asdict(), "tip": _tip(value, self.panel), "at": at} for at, value in enumerate(values)]
        return {"data": {"values": rows}, "mark": mark, "encoding": {**self.axes, **encoding}}

    def unless_apart(self, colour: str) -> Dict[str, Any]:
        """The series' colour, or another one for disturbed or throttled profiles."""
        return {**self.colour, "condition": {"test": "datum.apart", "value": colour}}

    def bars(self, layer: Layer) -> List[Dict[str, Any]]:
        """Stacked in the order of the values, or beside each other with whiskers."""
        encoding = {
            "fill": self.unless_apart("transparent"),
            "stroke": self.unless_apart(MUTED),
            "fillOpacity": {"condition": {**IS_SIMULATED, "value": 0.6}, "value": 1.0},
            "strokeDash": {"condition": {**IS_SIMULATED, "value": [3, 2]}, "value": [1, 0]},
            **TIP,
        }
        if layer.mark == Mark.STACKED:  # the parts of an open bar differ by a tint
            encoding["fill"] = self.colour
            encoding["fillOpacity"]["condition"] = [
                {"test": "datum.apart", "value": 0.15},
                {**IS_SIMULATED, "value": 0.6},
            ]
            return [self.unit(layer.values, {"type": "bar"}, **encoding, order={"field": "at"})]
        beside = self.beside(layer)
        return [self.unit(layer.values, {"type": "bar"}, **encoding, **beside), *self.whiskers(layer, **beside)]

    def beside(self, layer: Layer) -> Dict[str, Any]:
        """Series side by side within a category: bars in all of its room, points of curves in half of it."""
        names = list(dict.fromkeys(value.series for value in layer.values))
        if len(names) < 2 or not getattr(self.panel, self.category).names:
            return {}
        scale: Dict[str, Any] = {"domain": names}
        if layer.mark == Mark.CURVES:
            scale["range"] = [{"expr": f"bandwidth('x') * {share}"} for share in (0.25, 0.75)]
        return {f"{self.category}Offset": {"field": "series", "type": "nominal", "sort": None, "scale": scale}}

    def whiskers(self, layer: Layer, **encoding: Any) -> List[Dict[str, Any]]:
        with_interval = [value for value in layer.values if None not in (value.low, value.high)]
        encoding[self.along] = {**self.axes[self.along], "field": "low"}
        encoding[f"{self.along}2"] = {"field": "high"}
        return [self.unit(with_interval, {"type": "rule", "aria": False}, **encoding)] if with_interval else []

    def curves(self, layer: Layer) -> List[Dict[str, Any]]:
        """A line for each series, with whiskers and, of few values, points."""
        beside = self.beside(layer) if any(value.low is not None for value in layer.values) else {}
        dash = {"condition": {**IS_SIMULATED, "value": [5, 3]}, "value": [1, 0]}
        encoding = {"color": self.colour, "strokeDash": dash, "order": {"field": "at"}, **beside}
        lines = self.unit(layer.values, {"type": "line", "strokeWidth": 1.5, "aria": False}, **encoding)
        if len(layer.values) > MOST_POINTS_OF_CURVES:
            return [lines]
        encoding = {"fill": self.unless_apart(PAGE), "stroke": self.unless_apart(MUTED), "shape": self.shape, **beside}
        points = self.unit(layer.values, {"type": "point", "size": 34, "opacity": 1}, **encoding, **TIP)
        return [lines, *self.whiskers(layer, color=self.colour, **beside), points]

    def steps(self, layer: Layer) -> List[Dict[str, Any]]:
        mark = {"type": "line", "strokeWidth": 1.5, "interpolate": "step-after", "color": INK, "aria": False}
        return [self.unit(layer.values, mark, order={"field": "at"})]

    def dots(self, layer: Layer) -> List[Dict[str, Any]]:
        """Points in the colours of a ramp; rings for profiles that do not count."""
        mark = {"type": "point", "size": 9 if layer.many else 50, "opacity": 1, "aria": not layer.many}
        if layer.values[0].apart:
            return [self.unit(layer.values, {**mark, "color": MUTED}, **TIP)]
        legend = {"title": layer.values[0].note, "format": ",~r", "gradientThickness": 8, "tickCount": 3}
        legend.update({"orient": "top", "direction": "horizontal", "titleOrient": "left"})
        scale = {"range": list(RAMP), "domain": list(layer.ends)}
        colour = {"field": "series", "type": "quantitative", "scale": scale, "legend": legend}
        return [self.unit(layer.values, {**mark, "filled": True}, color=colour, **({} if layer.many else TIP))]

    def names(self, layer: Layer) -> List[Dict[str, Any]]:
        mark = {"type": "text", "align": "left", "dx": 5, "dy": -4, "fontSize": 9, "color": INK}
        return [self.unit(layer.values, mark, text={"field": "note"})]

    def rules(self, layer: Layer) -> List[Dict[str, Any]]:
        rule = self.unit(layer.values, {"type": "rule", "strokeDash": [2, 3], "color": MUTED})
        return [{**rule, "encoding": {"x": self.axes["x"]}}]

    def violins(self, layer: Layer) -> List[Dict[str, Any]]:
        """The outline of each distribution with its quartiles and median, lying beside the name of its category."""
        outlines, points, middles = [], [], []
        for value in layer.values:
            place = self.panel.y.names.index(value.y)
            row = {**value._asdict(), "tip": _tip(value, self.panel), "at": place, "y": place}
            outline = density(value.x, self.panel.x.spacing)
            outlines += [{**row, "x": x, "y": place - 0.42 * share, "y2": place + 0.42 * share} for x, share in outline]
            points += [] if outline else [{**row, "x": x} for x in value.x]
            first, median, third = quartiles(value.x)
            middles.append({**row, "x": median, "low": first, "high": third})
        colour = {"color": self.unless_apart(MUTED)}
        ends = {"x": {**self.axes["x"], "field": "low"}, "x2": {"field": "high"}}
        dot = {"type": "point", "filled": True, "fill": PAGE, "stroke": INK, "size": 26, "opacity": 1}
        units = [
            ({"type": "point", "filled": True, "size": 14}, colour, points),
            ({"type": "area", "opacity": 0.6, "aria": False}, {**colour, **OUTLINE}, outlines),
            ({"type": "rule", "strokeWidth": 3, "color": INK}, ends, middles),
            (dot, TIP, middles),
        ]
        return [
            {"data": {"values": rows}, "mark": mark, "encoding": {**self.axes, **encoding}}
            for mark, encoding, rows in units
            if rows
        ]


def density(values: Sequence[float], spacing: Spacing) -> List[Tuple[float, float]]:
    """Values from least to greatest, each with its density as a share of the greatest one; empty for too few values.

    A Gaussian kernel of Silverman's width, over the values as an axis of that kind spaces them.
    """
    straightened: Any = {  # from values to how an axis spaces them, and back
        Spacing.LOG: (np.log, np.exp),
        Spacing.SYMLOG: (lambda x: np.arcsinh(x / LINEAR_TO), lambda x: LINEAR_TO * np.sinh(x)),
    }
    there, back = straightened.get(spacing, (np.asarray, np.asarray))
    spaced = there(np.asarray(values, dtype=float))
    if len(spaced) < FEWEST or np.ptp(spaced) <= 1e-9 * np.abs(spaced).max():
        return []
    width = spaced.std(ddof=1) * (0.75 * len(spaced)) ** -0.2
    places = np.linspace(spaced.min(), spaced.max(), 36)
    heights = np.exp(-(((places[:, None] - spaced) / width) ** 2) / 2).sum(axis=1)
    return list(zip(back(places).tolist(), (heights / heights.max()).tolist()))
