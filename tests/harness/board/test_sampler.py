"""The sampler beside a run: on time, past whatever goes wrong, never outliving its parent; and the record it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import sampler as sampler_module
from harness.board.sampler import SAMPLER, Sampler, SamplerRecord
from harness.board.sampler_process import TickSchedule
from harness.board.source import SourceSpec
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.profiles import Series
from tests.harness.board.killed import is_alive, is_open
from tests.messages import says

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sampler reads Linux's kernel files")

MEMORY, CPUFREQ = SourceSpec("memory"), SourceSpec("cpufreq")
PATIENCE_S = 20.0  # far above what anything here takes: a machine may be busy
POLICY = "sys/devices/system/cpu/cpufreq/policy0"


@pytest.fixture
def machine(tree):
    tree.write(
        {
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nCached: 1 kB\nBuffers: 1 kB\nShmem: 1 kB\n"
            "SwapTotal: 0 kB\nSwapFree: 0 kB",
            f"{POLICY}/related_cpus": "0",
            f"{POLICY}/scaling_cur_freq": 729600,
        }
    )
    return tree


@pytest.fixture
def start(machine):
    """Start a sampler of memory and clocks every 10 ms; ended after the test."""
    running = []

    def start_sampler(sources=(MEMORY, CPUFREQ), interval_s=0.01, **settings):
        sampler = Sampler(sources, interval_s, root=machine.root, **settings)
        sampler.start()
        running.append(sampler)
        return sampler

    yield start_sampler
    for sampler in running:
        sampler.__exit__(None, None, None)


def wait_until(condition):
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(0.01)


def wait_for_samples(sampler, count):
    """Wait until `sampler` has taken `count` more than it has now."""
    sampler.poll()
    seen = 0

    def enough():
        nonlocal seen
        seen += sampler.poll()
        return seen >= count

    wait_until(enough)


def test_there_is_a_sample_at_the_start_and_one_at_the_end(start):
    before_s = time.monotonic()
    sampler = start(interval_s=1000.0)
    started_s = time.monotonic()
    first = sampler.series("memory_used_bytes")
    assert before_s < first.times_s[0] < started_s
    assert first.values == (400 * 1024,)
    stopped_s = time.monotonic()
    telemetry = sampler.stop()
    times_s = telemetry.series["memory_used_bytes"].times_s
    assert times_s[0] == first.times_s[0]
    assert len(times_s) == 2
    assert times_s[1] >= stopped_s
    assert (telemetry.died_at_s, telemetry.missing, telemetry.interval_s) == (None, {}, 1000.0)


def test_a_source_that_is_not_there_is_missing_and_the_others_are_not(start):
    sampler = start(sources=[MEMORY, SourceSpec("rapl"), SourceSpec("no_such_source")])
    assert set(sampler.missing) == {"rapl", "no_such_source"}
    telemetry = sampler.stop()
    assert set(telemetry.missing) == {"rapl", "no_such_source"}
    assert "no RAPL package" in telemetry.missing["rapl"]
    assert "memory_used_bytes" in telemetry.series


def test_a_source_that_breaks_in_the_middle_is_recorded_and_the_others_go_on(start, machine):
    sampler = start()
    wait_for_samples(sampler, 2)
    (machine.path / POLICY / "scaling_cur_freq").write_text("garbage\n")
    (machine.path / "proc/meminfo").unlink()
    wait_for_samples(sampler, 2)
    machine.write({f"{POLICY}/scaling_cur_freq": 115200})
    wait_for_samples(sampler, 2)
    telemetry = sampler.stop()
    times_s = telemetry.series["cpu0_khz"].times_s
    assert list(times_s) == sorted(times_s)
    assert telemetry.sampler_cpu_share > 0
    assert telemetry.died_at_s is None
    assert set(telemetry.missing) == {"memory", "cpu0_khz"}
    assert "FileNotFoundError" in telemetry.missing["memory"]
    assert set(telemetry.series["cpu0_khz"].values) == {729600, 115200}


def test_a_killed_sampler_costs_the_rest_of_its_samples_only(machine):
    with Sampler([MEMORY], 0.01, root=machine.root) as sampler:
        wait_for_samples(sampler, 3)
        os.kill(sampler.pid, signal.SIGKILL)
        wait_until(lambda: "memory" in sampler.missing)
    telemetry = sampler.stop()
    assert telemetry is sampler.stop()
    assert len(telemetry.series["memory_used_bytes"].values) >= 3
    assert telemetry.died_at_s == telemetry.series["memory_used_bytes"].times_s[-1]
    assert "status -9" in telemetry.missing[SAMPLER]


def test_a_sampler_that_cannot_start_costs_no_profile(start, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    telemetry = start().stop()
    assert telemetry.died_at_s is not None
    assert "status 1" in telemetry.missing[SAMPLER]
    assert telemetry.series == {}


def test_modules_of_the_working_folder_are_not_taken_for_its_own(start, monkeypatch, tmp_path):
    for name in ("json", "runpy", "harness", "jetwatt"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    telemetry = start().stop()
    assert telemetry.died_at_s is None
    assert "memory_used_bytes" in telemetry.series


def test_a_sampler_that_hangs_is_ended(start, machine, monkeypatch):
    sampler = start()
    monkeypatch.setattr(sampler_module, "_ANSWER_S", 0.5)
    monkeypatch.setattr(sampler_module, "_EXIT_S", 0.5)
    os.kill(sampler.pid, signal.SIGSTOP)
    telemetry = sampler.stop()
    assert not is_alive(sampler.pid)
    assert "gave no answer" in telemetry.missing[SAMPLER]


class HeldProcess:
    """A process that the kernel holds (state D): no signal ends it, and no wait for it returns."""

    def __init__(self, process):
        self.real = process
        self.pid = process.pid

    def poll(self):
        return None

    def communicate(self, *given, timeout):
        time.sleep(timeout)
        raise subprocess.TimeoutExpired("sampler", timeout)


def test_a_sampler_that_the_kernel_holds_is_left_behind_and_named(start, machine, monkeypatch):
    sampler = start()
    monkeypatch.setattr(sampler_module, "_ANSWER_S", 0.3)
    monkeypatch.setattr(sampler_module, "_EXIT_S", 0.1)
    held = sampler._started_process = HeldProcess(sampler._process)
    try:
        telemetry = sampler.stop()
    finally:
        held.real.kill()
        held.real.communicate()
    assert telemetry.series["memory_used_bytes"].values
    assert says(telemetry.missing[SAMPLER], f"process {held.pid}", "left behind")
    assert sampler.stop() is telemetry


def test_ticks_missed_while_the_sampler_was_held_up_are_counted(start):
    sampler = start()
    os.kill(sampler.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(sampler.pid, signal.SIGCONT)
    wait_for_samples(sampler, 2)
    assert sampler.stop().lost_samples > 0


def open_files():
    return {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(int(fd))}


def test_a_process_that_cannot_be_started_leaves_nothing_open(machine, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(machine.path / "none"))
    before = open_files()
    with pytest.raises(FileNotFoundError):
        Sampler([MEMORY], 0.01, root=machine.root).start()
    assert open_files() == before


def test_ctrl_c_during_the_start_leaves_no_sampler_and_nothing_open(machine, monkeypatch):
    sampler = Sampler([MEMORY], 0.01, root=machine.root)

    def interrupt():
        monkeypatch.undo()
        raise KeyboardInterrupt

    before = open_files()
    monkeypatch.setattr(sampler, "poll", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sampler.start()
    assert not is_alive(sampler.pid)
    assert open_files() == before


@pytest.mark.parametrize("use", [lambda sampler: sampler.missing, Sampler.stop, lambda sampler: sampler.pid])
def test_a_sampler_that_was_not_started_is_an_error_that_says_so(machine, use):
    with pytest.raises(HarnessError, match="was not started"):
        use(Sampler([MEMORY], 0.01, root=machine.root))


PARENT = """
import os, signal, sys, time
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec
signal.signal(signal.SIGINT, lambda number, frame: None)  # of this process: what it starts is not protected by it
if sys.argv[2] == "bound":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sampler = Sampler([SourceSpec("memory")], 0.01, root=sys.argv[1])
sampler.start()
worker = os.fork()
if worker == 0:
    time.sleep(60)  # as a DataLoader worker does, it holds the parent's side of the pipes
    os._exit(0)
