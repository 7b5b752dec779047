"""Training and inference on one device at once, measured against each alone (E21): requests arrive evenly.

Each way of doing both is a context manager that prepares both kinds of work and yields a function that runs one or
both for a time; `WAYS` lists them. `harness.core.interleaving` has the loop, which simulated boards run on a virtual
clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from concurrent import futures
from multiprocessing import connection
from typing import Any, Callable, Collection, ContextManager, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from harness.board.cpu import workers_follow
from harness.board.oom_kills import OomKills
from harness.board.thermal import refuse_heat
from harness.core.cases import (
    INFERENCE,
    INTERLEAVED,
    PROCESSES,
    STREAMS,
    TRAINING,
    Case,
    Mix,
    parts_of,
    workers_and_storage,
)
from harness.core.device import RealDevice, Report
from harness.core.errors import DoesNotFitError, HarnessError, ProcessEndedError, WorkloadError
from harness.core.frequency_residency import clock_use
from harness.core.interleaving import Interleaved, alone_s, interleave
from harness.core.metrics import POWER_CHANNEL, end_s, summarise_concurrent
from harness.core.power_modes import PowerMode
from harness.core.profiles import CLEAN, Minibatch, Profile, wall_clock
from harness.measure.child_processes import end_workers
from harness.measure.peak_memory import GpuPeak, PeakMemory, gpu_peak
from harness.measure.rounds import Rounds, never, nothing, run_rounds
from harness.workloads import get_workload
from harness.workloads.data.data_set import PreparedData
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload

WATCH_S = 0.2  # interval of checking sensors and the processes or threads of both sides
START_S = 0.3  # delay of the common start, by which both sides have received the order
END_S = 10.0  # time for a process to end its DataLoader's workers
LAST_MINIBATCH_S = 300.0  # most that a process may take for what it has begun when its time is over


class Stretch(NamedTuple):
    result: Interleaved
    trained: List[Minibatch]
    served: List[Minibatch]
    gpu_peaks: Tuple[GpuPeak, ...] = ()  # so far, of each process other than this one that uses the GPU


Run = Callable[[Collection[str], float], Stretch]  # takes the tasks to run, and for how many seconds

Switch = Callable[[str], None]  # sets the power mode of a task


class Work:
    """One of the two kinds of work in this process, warmed up: its first minibatch has chosen kernels (C12)."""

    def __init__(self, case: Case, workload: Workload, samples: Any, threads: int) -> None:
        training = require("harness.measure.training_loop")
        training.torch.set_num_threads(threads)
        self.what = f"{case.workload} with batches of {case.batch_size}"
        self.is_own = workload.is_own
        workers, _ = workers_and_storage(case)
        with explained(self):
            loop = training.LOOPS[case.task](workload, samples, case.batch_size, workers, case.settings.seed)
            if case.settings.cache != "as-is":
                loop.read_once()
            self._timings = training.time_minibatches(loop, loop.loader(), since_asked=True)
            next(self._timings)

    def step(self) -> Minibatch:
        return Minibatch(0, 0, CLEAN, *next(self._timings))

    def close(self) -> None:
        self._timings.close()


def explained(*works: Work) -> ContextManager[None]:
    failures_explained = require("harness.measure.training_loop").failures_explained
    return failures_explained(" and ".join(work.what for work in works), any(work.is_own for work in works))


@contextlib.contextmanager
def opened(benches: Mapping[str, Any]) -> Iterator[Dict[str, Work]]:
    with contextlib.ExitStack() as stack:
        works = {}
        for task, bench in benches.items():
            works[task] = Work(bench.case, bench.workload, bench.samples, bench.conditions["threads"])
            stack.callback(works[task].close)
        yield works


def go_on(
    works: Mapping[str, Work],
    mix: Mix,
    duration_s: float,
    watch: Callable[[], None] = nothing,
    wait: Callable[[float], Any] = time.sleep,
    switch_to: Optional[Switch] = None,
    began_s: Optional[float] = None,
) -> Stretch:
    """Run the given kinds of work interleaved in this thread; `watch` runs before every minibatch."""
    done: Dict[str, List[Minibatch]] = {TRAINING: [], INFERENCE: []}

    def step_of(task: str) -> Optional[Callable[[], None]]:
        def step() -> None:
            watch()
            done[task].append(works[task].step()._replace(index=len(done[task])))

        return step if task in works else None

    with explained(*works.values()):
        result = interleave(
            clock=time.monotonic,
            train=step_of(TRAINING),
            serve=step_of(INFERENCE),
            arrivals_per_s=mix.arrivals_per_s,
            batch_size=mix.batch_size,
            duration_s=duration_s,
            switch_to=switch_to,
            wait=wait,
            began_s=began_s,
        )
    return Stretch(result, done[TRAINING], done[INFERENCE])


def overlap(training: Stretch, serving: Stretch, mix: Mix) -> Stretch:
    """The part of both sides that overlapped: from their common start to the end of a training minibatch."""
    from_s = max(training.result.began_s, serving.result.began_s)
    until_s = min(training.result.end_s, serving.result.end_s)
    trained = [each for each in training.trained if each.start_s >= from_s and end_s(each) <= until_s]
    if trained:
        from_s, until_s = trained[0].start_s, end_s(trained[-1])
    in_time = [from_s <= end_s(minibatch) <= until_s for minibatch in serving.served]
    served = [minibatch for minibatch, counts in zip(serving.served, in_time) if counts]
    answered = sum(end_s(minibatch) <= until_s for minibatch in serving.served) * mix.batch_size
    result = Interleaved(
        until_s - from_s,
        tuple(minibatch.e2e_ms for minibatch in trained),
        tuple(minibatch.e2e_ms for minibatch in served),
        tuple(np.array(serving.result.latency_ms)[np.repeat(in_time, mix.batch_size)].tolist()),
        int((until_s - serving.result.began_s) * mix.arrivals_per_s) - answered,
        (),
        from_s,
    )
    return Stretch(result, trained, served, training.gpu_peaks + serving.gpu_peaks)


# -- ways --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def by_turns(
    benches: Mapping[str, Any], mix: Mix, watch: Callable[[], None], switch_to: Optional[Switch]
) -> Iterator[Run]:
    """Interleaved by minibatch in this thread, as in 000; the power mode may change between them."""
    with opened(benches) as works:

        def run(tasks: Collection[str], duration_s: float) -> Stretch:
            if switch_to is not None:
                switch_to(TRAINING if TRAINING in tasks else INFERENCE)
            return go_on({task: works[task] for task in tasks}, mix, duration_s, watch, switch_to=switch_to)

        yield run


@contextlib.contextmanager
def on_streams(
    benches: Mapping[str, Any], mix: Mix, watch: Callable[[], None], switch_to: Optional[Switch]
) -> Iterator[Run]:
    """At the same time in two threads of this process, each on its own CUDA stream."""
    training, ended = require("harness.measure.training_loop"), threading.Event()

    def wait(seconds: float = 0.0) -> None:
        if ended.wait(seconds):
            raise HarnessError("the other thread failed")

    with opened(benches) as works, futures.ThreadPoolExecutor(len(works)) as pool:

        def side(task: str, duration_s: float, start_s: float) -> Stretch:
            training.torch.set_num_threads(benches[task].conditions["threads"])
            with training.own_stream():
                wait(start_s - time.monotonic())
                return go_on({task: works[task]}, mix, duration_s, watch=wait, wait=wait, began_s=start_s)

        def run(tasks: Collection[str], duration_s: float) -> Stretch:
            start_s = time.monotonic() + START_S
            sides = {task: pool.submit(side, task, duration_s, start_s) for task in tasks}
            left = set(sides.values())
            while left:
                done, left = futures.wait(left, WATCH_S, futures.FIRST_EXCEPTION)
                watch()
                for future in done:
                    future.result()
            return _together({task: future.result() for task, future in sides.items()}, mix)

        try:
            yield run
        finally:
            ended.set()


@contextlib.contextmanager
def in_processes(
    benches: Mapping[str, Any], mix: Mix, watch: Callable[[], None], switch_to: Optional[Switch]
) -> Iterator[Run]:
    """At the same time, each in its own process."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pipes: Dict[str, connection.Connection] = {}
    processes: Dict[str, Any] = {}
    kills = OomKills()
    patience_s = 0.0  # time for processes to end by themselves: none after an error

    def answers(tasks: Collection[str], within_s: float = math.inf) -> Dict[str, Any]:
        """The next message of each process; raises an error that a process sent, or that one has ended or hangs."""
        answers_by_task: Dict[str, Any] = {}
        until_s = time.monotonic() + within_s
        while len(answers_by_task) < len(tasks):
            watch()
            left = [task for task in tasks if task not in answers_by_task]
            if time.monotonic() > until_s:
                who = " and ".join(f"{benches[task].case.workload} ({task})" for task in left)
                what = f"{who} did not end within {within_s:.0f} s, and is killed: a GPU that hangs never answers"
                raise ProcessEndedError(what, "`sudo dmesg` may show why; a reboot ends what hangs in the driver")
            # A pipe stays open after its process ended, as long as the DataLoader's workers live.
            connection.wait([pipes[task] for task in left] + [processes[task].sentinel for task in left], WATCH_S)
            for task in left:
                is_alive = processes[task].is_alive()
                with contextlib.suppress(EOFError, OSError):  # it may end in the middle of a message
                    if pipes[task].poll():
                        answers_by_task[task] = pipes[task].recv()
                if isinstance(answers_by_task.get(task), HarnessError):
                    raise answers_by_task[task]
                if task not in answers_by_task and not is_alive:
                    raise _gone(task, benches[task].case.workload, processes[task].exitcode, kills)
        return answers_by_task

    def run(tasks: Collection[str], duration_s: float) -> Stretch:
        start_s = time.monotonic() + START_S
        for task in tasks:
            with contextlib.suppress(ConnectionError):  # it has ended, and `answers` reports that
                pipes[task].send((duration_s, start_s))
        return _together(answers(tasks, duration_s + LAST_MINIBATCH_S), mix)

    try:
        for task, bench in benches.items():
            pipes[task], other = context.Pipe()
            process = context.Process(
                target=_side, args=(other, bench.case, bench.data, bench.conditions["threads"], mix)
            )
            try:
                process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise WorkloadError(
                    f"the data set of {bench.case.workload} cannot be sent to another process: {error}",
                    f"define its classes and functions at the top level of a module, or run both {INTERLEAVED}",
                ) from error
            finally:
                other.close()
            processes[task] = process
        answers(benches)  # ready
        yield run
        patience_s = END_S
    finally:
        for pipe in pipes.values():
            pipe.close()  # ends a process that waits for an order
        for task, process in processes.items():
            process.join(patience_s)
            with contextlib.suppress(ProcessLookupError):  # it has ended, with its DataLoader's workers
                os.killpg(process.pid, signal.SIGKILL)
            for pid in end_workers([process]):
                what = f"the process of {benches[task].case.workload} ({task})"
                warnings.warn(f"{what} cannot be ended: {pid} is left behind", stacklevel=2)


