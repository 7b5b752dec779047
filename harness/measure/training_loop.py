"""The measured training loop: for each minibatch the fetch stall, the compute time and the end-to-end time.

    |-- bookkeeping --|-- next(loader) --|-- copy --|-- forward, backward, step --|
                      |<- fetch stall -->|          |<--------- compute --------->|
    |<--------------------------------- E2E ------------------------------------->|

The rest of E2E is framework overhead: the copy to the accelerator, and the bookkeeping of the previous minibatch.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
import warnings
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Generator,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sized,
    Tuple,
    Type,
)

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from harness.board.containers import shared_memory_bytes, shared_memory_hint
from harness.board.nvml import VISIBLE, setting_for
from harness.board.oom_kills import OomKills
from harness.core.cases import CUT_MINIBATCHES, INFERENCE, PREFETCH_FACTOR, TRAINING
from harness.core.errors import CannotRunError, DoesNotFitError, HarnessError, InvalidValueError
from harness.core.profiles import CLEAN, FIRST, Minibatch
from harness.core.units import bytes_to_mib, kib_to_bytes, ms_to_s, s_to_ms
from harness.measure import patience
from harness.measure.kernel_clock import is_another
from harness.measure.recording import next_phase
from harness.measure.rounds import Rounds, nothing, run_rounds
from harness.workloads.failures import (
    fragmentation_hint,
    is_killed_worker,
    is_out_of_memory,
    is_out_of_shared_memory,
    last_line,
    other_trouble,
    own_code_failed,
    worker_start_method,
)
from harness.workloads.workload import BF16_WHERE_THERE_IS, Workload, move

# The papers sweep more workers than cores on purpose.
warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)


class EndlessShuffle(Sampler):
    """Endless shuffles of a data set, so that a short profile has no epoch border."""

    def __init__(self, data_set: Sized, seed: int) -> None:
        self._length = len(data_set)
        self._seed = seed

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng(self._seed)
        while True:
            yield from generator.permutation(self._length).tolist()


def accelerator() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


_chosen = ""  # the GPU that `use_gpu` has left CUDA, where nobody else had set CUDA_VISIBLE_DEVICES


def use_gpu(uuid: str) -> None:
    """Train on one of several GPUs, or on a MIG instance, of those that CUDA_VISIBLE_DEVICES leaves.

    `CannotRunError` if that variable hides it, torch cannot see it, or is already using another.
    """
    global _chosen
    given = os.environ.get(VISIBLE)
    is_first = setting_for(uuid, None if given == _chosen else given) is None  # as it was set, it stays
    if not is_first and not torch.cuda.is_initialized():
        os.environ[VISIBLE] = _chosen = uuid
    if not torch.cuda.is_available():
        lacks = "does not see" if torch.version.cuda else "is built without CUDA and cannot train on"
        raise CannotRunError(
            f"torch {torch.__version__} {lacks} the GPU {uuid}", "install a torch with CUDA for this driver"
        )
    if is_another(torch, 0, uuid) or (not is_first and os.environ.get(VISIBLE) != uuid):
        hint = "start one run per GPU; an index is NVML's with CUDA_DEVICE_ORDER=PCI_BUS_ID"
        raise CannotRunError(f"torch is already using a GPU other than {uuid}", hint)


def own_stream() -> ContextManager[Any]:
    """Run what this thread launches on its own CUDA stream, after all earlier work has finished."""
    torch.cuda.synchronize()
    return torch.cuda.stream(torch.cuda.Stream())


def accelerator_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


@contextlib.contextmanager
def failures_explained(what: str, is_own: bool = False) -> Iterator[None]:
    """Turn out-of-memory into `DoesNotFitError`, and other failures of a user's own workload into their own error."""
    kills = OomKills()
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        if is_out_of_shared_memory(error):
            total = shared_memory_bytes()[0]
            size = f"{bytes_to_mib(total):.0f} MiB for all processes"
            raise DoesNotFitError(
                f"{what}: DataLoader workers ran out of shared memory, which has {size} ({last_line(error)})",
                shared_memory_hint(2 * total),
            ) from error
        trouble, in_pieces = other_trouble(error), fragmentation_hint()
        is_killed = is_killed_worker(error)
        if is_out_of_memory(error) or (is_killed and kills.since()):
            raise DoesNotFitError(
                f"{what} does not fit into the memory of {accelerator_name()} ({last_line(error)}; {_peak_memory()})",
                "; ".join(filter(None, ["a smaller batch size, or fewer workers", in_pieces])),
            ) from error
        if is_killed:
            raise kills.other_kill(f"a DataLoader worker of {what}") from error
        if trouble is not None:
            hint = "; ".join(filter(None, [trouble.hint, in_pieces if "allocation" in trouble.what else ""]))
            raise CannotRunError(f"{what}: {trouble.what} ({last_line(error)})", hint) from error
        if not is_own:
            raise
        raise own_code_failed(f"workload {what}", error) from error
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _peak_memory() -> str:
    """Peak memory use: of the machine by this process and by a worker, of the accelerator by torch."""
    own, worker = (
        bytes_to_mib(kib_to_bytes(resource.getrusage(who).ru_maxrss))
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    peak = f"peak {own:.0f} MiB, of a worker {worker:.0f} MiB"
    if torch.cuda.is_available():
        peak += f", torch on the accelerator {bytes_to_mib(torch.cuda.max_memory_allocated()):.0f} MiB"
    return peak


def precision_of(workload: Workload) -> str:
    """The precision of a workload on this accelerator; on a CPU bf16 works but is not faster, so it is fp32 there."""
    if workload.precision != BF16_WHERE_THERE_IS:
        return workload.precision
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"


class Trainer:
    """A workload ready to train: model, optimizer, data and loader on one accelerator."""

    trains = True

    def __init__(self, workload: Workload, samples: Any, batch_size: int, workers: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.workload = workload
        self.samples = samples
        self.device = accelerator()
        self.model = workload.model().to(self.device).train(self.trains)
        if workload.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = workload.optimizer(self.model.parameters())
        self.first_loss: Optional[torch.Tensor] = None
        self.last_loss: Optional[torch.Tensor] = None
        if workload.compile and not hasattr(torch, "compile"):
            raise CannotRunError(f"torch {torch.__version__} has no torch.compile", "torch 2.0 or newer")
        self._run = torch.compile(self.model) if workload.compile else self.model
        self._scaler = None  # keeps gradients of half precision from underflow
        self.precision = precision_of(workload)
        if self.precision == "fp16" and self.device.type == "cuda":
            self._scaler = (
                torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
            )
        self._refuse_precision()
        self._added_up = 0  # minibatches whose gradients are accumulated
        self.patience = patience.Patience()
        self._batch_size = batch_size
        self._workers = workers
        self._seed = seed

    def loader(self, epoch: Optional[int] = None, drop_last: bool = True) -> DataLoader[Any]:
        """A loader over one epoch, without its last, smaller minibatch; an endless one if `epoch` is None."""
        seed = self._seed if epoch is None else self._seed + epoch
        generator = torch.Generator().manual_seed(seed)
        order = {"sampler": EndlessShuffle(self.samples, seed)} if epoch is None else {"shuffle": True}
        workers: Dict[str, Any] = {}
        if self._workers:
            workers = {"prefetch_factor": PREFETCH_FACTOR, "multiprocessing_context": worker_start_method()}
            workers["timeout"] = min(patience.CHECK_S, patience.LEAST_BOUND_S)
        return DataLoader(
            self.samples,
            batch_size=self._batch_size,
            num_workers=self._workers,
            collate_fn=self.workload.collate,
            drop_last=drop_last,
            generator=generator,
            **order,
            **workers,
        )

    def to_accelerator(self, batch: Any) -> Any:
        def to(tensor: Any) -> Any:
            is_picture = self.workload.channels_last and getattr(tensor, "ndim", 0) == 4
            form = {"memory_format": torch.channels_last} if is_picture else {}
            return tensor.to(self.device, non_blocking=True, **form)

        return move(batch, to)

    def step(self, batch: Any) -> None:
        """Forward, backward and, once enough gradients are accumulated, an optimizer step; keeps the loss."""
        if not self._added_up:
            self.optimizer.zero_grad()
        with self.autocast():
            loss = self.workload.loss(self._run, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
            raise InvalidValueError(
                f"the loss of workload {self.workload.name} is a {type(loss).__name__}{shape}",
                "expected a tensor of one value",
            )
        part = loss / self.workload.gradient_accumulation if self.workload.gradient_accumulation > 1 else loss
        (part if self._scaler is None else self._scaler.scale(part)).backward()
        self._added_up += 1
        if self._added_up == self.workload.gradient_accumulation:
            self._added_up = 0
            if self._scaler is None:
                self.optimizer.step()
            else:
                self._scaler.step(self.optimizer)
                self._scaler.update()
        self.last_loss = loss.detach()
        if self.first_loss is None:
            self.first_loss = self.last_loss

    def autocast(self) -> ContextManager[Any]:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        kind = torch.float16 if self.precision == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=kind)

    def _refuse_precision(self) -> None:
        """Refuse a precision that accelerator or torch lack: torch would warn and continue in fp32."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                self.autocast()
        except (UserWarning, RuntimeError) as error:
            raise CannotRunError(
                f"{accelerator_name()} does not train in {self.precision}: {error}", "another precision"
            ) from error

    def rehearse(self) -> None:
        """Fetch and run a minibatch, so that libraries have done the disk reads of their first step."""
        self.step(self.to_accelerator(next(self.patience.batches(self.loader()))))

    def read_once(self) -> str:
        """One pass of the DataLoader, which leaves the data set in the page cache (001 sec. 2.3)."""
        for _ in self.patience.batches(self.loader(epoch=0, drop_last=False)):
            pass
        return "one pass of the DataLoader"

    def losses(self) -> Tuple[Optional[float], Optional[float]]:
        """The loss of the first and of the last minibatch; None if not a finite number, or if there was none."""
        values = [math.nan if loss is None else float(loss) for loss in (self.first_loss, self.last_loss)]
        first, last = (value if math.isfinite(value) else None for value in values)
        return first, last


class Inferrer(Trainer):
    """Inference: forward passes without gradients, of the loss if the workload has no `forward`; random weights."""

    trains = False

    def step(self, batch: Any) -> None:
        with torch.no_grad(), self.autocast():
            (self.workload.forward or self.workload.loss)(self._run, batch)


LOOPS: Dict[str, Type[Trainer]] = {TRAINING: Trainer, INFERENCE: Inferrer}
"""The class that runs the minibatches of a case, by task."""


class StepTimer:
    """Times a step: CUDA events with synchronisation on a GPU (004 sec. 4.5), the wall clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._events = None
        if device.type == "cuda":
            self._events = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_ms(self, step: Callable[[], Any]) -> float:
        if self._events is None:
            start = time.perf_counter()
            step()
            return s_to_ms(time.perf_counter() - start)
        first, last = self._events
        first.record()
        step()
        last.record()
        last.synchronize()
        return first.elapsed_time(last)


class Timing(NamedTuple):
    """Times of a minibatch, and its start (monotonic seconds)."""

    start_s: float
    stall_ms: float
    compute_ms: float
    e2e_ms: float


def time_minibatches(
    trainer: Trainer, loader: DataLoader[Any], since_asked: bool = False
) -> Generator[Timing, None, None]:
    """Train on each minibatch of a loader and time it; close it to end the loader's workers.

    The caller's work in between counts as overhead of the next minibatch, except with `since_asked`.
    """
    timer, watch = StepTimer(trainer.device), patience.GpuWatch(trainer.patience)
    step_watched = watch.step if trainer.device.type == "cuda" else contextlib.nullcontext
    asked = end = time.monotonic()
    batches = trainer.patience.batches(loader)  # starts the workers, which the stall of the first minibatch includes
    try:
        while True:
            start = asked if since_asked else end
            batch = next(batches, None)
            fetched = time.monotonic()
            if batch is None:
                return
            with step_watched():
                batch = trainer.to_accelerator(batch)
                compute_ms = timer.time_ms(lambda: trainer.step(batch))  # noqa: B023 (called at once)
            end = time.monotonic()
            yield Timing(start, s_to_ms(fetched - asked), compute_ms, s_to_ms(end - start))
            asked = time.monotonic()
    finally:
        watch.close()


def profile_minibatches(
    trainer: Trainer,
    count: int,
    has_settled: Callable[[float], bool],
    is_enough: Callable[[], bool],
    on_minibatch: Callable[[Minibatch], None],
    limit_s: Optional[float] = None,
    rounds: Rounds = run_rounds,
    is_used_up: Optional[Callable[[], bool]] = None,
) -> List[Minibatch]:
    """Record the first minibatch (kept apart, C12), those until power has settled (C13), then `count` clean ones.

    `has_settled` takes a monotonic time. After `count` clean minibatches more are run until `is_enough` (C15: a fast
    mode must still see power samples); after `limit_s`, and once the share of the run's time
    `is_used_up`, `CUT_MINIBATCHES` clean ones are enough. `rounds` runs the clean ones, all of them.
    """
    recorded: List[Minibatch] = []
    timings = time_minibatches(trainer, trainer.loader())
    began_s = time.monotonic()

    def run_one(phase: str) -> float:
        recorded.append(Minibatch(0, len(recorded), phase, *next(timings)))
        on_minibatch(recorded[-1])
        return ms_to_s(recorded[-1].e2e_ms)

    def is_late() -> bool:
        is_up = is_used_up is not None and is_used_up()
        return is_up or (limit_s is not None and time.monotonic() - began_s > limit_s)

    while (phase := next_phase(len(recorded), has_settled)) != CLEAN:
        run_one(phase)
    settling = len(recorded)

    least = min(count, CUT_MINIBATCHES)

    def goes_on() -> bool:
        clean = len(recorded) - settling
        if is_late() and clean >= least:
            return False
        return clean < count or not is_enough()

    is_limited = limit_s is not None or is_used_up is not None
    rounds(nothing, lambda: run_one(CLEAN), least if is_limited else count, goes_on)
    timings.close()
    return recorded


def profile_epochs(
    trainer: Trainer,
    epochs: int,
    before_epoch: Callable[[int], None],
    on_minibatch: Callable[[Minibatch], None],
    rounds: Rounds = run_rounds,
) -> List[Minibatch]:
    """Record whole epochs, the first minibatch apart (C12); `before_epoch` is untimed, ending workers is not.

    `rounds` runs those that count.
    """
    recorded: List[Minibatch] = []
    timings: Iterator[Timing] = iter(())
    per_epoch = len(trainer.loader(epoch=0))

    def prepare() -> None:
        nonlocal timings
        epoch, place = divmod(len(recorded), per_epoch)
        if place == 0:
            before_epoch(epoch)
            timings = time_minibatches(trainer, trainer.loader(epoch))

    def run_one() -> float:
        epoch, place = divmod(len(recorded), per_epoch)
        recorded.append(Minibatch(epoch, len(recorded), CLEAN if recorded else FIRST, *next(timings)))
        if place == per_epoch - 1:
            next(timings, None)  # ends the workers
            recorded[-1] = recorded[-1]._replace(e2e_ms=s_to_ms(time.monotonic() - recorded[-1].start_s))
        on_minibatch(recorded[-1])
        return ms_to_s(recorded[-1].e2e_ms)

    total = epochs * per_epoch
    apart = per_epoch if epochs > 1 else 1  # what `counted_minibatches` leaves out (C12, C14)
    run_rounds(prepare, run_one, apart)
    if total > apart:
        rounds(prepare, run_one, total - apart, lambda: len(recorded) < total)
    return recorded


def run_bare(trainer: Trainer, count: int) -> List[float]:
    """E2E times in ms of `count` minibatches after the first, without instruments, for test_overhead.py."""
    batches = trainer.patience.batches(trainer.loader())  # workers that are spawned load torch first
    times_ms = []
    end = time.monotonic()
    for _ in range(count + 1):
        start = end
        trainer.step(trainer.to_accelerator(next(batches)))
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        end = time.monotonic()
        times_ms.append(s_to_ms(end - start))
    return times_ms[1:]