print(sampler.pid, worker, flush=True)
sys.stdin.readline()
print(sampler.stop().died_at_s, flush=True)
os.kill(worker, signal.SIGKILL)
"""


@pytest.fixture
def parent(machine):
    """Start a process, leader of its own group, that runs a sampler and has forked a worker since."""
    started = []

    def start_parent(how="plain"):
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, machine.root, how],
            cwd=Path(sampler_module.__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        sampler_pid, worker_pid = map(int, process.stdout.readline().split())
        started.append((process, worker_pid))
        return process, sampler_pid

    yield start_parent
    for process, worker_pid in started:
        process.kill()
        if is_alive(worker_pid):
            os.kill(worker_pid, signal.SIGKILL)
        process.communicate()


def test_the_sampler_ends_when_its_parent_is_killed(parent):
    process, sampler_pid = parent()
    assert is_alive(sampler_pid)
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(sampler_pid))


def test_ctrl_c_is_not_for_the_sampler(parent):
    process, sampler_pid = parent()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(b"\n", timeout=PATIENCE_S)
    assert output.split() == [b"None"]
    assert not is_alive(sampler_pid)


def test_the_sampler_stays_on_the_cpus_it_is_given(start):
    cpu = max(os.sched_getaffinity(0))
    assert os.sched_getaffinity(start(cpus=[cpu]).pid) == {cpu}


def test_the_sampler_is_not_bound_to_the_measured_cpus(parent):
    _, sampler_pid = parent("bound")
    assert os.sched_getaffinity(sampler_pid) >= os.sched_getaffinity(0)


def test_cpus_that_are_not_there_cost_no_samples(start):
    telemetry = start(cpus=[4095]).stop()
    assert set(telemetry.missing) == {"sampler: its own CPUs"}
    assert "memory_used_bytes" in telemetry.series


def test_the_samplers_process_loads_nothing_heavy():
    sources = "cpu, cpu_clocks, memory, thermal, throttling, power_rails, rapl, disk"
    loads = f"import sys; from harness.board import sampler_process, {sources}; print(*sys.modules)"
    project = Path(sampler_module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", loads], cwd=project, stdout=subprocess.PIPE)
    loaded = set(done.stdout.decode().split())
    assert "harness.board.rapl" in loaded
    assert not loaded & {"numpy", "torch", "pandas", "dataclasses", "subprocess", "ctypes", "harness.core.profiles"}


def test_a_sampler_is_for_one_profile(start):
    with pytest.raises(HarnessError, match="started before"):
        start().start()


@pytest.mark.parametrize(
    ("sources", "interval_s", "words"),
    [
        ([MEMORY], 0, "interval_s"),
        ([MEMORY], -1.0, "interval_s"),
        ([MEMORY], float("nan"), "interval_s"),
        ([MEMORY, MEMORY], 1.0, "memory, memory"),
    ],
)
def test_an_interval_that_is_no_time_and_a_source_given_twice_are_refused(sources, interval_s, words):
    with pytest.raises(InvalidValueError, match=words):
        Sampler(sources, interval_s)


@given(st.floats(0.001, 10), st.lists(st.floats(0, 5), max_size=30))
def test_ticks_stay_on_the_grid_and_each_is_taken_or_lost(interval_s, delays):
    """`delays` is how many intervals after its due time each tick is taken."""
    start_s = 1000.0
    schedule = TickSchedule(start_s, interval_s)
    lost = 0
    for taken, delay in enumerate(delays, start=1):
        lost += schedule.advance(schedule.due_s + delay * interval_s)
        assert schedule.due_s == pytest.approx(start_s + (taken + lost + 1) * interval_s)
        assert lost <= sum(delays) + 1e-6 * len(delays)


# -- the record -----------------------------------------------------------------------------------------------------

OPENED = {"notes": {"a_mw": "what it is"}, "missing": {}}
SOURCES = ["one", "two"]


def sample(time_s, values, failed=None, lost=0, last=False):
    return {"time_s": time_s, "values": values, "failed": failed or {}, "lost": lost, "cpu_s": 0.01, "last": last}


def lines(*parts):
    return "".join(json.dumps(part) + "\n" for part in parts).encode()


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "lines", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def record_of(file, *samples, opened=OPENED):
    record = SamplerRecord(SOURCES)
    os.write(file, lines(opened, *samples))
    assert record.take_in(file) == len(samples)
    return record


def telemetry(record, stopped_s):
    return record.telemetry(interval_s=1.0, started_s=0.0, stopped_s=stopped_s, how_it_ended="ended with status -9")


def test_samples_become_series_with_their_own_times(file):
    record = record_of(
        file,
        sample(0.5, {"one": {"a_mw": 1}, "two": {}}),
        sample(1.5, {"one": {"a_mw": 2}, "two": {"b_c": 7}}, lost=2),
        sample(1.75, {"one": {"a_mw": 3}, "two": {"b_c": 8}}, lost=2, last=True),
    )
    seen = telemetry(record, stopped_s=1.75)
    assert seen.series == {"a_mw": Series((0.5, 1.5, 1.75), (1, 2, 3)), "b_c": Series((1.5, 1.75), (7, 8))}
    assert (seen.real_interval_s, seen.lost_samples, seen.died_at_s, seen.missing) == (0.625, 2, None, {})
    assert seen.sampler_cpu_share == pytest.approx(0.01 / 1.25)
    assert seen.notes == OPENED["notes"]


def test_a_sampler_without_a_last_sample_has_died(file):
    record = record_of(file, sample(0.5, {"one": {"a_mw": 1}, "two": {"b_c": 7}}))
    seen = telemetry(record, stopped_s=5.0)
    assert seen.died_at_s == 0.5
    assert seen.lost_samples == 4
    assert seen.missing == {SAMPLER: "died, last seen 0.5 s after its start: ended with status -9"}
    assert seen.series["a_mw"].values == (1,)


def test_a_sampler_that_wrote_nothing_has_died_at_its_start(file):
    seen = telemetry(SamplerRecord(SOURCES), stopped_s=2.0)
    assert seen.died_at_s == 0.0
    assert set(seen.missing) == {SAMPLER, *SOURCES}
    assert (seen.series, seen.real_interval_s, seen.sampler_cpu_share) == ({}, None, None)


def test_a_record_has_the_time_of_its_newest_sample_whatever_its_sources_gave(file):
    assert SamplerRecord(SOURCES).newest_sample_s is None
    record = record_of(file, sample(0.5, {"one": {"a_mw": 1}}), sample(1.5, {}, failed={"one": "gone"}))
    assert record.newest_sample_s == 1.5


def test_a_source_that_fails_says_since_when_and_how_often(file):
    record = record_of(
        file,
        sample(10.0, {"one": {"a_mw": 1}, "two": {"b_c": 7}}),
        sample(11.0, {"two": {"b_c": 7}}, failed={"one": "gone"}),
        sample(12.0, {"two": {"b_c": 7}}, failed={"one": "still gone"}),
        sample(13.0, {"one": {"a_mw": 1}, "two": {}}, failed={"b_c": "asleep"}, last=True),
    )
    assert telemetry(record, stopped_s=13.0).missing == {
        "one": "gone (2 of 4 samples, the first 1.0 s after the start)",
        "b_c": "asleep (1 of 4 samples, the first 3.0 s after the start)",
    }


def test_a_source_that_gives_nothing_is_missing(file):
    opened = {"notes": {}, "missing": {"one": "not here"}}
    record = record_of(file, sample(0.0, {"two": {}}, last=True), opened=opened)
    assert record.missing == {"one": "not here"}
    assert record.series("a_mw") is None
    assert telemetry(record, 0.0).missing == {"one": "not here", "two": "gave no value in 1 samples"}


def test_of_two_sources_with_one_channel_the_first_is_taken(file):
    both = {"one": {"a_mw": 1}, "two": {"a_mw": 9, "b_c": 7}}
    seen = telemetry(record_of(file, sample(0.0, both), sample(1.0, both, last=True)), 1.0)
    assert seen.series["a_mw"].values == (1, 1)
    assert seen.missing == {"two: a_mw": "one gives this channel too, and comes first"}


@given(st.lists(st.integers(0, 10), max_size=10), st.data())
def test_a_line_cut_anywhere_loses_only_itself(tmp_path_factory, values, data):
    text = lines(OPENED, *(sample(float(time_s), {"one": {"a_mw": value}}) for time_s, value in enumerate(values)))
    cut = data.draw(st.integers(0, len(text)))
    fd = os.open(tmp_path_factory.mktemp("record") / "lines", os.O_RDWR | os.O_CREAT)
    try:
        record = SamplerRecord(["one"])
        os.write(fd, text[:cut])
        samples = max(0, text[:cut].count(b"\n") - 1)
        assert record.take_in(fd) == samples
        assert (record.series("a_mw") or Series((), ())).values == tuple(values[:samples])
        os.write(fd, text[cut:])
        assert record.take_in(fd) == len(values) - samples
        assert (record.series("a_mw") or Series((), ())).values == tuple(values)
    finally:
        os.close(fd)
