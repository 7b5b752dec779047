"""Which batch sizes fit into a memory limit: the peak memory of a size is predicted before it is started.

Activations take memory in proportion to the batch size; model, gradients, optimizer and libraries do not. So peak
memory is a line, and once two sizes were profiled a size is started only if the line keeps the limit. It starts at
sizes below the requested ones:

    profiled   4   8   ->   16 is predicted, and profiled if it fits   ->   32 is predicted   ->   ...

The first two have bounds instead of a line. What a size cannot do without is counted on the network, and no size whose
count exceeds the limit is started. A sample may take `GENEROUS` times its count, so the first size is that part of the
smallest requested one; memory grows at most in proportion to the first size, or by such samples, so the second is the
largest that fits then. Where this leaves no size, or nothing could be counted, the smallest that the workload can run
is the first, and one sample more the second. Workspaces of libraries and DataLoader workers are not counted, so what
the first sizes take is watched: a case ends after the first minibatch that exceeds the limit.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from harness.core.errors import OverMemoryLimitError
from harness.core.units import bytes_to_mib
from harness.workloads.counting import MemoryFloor

REACH = 2  # times the largest profiled size: small batches may hide in what a process takes anyway
MARGIN = 1.05  # allocators round up, and a process keeps some of what it freed
GENEROUS = 4  # times the counted memory of a sample: its gradients, workspaces of kernels, copies, the DataLoader's


def predicted_bytes(profiled: Dict[int, float], size: int, least_slope: float = 0.0) -> Optional[float]:
    """Peak memory of a batch size on the line through the two profiled sizes nearest to it.

    A sample takes at least `least_slope` bytes, whatever the two profiles differ by. With one profile that is the
    line's slope, and the peak memory is at least that returned; without one or such a slope, None is returned.
    """
    if len(profiled) < 2 and not (profiled and least_slope):
        return None
    first, *_, second = _nearest(profiled, size) * 2
    slope = least_slope
    if first != second:
        slope = max(least_slope, (profiled[second] - profiled[first]) / (second - first))
    return max(profiled[other] + slope * (size - other) for other in (first, second))


def _nearest(profiled: Dict[int, float], size: int) -> List[int]:
    """The two profiled sizes nearest to a size, ascending."""
    return sorted(sorted(profiled, key=lambda other: abs(other - size))[:2])


class MemoryLimit:
    """Refuses the batch sizes that do not fit; `measure` returns the peak memory in bytes of a profile of a size."""

    def __init__(
        self,
        limit_bytes: float,
        sizes: Sequence[int],
        smallest: int = 1,
        count: Callable[[], Optional[MemoryFloor]] = lambda: None,
    ) -> None:
        """Take the limit, the requested sizes, and the smallest size that the workload can run.

        `count` is called once, before the first size is started; it returns None if nothing can be counted.
        """
        self.limit_bytes = limit_bytes
        self._least = min(sizes)
        self._smallest = smallest
        self._count = count
        self._floor: Optional[MemoryFloor] = None
        self._is_counted = False
        self._profiled: Dict[int, float] = {}  # batch size to its greatest peak so far

    def add(self, size: int, peak_bytes: float) -> None:
        self._profiled[size] = max(peak_bytes, self._profiled.get(size, 0.0))

    def describe(self, size: int) -> str:
        """Peak memory of a batch size, profiled or predicted, and the limit; empty if neither is known."""
        peak_bytes, origin = self._profiled.get(size), "profiled"
        if peak_bytes is None:
            peak_bytes, origin = predicted_bytes(self._profiled, size), "predicted"
        if peak_bytes is None:
            return ""
        return (
            f"{bytes_to_mib(peak_bytes):.0f} MiB at its peak, {origin}; limit {bytes_to_mib(self.limit_bytes):.0f} MiB"
        )

    def check(self, size: int, measure: Callable[[int], float]) -> None:
        """Refuse a size that does not fit, before it is started; smaller sizes are profiled where bounds need them.

        Raises:
            OverMemoryLimitError: the size, or a smaller one, needs more than the limit.
        """
        if not self._is_counted:
            self._floor = self._count()
            self._is_counted = True
        self._refuse(size)
        while not self._is_bounded(size):
            rung = self._next_rung(size)
            self._refuse(rung)
            self.add(rung, measure(rung))
            self._refuse(size)

    def _is_bounded(self, size: int) -> bool:
        """Whether the limit is kept by a size that `_refuse` let pass, or no smaller step is left."""
        if not self._profiled:
            return size <= self._first_rung
        largest = max(self._profiled)
        if len(self._profiled) > 1:
            return size <= REACH * largest
        is_small = size <= max(largest + 1, self._least // 2)
        return size <= largest + 1 or (is_small and self._steps_within(size))

    def _next_rung(self, size: int) -> int:
        """The size to profile next on the way to a larger one."""
        if len(self._profiled) > 1:
            return REACH * max(self._profiled)
        if not self._profiled:
            return self._first_rung
        one_more = max(self._profiled) + 1
        rung = self._least // 2
        while rung > one_more and not self._steps_within(rung):
            rung //= 2
        return max(rung, one_more)

    @property
    def _first_rung(self) -> int:
        """The size to profile first: part of one whose count keeps the limit, so that it may take more than its own."""
        return self._smallest if self._floor is None else max(self._smallest, self._least // GENEROUS)

    def _steps_within(self, size: int) -> bool:
        """Whether a size keeps the limit after one profile: in proportion to it, or by generously counted samples."""
        [(first, peak_bytes)] = self._profiled.items()
        bounds = [peak_bytes * size / first]
        if self._floor is not None:
            bounds.append(peak_bytes + GENEROUS * self._floor.sample_bytes * (size - first))
        return min(bounds) <= self.limit_bytes

    def _refuse(self, size: int) -> None:
        limit = f"more than the limit of {bytes_to_mib(self.limit_bytes):.0f} MiB"
        hint = "a smaller batch size, or a higher limit"
        over = [smaller for smaller in self._profiled if smaller <= size and self._profiled[smaller] > self.limit_bytes]
        if over:
            peak_mib = bytes_to_mib(self._profiled[min(over)])
            raise OverMemoryLimitError(f"batches of {min(over)} took {peak_mib:.0f} MiB, {limit}", hint)
        if size in self._profiled:
            return
        if self._floor is not None:
            least_bytes = self._floor.fixed_bytes + self._floor.sample_bytes * size
            if least_bytes > self.limit_bytes:
                raise OverMemoryLimitError(
                    f"batches of {size} need at least {bytes_to_mib(least_bytes):.0f} MiB for {self._floor.contents}, "
                    f"{limit}",
                    hint,
                )
        needed = predicted_bytes(self._profiled, size, self._floor.sample_bytes if self._floor else 0.0)
        if needed is not None and MARGIN * needed > self.limit_bytes:
            sizes = " and ".join(map(str, _nearest(self._profiled, size)))
            raise OverMemoryLimitError(
                f"batches of {size} need about {bytes_to_mib(needed):.0f} MiB, as predicted from batches of {sizes}; "
                f"with {MARGIN - 1:.0%} in reserve that is {limit}",
                hint,
            )
