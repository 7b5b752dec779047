"""Figures drawn: each panel as a Vega-Lite specification, that as SVG; a figure's file puts its panels together."""

from __future__ import annotations

import json
import math
import re
from html import escape
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.metrics import quartiles
from harness.report.colours import GRID, INK, MARKERS, MUTED, PAGE, RAMP
from harness.report.figure import LINEAR_TO, Axis, Figure, Layer, LegendEntry, Mark, Panel, Spacing, Value, figure_text

VERSION = "5.20"
"""Of Vega-Lite."""

WIDTH, HEIGHT = 260, 150
"""Of a plot area in pixels."""

ROW_HEIGHT = 24
PER_ROW = 3
FONT = "DejaVu Sans, Verdana, sans-serif"
PNG_SCALE = 2.0

FEWEST = 12
"""Fewer values are drawn as points: a density would claim a shape that nobody has seen."""

SLANTED_FROM = 44
"""Characters that fit below the axis side by side."""

CONFIG = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "title": {"anchor": "start", "fontSize": 12, "color": INK, "limit": 330, "frame": "bounds"},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "gridColor": GRID,
        "domainColor": MUTED,
        "tickColor": MUTED,
        "labelFontSize": 10,
        "titleFontSize": 10.5,
        "titleFontWeight": "normal",
        "labelLimit": 165,
        "titleLimit": 300,
    },
    "legend": {"labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal", "gradientLength": 120},
    "bar": {"strokeWidth": 1},
    "rule": {"color": INK},
    "axisXBand": {"grid": False},
}

IS_SIMULATED = {"test": "datum.provenance == 'simulated'"}
IS_APART = {"test": "datum.apart"}


class DrawnPanel(NamedTuple):
    """A panel as an SVG element, with its size in pixels."""

    svg: str
    width: float
    height: float


def draw_panel(panel: Panel, series: Sequence[LegendEntry], prefix: str) -> DrawnPanel:
    """Draw a panel; ids in it begin with `prefix`, so that many can stand in one document."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(specification(panel, series), vl_version=VERSION, allowed_base_urls=[])
    svg = re.sub(r'(\bid="|url\(#)', rf"\g<1>{prefix}-", svg)
    width, height = (float(re.search(rf'<svg[^>]* {name}="([\d.]+)"', svg).group(1)) for name in ("width", "height"))
    return DrawnPanel(svg, width, height)


def figure_svg(figure: Figure, panels: Sequence[DrawnPanel]) -> str:
    """The drawn panels of a figure as a document of its own, with title, legend and provenance."""
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


def figure_png(svg: str) -> bytes:
    """A figure's document as a picture."""
    import vl_convert

    return vl_convert.svg_to_png(svg, scale=PNG_SCALE)


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
    """A panel as Vega-Lite has it."""
    lying = panel.y.names
    colours = {entry.name: entry.colour for entry in series}
    scales = {
        "color": {"domain": list(colours), "range": list(colours.values())},
        "shape": {"domain": list(colours), "range": [entry.marker for entry in series]},
    }
    axes = {"x": _axis(panel, "x"), "y": _axis(panel, "y")}
    layers = [part for layer in panel.layers for part in _layer(layer, panel, axes, scales)]
    height = max(len(panel.y.names), 2) * ROW_HEIGHT if lying else HEIGHT
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VERSION}.json",
        "title": panel.title,
        "width": WIDTH,
        "height": height,
        "padding": 6,
        "config": CONFIG,
        "layer": layers,
    }


def _axis(panel: Panel, name: str) -> Dict[str, Any]:
    """The encoding of x or y."""
    axis: Axis = getattr(panel, name)
    if axis.names:
        return _categories(panel, axis, name)
    values = _extent(panel, name)
    low, high = min(values, default=0.0), max(values, default=1.0)
    scale: Dict[str, Any] = {"zero": axis.from_zero}
    options: Dict[str, Any] = {"tickCount": 5, "title": axis.label, "labelOverlap": True}
    options["format"] = "~s" if high >= 1e5 else ",~r"
    if axis.spacing == Spacing.LOG and low > 0:
        scale = {"type": "log", "nice": False, "domain": [low / 1.15, high * 1.15]}
        options["values"] = _log_ticks(low / 1.15, high * 1.15)
    elif axis.spacing == Spacing.SYMLOG:
        scale = {"type": "symlog", "constant": LINEAR_TO, "nice": False}
        scale["domain"] = [min(low, 0.0) * 1.15, max(high, LINEAR_TO) * 1.15]
        beyond = [LINEAR_TO * factor * 10.0**power for power in range(12) for factor in (1, 4)]
        ticks = (*(-one for one in reversed(beyond)), 0.0, *beyond)
        options["values"] = [one for one in ticks if scale["domain"][0] <= one <= scale["domain"][1]]
    elif axis.ends:
        scale["domain"] = [low, high]
    elif low == high:
        scale["domain"] = sorted((0.0, low * 1.2)) if low else [0.0, 1.0]
    return {"field": name, "type": "quantitative", "scale": scale, "axis": options}


