"""The CPUs that this process may run on, all its threads and, by inheritance, its DataLoader workers.

Workers that live already inherit nothing: `workers_follow` binds them to what this process is bound to meanwhile.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from typing import Iterator, List

from harness.board.knob import Knob
from harness.core.errors import ControlError

_THREADS = "/proc/self/task"  # of this process, wherever the device's files are looked for


class Affinity(Knob):
    """A list of CPU numbers, ascending."""

    name = "CPU affinity"
    topic = "set the core count"
    outlives_process = False

    def usable(self) -> str:
        return f"CPU affinity of this process: CPUs {self.read()}"

    def read(self) -> List[int]:
        return sorted(set().union(*(_affinity_of(int(thread)) for thread in os.listdir(_THREADS))))

    def apply(self, value: List[int]) -> None:
        try:
            _bind(_THREADS, value)
        except (OSError, ValueError, OverflowError) as error:
            what = f"this process cannot be bound to CPUs {value}: {error}"
            raise ControlError(what, f"CPUs {self.read()} may be used") from error


@contextlib.contextmanager
def workers_follow() -> Iterator[None]:
    """Bind live workers, after the block, to the CPUs that this thread is bound to then."""
    # Those that may run elsewhere than this thread now were bound by somebody else, and stay.
    before = _affinity_of(0)
    followers = [worker for worker in multiprocessing.active_children() if _affinity_of(worker.pid) == before]
    try:
        yield
    finally:
        cpus = _affinity_of(0)
        for worker in followers:
            try:
                _bind(f"/proc/{worker.pid}/task", cpus)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended
            except OSError as error:
                raise ControlError(f"worker {worker.pid} cannot be bound to CPUs {cpus}: {error}") from error


def _bind(threads: str, cpus: List[int]) -> None:
    bound = set()
    while True:
        new = set(map(int, os.listdir(threads))) - bound  # one that was not bound yet may have started others meanwhile
        if not new:
            return
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, cpus)
        bound |= new


def _affinity_of(thread: int) -> List[int]:
    try:
        return sorted(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return []  # it has ended
