"""In which order to go through power modes: clocks that only fall where a board needs it, and few changes of settings.

On Orin with JetPack 5, CPU and GPU clocks could only be lowered, raising one took a reboot (001 sec. 2.5); on Xavier
modes were changed at will (004 sec. 5.6). Not every set of modes has an order in which neither clock ever rises: of the
clocks (high, low) and (low, high) one rises whichever comes first. What `safe` gives is therefore passes. Within a pass
neither the CPU nor the GPU clock rises, core count and memory clock may go both ways; before each pass the board goes
back to its top (a reboot, or a reset where that does); and no order of these modes has fewer passes.

Among such orders, one with few changes of settings is taken: the fewest there can be for a full grid, and for up to 256
modes no two of which share both clocks (about what a sample is); else never more than nested loops along its chains.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Sequence, Tuple, TypeVar

import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.power_modes import PowerMode

SAFE, AS_GIVEN, DESCENDING = "safe", "as-given", "descending"
ORDERS = (SAFE, AS_GIVEN, DESCENDING)

_FEW_CLOCK_PAIRS = 256
"""Up to how many pairs of clocks the cheapest chains are looked for, which takes the third power of their number."""

Item = TypeVar("Item")


def count_switches(modes: Sequence[PowerMode]) -> int:
    """How many settings change in all when going from each mode to the next (0 to 4 a step)."""
    return sum(map(_changes, modes, modes[1:]))


def order_passes(
    items: Sequence[Item], order: str, mode_of: Callable[[Item], PowerMode] = lambda item: item
) -> List[List[Item]]:
    """Put power modes into an order, cut into passes within which neither CPU nor GPU clock rises.

    Args:
        items: power modes, or what has one; equal modes may come several times and all stay.
        order: `safe` gives the least number of passes and, within them, few changes of settings; `descending` goes
            through CPU clock, GPU clock, memory clock and core count from high to low, as nested loops would;
            `as-given` leaves the order. The latter two are cut wherever a clock rises.
        mode_of: takes an item, returns its power mode.

    Returns:
        The passes in the order to run them; together they hold each item once.

    Raises:
        UnknownNameError: there is no such order; lists the known ones.
    """
    if order not in ORDERS:
        raise UnknownNameError(f"order {order!r} is unknown", f"known: {', '.join(ORDERS)}")
    if order == SAFE:
        return _safe_passes(items, mode_of)
    if order == DESCENDING:

        def low_ones_last(item: Item) -> Tuple[int, ...]:
            mode = mode_of(item)
            return (-mode.cpu_khz, -mode.gpu_khz, -mode.mem_khz, -mode.cpu_cores)

        items = sorted(items, key=low_ones_last)
    passes: List[List[Item]] = []
    for item in items:
        if not passes or not _clocks(mode_of(item)).may_follow(_clocks(mode_of(passes[-1][-1]))):
            passes.append([])
        passes[-1].append(item)
    return passes


def _changes(before: Sequence[int], after: Sequence[int]) -> int:
    return sum(one != other for one, other in zip(before, after))


def _safe_passes(items: Sequence[Item], mode_of: Callable[[Item], PowerMode]) -> List[List[Item]]:
    groups: Dict[Clocks, List[Item]] = {}
    for item in items:
        groups.setdefault(_clocks(mode_of(item)), []).append(item)
    walks = {
        clocks: _walks([((mode_of(item).cpu_cores, mode_of(item).mem_khz), item) for item in group])
        for clocks, group in groups.items()
    }

    def passes_along(chains: List[List[Clocks]]) -> List[List[Item]]:
        return [_join_groups([walks[clocks] for clocks in chain]) for chain in chains]

    def switches(passes: List[List[Item]]) -> int:
        return sum(count_switches([mode_of(item) for item in one]) for one in passes)

    def least_switches(one: Clocks, other: Clocks) -> int:
        free = min(_changes(left.last, entered.first) for left in walks[one] for entered in walks[other])
        return _changes(one, other) + free

    passes = passes_along(fewest_chains(list(groups)))
    at_best = len({mode_of(item) for item in items}) - len(passes)  # one setting a step
    if switches(passes) <= at_best or len(groups) > _FEW_CLOCK_PAIRS:
        return passes
    return min(passes, passes_along(cheapest_chains(list(groups), least_switches)), key=switches)


def _clocks(mode: PowerMode) -> Clocks:
    return Clocks(mode.cpu_khz, mode.gpu_khz)


class Walk(NamedTuple):
    """A way through the modes of one pair of clocks: items in order, first and last settings, changes on the way."""

    items: List[Any]
    first: Tuple[int, int]
    last: Tuple[int, int]
    switches: int


def _walks(settled: Sequence[Tuple[Tuple[int, int], Any]]) -> List[Walk]:
    """Ways through items that differ in core count and memory clock only, each with these two.

    Back and forth, one setting in the inner loop and the other in the outer, from each of the four corners; of a full
    grid each changes one setting a step, the least there is. And plainly from high to low, so that whatever is chosen
    is no worse than nested loops. Of several with the same ends one with the fewest changes is kept.
    """
    ways = [_back_and_forth(settled, *how) for how in itertools.product((0, 1), (-1, 1), (-1, 1))]
    ways.append(sorted(settled, key=lambda pair: (-pair[0][1], -pair[0][0])))
    walks: Dict[Hashable, Walk] = {}
    for way in ways:
        settings = [setting for setting, _ in way]
        switches = sum(map(_changes, settings, settings[1:]))
        walk = Walk([item for _, item in way], settings[0], settings[-1], switches)
        ends = (walk.first, walk.last)
        if ends not in walks or switches < walks[ends].switches:
            walks[ends] = walk
    return list(walks.values())


def _back_and_forth(settled: Sequence[Any], outer: int, outer_sign: int, inner_sign: int) -> List[Any]:
    rows: Dict[int, List[Any]] = {}
    for pair in settled:
        rows.setdefault(pair[0][outer], []).append(pair)
    walk: List[Any] = []
    for number, value in enumerate(sorted(rows, reverse=outer_sign < 0)):
        sign = inner_sign if number % 2 == 0 else -inner_sign
        walk += sorted(rows[value], key=lambda pair: sign * pair[0][1 - outer])
    return walk


def _join_groups(groups: Sequence[List[Walk]]) -> List[Any]:
    """Choose a walk for each group in turn so that the settings change as rarely as these walks allow.

    The clocks change between two groups whatever is chosen, so only the free settings count: a shortest path through
    the groups, by dynamic programming.
    """
    costs = [walk.switches for walk in groups[0]]
    choices: List[List[int]] = []
    for before, after in zip(groups, groups[1:]):
        reached = [
            min(
                (cost + _changes(walk.last, entered.first), number)
                for number, (cost, walk) in enumerate(zip(costs, before))
            )
            for entered in after
        ]
        costs = [cost + entered.switches for (cost, _), entered in zip(reached, after)]
        choices.append([number for _, number in reached])
    number = min(range(len(costs)), key=costs.__getitem__)
    way = [number]
    for choice in reversed(choices):
        way.append(choice[way[-1]])
    return [item for group, number in zip(groups, reversed(way)) for item in group[number].items]


class Clocks(NamedTuple):
    """The two clocks that must not rise along a chain."""

    cpu_khz: int
    gpu_khz: int

    def may_follow(self, before: Clocks) -> bool:
        """Whether neither clock rises from `before` to this."""
        return self.cpu_khz <= before.cpu_khz and self.gpu_khz <= before.gpu_khz


def fewest_chains(points: Sequence[Clocks]) -> List[List[Clocks]]:
    """Split points, all different, into as few chains as there can be; n log n.

    Points are taken from high to low, CPU clock first, and each goes to the chain whose last GPU clock is the lowest
    that is not below its own; where there is none, it begins a chain. A point that begins the k-th chain leads back,
    one point a chain, to k points no two of which can stand in one chain (patience sorting), so fewer than k are
    impossible (Dilworth 1950).

    Of several chains with that last GPU clock the one with the nearest CPU clock goes on: it may well be the same.
    """
    chains: List[List[Clocks]] = []
    ends: List[Tuple[int, int, int]] = []  # (GPU clock, CPU clock, chain) of each chain's last point, ascending
    for point in sorted(points, reverse=True):
        place = bisect.bisect_left(ends, (point.gpu_khz,))
        if place == len(ends):
            number = len(chains)
            chains.append([])
        else:
            number = ends.pop(place)[-1]
        chains[number].append(point)
        bisect.insort(ends, (point.gpu_khz, point.cpu_khz, number))
    return chains


def cheapest_chains(points: Sequence[Clocks], cost: Callable[[Clocks, Clocks], int]) -> List[List[Clocks]]:
    """Of all splits of points, all different, into the fewest chains the one with the least sum of costs; n cubed.

    Each point gets at most one successor and is that of at most one, as many as can be: an assignment in which going
    without a successor costs more than all that may be saved by it. `cost` of a step from one point to the next is 0 or
    more.
    """
    from scipy.optimize import linear_sum_assignment

    count = len(points)
    allowed = np.array([[one != other and other.may_follow(one) for other in points] for one in points], dtype=bool)
    costs = np.array([[cost(one, other) for other in points] for one in points]).reshape(count, count)
    without = 1 + costs.max(axis=1, initial=0).sum()
    _, successors = linear_sum_assignment(np.where(allowed.reshape(count, count), costs, without))
    follows = {one: other for one, other in enumerate(successors.tolist()) if allowed[one, other]}
    chains = []
    begins = set(range(count)) - set(follows.values())
    for first in sorted(begins, key=points.__getitem__, reverse=True):
        chain = [first]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        chains.append([points[number] for number in chain])
    return chains