def _categories(panel: Panel, axis: Axis, name: str) -> Dict[str, Any]:
    options: Dict[str, Any] = {"title": axis.label or None, "labelExpr": "split(datum.label, '\\n')"}
    if name == "x":
        longest = max((len(line) for text in axis.names for line in text.split("\n")), default=0)
        is_slanted = longest * len(axis.names) > SLANTED_FROM
        options.update({"labelAngle": -40 if is_slanted else 0, "labelLimit": 110})
        if is_slanted:
            options.update({"labelExpr": "replace(datum.label, '\\n', ' ')", "labelOverlap": True})
    if any(layer.mark == Mark.VIOLINS for layer in panel.layers):  # a violin has a width, which only numbers can tell
        options["values"] = list(range(len(axis.names)))
        options["labelExpr"] = f"{json.dumps(list(axis.names))}[datum.value]"
        scale = {"domain": [len(axis.names) - 0.5, -0.5], "nice": False, "zero": False}
        return {"field": name, "type": "quantitative", "scale": scale, "axis": {**options, "grid": False}}
    scale = {"domain": list(axis.names)}
    return {"field": name, "type": "nominal", "sort": None, "scale": scale, "axis": {**options, "grid": False}}


def _extent(panel: Panel, name: str) -> List[float]:
    """Every number that an axis has to show."""
    found: List[float] = list(getattr(panel, name).ends)
    whiskers_on = "x" if panel.y.names else "y"
    for layer in panel.layers:
        if layer.mark == Mark.RULES and name == "y":
            continue
        for value in layer.values:
            at = getattr(value, name)
            found += at if isinstance(at, tuple) else [at]
            found += [end for end in (value.low, value.high) if end is not None and name == whiskers_on]
    return found


