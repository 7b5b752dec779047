"""How long a batch of a DataLoader may take: one that never comes ends its case, not the run."""

from __future__ import annotations

import time
from pathlib import Path
from types import FrameType
from typing import Any, Iterator, Optional

from harness.core.alarm import interrupted_after
from harness.core.errors import DataSetError, ProcessEndedError
from harness.core.terminal import counted
from harness.measure.child_processes import end_workers

FIRST_BATCH_S = 300.0  # most that the first batch may take, without a limit of the case
LEAST_BOUND_S = 30.0  # no batch has less time: workers that are spawned load torch first
TIMES_SLOWEST = 20  # a batch has so many times as long as the slowest before it
CHECK_S = 5.0  # after so long torch looks for workers that have ended
AGAIN_S = 1.0  # after so long a data set that catches its interruption is interrupted again


class Patience:
    """How long a batch of a DataLoader may take; `limit_s` is the case's time limit."""

    def __init__(self) -> None:
        self.limit_s: Optional[float] = None
        self._slowest_s: Optional[float] = None

    @property
    def bound_s(self) -> float:
        bound_s = FIRST_BATCH_S if self._slowest_s is None else TIMES_SLOWEST * self._slowest_s
        if self.limit_s is not None:
            bound_s = min(bound_s, self.limit_s)
        return max(bound_s, LEAST_BOUND_S)

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
                raise ProcessEndedError(what + held, "their output shows why; --workers 0 needs none")

    def _next_of_data_set(self, batches: Iterator[Any], asked_s: float) -> Any:
        bound_s = self.bound_s

        def refuse(frame: Optional[FrameType]) -> None:
            place = f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame else ""
            what = f"the data set gave no batch within {bound_s:.0f} s; this is where it waits{place}"
            raise DataSetError(what, "look at the file or the server that it reads there")

        with interrupted_after(bound_s, refuse, AGAIN_S):
            return next(batches)
