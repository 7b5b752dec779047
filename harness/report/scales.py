"""Axes in numbers: which range to show, where the ticks are, how they read, and where a value lies in pixels."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Sequence, Tuple

from harness.report.figure import CATEGORY, LINEAR_TO, LOG, SYMLOG, Axis

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
"""Units of ticks, and their letters; each is used from a hundred of it on."""


class Scale(NamedTuple):
    """From values of an axis to pixels.

    Attributes:
        kind: `linear`, `log`, `symlog` or `category`.
        low, high: the values at both ends.
        start, end: their pixels.
    """

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


def scale_for(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    """The scale that shows all values, from tick to tick on a linear axis."""
    if axis.kind == CATEGORY:
        return Scale(CATEGORY, -0.5, max(len(axis.categories), 1) - 0.5, start, end)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if axis.kind == LOG:
        low, high = (low / 1.15, high * 1.15) if low > 0 else (1.0, 10.0)
        return Scale(LOG, low, high, start, end)
    if axis.kind == SYMLOG:
        return Scale(SYMLOG, min(low, 0.0) * 1.15, max(high, LINEAR_TO) * 1.15, start, end)
    if axis.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # the same value but for rounding
        low, high = (low - 0.1 * abs(low), high + 0.1 * abs(high)) if low else (0.0, 1.0)
    step = nice_step(high - low, 5)
    return Scale(axis.kind, math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end)


def nice_step(span: float, about: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a span into about as many parts."""
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999), default=10)


def ticks(scale: Scale, about: int = 5) -> List[float]:
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