def _log_ticks(low: float, high: float) -> List[float]:
    """At most six round numbers within."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: List[float] = []
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**power for power in powers for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) <= 6:
            return found
    return found[:: math.ceil(len(found) / 6)]


def _tip(value: Value, panel: Panel) -> str:
    """What is said of a value on pointing at it: series, place, figure with unit and interval, provenance."""
    place, figure, axis = (value.y, value.x, panel.x) if panel.y.names else (value.x, value.y, panel.y)
    unit = axis.label.rpartition("(")[2].rstrip(")") if "(" in axis.label else ""
    where = str(place).replace("\n", " ") if isinstance(place, str) else figure_text(place)
    if isinstance(figure, tuple):
        first, median, third = map(figure_text, quartiles(figure))
        told = f"median {median} {unit}, quartiles {first} and {third}, {len(figure)} values"
    else:
        told = f"{figure_text(figure)} {unit}"
    if value.low is not None and value.high is not None:
        told += f" ({figure_text(value.low)} to {figure_text(value.high)})"
    label = ": ".join(str(part) for part in (value.series, where) if part != "")
    return "; ".join(part for part in (f"{label}: {told}", value.note, value.provenance) if part)


def _data(values: Sequence[Value], panel: Panel) -> Dict[str, Any]:
    rows = [{**value._asdict(), "tip": _tip(value, panel), "place": place} for place, value in enumerate(values)]
    return {"values": rows}


def _layer(layer: Layer, panel: Panel, axes: Dict[str, Any], scales: Dict[str, Any]) -> List[Dict[str, Any]]:
    """What Vega-Lite draws of a layer: one mark, or marks over each other."""
    if not layer.values:
        return []
    data, lying = _data(layer.values, panel), panel.y.names
    category, along = ("y", "x") if lying else ("x", "y")
    series = {"field": "series", "type": "nominal", "scale": scales["color"], "legend": None}
    tip = {"description": {"field": "tip"}}
    if layer.mark in (Mark.STACKED, Mark.BESIDE):
        encoding = {**axes, **tip, "fill": {**series, "condition": {**IS_APART, "value": "transparent"}}}
        encoding["stroke"] = {**series, "condition": {**IS_APART, "value": MUTED}}
        encoding["fillOpacity"] = {"condition": {**IS_SIMULATED, "value": 0.6}, "value": 1.0}
        encoding["strokeDash"] = {"condition": {**IS_SIMULATED, "value": [3, 2]}, "value": [1, 0]}
        if layer.mark == Mark.STACKED:
            encoding["order"] = {"field": "place"}
            return [{"data": data, "mark": "bar", "encoding": encoding}]
        encoding.update(_offset(layer, panel, category))
        return [{"data": data, "mark": "bar", "encoding": encoding}, *_whiskers(layer, panel, axes)]
    if layer.mark == Mark.WHISKERS:
        return _whiskers(layer, panel, axes)
    if layer.mark in (Mark.CURVES, Mark.STEPS):
        return _curves(layer, panel, axes, series, scales, data)
    if layer.mark == Mark.DOTS:
        return _dots(layer, panel, axes)
    if layer.mark == Mark.NAMES:
        mark = {"type": "text", "align": "left", "dx": 5, "dy": -4, "fontSize": 9, "color": INK}
        return [{"data": data, "mark": mark, "encoding": {**axes, "text": {"field": "note"}}}]
    if layer.mark == Mark.RULES:
        mark = {"type": "rule", "strokeDash": [2, 3], "color": MUTED}
        return [{"data": data, "mark": mark, "encoding": {along if lying else "x": axes[along if lying else "x"]}}]
    return _violins(layer, panel, axes, series)


def _dots(layer: Layer, panel: Panel, axes: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Points in the colours of a ramp; grey rings for what does not count."""
    many = layer.many
    mark = {"type": "point", "size": 9 if many else 50, "opacity": 1, "aria": not many}
    if layer.values[0].apart:
        return [{"data": _data(layer.values, panel), "mark": {**mark, "color": MUTED}, "encoding": axes}]
    legend = {"title": layer.values[0].note, "format": ",~r", "gradientThickness": 8, "tickCount": 3}
    legend.update({"orient": "top", "direction": "horizontal", "titleOrient": "left"})
    scale = {"range": list(RAMP), "domain": list(layer.ends)}
    colour = {"field": "series", "type": "quantitative", "scale": scale, "legend": legend}
    rows = [{"x": one.x, "y": one.y, "series": one.series, "tip": _tip(one, panel)} for one in layer.values]
    encoding = {**axes, "color": colour, **({} if many else {"description": {"field": "tip"}})}
    return [{"data": {"values": rows}, "mark": {**mark, "filled": True}, "encoding": encoding}]


def _offset(layer: Layer, panel: Panel, category: str) -> Dict[str, Any]:
    """Series side by side within a category: bars in all of its room, points of curves a little beside each other."""
    names = list(dict.fromkeys(value.series for value in layer.values))
    if len(names) < 2 or not getattr(panel, category).names:
        return {}
    scale: Dict[str, Any] = {"domain": names}
    if layer.mark == Mark.CURVES:
        scale["range"] = [{"expr": f"bandwidth('x') * {share}"} for share in (0.25, 0.75)]
    return {f"{category}Offset": {"field": "series", "type": "nominal", "sort": None, "scale": scale}}


def _whiskers(
    layer: Layer, panel: Panel, axes: Dict[str, Any], colour: Optional[Dict[str, Any]] = None
) -> List[Dict[str, Any]]:
    """A line from `low` to `high` of each value that has them."""
    known = [value for value in layer.values if value.low is not None and value.high is not None]
    if not known:
        return []
    category, along = ("y", "x") if panel.y.names else ("x", "y")
    encoding = {category: axes[category], along: {**axes[along], "field": "low"}, f"{along}2": {"field": "high"}}
    encoding.update(_offset(layer, panel, category) if layer.mark != Mark.WHISKERS else {})
    if colour:
        encoding["color"] = colour
    return [{"data": _data(known, panel), "mark": {"type": "rule", "aria": False}, "encoding": encoding}]


