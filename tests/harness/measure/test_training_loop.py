"""The measured loop: what it times is what happened, phases come in order, and training learns."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from harness.core.errors import CannotRunError, DataSetError, DoesNotFitError, ProcessEndedError  # noqa: E402
from harness.core.profiles import CLEAN, FIRST, SETTLING  # noqa: E402
from harness.measure import patience, training_loop  # noqa: E402
from harness.measure.training_loop import (  # noqa: E402
    EndlessShuffle,
    StepTimer,
    Trainer,
    profile_epochs,
    profile_minibatches,
    run_bare,
    time_minibatches,
)
from harness.workloads import Workload  # noqa: E402
from tests.messages import says  # noqa: E402

pytestmark = pytest.mark.training

FETCH_S, STEP_S = 0.004, 0.006


class SlowSamples:
    """A data set each sample of which takes a known time to fetch."""

    def __init__(self, samples=12, fetch_s=FETCH_S):
        self._samples, self._fetch_s = samples, fetch_s

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        time.sleep(self._fetch_s)
        return torch.tensor([float(index)]), torch.tensor(0)


class Fetchers:
    """A data set whose samples are the process that started the one which fetches them."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return os.getppid()


def one_weight(step_s=STEP_S, **options):
    """A workload whose step takes a known time."""

    def loss(model, batch):
        time.sleep(step_s)
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(model(inputs), labels)

    return Workload("one-weight", lambda: torch.nn.Linear(1, 2), SlowSamples, loss, **options)


def trainer(samples=12, batch_size=2, workers=0, fetch_s=FETCH_S, step_s=STEP_S, **options):
    return Trainer(one_weight(step_s, **options), SlowSamples(samples, fetch_s), batch_size, workers, seed=0)


class Silent(SlowSamples):
    """A data set that never gives one sample, or any."""

    def __init__(self, silent):
        super().__init__(12, 0.0)
        self._silent = silent

    def __getitem__(self, index):
        if index in self._silent:
            print("waiting for a network share", file=sys.stderr, flush=True)
            time.sleep(600)
        return super().__getitem__(index)


READ_ALL = {
    "minibatches": ([2], lambda built: list(time_minibatches(built, built.loader(epoch=0)))),
    "one pass": ([2], lambda built: built.read_once()),
    "rehearsal": (range(12), lambda built: built.rehearse()),
}


@pytest.mark.parametrize("way", READ_ALL)
def test_workers_that_never_answer_end_the_case_with_what_they_said(way, monkeypatch, capfd):
    monkeypatch.setattr(patience, "CHECK_S", 0.2)
    monkeypatch.setattr(patience, "LEAST_BOUND_S", 0.4)
    monkeypatch.setattr(patience, "FIRST_BATCH_S", 2.0)
    silent, read_all = READ_ALL[way]
    built = Trainer(one_weight(0.0), Silent(silent), 1, 2, seed=0)
    children = set(multiprocessing.active_children())
    with pytest.raises(ProcessEndedError, match=r"2 DataLoader workers .*within"):
        read_all(built)
    assert "waiting for a network share" in capfd.readouterr().err
    assert set(multiprocessing.active_children()) <= children


@pytest.mark.parametrize("way", READ_ALL)
def test_a_data_set_that_never_answers_ends_the_case_without_workers_too(way, monkeypatch):
    monkeypatch.setattr(patience, "LEAST_BOUND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_BATCH_S", 0.4)
    silent, read_all = READ_ALL[way]
    built = Trainer(one_weight(0.0), Silent(silent), 1, 0, seed=0)
    handler = signal.getsignal(signal.SIGALRM)
    waits_at = Silent.__getitem__.__code__.co_firstlineno + 3
    with pytest.raises(DataSetError, match=f"within 0 s; .*{Path(__file__).name}:{waits_at}"):
        read_all(built)
    assert signal.getsignal(signal.SIGALRM) is handler


class HungGpu:
    """In place of CUDA's events: the third step ends a while after it is said that it does not."""

    def __init__(self, said):
        self.steps, self.said = 0, said

    def time_ms(self, step):
        step()
        self.steps += 1
        ended_s = time.monotonic() + 30
        while self.steps == 3 and not self.said and time.monotonic() < ended_s:
            time.sleep(0.01)
        if self.steps == 3:
            time.sleep(1.5 * patience.LEAST_BOUND_S)
        return 1.0


