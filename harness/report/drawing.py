"""What figures are put together from: panels of rows, bars side by side, fewer points where there are many."""

from __future__ import annotations

from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.report.figure import Axis, Bar, Mark, Panel, joined
from harness.report.material import Row


class Height(NamedTuple):
    """A bar to be: its category, its place within that, its value (none is drawn for None), what is said of it."""

    category: int
    place: int
    value: Optional[float]
    tip: str
    provenance: str


def bars(heights: Iterable[Height], colours: Sequence[str], room: float = 0.8) -> List[Mark]:
    """Bars side by side, as many in a category as there are colours, in a share of its room."""
    width = room / len(colours)
    return [
        Bar(
            *(one.category + (one.place - (len(colours) - 1) / 2) * width, width * (0.92 if len(colours) > 1 else 1.0)),
            *(((colours[one.place], one.value),), one.tip, one.provenance == "simulated"),
        )
        for one in heights
        if one.value is not None
    ]


def panel_of(
    title: str, x: Axis, y: Axis, marks: Iterable[Mark], rows: Sequence[Row], varies: Sequence[str] = ()
) -> Panel:
    """A panel that shows profiles which differ in the named conditions and share all others."""
    provenance = joined(row.provenance for row in rows)
    return Panel(title, x, y, tuple(marks), provenance, tuple(row.id for row in rows), tuple(varies))


def cells(row: Row, columns: Sequence[str]) -> Tuple[Any, ...]:
    """Some columns of a profile."""
    return tuple(getattr(row, name) for name in columns)


def shift(place: int, count: int, room: float) -> float:
    """How far a curve's points lie beside their category, so that those of several do not cover each other."""
    return (place - (count - 1) / 2) * room / count


def thinned(xs: Sequence[float], ys: Sequence[float], most: int) -> Tuple[List[float], List[float]]:
    """At most so many points of a curve: the least and the greatest y of each stretch, so that peaks stay.

    Args:
        xs: ascending.
        ys: as many.
        most: points at the most.
    """
    if len(xs) <= most:
        return list(xs), list(ys)
    kept = set()
    for stretch in np.array_split(np.arange(len(xs)), most // 2):
        values = [ys[place] for place in stretch]
        kept.update((int(stretch[int(np.argmin(values))]), int(stretch[int(np.argmax(values))])))
    places = sorted(kept)
    return [xs[place] for place in places], [ys[place] for place in places]


def evenly(count: int, most: int, always: Iterable[int] = ()) -> List[int]:
    """Places of a scatter to draw: those that always are, and of the others evenly as many as there is room for."""
    kept = set(always)
    others = [place for place in range(count) if place not in kept]
    room = max(most - len(kept), 0)
    if len(others) > room:
        others = [others[int(place)] for place in np.linspace(0, len(others) - 1, room)] if room else []
    return sorted(kept.union(others))
