"""Where things lie in a panel: scales, ticks and their texts, the plot area, the outline of a violin."""

from __future__ import annotations

import dataclasses
import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.report.figure import CATEGORY, LINEAR, LINEAR_TO, LOG, SYMLOG, Axis, Bar, Panel, Ramp, extent

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
"""Units of ticks, and their letters; each is used from a hundred of it on."""


class AxisScale(NamedTuple):
    """From values of an axis, `low` to `high`, to pixels, `start` to `end`."""

    kind: str
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value; values beyond the ends lie beyond."""
        value, low, high = (_straightened(self.kind, one) for one in (value, self.low, self.high))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _straightened(kind: str, value: float) -> float:
    """A value as an axis of that kind spaces it."""
    if kind == LOG:
        return math.log(value)
    if kind == SYMLOG and abs(value) > LINEAR_TO:
        return math.copysign(LINEAR_TO * (1.0 + math.log10(abs(value) / LINEAR_TO)), value)
    return value


def scale_for(axis: Axis, values: Sequence[float], start: float, end: float) -> AxisScale:
    """The scale that shows all values, from tick to tick on a linear axis."""
    if axis.kind == CATEGORY:
        return AxisScale(CATEGORY, -0.5, max(len(axis.categories), 1) - 0.5, start, end)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if axis.kind == LOG:
        low, high = (low / 1.15, high * 1.15) if low > 0 else (1.0, 10.0)
        return AxisScale(LOG, low, high, start, end)
    if axis.kind == SYMLOG:
        return AxisScale(SYMLOG, min(low, 0.0) * 1.15, max(high, LINEAR_TO) * 1.15, start, end)
    if axis.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # the same value but for rounding
        low, high = (low - 0.1 * abs(low), high + 0.1 * abs(high)) if low else (0.0, 1.0)
    step = nice_step(high - low, 5)
    return AxisScale(axis.kind, math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end)


def nice_step(span: float, about: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a span into about as many parts."""
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999), default=10)


def ticks(scale: AxisScale, about: int = 5) -> List[float]:
    """Values of the ticks; at most about as many as asked for."""
    if scale.kind == CATEGORY:
        return [float(place) for place in range(math.ceil(scale.low), math.floor(scale.high) + 1)]
    if scale.kind == LOG:
        return _log_ticks(scale.low, scale.high, about)
    if scale.kind == SYMLOG:
        return _symlog_ticks(scale.low, scale.high, about)
    step = nice_step(scale.high - scale.low, about)
    first = math.ceil(scale.low / step - 1e-9)
    count = math.floor(scale.high / step + 1e-9) - first
    return [(first + place) * step for place in range(count + 1)]


def _log_ticks(low: float, high: float, about: int) -> List[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) <= about + 1:
            return found
    every = math.ceil(len(found) / about)
    return found[::every]


def _symlog_ticks(low: float, high: float, about: int) -> List[float]:
    found: List[float] = []
    for factors in ((1, 4), (1,)):
        beyond = [LINEAR_TO * factor * 10.0**power for power in range(12) for factor in factors]
        found = [value for value in (*(-one for one in reversed(beyond)), 0.0, *beyond) if low <= value <= high]
        if len(found) <= about:
            break
    return found


def tick_texts(values: Sequence[float]) -> Tuple[str, ...]:
    """Ticks as text, all of them in the same unit and with as many digits as tell them apart."""
    greatest = max((abs(value) for value in values), default=0.0)
    unit, letter = next((one for one in _LARGE if greatest >= 100 * one[0]), (1.0, ""))
    gaps = [b - a for a, b in zip(values, values[1:]) if b > a]
    digits = max(0, -math.floor(math.log10(min(gaps) / unit) + 1e-9)) if gaps else 2
    texts = [f"{value / unit:.{digits}f}" for value in values]
    return tuple((text.rstrip("0").rstrip(".") if "." in text else text) + letter for text in texts)


def figure_text(value: float) -> str:
    """A figure with three significant digits for people: 0.0123, 1.23, 12.3, 123, 1,230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


WIDTH = 340.0
FONT_PX = 10.5
PLOT_HEIGHT = 160.0
ROW_HEIGHT = 19.0
LEAST_BAR = 6.8
_CHARACTER = 0.6  # of the font's size, for the wide DejaVu Sans; other fonts leave a little more room


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where things lie: the plot area, the panel's height, scales, ticks with their texts."""

    left: float
    right: float
    top: float
    bottom: float
    height: float
    x: AxisScale
    y: AxisScale
    x_ticks: Tuple[Tuple[float, Tuple[str, ...]], ...]  # pixel and lines of text
    y_ticks: Tuple[Tuple[float, str], ...]
    slanted: bool  # the texts below the x axis
    horizontal: bool  # categories are on the y axis
    zero: Optional[float]  # pixel of y = 0 within the plot area


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
    y_ticks = tuple((y(value), name) for value, name in zip(ticks(y), names))
    height = bottom + room + 17.0
    return Layout(left, right, top, bottom, height, x, y, x_ticks, y_ticks, slanted, horizontal, zero)


def row_height(panel: Panel) -> float:
    """The room of a category on the y axis: enough for the thinnest of its bars."""
    return max([ROW_HEIGHT, *(LEAST_BAR / mark.width for mark in panel.marks if isinstance(mark, Bar))])


def _below(panel: Panel, x: AxisScale) -> Tuple[Tuple[Tuple[float, Tuple[str, ...]], ...], bool, float]:
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


FEWEST = 12
"""Fewer values are drawn as points: a density would claim a shape that nobody has seen."""

STEPS = 36


def density(values: Sequence[float]) -> List[Tuple[float, float]]:
    """Values from least to greatest, each with its density as a share of the greatest one; empty for too few values.

    A Gaussian kernel of Silverman's width: 0.9 min(standard deviation, IQR / 1.34) n^(-1/5).
    """
    found = np.asarray(values, dtype=float)
    spread = float(np.std(found)) if len(found) else 0.0
    if len(found) < FEWEST or spread == 0:
        return []
    first, third = np.percentile(found, [25, 75])
    robust = float(third - first) / 1.34
    width = 0.9 * (min(spread, robust) if robust > 0 else spread) * len(found) ** -0.2
    places = np.linspace(found.min(), found.max(), STEPS)
    heights = np.exp(-0.5 * ((places[:, None] - found[None, :]) / width) ** 2).sum(axis=1)
    return [(float(place), float(height)) for place, height in zip(places, heights / heights.max())]