def _side(pipe: connection.Connection, case: Case, data: PreparedData, threads: int, mix: Mix) -> None:
    """The main function of one of two processes: prepare its work, then run it for each order of its parent."""
    os.setsid()  # the parent handles Ctrl-C, and can kill this process with its workers
    parent = os.getppid()

    def end_with_parent() -> None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)

    try:
        workload = get_workload(case.workload)
        work = Work(case, workload, workload.build_data_set(data, case.settings.seed), threads)
        with contextlib.closing(work), contextlib.suppress(EOFError, ConnectionError):
            pipe.send("ready")
            while True:
                duration_s, start_s = pipe.recv()
                time.sleep(max(start_s - time.monotonic(), 0.0))
                stretch = go_on({case.task: work}, mix, duration_s, end_with_parent, began_s=start_s)
                peak = gpu_peak(require("harness.measure.training_loop").torch)
                pipe.send(stretch._replace(gpu_peaks=() if peak is None else (peak,)))
    except HarnessError as error:
        pipe.send(error)


def _gone(task: str, workload: str, code: int, kills: OomKills) -> HarnessError:
    """The error of a process that ended without an answer; `kills` is older than it."""
    what = f"the process of {workload} ({task})"
    if code == -signal.SIGKILL and kills.since():
        return DoesNotFitError(f"{what} was killed by the kernel, because memory ran out", "a smaller batch size")
    if code == -signal.SIGKILL:
        return kills.other_kill(what)
    cause = f"by signal {-code}" if code < 0 else f"with code {code}"
    return ProcessEndedError(f"{what} ended {cause} before it answered", "see its output above")