def _curves(
    layer: Layer,
    panel: Panel,
    axes: Dict[str, Any],
    series: Dict[str, Any],
    scales: Dict[str, Any],
    data: Dict[str, Any],
) -> List[Dict[str, Any]]:
    offset = _offset(layer, panel, "x") if any(value.low is not None for value in layer.values) else {}
    encoding = {**axes, **offset, "color": series}
    line = {"type": "line", "strokeWidth": 1.5, "aria": False}
    if layer.mark == Mark.STEPS:
        return [{"data": data, "mark": {**line, "interpolate": "step-after", "color": INK}, "encoding": axes}]
    dashes = {"strokeDash": {"condition": {**IS_SIMULATED, "value": [5, 3]}, "value": [1, 0]}}
    lines = {"data": data, "mark": line, "encoding": {**encoding, **dashes, "order": {"field": "place"}}}
    if len(layer.values) > 100:
        return [lines]
    shape = {"field": "series", "type": "nominal", "scale": scales["shape"], "legend": None}
    points = {
        **encoding,
        "shape": shape,
        "description": {"field": "tip"},
        "fill": {**series, "condition": {**IS_APART, "value": PAGE}},
        "stroke": {**series, "condition": {**IS_APART, "value": MUTED}},
    }
    del points["color"]
    return [
        lines,
        *_whiskers(layer, panel, axes, series),
        {"data": data, "mark": {"type": "point", "size": 34, "opacity": 1}, "encoding": points},
    ]


def _violins(layer: Layer, panel: Panel, axes: Dict[str, Any], series: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The outline of each distribution with its quartiles and median; lying, one beside the name of each category."""
    outlines: List[Dict[str, Any]] = []
    points: List[Dict[str, Any]] = []
    middles: List[Dict[str, Any]] = []
    for value in layer.values:
        place = panel.y.names.index(value.y)
        common = {**value._asdict(), "tip": _tip(value, panel), "id": place, "y": place}
        outline = density(value.x, panel.x.spacing)
        outlines += [{**common, "x": x, "y": place - 0.42 * share, "y2": place + 0.42 * share} for x, share in outline]
        points += [] if outline else [{**common, "x": x} for x in value.x]
        first, median, third = quartiles(value.x)
        middles.append({**common, "x": median, "low": first, "high": third})
    colour = {"color": series}
    area = {"type": "area", "opacity": 0.6, "aria": False}
    lines = {"x": {**axes["x"], "field": "low"}, "x2": {"field": "high"}, "y": axes["y"]}
    shapes = {**axes, **colour, "y2": {"field": "y2"}, "detail": {"field": "id"}}
    dot = {"type": "point", "filled": True, "fill": PAGE, "stroke": INK, "size": 26, "opacity": 1}
    found = [
        ({"type": "point", "filled": True, "size": 14}, {**axes, **colour}, points),
        (area, shapes, outlines),
        ({"type": "rule", "strokeWidth": 3, "color": INK}, lines, middles),
        (dot, {**axes, "description": {"field": "tip"}}, middles),
    ]
    return [{"data": {"values": rows}, "mark": mark, "encoding": encoding} for mark, encoding, rows in found if rows]


def density(values: Sequence[float], spacing: Spacing) -> List[Tuple[float, float]]:
    """Values from least to greatest, each with its density as a share of the greatest one; empty for too few values.

    A Gaussian kernel of Silverman's width, over the values as an axis of that kind spaces them.
    """
    there, back = _straightened(spacing)
    found = there(np.asarray(values, dtype=float))
    if len(found) < FEWEST or np.ptp(found) <= 1e-9 * np.abs(found).max():
        return []
    from scipy.stats import gaussian_kde

    places = np.linspace(found.min(), found.max(), 36)
    heights = gaussian_kde(found, "silverman")(places)
    return list(zip(back(places).tolist(), (heights / heights.max()).tolist()))


def _straightened(spacing: Spacing) -> Tuple[Any, Any]:
    """From values to how an axis spaces them, and back."""
    if spacing == Spacing.LOG:
        return np.log, np.exp
    if spacing == Spacing.SYMLOG:
        return lambda x: np.arcsinh(x / LINEAR_TO), lambda x: LINEAR_TO * np.sinh(x)
    return np.asarray, np.asarray
