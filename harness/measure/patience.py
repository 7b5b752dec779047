"""How long a batch of a DataLoader may take: one that never comes ends its case, not the run.

A GPU that never ends a step cannot be left: the thread that waits for it is in the driver, where no signal reaches it
and whence the device cannot be restored. After as long a time it is said, with the way out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Iterator, Optional

from harness.core.alarm import interrupted_after
from harness.core.errors import DataSetError, ProcessEndedError
from harness.core.terminal import counted
from harness.measure.child_processes import end_workers

FIRST_BATCH_S = 300.0  # most that the first batch may take, without a limit of the case
LEAST_BOUND_S = 30.0  # no batch has less time: workers that are spawned load torch first
TIMES_SLOWEST = 20  # a batch has so many times as long as the slowest before it
CHECK_S = 5.0  # after so long torch looks for workers that have ended
AGAIN_S = 1.0  # after so long a data set that catches its interruption is interrupted again


def bound_s(slowest_s: Optional[float], limit_s: Optional[float]) -> float:
    """How long to wait for what took `slowest_s` at most so far, None at first, in a case with a time limit or none."""
    most_s = FIRST_BATCH_S if slowest_s is None else TIMES_SLOWEST * slowest_s
    if limit_s is not None:
        most_s = min(most_s, limit_s)
    return max(most_s, LEAST_BOUND_S)


class Patience:
    """How long a batch of a DataLoader may take; `limit_s` is the case's time limit."""

    def __init__(self) -> None:
        self.limit_s: Optional[float] = None
        self.report: Callable[[str], None] = lambda line: None
        self._slowest_s: Optional[float] = None

    @property
    def bound_s(self) -> float:
        return bound_s(self._slowest_s, self.limit_s)

    def batches(self, loader: Any) -> Iterator[Any]:
        """The batches of a DataLoader.

        ProcessEndedError where its workers do not answer in time; they are killed. Without workers the data set is read
        by this thread: DataSetError with the line at which it waits, where that is the main thread.
        """
        batches = iter(loader)
        next_batch = self._next_of_workers if loader.num_workers else self._next_of_data_set
        while True:
            asked_s = time.monotonic()
            try:
                batch = next_batch(batches, asked_s)
            except StopIteration:
                return
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - asked_s)
            yield batch

    def _next_of_workers(self, batches: Iterator[Any], asked_s: float) -> Any:
        while True:
            try:
                return next(batches)
            except RuntimeError as error:
                if not str(error).startswith("DataLoader timed out"):
                    raise
            if time.monotonic() - asked_s >= self.bound_s:
                workers = getattr(batches, "_workers", [])
                left = end_workers(workers)
                what = f"{counted(len(workers), 'DataLoader worker')} gave no batch within {self.bound_s:.0f} s"
                held = f"; the kernel holds {', '.join(map(str, left))}, left behind" if left else ""
                raise ProcessEndedError(what + held, "their output shows why; workers=0 needs none")

    def _next_of_data_set(self, batches: Iterator[Any], asked_s: float) -> Any:
        bound_s = self.bound_s

        def refuse(frame: Optional[FrameType]) -> None:
            place = f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame else ""
            what = f"the data set gave no batch within {bound_s:.0f} s; this is where it waits{place}"
            raise DataSetError(what, "look at the file or the server that it reads there")

        with interrupted_after(bound_s, refuse, AGAIN_S):
            return next(batches)


class GpuWatch:
    """Says that a step of a GPU does not end, once for each: another thread looks, and costs the steps nothing."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._slowest_s: Optional[float] = None
        self._began_s: Optional[float] = None  # of the step that runs
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="jetwatt-gpu-watch", daemon=True)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step in the block, by the thread that waits for the GPU."""
        if not self._thread.ident:
            self._thread.start()  # here, because the workers have been forked by now
        began_s = self._began_s = time.monotonic()
        yield
        self._began_s = None
        self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - began_s)

    def close(self) -> None:
        self._has_ended.set()
        if self._thread.ident:
            self._thread.join(LEAST_BOUND_S)  # no thread where the next epoch forks its workers

    def _look(self) -> None:
        said_s: Optional[float] = None  # the start of the step that was named last
        while not self._has_ended.wait(min(CHECK_S, LEAST_BOUND_S / 2)):
            began_s, most_s = self._began_s, bound_s(self._slowest_s, self._patience.limit_s)
            if began_s is None or began_s == said_s or time.monotonic() - began_s < most_s:
                continue
            said_s = began_s
            way_out = f"if it hangs: kill -9 {os.getpid()}, then jetwatt restore"
            self._patience.report(f"    the GPU has not ended a minibatch within {most_s:.0f} s; {way_out}")