def test_a_gpu_that_hangs_is_said_once_with_the_way_out(monkeypatch):
    monkeypatch.setattr(patience, "LEAST_BOUND_S", 1.0)
    said = []
    monkeypatch.setattr(training_loop, "StepTimer", lambda device: HungGpu(said))
    built = trainer()
    built.device = SimpleNamespace(type="cuda")
    built.to_accelerator = lambda batch: batch
    built.patience.report = said.append
    before = threading.active_count()
    assert len(list(time_minibatches(built, built.loader(epoch=0)))) == 6
    (line,) = said
    assert says(line, "GPU", "within ")  # how long it waits depends on the minibatches before, and so on the machine
    assert says(line, f"kill -9 {os.getpid()}", "jetwatt restore")
    assert threading.active_count() == before


def test_an_alarm_of_the_caller_goes_on():
    fired = []
    handler = signal.signal(signal.SIGALRM, lambda *_: fired.append(True))
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, 400.0)  # later than the first batch's, which is 300 s
    try:
        built = trainer()
        assert len(list(time_minibatches(built, built.loader(epoch=0)))) == 6
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 400.0
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # earlier
        ended_s = time.monotonic() + 60
        for _ in time_minibatches(built, built.loader()):
            if fired or time.monotonic() > ended_s:
                break
        assert fired
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)


def test_a_batch_has_time_by_those_before_it_and_by_the_limit_of_the_case():
    waits = patience.Patience()
    assert waits.bound_s == patience.FIRST_BATCH_S
    waits._slowest_s = 10.0
    assert waits.bound_s == 200.0
    waits.limit_s = 60.0
    assert waits.bound_s == 60.0
    waits._slowest_s = 0.001
    assert waits.bound_s == patience.LEAST_BOUND_S


def nothing(_):
    pass


def profile(built, count, has_settled=lambda _: True, is_enough=lambda: True, on_minibatch=nothing):
    return profile_minibatches(built, count, has_settled, is_enough, on_minibatch)


@pytest.mark.parametrize(
    ("count", "settled", "enough", "phases"),
    [
        (5, [True], [True], [FIRST] + [CLEAN] * 5),
        (3, [False, False, True], [True], [FIRST, SETTLING, SETTLING] + [CLEAN] * 3),
        (2, [True], [False, False, True], [FIRST] + [CLEAN] * 4),
    ],
    ids=["at once", "until power has settled", "until there are power samples enough"],
)
def test_the_first_minibatch_is_kept_apart_and_the_asked_number_is_clean(count, settled, enough, phases):
    settled, enough = iter(settled), iter(enough)
    recorded = profile(trainer(), count, has_settled=lambda _: next(settled), is_enough=lambda: next(enough))
    assert [minibatch.phase for minibatch in recorded] == phases


def test_a_short_profile_crosses_the_end_of_the_data_set_without_a_border():
    recorded = profile(trainer(samples=4, batch_size=2), 9)
    assert [minibatch.epoch for minibatch in recorded] == [0] * 10


def test_without_workers_all_of_fetching_is_stall():
    for minibatch in profile(trainer(batch_size=2), 4):
        assert minibatch.stall_ms >= 2 * FETCH_S * 1000
        assert minibatch.compute_ms >= STEP_S * 1000


def test_with_workers_computing_hides_fetching():
    """Fetching takes a fifth of computing: a worker is always ahead, so the wait is far less than a fetch."""
    recorded = profile(trainer(workers=1, batch_size=1, fetch_s=0.02, step_s=0.1), 6)
    clean = [minibatch for minibatch in recorded if minibatch.phase == CLEAN]
    assert statistics.median(m.stall_ms for m in clean) < statistics.median(m.compute_ms for m in clean) / 2


def test_minibatches_leave_no_gap_and_what_the_caller_does_between_is_overhead_of_the_next():
    recorded = profile(trainer(fetch_s=0), 5, on_minibatch=lambda _: time.sleep(0.02))
    for before, after in zip(recorded, recorded[1:]):
        assert after.start_s == pytest.approx(before.start_s + before.e2e_ms / 1000, abs=1e-9)
        assert after.e2e_ms - after.stall_ms - after.compute_ms >= 20
    total_s = recorded[-1].start_s + recorded[-1].e2e_ms / 1000 - recorded[0].start_s
    assert total_s == pytest.approx(sum(minibatch.e2e_ms for minibatch in recorded) / 1000)


