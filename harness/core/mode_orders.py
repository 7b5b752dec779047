"""Orders of power modes: clocks that only fall if a board requires it, and few changes of settings.

On Orin with JetPack 5, CPU and GPU clocks could only be lowered; raising one took a reboot (001 sec. 2.5). On Xavier,
modes could be changed at will (004 sec. 5.6). Not every set of modes has an order in which neither clock ever rises: of
the clocks (high, low) and (low, high), one rises whichever comes first. `safe` therefore splits modes into passes.
Within a pass neither the CPU nor the GPU clock rises, while core count and memory clock may change either way; before
each pass the board returns to its greatest clocks (by a reboot, or a reset if that suffices). No order of the same
modes has fewer passes.

Within a pass few settings change: one per step in a full grid, which is the minimum.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple, TypeVar

from harness.core.power_modes import PowerMode

SAFE, AS_GIVEN, DESCENDING = "safe", "as-given", "descending"
ORDERS = (SAFE, AS_GIVEN, DESCENDING)

Item = TypeVar("Item")


def count_switches(modes: Sequence[PowerMode]) -> int:
    """The number of settings that change from each mode to the next, summed over all steps (0 to 4 each)."""
    return sum(earlier != later for before, after in zip(modes, modes[1:]) for earlier, later in zip(before, after))


def order_passes(
    items: Sequence[Item], order: str, mode_of: Callable[[Any], PowerMode] = lambda item: item
) -> List[List[Item]]:
    """Sort power modes, or items that have one, and split them into passes within which neither clock rises.

    `safe` gives the fewest passes; `descending` nests CPU, GPU and memory clock and core count, each from high to low;
    `as-given` keeps the order. The latter two are split wherever a clock rises.
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
    """Orders of items that differ in core count and memory clock: back and forth, from each of the four corners."""
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
    """Split distinct pairs (CPU clock, GPU clock) into the fewest chains along which neither rises, in O(n log n).

    Points are taken from high to low, by CPU clock first. Each joins the chain whose last GPU clock is the lowest that
    is not below its own (the nearest CPU clock breaks ties), or begins a new one. When a point begins the k-th chain,
    there are k points, one in each chain, no two of which fit into the same chain (patience sorting; Dilworth 1950).
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
