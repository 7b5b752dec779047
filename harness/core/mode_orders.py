"""In which order to go through power modes: clocks that only fall where a board needs it, and few changes of settings.

On Orin with JetPack 5, CPU and GPU clocks could only be lowered, raising one took a reboot (001 sec. 2.5); on Xavier
modes were changed at will (004 sec. 5.6). Not every set of modes has an order in which neither clock ever rises: of the
clocks (high, low) and (low, high) one rises whichever comes first. What `safe` gives is therefore passes. Within a pass
neither the CPU nor the GPU clock rises, core count and memory clock may go both ways; before each pass the board goes
back to its top (a reboot, or a reset where that does); and no order of these modes has fewer passes.

Within a pass few settings change: of a full grid one a step, which is the fewest there can be.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Callable, Dict, Iterator, List, Sequence, Tuple, TypeVar

from harness.core.power_modes import PowerMode

SAFE, AS_GIVEN, DESCENDING = "safe", "as-given", "descending"
ORDERS = (SAFE, AS_GIVEN, DESCENDING)

Item = TypeVar("Item")


def count_switches(modes: Sequence[PowerMode]) -> int:
    """How many settings change in all when going from each mode to the next (0 to 4 a step)."""
    return sum(one != other for before, after in zip(modes, modes[1:]) for one, other in zip(before, after))


def order_passes(
    items: Sequence[Item], order: str, mode_of: Callable[[Item], PowerMode] = lambda item: item
) -> List[List[Item]]:
    """Put power modes, or items that have one, into an order, cut into passes within which neither clock rises.

    `safe` gives the fewest passes; `descending` goes through CPU, GPU and memory clock and core count from high to low,
    as nested loops would; `as-given` leaves the order. The latter two are cut wherever a clock rises.
    """
    if order == SAFE:
        return _safe_passes(items, mode_of)
    if order == DESCENDING:
        items = sorted(items, key=lambda item: [-value for value in (*mode_of(item)[1:], mode_of(item).cpu_cores)])
    passes: List[List[Item]] = []
    for item in items:
        mode, before = mode_of(item), mode_of(passes[-1][-1]) if passes else None
        if before is None or mode.cpu_khz > before.cpu_khz or mode.gpu_khz > before.gpu_khz:
            passes.append([])
        passes[-1].append(item)
    return passes


def _safe_passes(items: Sequence[Item], mode_of: Callable[[Item], PowerMode]) -> List[List[Item]]:
    groups: Dict[Tuple[int, ...], List[Item]] = {}
    for item in items:
        groups.setdefault(mode_of(item)[1:3], []).append(item)
    passes = []
    for chain in _fewest_chains(list(groups)):
        done: List[Item] = []
        for clocks in chain:
            ways = _ways_through(groups[clocks], mode_of)
            done += min(ways, key=lambda way: count_switches([mode_of(item) for item in [*done[-1:], *way]]))
        passes.append(done)
    return passes


def _ways_through(items: Sequence[Item], mode_of: Callable[[Item], PowerMode]) -> Iterator[List[Item]]:
    """Orders of items that differ in core count and memory clock: back and forth, from each of four corners."""
    settings = {id(item): (mode_of(item).cpu_cores, mode_of(item).mem_khz) for item in items}
    for outer, outer_sign, inner_sign in itertools.product((0, 1), (-1, 1), (-1, 1)):
        rows: Dict[int, List[Item]] = {}
        for item in items:
            rows.setdefault(outer_sign * settings[id(item)][outer], []).append(item)
        way: List[Item] = []
        for number, row in enumerate(sorted(rows)):
            sign = inner_sign if number % 2 == 0 else -inner_sign
            way += sorted(rows[row], key=lambda item: sign * settings[id(item)][1 - outer])
        yield way


def _fewest_chains(points: Sequence[Tuple[int, ...]]) -> List[List[Tuple[int, ...]]]:
    """Split (CPU clock, GPU clock), all different, into as few chains along which none rises as there can be; n log n.

    From high to low, CPU clock first, a point goes to the chain whose last GPU clock is the lowest not below its own
    (of several, with the nearest CPU clock), or begins one. A point that begins the k-th chain leads back, one point a
    chain, to k points no two of which can stand in one (patience sorting; Dilworth 1950).
    """
    chains: List[List[Tuple[int, ...]]] = []
    ends: List[Tuple[int, int, int]] = []  # (GPU clock, CPU clock, chain) of each chain's last point, ascending
    for point in sorted(points, reverse=True):
        place = bisect.bisect_left(ends, (point[1],))
        if place == len(ends):
            number = len(chains)
            chains.append([])
        else:
            number = ends.pop(place)[-1]
        chains[number].append(point)
        bisect.insort(ends, (point[1], point[0], number))
    return chains
