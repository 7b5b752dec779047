"""A loop of the user's own, in the time of a clock that the test sets: what counts as stall, compute, pause and lag."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from harness.core.notes import NoteWarning
from harness.core.profiles import CLEAN, FIRST, SETTLING, Series
from harness.measure import kernel_clock, own_loop
from harness.measure.own_loop import FurtherLoop, MeasuredLoop, figures_of


class Now:
    """The time of a test, in seconds."""

    def __init__(self):
        self.s = 100.0

    def wait(self, seconds):
        self.s += seconds


class StandInRecorder:
    """Takes the minibatches of a loop; power has settled `settled_after_s` after the loop began to watch it."""

    def __init__(self, now, settled_after_s=0.0, power=None):
        self.now, self.settled_after_s = now, settled_after_s
        self.sampler = SimpleNamespace(poll=lambda: 0, series=lambda channel: power)
        self.memory = SimpleNamespace(torch=None)

    def power_watch(self):
        from_s = self.now.s + self.settled_after_s
        return SimpleNamespace(has_settled=lambda now_s: self.now.s >= from_s)

    def stop(self):
        pass

    def profile(self, case, conditions, minibatches, batch_size):
        self.conditions, self.batch_size = conditions, batch_size
        return minibatches


@pytest.fixture
def now(monkeypatch):
    now = Now()
    monkeypatch.setattr(own_loop, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(kernel_clock, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=now.wait))
    return now


def finished(loop):
    loop.finish()
    return loop.profile_of(None, {})


def test_a_fetch_is_stall_and_only_minibatches_after_power_settled_count(now):
    loop = MeasuredLoop(StandInRecorder(now, settled_after_s=0.25), 4)

    def batches():
        for _ in range(4):
            now.wait(0.03)
            yield "batch"

    for batch in loop.fetch(batches()):
        assert batch == "batch"
        now.wait(0.07)
        loop.step()
    minibatches = finished(loop)
    assert [each.stall_ms for each in minibatches] == pytest.approx([30.0] * 4)
    assert [each.compute_ms for each in minibatches] == pytest.approx([70.0] * 4)
    assert [each.e2e_ms for each in minibatches] == pytest.approx([100.0] * 4)
    assert [each.phase for each in minibatches] == [FIRST, SETTLING, CLEAN, CLEAN]


def test_without_a_fetch_the_stall_is_unknown_and_not_zero(now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    for _ in range(3):
        now.wait(0.1)
        loop.step()
    minibatches = finished(loop)
    assert all(math.isnan(each.stall_ms) and math.isnan(each.compute_ms) for each in minibatches)
    assert [each.e2e_ms for each in minibatches] == pytest.approx([100.0] * 3)


def test_a_minibatch_of_several_batches_adds_up_their_stalls(now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    for _ in range(2):
        for _ in range(2):
            with loop.fetching():
                now.wait(0.01)
            now.wait(0.02)
        loop.step()
    minibatches = finished(loop)
    assert [each.stall_ms for each in minibatches] == pytest.approx([20.0] * 2)
    assert [each.compute_ms for each in minibatches] == pytest.approx([40.0] * 2)


def test_neither_a_pause_nor_the_time_between_two_passes_counts(now):
    power = Series(tuple(np.arange(99.0, 140.0, 0.5)), (10_000.0,) * 82)
    loop = MeasuredLoop(StandInRecorder(now, power=power), 4)
    for _ in range(2):
        for _ in loop.fetch(range(2)):
            now.wait(1.0)
            loop.step()
        now.wait(5.0)  # an evaluation between two passes
    with loop.paused():
        now.wait(7.0)
    now.wait(1.0)
    loop.step()
    figures = loop.figures()
    minibatches = finished(loop)
    assert [each.e2e_ms for each in minibatches] == pytest.approx([1000.0] * 5)
    assert [each.epoch for each in minibatches] == [0, 0, 1, 1, 2]
    assert figures.minibatches == 5
    assert figures.power_w == pytest.approx(10.0)
    assert figures.energy_j == pytest.approx(50.0)
    assert loop.figures(since=5) is None


def test_figures_without_power_have_their_time(now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    now.wait(0.5)
    loop.step()
    assert loop.figures() == (1, 0.5, None, None)


def test_samples_that_a_step_reports_are_counted(now):
    recorder = StandInRecorder(now)
    loop = MeasuredLoop(recorder, 4)
    for samples in (4, 4, None, 1):
        now.wait(0.1)
        loop.step(samples)
    finished(loop)
    assert recorder.batch_size == pytest.approx(3.0)  # 4, 4 and 1 count; the first minibatch does not
    with pytest.raises(InvalidValueError, match="samples must be at least 1"):
        loop.step(samples=0)


def test_a_forked_worker_does_not_count(now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    child = os.fork()
    if not child:
        loop.step()
        list(loop.fetch([1]))
        os._exit(loop.minibatches)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
    loop.step()
    assert loop.minibatches == 1


def test_the_loop_of_a_further_process_does_nothing_and_lets_everything_pass():
    loop = FurtherLoop("RANK=1")
    assert list(loop.fetch([1, 2])) == [1, 2]
    with loop.fetching(), loop.paused():
        loop.step()
    assert (loop.minibatches, loop.figures()) == (0, None)
    with pytest.warns(NoteWarning, match="RANK=1"):
        assert loop.profile is None


class StandInGpu:
    """GPUs of one queue each, in the test's time: kernels take their time once those before them are done."""

    def __init__(self, now):
        self.now, self.queues = now, [now.s, now.s]
        self.memory_bytes, self.current = [1, 0], 0
        self.allocations = [7, 7]  # by an earlier part of the program
        self.properties = [SimpleNamespace(uuid=f"{index}111-2222") for index in range(2)]  # as torch has them
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self, stream):
                self.done_s = max(gpu.now.s, gpu.queues[stream])

            def query(self):
                return gpu.now.s >= self.done_s

            def elapsed_time(self, other):
                assert self.query()
                assert other.query(), "an event that is not done has no time"
                return (other.done_s - self.done_s) * 1000

        self.cuda = SimpleNamespace(
            Event=Event,
            is_initialized=lambda: True,
            current_device=lambda: self.current,
            current_stream=lambda index: index,
            device_count=lambda: len(self.queues),
            memory_allocated=lambda index: self.memory_bytes[index],
            memory_stats=lambda index: {"allocation.all.allocated": self.allocations[index]},
            get_device_properties=lambda index: self.properties[index],
        )

    @property
    def free_s(self):
        return max(self.queues)

    def launch(self, seconds, index=0):
        self.queues[index] = max(self.now.s, self.queues[index]) + seconds
        self.allocations[index] += 1

    def wait(self):
        self.now.s = max(self.now.s, self.free_s)


