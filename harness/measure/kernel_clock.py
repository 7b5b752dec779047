"""The ends of the minibatches of a user's own loop on a GPU, by CUDA events: no loop is made to wait for its kernels.

    host     |-- step 1 --|-- step 2 --|-- step 3 --|          the loop calls step() at each bar
    kernels    |---- step 1 ----|---- step 2 ----|---- ..      the event of each bar completes later

A loop that waits for its kernels (`loss.item()`) calls step() when they are done: a minibatch ends then. Otherwise it
ends with its kernels, later by a lag: the lag of the minibatch before, and what its kernels took longer than the host.
"""

from __future__ import annotations

import collections
import contextlib
import math
import sys
import time
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from harness.core.errors import CannotRunError
from harness.core.units import ms_to_s, s_to_ms

LAST_KERNELS_S = 10.0
"""How long the end of a loop waits for its last kernels; they may never end, and a held device is restored after it."""

LOOK_S = 0.0005  # between two looks whether they are done


class QueuedEvent(NamedTuple):
    """A point in the queue of a GPU: the event, and when the host put it there (monotonic seconds)."""

    event: Any
    host_s: float


class LoopStep(NamedTuple):
    """A minibatch as the loop ran it."""

    end: QueuedEvent
    begin: QueuedEvent  # end of the previous minibatch, or the end of a pause
    fetched: Optional[QueuedEvent]  # its batch was there; None if the loop does not show it
    stall_s: float  # the host's wait for its batch; NaN likewise
    later_stalls_s: float  # the part of it after `fetched`, of a minibatch of several batches


class EndedMinibatch(NamedTuple):
    """A minibatch by the clock of the GPU: when it began and ended (monotonic seconds), and its parts."""

    begin_s: float
    end_s: float
    lag_s: float  # from the call of step() to its end
    stall_ms: float  # in which the GPU waited too
    compute_ms: float


def gpu_in_use() -> Optional[Any]:
    """The user's torch if it computes on a GPU already; nothing is imported or initialised here."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return torch if is_initialized is not None and is_initialized() else None


def allocations(torch: Any, gpu: int) -> int:
    """How often torch has allocated memory on a GPU so far, which computing does all the time."""
    count: int = torch.cuda.memory_stats(gpu).get("allocation.all.allocated", 0)
    return count


def gpus_of(torch: Any, model: Any, is_used: Callable[[int], bool]) -> List[int]:
    """The GPUs on which a training may compute, the likeliest first: those of its model, else those that are used.

    `is_used` may raise RuntimeError, as torch does if the allocator is the user's own; then it is the current one.
    """
    current = int(torch.cuda.current_device())
    parameters = model.parameters() if hasattr(model, "parameters") else ()
    gpus = {each.device.index for each in parameters if each.device.type == "cuda"}
    if not gpus:
        try:
            gpus = set(filter(is_used, range(torch.cuda.device_count())))
        except RuntimeError:  # an allocator of the user's own does not count
            return [current]
    return sorted(gpus, key=lambda gpu: (gpu != current, gpu))


def is_another(torch: Any, gpu: int, uuid: str) -> bool:
    """Whether a GPU of torch is surely not the one with a UUID of NVML; MIG instances are not told apart."""
    torch_uuid = getattr(torch.cuda.get_device_properties(gpu), "uuid", None)  # without `GPU-`; not of older torch
    return bool(uuid) and torch_uuid is not None and not uuid.startswith("MIG-") and str(torch_uuid) not in uuid


def refuse_another_gpu(uuid: str) -> None:
    """CannotRunError if torch computes on GPUs, and the one with a UUID of NVML is surely none of them."""
    torch = gpu_in_use()
    if torch is None:
        return
    gpus = gpus_of(torch, None, lambda gpu: torch.cuda.memory_allocated(gpu) > 0)
    if gpus and all(is_another(torch, gpu, uuid) for gpu in gpus):
        names = ", ".join(f"cuda:{gpu}" for gpu in gpus)
        hint = "name the one that trains, as nvidia-gpu:1, or set CUDA_VISIBLE_DEVICES before torch is loaded"
        raise CannotRunError(f"the training runs on {names}, and the GPU to be set is {uuid}", hint)


class KernelClock:
    """Takes the steps of a loop on a GPU, and gives each back once its kernels are done."""

    def __init__(self, torch: Any, gpu: int) -> None:
        self._torch = torch
        self.gpu = gpu
        self._waiting: Deque[LoopStep] = collections.deque()
        self._end_s: Optional[float] = None  # of the last minibatch that was given back

    def mark(self, host_s: float) -> QueuedEvent:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self.gpu))
        return QueuedEvent(event, host_s)

    def add(self, step: LoopStep) -> None:
        self._waiting.append(step)

    def ended(self) -> List[EndedMinibatch]:
        """The minibatches whose kernels have completed since the last call; the loop has just added one."""
        newest = self._waiting[-1].end if self._waiting else None
        with contextlib.suppress(RuntimeError):
            # If the newest is done at once, the loop had waited for it: it ended with the host's call.
            if newest is not None and newest.event.query():
                return self._completed(newest.host_s)
        return self._completed()

    def last(self, wait_s: float) -> List[EndedMinibatch]:
        """The minibatches whose kernels complete within `wait_s`; what is left then is dropped."""
        deadline_s = time.monotonic() + wait_s
        with contextlib.suppress(RuntimeError):
            # `synchronize` has no limit: kernels that wait for another process may never end.
            while self._waiting and not self._waiting[-1].end.event.query() and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)
        return self._completed()

    def _completed(self, latest_s: float = math.inf) -> List[EndedMinibatch]:
        """Those whose kernels are done, which all were by `latest_s` of the host's clock.

        If kernels failed, nothing more can be read: what is left is dropped.
        """
        ended: List[EndedMinibatch] = []
        with contextlib.suppress(RuntimeError):  # of torch: a kernel failed, which the user's own code reports
            while self._waiting and self._waiting[0].end.event.query():
                ended.append(self._timed(self._waiting.popleft(), latest_s))
        return ended

    def _timed(self, step: LoopStep, latest_s: float) -> EndedMinibatch:
        """The step by its events; `latest_s` is when all kernels were done, by the host's clock."""
        begin_s = step.begin.host_s if self._end_s is None else max(step.begin.host_s, self._end_s)
        by_events_s = begin_s + ms_to_s(step.begin.event.elapsed_time(step.end.event))
        end_s = min(max(step.end.host_s, by_events_s), latest_s)
        self._end_s = end_s
        stall_ms = compute_ms = step.stall_s
        if step.fetched is not None:
            later_ms = s_to_ms(step.later_stalls_s)
            compute_ms = step.fetched.event.elapsed_time(step.end.event) - later_ms
            first_ms = s_to_ms(step.stall_s) - later_ms
            stall_ms = min(first_ms, step.begin.event.elapsed_time(step.fetched.event)) + later_ms
        return EndedMinibatch(begin_s, end_s, end_s - step.end.host_s, stall_ms, compute_ms)
