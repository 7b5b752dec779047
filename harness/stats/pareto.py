"""The Pareto front of time and a cost: power or energy (M19; 004 sec. 5.6, 001 sec. 1.3)."""

from __future__ import annotations

from typing import Dict, Hashable, List, Sequence

import numpy as np


def pareto_front(times: Sequence[float], costs: Sequence[float]) -> List[int]:
    """Places of the points that no other one beats, cheapest and slowest first.

    001 sec. 1.3, footnote 3: sort by cost, and keep every point with a lower time than all before it. Of points that
    are equal in both the first is kept.
    """
    order = np.lexsort((np.arange(len(times)), np.asarray(times, dtype=float), np.asarray(costs, dtype=float)))
    front: List[int] = []
    best = np.inf
    for place in order.tolist():
        if times[place] < best:
            front.append(place)
            best = times[place]
    return front


def grouped(values: Sequence[Hashable]) -> Dict[Hashable, List[int]]:
    """Places by value, values ascending: the points of a scatter by one resource (004 Figs 11 to 16)."""
    groups: Dict[Hashable, List[int]] = {value: [] for value in sorted(set(values))}
    for place, value in enumerate(values):
        groups[value].append(place)
    return groups