@pytest.fixture
def gpu(now, monkeypatch):
    gpu = StandInGpu(now)
    monkeypatch.setitem(sys.modules, "torch", gpu)
    return gpu


def train_on(gpu, now, steps, synchronises, shows_fetches=True):
    recorder = StandInRecorder(now)
    loop = MeasuredLoop(recorder, 4)
    for number in range(steps):
        with loop.fetching() if shows_fetches else contextlib.nullcontext():
            now.wait(0.01)
        now.wait(0.002)  # launching
        gpu.launch(0.1)
        if synchronises(number):
            gpu.wait()
        loop.step()
    return finished(loop), recorder.conditions["unsynchronised_share"]


def test_a_loop_that_waits_for_its_kernels_is_timed_by_their_events(gpu, now):
    minibatches, share = train_on(gpu, now, 6, lambda number: True)
    assert share == 0.0
    assert [each.e2e_ms for each in minibatches] == pytest.approx([112.0] * 6)
    assert [each.stall_ms for each in minibatches] == pytest.approx([10.0] * 6)
    assert [each.compute_ms for each in minibatches] == pytest.approx([102.0] * 6)


def test_a_loop_that_does_not_wait_has_the_times_of_its_kernels_and_is_noticed(gpu, now):
    minibatches, share = train_on(gpu, now, 30, lambda number: False)
    assert share > 0.9
    assert [each.e2e_ms for each in minibatches][1:] == pytest.approx([100.0] * 29)
    assert [each.stall_ms for each in minibatches][1:] == pytest.approx([0.0] * 29)  # the GPU had work meanwhile
    assert minibatches[-1].start_s + minibatches[-1].e2e_ms / 1000 == pytest.approx(gpu.free_s)


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "does-not-wait"])
def test_on_a_gpu_too_the_stall_is_unknown_without_a_fetch(gpu, now, waits):
    minibatches, share = train_on(gpu, now, 6, lambda number: waits, shows_fetches=False)
    assert all(math.isnan(each.stall_ms) and math.isnan(each.compute_ms) for each in minibatches)
    assert (share > 0.5) != waits


def test_a_loop_that_waits_now_and_then_ends_with_its_kernels(gpu, now):
    minibatches, share = train_on(gpu, now, 20, lambda number: number % 10 == 9)
    assert 0.5 < share < 1.0
    assert sum(each.e2e_ms for each in minibatches) / 1000 == pytest.approx(now.s - 100.0)
    assert all(each.e2e_ms > 0 for each in minibatches)


