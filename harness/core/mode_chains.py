"""Splitting pairs of CPU and GPU clocks into the fewest chains along which neither clock rises."""

from __future__ import annotations

import bisect
from typing import Callable, List, NamedTuple, Sequence, Tuple


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
    without a successor costs more than all that may be saved by it.

    Args:
        points: what to split.
        cost: of a step from one point to the next, 0 or more.
    """
    costs = [[cost(one, other) if one != other and other.may_follow(one) else -1 for other in points] for one in points]
    without = 1 + sum(max(row) + 1 for row in costs)
    successors = _cheapest_assignment([[value if value >= 0 else without for value in row] for row in costs])
    follows = {one: other for one, other in enumerate(successors) if costs[one][other] >= 0}
    chains = []
    for first in sorted(
        set(range(len(points))) - set(follows.values()), key=lambda number: points[number], reverse=True
    ):
        chain = [first]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        chains.append([points[number] for number in chain])
    return chains


def _cheapest_assignment(costs: Sequence[Sequence[int]]) -> List[int]:
    """The column of each row so that every column is taken once and the costs add up to the least (Kuhn 1955).

    Rows are added one by one, each along the shortest way of reassigning those before it; the prices keep the reduced
    costs of what is assigned at 0 and of the rest at 0 or more.
    """
    count = len(costs)
    row_prices, column_prices = [0] * count, [0] * (count + 1)
    row_of = [-1] * (count + 1)  # by column; the last column is where a row that is being added stands
    for added in range(count):
        column = count
        row_of[column] = added
        distance = [float("inf")] * count
        reached_from = [count] * count
        settled: List[int] = []
        open_columns = set(range(count))
        while row_of[column] >= 0:
            settled.append(column)
            row = row_of[column]
            for other in open_columns:
                reduced = costs[row][other] - row_prices[row] - column_prices[other]
                if reduced < distance[other]:
                    distance[other], reached_from[other] = reduced, column
            nearest = min(open_columns, key=lambda other: (distance[other], other))
            step = distance[nearest]
            for other in settled:
                row_prices[row_of[other]] += step
                column_prices[other] -= step
            for other in open_columns:
                distance[other] -= step
            open_columns.remove(nearest)
            column = nearest
        while column != count:
            row_of[column] = row_of[reached_from[column]]
            column = reached_from[column]
    columns = [0] * count
    for column in range(count):
        columns[row_of[column]] = column
    return columns
