"""A training loop of the user's own, measured by the suite's rules: the loop reports each minibatch by `step`.

    |-- the loop's own --|-- next(loader) --|-- forward, backward, step, the loop's own --|
                         |<- fetch stall -->|<---------------- compute ------------------>|
    |<------------------------------------ E2E ---------------------------------------->|step()

Nothing of the user's is changed: no seed, thread count, signal handler, start method or counter of torch; torch is not
imported. A GPU's minibatches end by its own clock (`kernel_clock`).
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, TypeVar

import numpy as np

from harness.core import metrics
from harness.core.cases import Case
from harness.core.errors import InvalidValueError
from harness.core.notes import note
from harness.core.profiles import CLEAN, FIRST, SETTLING, Minibatch, Minibatches, Profile, Series
from harness.core.units import ms_to_s, mwh_to_j, s_to_ms
from harness.measure.kernel_clock import (
    LAST_KERNELS_S,
    EndedMinibatch,
    KernelClock,
    LoopStep,
    QueuedEvent,
    allocations,
    gpu_in_use,
    gpus_of,
    is_another,
)
from harness.measure.recording import Recorder, next_phase

Batch = TypeVar("Batch")

LAG_SHARE, LAG_S = 0.05, 0.001
"""A GPU that ends a minibatch later than its loop by more than both was not waited for; the share is of the median."""


class StepFigures(NamedTuple):
    """Figures of some minibatches in a row, for a log while training runs."""

    minibatches: int
    time_s: float  # of a minibatch, their mean
    power_w: Optional[float]  # mean power; None without a sensor, or as long as its samples do not cover them
    energy_j: Optional[float]  # of all of them together; None likewise


class OwnLoop:
    """What the loop calls; this one measures nothing."""

    def __init__(self) -> None:
        self._profile: Optional[Profile] = None
        self.minibatches = 0  # reported so far

    @property
    def profile(self) -> Optional[Profile]:
        """The profile, after the block; None without a minibatch, and in a further process of the same training."""
        return self._profile

    def step(self, samples: Optional[int] = None) -> None:
        """Report that a minibatch has ended; `samples` are those in it, by default the block's `batch_size`."""

    def fetch(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a loader; the waits for them count as fetch stall, the time between two passes not at all."""
        yield from loader

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        """The block waits for a batch: its time counts as fetch stall."""
        yield

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The block does not train (an evaluation, a checkpoint): neither its time nor its energy counts."""
        yield

    def resume(self) -> None:
        """The next minibatch begins now: what came since the last one does not count."""

    @property
    def ended(self) -> int:
        """How many minibatches have ended, which `figures` knows: on a GPU, kernels of the last ones may be running."""
        return self.minibatches

    def figures(self, since: int = 0) -> Optional[StepFigures]:
        """Time, power and energy of the ended minibatches from number `since` on (from 0 on); None without any."""
        return None


class FurtherLoop(OwnLoop):
    """The loop of a further process of its training, which measures nothing, and says so once."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason = reason
        self._has_said = False

    def __repr__(self) -> str:
        return "<loop of a further process of its training, which measures nothing>"

    @property
    def profile(self) -> Optional[Profile]:
        self.say_once()
        return None

    def say_once(self) -> None:
        """Note that there is no profile here, and why."""
        if not self._has_said:
            self._has_said = True
            note(f"only the first process of a training is measured, and this is another one: {self._reason}")


class CountedLoop(OwnLoop):
    """A loop whose steps count, in the process that began it; a forked worker's copy does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()
        self.has_ended = False  # the block

    @property
    def is_owner(self) -> bool:
        """Whether this process began the loop, and is not a fork of it."""
        return os.getpid() == self._owner

    def __repr__(self) -> str:
        state = "measured" if self.profile is not None else "without a profile yet"
        return f"<loop {state}: minibatches reported: {self.minibatches}>"

    def step(self, samples: Optional[int] = None) -> None:
        if not self.is_owner:
            return
        if self.has_ended:
            hint = "call it in the block; what trains later needs a block of its own"
            raise InvalidValueError("step() was called after the end of its `measuring` block", hint)
        if samples is not None and not samples >= 1:
            raise InvalidValueError(f"samples must be at least 1, got {samples}")
        self._count(samples)
        self.minibatches += 1

    def _count(self, samples: Optional[int]) -> None:
        """Take in a minibatch that has just ended."""


class MeasuredLoop(CountedLoop):
    """Measures a loop on this machine, between `start` and `stop`, with a recorder that runs.

    `measured_gpu` is the UUID of the GPU whose power the recorder reads; empty if it is of no discrete GPU.
    """

    def __init__(self, recorder: Recorder, batch_size: int, model: Any = None, measured_gpu: str = "") -> None:
        super().__init__()
        self._recorder = recorder
        self._model = model
        self._measured_gpu = measured_gpu
        self._other_gpu = ""  # that trains in place of the measured one
        self._batch_size = batch_size
        self._has_settled: Optional[Callable[[float], bool]] = None
        # of each minibatch; compact, as a training has millions
        self._times = {name: array.array("d") for name in ("start_s", "stall_ms", "compute_ms", "e2e_ms", "lag_s")}
        self._epochs, self._samples = array.array("q"), array.array("q")
        self._settling_ends: Optional[int] = None  # number of the first minibatch that counts
        self._epoch = 0
        self._clock: Optional[KernelClock] = None
        self._allocations = _allocations_so_far()
        self._look_for_gpu()
        self._restart()

    def _restart(self) -> None:
        self._begin = self._mark(time.monotonic())
        self._fetched: Optional[QueuedEvent] = None
        self._stall_s = 0.0
        self._is_fresh = True  # nothing was measured since

    def _mark(self, now_s: float) -> QueuedEvent:
        return QueuedEvent(None, now_s) if self._clock is None else self._clock.mark(now_s)

    def resume(self) -> None:
        if not self.is_owner:
            return
        if not self._is_fresh:
            self._epoch += 1
        self._restart()

    def fetch(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        if not self.is_owner:
            yield from loader
            return
        self.resume()
        batches: Optional[Iterator[Batch]] = None
        while True:
            with self.fetching():
                batches = iter(loader) if batches is None else batches  # starts the workers
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        if not self.is_owner:
            yield
            return
        self._watch_power()
        asked_s = time.monotonic()
        yield
        fetched_s = time.monotonic()
        self._stall_s += fetched_s - asked_s
        if self._fetched is None:
            self._fetched = self._mark(fetched_s)
            self._first_stall_s = self._stall_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        yield
        self.resume()

    def _watch_power(self) -> None:
        if self._has_settled is None:
            self._has_settled = self._recorder.power_watch().has_settled

    def _count(self, samples: Optional[int]) -> None:
        now_s = time.monotonic()
        self._watch_power()
        assert self._has_settled is not None
        if self._settling_ends is None and next_phase(self.minibatches, self._has_settled) == CLEAN:
            self._settling_ends = self.minibatches
        self._epochs.append(self._epoch)
        self._samples.append(self._batch_size if samples is None else samples)
        end = self._mark(now_s)
        if self._clock is None:
            self._keep(self._on_host(now_s))
        else:
            later_stalls_s = 0.0 if self._fetched is None else self._stall_s - self._first_stall_s
            stall_s = math.nan if self._fetched is None else self._stall_s
            self._clock.add(LoopStep(end, self._begin, self._fetched, stall_s, later_stalls_s))
            for ended in self._clock.ended():
                self._keep(ended)
        self._begin, self._fetched, self._stall_s, self._is_fresh = end, None, 0.0, False
        if self._clock is None:
            self._look_for_gpu()
            self._begin = self._mark(now_s)

    def _on_host(self, now_s: float) -> EndedMinibatch:
        if self._fetched is None:
            return EndedMinibatch(self._begin.host_s, now_s, 0.0, math.nan, math.nan)
        compute_s = now_s - self._fetched.host_s - (self._stall_s - self._first_stall_s)
        return EndedMinibatch(self._begin.host_s, now_s, 0.0, s_to_ms(self._stall_s), s_to_ms(compute_s))

    def _look_for_gpu(self) -> None:
        """Time by the GPU from now on if torch uses one: CUDA begins with the first tensor."""
        torch = gpu_in_use()
        if torch is None:
            return
        gpus = gpus_of(torch, self._model, lambda gpu: torch.cuda.memory_allocated(gpu) > 0)
        if not gpus:
            return
        self._clock = KernelClock(torch, gpus[0])
        if is_another(torch, gpus[0], self._measured_gpu):
            uuid = torch.cuda.get_device_properties(gpus[0]).uuid
            self._other_gpu = f"cuda:{gpus[0]} (GPU-{uuid})"
            note(f"the training runs on {self._other_gpu}, and power is measured of {self._measured_gpu}")

    @property
    def gpu(self) -> Optional[int]:
        """The GPU whose clock times the minibatches; None without one."""
        return None if self._clock is None else self._clock.gpu

    def _keep(self, ended: EndedMinibatch) -> None:
        e2e_ms = s_to_ms(ended.end_s - ended.begin_s)
        values = (ended.begin_s, ended.stall_ms, ended.compute_ms, e2e_ms, ended.lag_s)
        for column, value in zip(self._times.values(), values):
            column.append(value)

    def finish(self, waits: bool = True) -> None:
        """Stop recording; with `waits`, give the kernels of the last minibatches a while to end."""
        if self._clock is not None:
            for ended in self._clock.last(LAST_KERNELS_S if waits else 0.0):
                self._keep(ended)
        self._recorder.stop()
        self._recorder.memory.torch, self._recorder.memory.gpu = gpu_in_use(), self.gpu

    def profile_of(self, case: Case, conditions: Dict[str, Any]) -> Optional[Profile]:
        """The profile of what was measured, without flags; None without a minibatch."""
        minibatches = self._rows(0)
        if not len(minibatches):
            return None
        is_clean = minibatches.columns["phase"] == CLEAN
        samples = np.frombuffer(self._samples, "q")[: len(minibatches)]
        batch_size = float(np.mean(samples[is_clean] if is_clean.any() else samples))
        dropped = self.minibatches - len(minibatches)
        own = {**conditions, **self._lags(minibatches), **self._further_gpus()}
        if dropped:
            own["dropped_minibatches"] = dropped
        if self._other_gpu:
            own["other_gpu"] = [self._other_gpu, self._measured_gpu]
        return self._recorder.profile(case, own, minibatches, batch_size)

    @property
    def ended(self) -> int:
        return len(self._times["start_s"])

    def _rows(self, since: int) -> Minibatches:
        """The minibatches from number `since` on that have ended; only these are copied."""
        start_s, stall_ms, compute_ms, e2e_ms, _ = (np.array(column[since:]) for column in self._times.values())
        indices = np.arange(since, since + len(start_s))
        phases = np.full(len(indices), CLEAN, f"U{len(SETTLING)}")
        phases[indices < (math.inf if self._settling_ends is None else self._settling_ends)] = SETTLING
        phases[indices == 0] = FIRST
        epochs = np.array(self._epochs[since : self.ended])
        columns = (epochs, indices, phases, start_s, stall_ms, compute_ms, e2e_ms)
        return Minibatches(dict(zip(Minibatch._fields, columns)))

    def _lags(self, minibatches: Minibatches) -> Dict[str, Any]:
        """The share of minibatches whose kernels the loop did not wait for; nothing without a GPU."""
        if self._clock is None:
            return {}
        is_counted = minibatches.columns["phase"] != FIRST
        if not is_counted.any():
            return {}
        median_ms = float(np.median(minibatches.columns["e2e_ms"][is_counted]))
        least_s = max(LAG_S, LAG_SHARE * ms_to_s(median_ms))
        lags_s = np.array(self._times["lag_s"])[is_counted]
        return {"unsynchronised_share": float(np.mean(lags_s > least_s))}

    def _further_gpus(self) -> Dict[str, Any]:
        """The GPUs on which the training may have computed too, whose kernels were not timed; nothing without any."""
        torch = gpu_in_use()
        if torch is None or self._clock is None:
            return {}
        before = self._allocations  # another part of the program may have used them, and may have memory there
        gpus = gpus_of(torch, self._model, lambda gpu: allocations(torch, gpu) != before.get(gpu, 0))
        further = [gpu for gpu in gpus if gpu != self._clock.gpu]
        return {"untimed_gpus": further} if further else {}

    def figures(self, since: int = 0) -> Optional[StepFigures]:
        self._recorder.sampler.poll()
        power = self._recorder.sampler.series(metrics.POWER_CHANNEL)
        return figures_of(self._rows(since), power)


def _allocations_so_far() -> Dict[int, int]:
    """Those of each GPU; empty as long as torch uses none."""
    torch = gpu_in_use()
    if torch is None:
        return {}
    try:
        return {gpu: allocations(torch, gpu) for gpu in range(torch.cuda.device_count())}
    except RuntimeError:  # an allocator of the user's own does not count
        return {}


def figures_of(minibatches: Minibatches, power: Optional[Series]) -> Optional[StepFigures]:
    """Time, power and energy of the minibatches; None if there are none."""
    chosen = minibatches.columns
    count = len(chosen["index"])
    if not count:
        return None
    energies_mwh: List[Optional[float]] = []
    ends_s = chosen["start_s"] + ms_to_s(chosen["e2e_ms"])
    for epoch in np.unique(chosen["epoch"]):
        is_in = chosen["epoch"] == epoch
        start_s, end_s = float(chosen["start_s"][is_in].min()), float(ends_s[is_in].max())
        energies_mwh.append(None if power is None else metrics.energy_mwh(*power, start_s, end_s))
    total_mwh = metrics.total(energies_mwh)
    seconds = ms_to_s(float(chosen["e2e_ms"].sum()))
    if total_mwh is None or not seconds > 0:
        return StepFigures(count, seconds / count, None, None)
    energy_j = mwh_to_j(total_mwh)
    return StepFigures(count, seconds / count, energy_j / seconds, energy_j)