def _together(sides: Mapping[str, Stretch], mix: Mix) -> Stretch:
    return overlap(sides[TRAINING], sides[INFERENCE], mix) if len(sides) > 1 else next(iter(sides.values()))


WAYS: Dict[str, Callable[..., ContextManager[Run]]] = {
    INTERLEAVED: by_turns,
    PROCESSES: in_processes,
    STREAMS: on_streams,
}
"""Each takes the benches by task, the mix, a function to call often, and one that changes the power mode for a task."""


# -- the measurement ---------------------------------------------------------------------------------------------------


def measure_concurrent(
    bench: Any, machine: RealDevice, instruments: Any, report: Report, rounds: Rounds = run_rounds
) -> Profile:
    """Run each alone, then both for the case's duration; minibatches, power and figures are those of both."""
    case, mix = bench.case, Mix.parse(bench.case.workload)
    trained, served = parts_of(case)
    benches = {
        TRAINING: dataclasses.replace(bench, case=trained),
        INFERENCE: dataclasses.replace(bench.beside, case=served, conditions=bench.conditions),
    }
    sampler = instruments.sampler(case.settings.interval_s)
    memory = PeakMemory(require("harness.measure.training_loop").torch, instruments.root)
    started: List[bool] = []

    def watch() -> None:
        if started:
            refuse_heat(sampler, instruments.limits_c)

    for_s = alone_s(case.settings.duration_s, mix.arrivals_per_s, mix.batch_size)
    stretches: List[Stretch] = []

    def both() -> float:
        stretches.append(run((TRAINING, INFERENCE), case.settings.duration_s))
        return stretches[-1].result.duration_s

    report(f"    {mix.way}: preparing both")
    with WAYS[mix.way](benches, mix, watch, _switching(machine, case)) as run:
        started_at = wall_clock()
        with sampler:
            started.append(True)
            watch()
            for task in (TRAINING, INFERENCE):
                report(f"    {task} alone for {for_s:g} s")
                stretches.append(run((task,), for_s))
            report(f"    both, {mix.way}, for {case.settings.duration_s:g} s")
            rounds(nothing, both, 1, never)
            telemetry = sampler.stop()
    training, serving, (result, minibatches, _, gpu_peaks) = stretches[:3]
    mode = PowerMode(**bench.conditions["power_mode"])
    conditions = {
        **bench.conditions,
        "temperature_limits_c": dict(instruments.limits_c),
        "power_source": instruments.power_source if POWER_CHANNEL in telemetry.series else None,
        "power_definition": telemetry.notes.get(POWER_CHANNEL, "no power sensor"),
    }
    if case.inference_mode is None:
        conditions["clock_use"] = clock_use(telemetry, mode, result.began_s, result.end_s)
    else:
        of_inference = {
            "power_mode": case.inference_mode.mode._asdict(),
            "power_mode_name": case.inference_mode.name,
        }
        conditions["inference"] = {**conditions["inference"], **of_inference}
    alone = training.result, serving.result
    samples = bench.conditions["data_samples"]
    aggregates = summarise_concurrent(result, telemetry.series, case.batch_size, alone, samples)
    aggregates.update(memory.figures(telemetry, gpu_peaks))
    return Profile(case, "measured", conditions, minibatches, telemetry, aggregates, [], started_at)


def _switching(machine: RealDevice, case: Case) -> Optional[Switch]:
    """A function that sets the power mode and threads of a task; None if both have the same mode."""
    if case.inference_mode is None:
        return None
    torch = require("harness.measure.training_loop").torch
    modes = {part.task: part.power_mode.mode for part in parts_of(case)}

    def switch_to(task: str) -> None:
        with workers_follow():
            machine.apply(modes[task])
        torch.set_num_threads(min(modes[task].cpu_cores, len(os.sched_getaffinity(0))))

    return switch_to
