"""Figures as PNG files, drawn by matplotlib where it is installed."""

from __future__ import annotations

import importlib.util
import io
import math
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from harness.core.files import write_output
from harness.core.metrics import quartiles
from harness.report.colours import RAMP, light_value
from harness.report.figure import (
    CATEGORY,
    LINEAR_TO,
    LOG,
    SYMLOG,
    Axis,
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
    extent,
)
from harness.report.layout import density, row_height, scale_for, tick_texts, ticks

DPI = 140
PER_ROW = 3
TITLE_CHARACTERS, LEGEND_CHARACTERS, TICK_CHARACTERS = 46, 72, 48
"""What a panel's width has room for, in the fonts of title, legend and ticks."""

MOST_OF_PANEL = 0.12
"""Half the width of a violin at the most, as a share of its panel."""

_MARKERS = "os^DvP"


def can_write_png() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file.

    Raises:
        StoreError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = min(PER_ROW, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    heights = [max([2.5, *(len(panel.y.categories) * row_height(panel) / 86 + 0.9 for panel in figure.panels)])] * rows
    canvas = Canvas(figsize=(3.6 * columns, sum(heights) + 0.7), dpi=DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(figure.panels):
            _draw(figure.panels[place], axes)
        else:
            axes.set_axis_off()
    canvas.suptitle(textwrap.fill(f"{figure.title} ({figure.provenance})", TITLE_CHARACTERS * columns), fontsize=10)
    if figure.series:
        longest = max(len(series.name) for series in figure.series)
        per_row = max(1, min(len(figure.series), LEGEND_CHARACTERS * columns // (longest + 5)))
        options = {"loc": "outside lower center", "ncols": per_row, "fontsize": 7, "frameon": False}
        canvas.legend(handles=[_key(series) for series in figure.series], **options)
    content = io.BytesIO()
    canvas.savefig(content, format="png")
    write_output(path, content.getvalue())


def _key(series: LegendEntry) -> Any:
    """The sign of an entry of the legend: a square, or its curve's marker."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour = light_value(series.colour)
    if series.marker is None:
        return Patch(color=colour, label=series.name)
    marker = _MARKERS[series.marker % len(_MARKERS)]
    return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=4, label=series.name)


def _draw(panel: Panel, axes: Any) -> None:
    horizontal = panel.y.kind == CATEGORY
    axes.set_title(f"{panel.title} ({panel.provenance})", fontsize=7.5)
    axes.tick_params(labelsize=6.5)
    axes.grid(color=light_value("grid"), linewidth=0.5, axis="x" if horizontal else "y")
    axes.set_axisbelow(True)
    for axis, name, values in zip((panel.x, panel.y), "xy", extent(panel)):
        _axis(axis, name, values, axes)
    for mark in panel.marks:
        _mark(mark, axes, horizontal)


def _axis(axis: Axis, name: str, values: Sequence[float], axes: Any) -> None:
    """Range and ticks as in the SVG files; categories on the y axis from above."""
    getattr(axes, f"set_{name}label")(axis.label, fontsize=7)
    set_ticks = getattr(axes, f"set_{name}ticks")
    scale = scale_for(axis, values, 0.0, 1.0)
    ends = (scale.low, scale.high)
    if axis.kind == CATEGORY:
        longest = max((len(line) for text in axis.categories for line in text.split("\n")), default=0)
        turned = name == "x" and longest * len(axis.categories) > TICK_CHARACTERS
        options = {"rotation": 40, "ha": "right"} if turned else {}
        set_ticks(range(len(axis.categories)), list(axis.categories), **options)
        ends = ends if name == "x" else ends[::-1]
    else:
        if axis.kind in (LOG, SYMLOG):
            options = {"linthresh": LINEAR_TO} if axis.kind == SYMLOG else {}
            getattr(axes, f"set_{name}scale")(axis.kind, **options)
        set_ticks([], minor=True)
        set_ticks(ticks(scale), tick_texts(ticks(scale)))
    getattr(axes, f"set_{name}lim")(*ends)


def _mark(mark: Mark, axes: Any, horizontal: bool) -> None:
    if isinstance(mark, Bar):
        _bar(mark, axes, horizontal)
    elif isinstance(mark, Curve):
        style = "steps-post" if mark.step else "default"
        axes.plot(
            mark.xs,
            mark.ys,
            color=light_value(mark.colour),
            linewidth=1.1,
            linestyle="--" if mark.dashed else "-",
            drawstyle=style,
            marker=None if mark.marker is None else _MARKERS[mark.marker % len(_MARKERS)],
            markersize=3.5,
            clip_on=False,
        )
        for x, low, high in zip(mark.xs, mark.lows, mark.highs):
            if low is not None and high is not None:
                axes.plot([x, x], [low, high], color=light_value(mark.colour), linewidth=0.7)
    elif isinstance(mark, Dots):
        axes.plot(
            mark.xs, mark.ys, "o", color=light_value(mark.colour), markersize=0.6 * mark.diameter, markeredgewidth=0
        )
    elif isinstance(mark, Violin):
        _violin(mark, axes, horizontal)
    elif isinstance(mark, Rule):
        draw = axes.axvline if mark.vertical else axes.axhline
        draw(mark.value, color=light_value("muted"), linewidth=0.6, linestyle=":")
    elif isinstance(mark, Ramp):
        _ramp(mark, axes)
    elif isinstance(mark, Label):
        axes.annotate(mark.text, (mark.x, mark.y), (3, 3), textcoords="offset points", fontsize=6)


def _ramp(ramp: Ramp, axes: Any) -> None:
    """In the upper right corner, which modes that are slow and draw much power would have to themselves."""
    options = {"transform": axes.transAxes, "fontsize": 6, "va": "center"}
    for place, colour in enumerate(RAMP):
        axes.plot([0.7 + 0.03 * place], [0.94], "s", color=colour, markersize=5, transform=axes.transAxes)
    axes.text(0.67, 0.94, ramp.low, ha="right", **options)
    axes.text(0.85, 0.94, ramp.high, ha="left", **options)


def _violin(violin: Violin, axes: Any, horizontal: bool) -> None:
    transform = (axes.xaxis if horizontal else axes.yaxis).get_transform()
    outline = density(transform.transform(np.asarray(violin.values)))  # as the axis spaces the values
    colour = light_value(violin.colour)
    if outline:
        values = transform.inverted().transform(np.array([value for value, _ in outline]))
        first_end, last_end = axes.get_ylim() if horizontal else axes.get_xlim()
        reach = min(0.42, MOST_OF_PANEL * abs(last_end - first_end))
        half = np.array([reach * share for _, share in outline])
        fill = axes.fill_between if horizontal else axes.fill_betweenx
        hatch = "//" if violin.hatched else None
        fill(
            values, violin.place - half, violin.place + half, facecolor=colour, edgecolor=colour, alpha=0.6, hatch=hatch
        )
    first, median, third = quartiles(violin.values)
    lines: List[Tuple[Any, Any, Dict[str, Any]]] = [
        ((first, third), (violin.place,) * 2, {"color": light_value("ink"), "linewidth": 1.5}),
        (
            median,
            violin.place,
            {"marker": "o", "color": light_value("ink"), "markerfacecolor": "white", "markersize": 3},
        ),
    ]
    if not outline:
        style = {"marker": ".", "linestyle": "", "color": colour, "markersize": 4}
        lines.insert(0, (violin.values, (violin.place,) * len(violin.values), style))
    for along, across, options in lines:
        axes.plot(*((along, across) if horizontal else (across, along)), **options)


def _bar(bar: Bar, axes: Any, horizontal: bool) -> None:
    start = 0.0
    for colour, height in bar.parts:
        options = {
            "color": light_value(colour),
            "edgecolor": "white",
            "linewidth": 0,
            "hatch": "///" if bar.hatched else None,
        }
        if horizontal:
            axes.barh(bar.place, height, bar.width, left=start, **options)
        else:
            axes.bar(bar.place, height, bar.width, bottom=start, **options)
        start += height