def test_starting_the_workers_is_stall_of_the_first_minibatch_and_ending_them_is_overhead_of_the_last():
    began = []
    recorded = profile_epochs(trainer(samples=8, batch_size=2, workers=2), 3, began.append, nothing)
    assert began == [0, 1, 2]
    assert [minibatch.epoch for minibatch in recorded] == [0] * 4 + [1] * 4 + [2] * 4
    assert [minibatch.phase for minibatch in recorded] == [FIRST] + [CLEAN] * 11
    # On a busy machine any minibatch may be held up once: medians of the epochs are compared.
    stalls_ms = [statistics.median(minibatch.stall_ms for minibatch in recorded[place::4]) for place in range(4)]
    assert max(stalls_ms) == stalls_ms[0]
    overheads_ms = [
        statistics.median(
            minibatch.e2e_ms - minibatch.stall_ms - minibatch.compute_ms for minibatch in recorded[place::4]
        )
        for place in range(4)
    ]
    assert max(overheads_ms) == overheads_ms[-1]


@pytest.fixture(params=["fork", pytest.param("spawn", marks=pytest.mark.exhaustive), "forkserver"])
def start_method(request):
    multiprocessing.set_start_method(request.param, force=True)
    yield
    multiprocessing.set_start_method(None, force=True)


def test_workers_are_started_by_this_process_and_inherit_what_is_set_for_a_case(start_method):
    """By a fork server they would have the CPUs of when it was started, and read faster than a limit."""
    trainer = Trainer(one_weight(), Fetchers(), 4, workers=1, seed=0)
    [started_by] = trainer.patience.batches(trainer.loader(epoch=0))  # a worker that is spawned loads torch first
    assert started_by.tolist() == [os.getpid()] * 4


def test_an_endless_shuffle_is_one_permutation_after_the_other():
    order = iter(EndlessShuffle(range(5), seed=3))
    rounds = [[next(order) for _ in range(5)] for _ in range(4)]
    assert all(sorted(indices) == [0, 1, 2, 3, 4] for indices in rounds)
    assert len({tuple(indices) for indices in rounds}) > 1
    again = iter(EndlessShuffle(range(5), seed=3))
    assert [next(again) for _ in range(20)] == [index for indices in rounds for index in indices]


def test_the_seed_decides_weights_and_order():
    def trained():
        built = trainer(fetch_s=0, step_s=0)
        for timing, _ in zip(time_minibatches(built, built.loader()), range(3)):
            assert timing.e2e_ms > 0
        return [parameter.detach().clone() for parameter in built.model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(trained(), trained()))


def test_the_bare_loop_does_the_same_work():
    built = trainer(batch_size=2)
    times_ms = run_bare(built, 4)
    assert len(times_ms) == 4
    assert all(time_ms >= (2 * FETCH_S + STEP_S) * 1000 for time_ms in times_ms)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_compute_is_timed_by_events():
    timer = StepTimer(torch.device("cuda"))
    matrix = torch.rand(2048, 2048, device="cuda")
    assert timer.time_ms(lambda: [matrix @ matrix for _ in range(50)]) > 0.1


def test_a_loss_that_is_no_number_is_none_so_that_the_profile_can_be_stored():
    built = trainer(fetch_s=0, step_s=0)
    assert built.losses() == (None, None)
    with torch.no_grad():
        next(built.model.parameters()).fill_(float("nan"))
    profile(built, 1)
    assert built.losses() == (None, None)


@pytest.mark.parametrize(
    "said",
    [
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
        "shared memory. Please try to raise your shared memory limit.",
        "unable to allocate shared memory(shm) for file </torch_7_12_3>: No space left on device (28)",
        "unable to write to file </torch_7_12_3>",
    ],
)
def test_workers_that_run_out_of_shared_memory_are_told_of_it_and_of_the_size_to_try(monkeypatch, said):
    monkeypatch.setattr(training_loop, "shared_memory_bytes", lambda: (64 << 20, 0))
    match = r"^my-net: .*out of shared memory.* 64 MiB.*size[ =]128m.* fewer workers"
    with pytest.raises(DoesNotFitError, match=match), training_loop.failures_explained("my-net", is_own=True):
        raise RuntimeError(said)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("NvRmMemInitNvmap failed with Permission denied", CannotRunError, r"may not open .*usermod -aG video,render"),
        ("get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at", CannotRunError, r"could not report why.*on L4T 36\.4\.7"),
        ("NvMapMemAllocInternalTagged: 1075072515 error 12", DoesNotFitError, r"does not fit .*; on L4T 36\.4\.7"),
    ],
)
def test_a_driver_that_refuses_is_told_apart_from_memory_that_ran_out(monkeypatch, said, kind, words):
    monkeypatch.setattr(training_loop, "fragmentation_hint", lambda: "on L4T 36.4.7 `sudo reboot`")
    with pytest.raises(CannotRunError, match=words) as refused, training_loop.failures_explained("my-net"):
        raise RuntimeError(said)
    assert type(refused.value) is kind
    assert ("36.4.7" in refused.value.hint) == ("usermod" not in words)
