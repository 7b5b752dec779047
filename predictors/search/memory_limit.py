"""Which batch sizes fit into a memory limit: the peak memory of a size is predicted from two that were profiled.

Activations take memory in proportion to the batch size; model, gradients, optimizer and libraries do not. So peak
memory is a line, and a size is profiled only if the line keeps the limit. It starts at sizes below the requested ones:

    profiled   4   8   ->   16 is predicted, and profiled if it fits   ->   32 is predicted   ->   ...
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from harness.core.errors import DoesNotFitError
from harness.core.units import bytes_to_mib

REACH = 2  # times the largest profiled size: small batches may hide in what a process takes anyway
MARGIN = 1.05  # allocators round up, and a process keeps some of what it freed


class OverMemoryLimitError(DoesNotFitError):
    """A batch size that is predicted to need more memory than the limit, or was measured to."""


def predicted_bytes(profiled: Dict[int, float], size: int) -> Optional[float]:
    """Peak memory of a batch size on the line through the two profiled sizes nearest to it; None of fewer than two."""
    if len(profiled) < 2:
        return None
    first, second = _nearest(profiled, size)
    slope = max(0.0, (profiled[second] - profiled[first]) / (second - first))
    return profiled[first] + slope * (size - first)


def _nearest(profiled: Dict[int, float], size: int) -> List[int]:
    """The two profiled sizes nearest to a size, ascending."""
    return sorted(sorted(profiled, key=lambda other: abs(other - size))[:2])


class MemoryLimit:
    """Refuses the batch sizes that do not fit; `measure` returns the peak memory in bytes of a profile of a size."""

    def __init__(self, limit_bytes: float, sizes: Sequence[int], smallest: int = 1) -> None:
        """Take the limit, the requested sizes, and the smallest size that the workload can run."""
        self._limit_bytes = limit_bytes
        least = min(sizes)
        wanted = {max(smallest, least // 4), max(smallest + 1, least // 2)}
        self._first = sorted(size for size in wanted if size < least)
        self._profiled: Dict[int, float] = {}  # batch size to its greatest peak so far

    def add(self, size: int, peak_bytes: float) -> None:
        self._profiled[size] = max(peak_bytes, self._profiled.get(size, 0.0))

    def check(self, size: int, measure: Callable[[int], float]) -> None:
        """Refuse a size that does not fit, before it is started; smaller sizes are profiled where the line needs them.

        Raises:
            OverMemoryLimitError: the size, or a smaller one, needs more than the limit.
        """
        for first in self._first:
            if first not in self._profiled:
                self._refuse(first)
                self.add(first, measure(first))
        self._refuse(size)
        while self._profiled and size > REACH * max(self._profiled):
            rung = REACH * max(self._profiled)
            self._refuse(rung)
            self.add(rung, measure(rung))
            self._refuse(size)

    def _refuse(self, size: int) -> None:
        over = [
            smaller for smaller in self._profiled if smaller <= size and self._profiled[smaller] > self._limit_bytes
        ]
        limit = f"more than the limit of {bytes_to_mib(self._limit_bytes):.0f} MiB"
        if over:
            peak_mib = bytes_to_mib(self._profiled[min(over)])
            raise OverMemoryLimitError(
                f"batches of {min(over)} took {peak_mib:.0f} MiB, {limit}", "a smaller batch size, or a higher limit"
            )
        needed = None if size in self._profiled else predicted_bytes(self._profiled, size)
        if needed is not None and MARGIN * needed > self._limit_bytes:
            sizes = " and ".join(map(str, _nearest(self._profiled, size)))
            raise OverMemoryLimitError(
                f"batches of {size} need about {bytes_to_mib(needed):.0f} MiB, as predicted from batches of {sizes}; "
                f"with {MARGIN - 1:.0%} in reserve that is {limit}",
                "a smaller batch size, or a higher limit",
            )
