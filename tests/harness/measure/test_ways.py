"""Two kinds of work at once on this machine, each way there is; and what is left where a process dies."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from harness.board.oom_kills import OomKills
from harness.core.cases import INFERENCE, PROCESSES, STREAMS, TRAINING, WAYS, Case, CaseSettings, concurrent_case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, DoesNotFitError, ProcessEndedError
from harness.devices.host import HostDevice
from harness.measure import concurrent
from harness.measure.run import check, run

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.training, pytest.mark.one_python]

SETTINGS = CaseSettings(data_scale=0.002, interval_s=0.1)


@pytest.fixture
def run_both(tmp_path):
    """A function that runs a mix on this machine for a second and returns its profile."""
    device = HostDevice(Configuration(storage={"ssd": tmp_path}))

    def measure(way, own_mode="maxn", workers=0):
        training = Case("host", "lenet-mnist", named_mode(device, "maxn"), workers, "ssd", 16, SETTINGS)
        serving = dataclasses.replace(training, batch_size=2, workers=0, task=INFERENCE)
        case = concurrent_case(training, serving.in_mode(named_mode(device, own_mode)), 40.0, 1.0, way)
        check(case, device)
        with device.session():
            return run(case, device)

    return measure


@pytest.fixture
def started(monkeypatch):
    """The processes that were started to run both at once; at the end neither they nor their workers may be left."""
    found = []
    spawned = concurrent.multiprocessing.get_context("spawn").Process
    start = spawned.start
    monkeypatch.setattr(spawned, "start", lambda process: start(process) or found.append(process.pid))
    yield found
    for _ in range(100):  # the kernel ends a group of processes one by one
        if not sessions() & set(found):
            return
        time.sleep(0.02)
    pytest.fail("a process or a worker of it is left")


def sessions():
    """The sessions of all living processes: each of two that run at once has its own, and so have its workers."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
            found |= set() if state in "XZ" else {int(session)}
    return found


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.exhaustive, pytest.mark.long] if way == PROCESSES else []) for way in WAYS],
)
def test_both_go_on_at_once_and_leave_nothing_behind(run_both, started, way, monkeypatch):
    """Streams stand for themselves only on a GPU: elsewhere two threads show everything but torch's own part."""
    if way == STREAMS and not torch.cuda.is_available():
        with pytest.raises(CannotRunError, match="no CUDA streams"):
            run_both(way)
        loop = concurrent.require("harness.measure.training_loop")
        monkeypatch.setattr("harness.measure.run._check_way", lambda mix, machine: None)
        monkeypatch.setattr(loop, "own_stream", contextlib.nullcontext)
    profile = run_both(way)
    figures = profile.aggregates
    assert figures["training_samples_per_s"] > 0
    assert figures["inference_per_s"] > 0
    assert figures["latency_p99_ms"] >= figures["latency_p95_ms"] >= figures["latency_median_ms"] > 0
    assert figures["training_slowdown"] > 0
    assert figures["inference_slowdown"] > 0
    assert figures["switching_ms"] is None
    assert len(profile.minibatches) == figures["clean_minibatches"]
    assert len(started) == (2 if way == PROCESSES else 0)
    if way == PROCESSES:  # each loads torch for itself
        assert figures["memory_peak_bytes"] > 2 * 100 * 2**20
    else:
        assert figures["memory_peak_bytes"] >= 100 * 2**20


def test_a_mode_of_its_own_is_set_between_minibatches_and_what_that_costs_is_measured(run_both, monkeypatch):
    modes, apply = [], HostDevice.apply

    def noted(device, mode, *how):
        modes.append(mode.cpu_cores)
        return apply(device, mode, *how)

    monkeypatch.setattr(HostDevice, "apply", noted)
    profile = run_both("interleaved", own_mode="1c")
    assert profile.aggregates["switching_ms"] > 0
    assert set(modes) == {1, len(os.sched_getaffinity(0))}
    assert profile.conditions["inference"]["power_mode"]["cpu_cores"] == 1


@pytest.fixture
def vmstat(tmp_path, monkeypatch):
    """The file in which the kernel counts kills for lack of memory."""
    monkeypatch.setattr(concurrent, "OomKills", lambda: OomKills(str(tmp_path)))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("oom_kill 7\n")
    return tmp_path / "proc/vmstat"


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_process_that_dies_is_named_and_its_partner_and_workers_go_with_it(run_both, started, vmstat, monkeypatch):
    send, orders = concurrent.connection.Connection.send, []

    def send_and_kill(pipe, order):
        send(pipe, order)
        orders.append(order)
        if len(orders) == 2:  # training has run alone, and its worker lives
            vmstat.write_text("oom_kill 8\n")
            os.kill(started[0], signal.SIGKILL)

    monkeypatch.setattr(concurrent.connection.Connection, "send", send_and_kill)
    with pytest.raises(DoesNotFitError, match=r"lenet-mnist \(training\) .*killed"):
        run_both(PROCESSES, workers=1)
    assert len(started) == 2


@pytest.mark.exhaustive
def test_a_process_that_hangs_ends_the_case_and_is_killed_with_its_partner(run_both, started, monkeypatch):
    send, orders = concurrent.connection.Connection.send, []

    def send_and_stop(pipe, order):
        send(pipe, order)
        orders.append(order)
        if len(orders) == 2:  # serving never answers, as of a GPU that hangs
            os.kill(started[1], signal.SIGSTOP)

    monkeypatch.setattr(concurrent.connection.Connection, "send", send_and_stop)
    monkeypatch.setattr(concurrent, "LAST_MINIBATCH_S", 5.0)
    with pytest.raises(ProcessEndedError, match=r"^lenet-mnist \(inference\) .*within \d+ s, .*killed"):
        run_both(PROCESSES)
    assert len(started) == 2


@pytest.mark.parametrize(
    ("code", "counted", "error", "words"),
    [
        (-signal.SIGKILL, 8, DoesNotFitError, "was killed by the kernel, because memory ran out"),
        (-signal.SIGKILL, 7, ProcessEndedError, "was killed by signal 9; `journalctl"),
        (-signal.SIGTERM, 8, ProcessEndedError, "ended by signal 15"),  # a failure, and no reason to skip the case
        (3, 8, ProcessEndedError, "ended with code 3"),
    ],
)
def test_only_where_memory_ran_out_a_case_that_ended_is_skipped(vmstat, code, counted, error, words):
    kills = concurrent.OomKills()
    vmstat.write_text(f"oom_kill {counted}\n")
    found = concurrent._gone(TRAINING, "lenet-mnist", code, kills)
    assert type(found) is error
    assert f"process of lenet-mnist (training) {words}" in str(found)
    assert isinstance(found, CannotRunError) == (error is DoesNotFitError)