def test_a_gpu_that_fails_ends_the_record_and_not_the_program(gpu, now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    now.wait(0.1)
    loop.step()
    gpu.launch(0.1)
    loop.step()

    def fail(event):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpu.cuda.Event.query = fail
    assert len(finished(loop)) == 1


@contextlib.contextmanager
def no_note():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def model_on(*places):
    """A network with a parameter on each place: `cpu`, or the number of a GPU."""
    devices = [SimpleNamespace(type="cpu" if each == "cpu" else "cuda", index=each) for each in places]
    return SimpleNamespace(parameters=lambda: iter([SimpleNamespace(device=device) for device in devices]))


@pytest.mark.parametrize(
    ("model", "memory_bytes", "computes_on", "timed", "untimed"),
    [
        (model_on(1, 1), [5, 5], [1], 1, None),
        (model_on(1), [5, 0], [1], 1, None),
        (model_on("cpu", 0, 1), [5, 5], [0, 1], 0, [1]),
        (None, [0, 5], [1], 1, None),
        ("version 1", [0, 5], [1], 1, None),
        (None, [5, 5], [0, 1], 0, [1]),
        pytest.param(None, [5, 5], [0], 0, None, id="a network that another part of the program left on the second"),
        (model_on("cpu"), [0, 0], [], None, None),
    ],
)
def test_the_gpu_of_the_model_times_its_minibatches_or_the_one_in_use(
    gpu, now, model, memory_bytes, computes_on, timed, untimed
):
    gpu.memory_bytes = memory_bytes
    recorder = StandInRecorder(now)
    loop = MeasuredLoop(recorder, 4, model)
    for _ in range(10):
        now.wait(0.01)
        for index in computes_on:
            gpu.launch(0.1, index)
        loop.step()
    finished(loop)
    assert (loop.gpu, recorder.memory.gpu) == (timed, timed)
    assert recorder.conditions.get("untimed_gpus") == untimed
    assert (recorder.conditions.get("unsynchronised_share", 0.0) > 0.9) == (timed is not None)


@pytest.mark.parametrize(
    ("measured", "current", "other"),
    [
        ("GPU-0111-2222", 0, None),
        ("GPU-1111-2222", 1, None),
        ("GPU-0111-2222", 1, "cuda:1 (GPU-1111-2222)"),
        ("GPU-1111-2222", 0, "cuda:0 (GPU-0111-2222)"),
        ("MIG-0111-2222", 1, None),  # torch does not tell instances apart
        ("", 1, None),  # no discrete GPU is measured
    ],
)
def test_a_training_on_another_gpu_than_the_measured_one_is_said_at_once_and_recorded(
    gpu, now, measured, current, other
):
    gpu.current, gpu.memory_bytes = current, [current == 0, current == 1]
    recorder = StandInRecorder(now)
    with pytest.warns(NoteWarning, match=f"cuda:{current} .*{measured}") if other else no_note():
        loop = MeasuredLoop(recorder, 4, measured_gpu=measured)
    gpu.launch(0.1, current)
    now.wait(0.2)
    loop.step()
    finished(loop)
    assert recorder.conditions.get("other_gpu") == (other and [other, measured])


def test_an_older_torch_that_knows_no_uuid_is_believed(gpu, now):
    gpu.properties = [SimpleNamespace()] * 2
    with no_note():
        MeasuredLoop(StandInRecorder(now), 4, measured_gpu="GPU-0111-2222")


def test_minibatches_whose_kernels_run_at_a_log_call_are_in_the_next_one(gpu, now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    logged = mark = 0
    for number in range(20):
        now.wait(0.06)
        gpu.launch(0.1)
        loop.step()
        if number % 5 == 4:
            logged += loop.figures(mark).minibatches
            mark = loop.ended
    assert logged == loop.ended < loop.minibatches == 20


def test_figures_of_the_last_minibatches_are_those_of_a_profile(now):
    loop = MeasuredLoop(StandInRecorder(now, settled_after_s=0.25), 4)
    for number in range(6):
        now.wait(0.1 * (number + 1))
        if number == 4:
            loop.resume()
        else:
            loop.step()
    whole, last = loop._rows(0), loop._rows(2)
    assert len(last) == 3
    assert [str(each) for each in last] == [str(each) for each in whole][2:]


def test_kernels_that_never_end_are_waited_for_up_to_a_deadline_and_what_ended_is_kept(gpu, now):
    recorder = StandInRecorder(now)
    loop = MeasuredLoop(recorder, 4)
    for seconds in (0.1, 0.1, math.inf, 0.1):
        now.wait(0.01)
        gpu.launch(seconds)
        loop.step()
    began_s = now.s
    assert len(finished(loop)) == 2
    assert now.s - began_s == pytest.approx(kernel_clock.LAST_KERNELS_S, abs=0.01)
    assert recorder.conditions["dropped_minibatches"] == 2


def test_after_an_error_kernels_are_not_waited_for(gpu, now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    for _ in range(2):
        gpu.launch(0.1)
        loop.step()
    now.wait(0.15)
    before_s = now.s
    loop.finish(waits=False)
    [ended] = loop.profile_of(None, {})
    assert now.s == before_s
    assert ended.e2e_ms == pytest.approx(100.0)


def test_torch_is_not_imported_and_cuda_is_not_begun(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert kernel_clock.gpu_in_use() is None
    assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    assert kernel_clock.gpu_in_use() is None


def test_figures_of_no_minibatch_are_none(now):
    loop = MeasuredLoop(StandInRecorder(now), 4)
    assert loop.figures() is None
    assert finished(loop) is None
    assert figures_of(own_loop.Minibatches.of([]), None) is None
