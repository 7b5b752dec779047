"""Figures as PNG files, drawn by matplotlib where it is installed."""

from __future__ import annotations

import importlib.util
import io
import math
from pathlib import Path
from typing import Any

from harness.durable_file import write_output
from harness.report.colours import light_value
from harness.report.figure import CATEGORY, LOG, Axis, Bar, Curve, Dots, Figure, Label, Mark, Panel, Rule, Violin

DPI = 140
PER_ROW = 3
_MARKERS = "osD^vP"


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
    from matplotlib.patches import Patch

    columns = min(PER_ROW, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    heights = [max([2.5, *(0.22 * len(panel.y.categories) + 0.9 for panel in figure.panels)])] * rows
    canvas = Canvas(figsize=(3.6 * columns, sum(heights) + 0.7), dpi=DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(figure.panels):
            _draw(figure.panels[place], axes)
        else:
            axes.set_axis_off()
    canvas.suptitle(f"{figure.title} ({figure.provenance})", fontsize=10)
    if figure.series:
        handles = [Patch(color=light_value(series.colour), label=series.name) for series in figure.series]
        canvas.legend(
            handles=handles, loc="outside lower center", ncols=min(len(handles), 3 * columns), fontsize=7, frameon=False
        )
    content = io.BytesIO()
    canvas.savefig(content, format="png")
    write_output(path, content.getvalue())


def _draw(panel: Panel, axes: Any) -> None:
    horizontal = panel.y.kind == CATEGORY
    axes.set_title(f"{panel.title} ({panel.provenance})", fontsize=7.5)
    axes.tick_params(labelsize=6.5)
    axes.grid(color=light_value("grid"), linewidth=0.5, axis="x" if horizontal else "y")
    axes.set_axisbelow(True)
    for mark in panel.marks:
        _mark(mark, axes, horizontal)
    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        _axis(axis, name, axes)
    if horizontal:
        axes.invert_yaxis()


def _axis(axis: Axis, name: str, axes: Any) -> None:
    getattr(axes, f"set_{name}label")(axis.label, fontsize=7)
    if axis.kind == CATEGORY:
        turned = name == "x" and max(map(len, axis.categories), default=0) * len(axis.categories) > 60
        options = {"rotation": 40, "ha": "right"} if turned else {}
        getattr(axes, f"set_{name}ticks")(range(len(axis.categories)), list(axis.categories), **options)
    elif axis.kind == LOG:
        getattr(axes, f"set_{name}scale")("log")


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
        )
        for x, low, high in zip(mark.xs, mark.lows, mark.highs):
            if low is not None and high is not None:
                axes.plot([x, x], [low, high], color=light_value(mark.colour), linewidth=0.7)
    elif isinstance(mark, Dots):
        axes.plot(mark.xs, mark.ys, ".", color=light_value(mark.colour), markersize=mark.diameter, markeredgewidth=0)
    elif isinstance(mark, Violin):
        if len(set(mark.values)) > 1:
            drawn = axes.violinplot([list(mark.values)], [mark.place], widths=0.85, showmedians=True, showextrema=False)
            drawn["bodies"][0].set(facecolor=light_value(mark.colour), hatch="//" if mark.hatched else None)
    elif isinstance(mark, Rule):
        draw = axes.axvline if mark.vertical else axes.axhline
        draw(mark.value, color=light_value("muted"), linewidth=0.6, linestyle=":")
    elif isinstance(mark, Label):
        axes.annotate(mark.text, (mark.x, mark.y), (3, 3), textcoords="offset points", fontsize=6)


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
