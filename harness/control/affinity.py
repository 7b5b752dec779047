"""The CPUs that this process may run on, all its threads and, by inheritance, its DataLoader workers."""

from __future__ import annotations

import os
from typing import List

from harness.capability import Capability
from harness.control.knob import Knob, KnobSpec
from harness.errors import ControlError

_THREADS = "/proc/self/task"  # of this process, wherever the device's files are looked for


class Affinity(Knob):
    """A list of CPU numbers, ascending."""

    spec = KnobSpec("affinity")
    name = "CPU affinity"
    outlives_process = False

    def available(self) -> Capability:
        """Always, on Linux."""
        return Capability("set the core count", True, f"CPU affinity of this process: CPUs {self.read()}")

    def read(self) -> List[int]:
        """Every CPU that any thread of this process may run on."""
        return sorted(set().union(*(_affinity_of(thread) for thread in _threads())))

    def apply(self, value: List[int]) -> None:
        """Bind every thread; those that they start later inherit it."""
        bound = set()
        while True:
            new = set(_threads()) - bound  # a thread that was not bound yet may have started others meanwhile
            if not new:
                return
            for thread in new:
                try:
                    os.sched_setaffinity(thread, value)
                except ProcessLookupError:
                    pass  # it has ended
                except (OSError, ValueError, OverflowError) as error:
                    raise ControlError(
                        f"this process cannot be bound to CPUs {value}: {error}", f"CPUs {self.read()} may be used"
                    ) from error
            bound |= new


def _threads() -> List[int]:
    return [int(name) for name in os.listdir(_THREADS)]


def _affinity_of(thread: int) -> List[int]:
    try:
        return sorted(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return []  # it has ended


def open_knob(root: str) -> Affinity:
    """The affinity of this process."""
    return Affinity()
