"""Fewer points where a screen cannot show all of them."""

from __future__ import annotations

from typing import Iterable, List, Sequence, Tuple

import numpy as np


def thinned(xs: Sequence[float], ys: Sequence[float], most: int) -> Tuple[List[float], List[float]]:
    """Points of a curve, evenly taken, the least and the greatest y of each stretch, so that peaks stay.

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
