"""Where the parts of a panel lie, in pixels: plot area, ticks and their texts, so that none covers another."""

from __future__ import annotations

import dataclasses
import math
from typing import List, Optional, Tuple

from harness.report.figure import CATEGORY, LINEAR, Bar, Panel, Ramp, extent
from harness.report.scales import Scale, scale_for, tick_texts, ticks

WIDTH = 340.0
FONT_PX = 10.5
PLOT_HEIGHT = 160.0
ROW_HEIGHT = 19.0
LEAST_BAR = 6.8
_CHARACTER = 0.6  # of the font's size, for the wide DejaVu Sans; other fonts leave a little more room


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where things lie.

    Attributes:
        left, right, top, bottom: of the plot area.
        height: of the panel.
        x, y: scales into the plot area.
        x_ticks: pixel and lines of text of each tick.
        y_ticks: pixel and text of each tick.
        slanted: whether the texts below the x axis are.
        horizontal: whether the categories are on the y axis.
        zero: pixel of y = 0 where that lies within the plot area.
    """

    left: float
    right: float
    top: float
    bottom: float
    height: float
    x: Scale
    y: Scale
    x_ticks: Tuple[Tuple[float, Tuple[str, ...]], ...]
    y_ticks: Tuple[Tuple[float, str], ...]
    slanted: bool
    horizontal: bool
    zero: Optional[float]


def text_width(text: str, size_px: float = FONT_PX) -> float:
    """About how wide a text is."""
    return len(text) * size_px * _CHARACTER


def truncated(text: str, room_px: float, size_px: float) -> str:
    """A text cut, with an ellipsis, to the room there is."""
    most = int(room_px / (size_px * _CHARACTER))
    return text if len(text) <= most else text[: max(most - 1, 1)] + "\u2026"


def lay_out(panel: Panel) -> Layout:
    """Lay out a panel: all are as wide, and as high as their marks need."""
    xs, ys = extent(panel)
    horizontal = panel.y.kind == CATEGORY
    top = 38.0 if any(isinstance(mark, Ramp) for mark in panel.marks) else 26.0
    plot_height = max(len(panel.y.categories), 2) * row_height(panel) if horizontal else PLOT_HEIGHT
    bottom = top + plot_height
    if horizontal:  # the first category on top
        y = scale_for(panel.y, ys, top, bottom)
        names = [truncated(name, 165, FONT_PX) for name in panel.y.categories]
    else:
        y = scale_for(panel.y, ys, bottom, top)
        names = list(tick_texts(ticks(y)))
    left = (16.0 if panel.y.label else 4.0) + max([text_width(name) for name in names], default=0.0) + 8.0
    right = WIDTH - 17.0
    x = scale_for(panel.x, xs, left, right)
    x_ticks, slanted, room = _below(panel, x)
    zero = y(0.0) if y.kind == LINEAR and y.low <= 0 <= y.high else None
    return Layout(
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        height=bottom + room + 17.0,
        x=x,
        y=y,
        x_ticks=x_ticks,
        y_ticks=tuple((y(value), name) for value, name in zip(ticks(y), names)),
        slanted=slanted,
        horizontal=horizontal,
        zero=zero,
    )


def row_height(panel: Panel) -> float:
    """The room of a category on the y axis: enough for the thinnest of its bars."""
    return max([ROW_HEIGHT, *(LEAST_BAR / mark.width for mark in panel.marks if isinstance(mark, Bar))])


def _below(panel: Panel, x: Scale) -> Tuple[Tuple[Tuple[float, Tuple[str, ...]], ...], bool, float]:
    """The ticks of the x axis, whether their texts are slanted, and the room in pixels that they need below it."""
    if panel.x.kind != CATEGORY:
        values = ticks(x)
        texts = tick_texts(values)
        while len(values) > 2 and sum(text_width(text) + 8 for text in texts) > abs(x.end - x.start):
            values = values[::2]
            texts = tick_texts(values)
        return tuple((x(value), (text,)) for value, text in zip(values, texts)), False, 18.0
    lines = [tuple(name.split("\n")) for name in panel.x.categories]
    slot = abs(x(1.0) - x(0.0))
    widest = max([text_width(text) for name in lines for text in name], default=0.0)
    places = [(x(float(place)), name) for place, name in enumerate(lines)]
    if widest + 4 <= slot:
        return tuple(places), False, 6.0 + 12.0 * max(map(len, lines), default=1)
    every = max(1, math.ceil(13.0 / slot))
    cut: List[Tuple[float, Tuple[str, ...]]] = [
        (pixel, (truncated(" ".join(name), 96, FONT_PX),)) for pixel, name in places[::every]
    ]
    longest = max(text_width(name[0]) for _, name in cut)
    return tuple(cut), True, 18.0 + longest * math.sin(math.radians(40))
