"""Points of a scatter by one resource."""

from __future__ import annotations

from typing import Dict, Hashable, List, Sequence


def grouped(values: Sequence[Hashable]) -> Dict[Hashable, List[int]]:
    """Places by value, values ascending: the points of a scatter by one resource (004 Figs 11 to 16)."""
    groups: Dict[Hashable, List[int]] = {value: [] for value in sorted(set(values))}
    for place, value in enumerate(values):
        groups[value].append(place)
    return groups
