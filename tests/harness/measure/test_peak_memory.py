"""Peak memory of a profile: the figure of the kernel for the process, and PSS of its workers, each page once."""

from __future__ import annotations

import os
import sys
import types

import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.errors import OverMemoryLimitError
from harness.core.metrics import AGGREGATES
from harness.core.profiles import Series, Telemetry
from harness.devices.host import HostDevice
from harness.measure import peak_memory
from harness.measure.peak_memory import FIGURES, GpuPeak, PeakMemory, bytes_before, own_peak_bytes
from harness.measure.run import least_memory, run
from tests.named_modes import mode_on

MIB = 2**20


def gpu(integrated):
    properties = types.SimpleNamespace(is_integrated=integrated)
    return types.SimpleNamespace(
        is_available=lambda: True, reset_peak_memory_stats=lambda: None, max_memory_allocated=lambda gpu: 300 * MIB,
        max_memory_reserved=lambda gpu: 400 * MIB, get_device_properties=lambda place: properties,
    )  # fmt: skip


def torch_with(cuda=None):
    return types.SimpleNamespace(cuda=cuda or types.SimpleNamespace(is_available=lambda: False))


def telemetry(**channels):
    return Telemetry(1.0, series={name: Series(tuple(range(len(each))), each) for name, each in channels.items()})


@pytest.fixture
def board(tree, monkeypatch):
    """100 MiB in use before, in a process whose own peak is 150 MiB."""
    tree.write({"proc/meminfo": f"MemTotal: {8 * 1024**2} kB\nMemAvailable: {8 * 1024**2 - 100 * 1024} kB"})
    tree.write({"proc/self/status": f"VmPeak: 1 kB\nVmHWM:   {150 * 1024} kB\nVmRSS: 1 kB", "proc/self/clear_refs": ""})
    monkeypatch.setattr(peak_memory, "own_peak_bytes", lambda: own_peak_bytes(tree.path / "proc/self"))
    monkeypatch.setattr(peak_memory, "_forget_own_peak", lambda: forget(tree.path / "proc/self"))
    return tree.path


forget = peak_memory._forget_own_peak
SAMPLED = telemetry(
    memory_processes_bytes=(90 * MIB, 250 * MIB, 200 * MIB),
    memory_used_bytes=(100 * MIB, 700 * MIB, 600 * MIB),
    swap_used_bytes=(0, 5 * MIB),
    zram_used_bytes=(0, 2 * MIB),
)


@pytest.mark.parametrize(
    ("cuda", "where_it_ran"),
    [(None, 250 * MIB), (gpu(0), 400 * MIB), (gpu(1), 600 * MIB)],  # CPU; GPU with memory of its own; shared memory
)
def test_the_peak_is_of_the_memory_where_the_network_runs(board, cuda, where_it_ran):
    figures = PeakMemory(torch_with(cuda), board).figures(SAMPLED)
    assert set(figures) == set(FIGURES) <= set(AGGREGATES)
    assert figures["memory_peak_bytes"] == where_it_ran
    assert figures["process_memory_peak_bytes"] == 250 * MIB
    assert figures["machine_memory_peak_bytes"] == 600 * MIB
    assert (figures["swap_peak_bytes"], figures["zram_peak_bytes"]) == (5 * MIB, 2 * MIB)
    assert figures["gpu_memory_allocated_peak_bytes"] == (300 * MIB if cuda else None)
    assert (board / "proc/self/clear_refs").read_text() == "5"  # the kernel's peak starts anew with each case


def test_the_kernels_own_peak_shows_what_lies_between_two_samples(board):
    figures = PeakMemory(torch_with(), board).figures(telemetry(memory_processes_bytes=(90 * MIB,)))
    assert figures["process_memory_peak_bytes"] == 150 * MIB


def test_where_the_kernels_peak_cannot_start_anew_it_is_an_earlier_cases_and_does_not_count(board):
    (board / "proc/self/clear_refs").unlink()
    (board / "proc/self/clear_refs").mkdir()
    figures = PeakMemory(torch_with(), board).figures(telemetry(memory_processes_bytes=(90 * MIB,)))
    assert figures["process_memory_peak_bytes"] == 90 * MIB


def test_what_has_no_sensor_is_missing_and_not_zero(board):
    (board / "proc/meminfo").write_text("MemTotal: 1000 kB")
    (board / "proc/self/status").write_text("Name: python")
    assert PeakMemory(torch_with(), board).figures(Telemetry(1.0)) == dict.fromkeys(FIGURES)


def test_without_a_network_there_is_no_figure_of_the_gpu(board):
    figures = PeakMemory(None, board).figures(SAMPLED)
    assert figures["memory_peak_bytes"] == figures["process_memory_peak_bytes"] == 250 * MIB
    assert figures["gpu_memory_allocated_peak_bytes"] is figures["gpu_memory_reserved_peak_bytes"] is None


def test_the_peaks_of_other_processes_on_the_gpu_are_added(board):
    figures = PeakMemory(torch_with(gpu(0)), board).figures(SAMPLED, [GpuPeak(10.0 * MIB, 20.0 * MIB)] * 2)
    assert figures["gpu_memory_allocated_peak_bytes"] == 320 * MIB
    assert figures["memory_peak_bytes"] == 440 * MIB


def test_a_case_that_took_more_than_the_limit_so_far_is_refused_with_its_peak(board):
    sampler = types.SimpleNamespace(poll=lambda: 0, series=SAMPLED.series.get, interval_s=1.0)
    memory = PeakMemory(torch_with(), board)
    memory.refuse_more(250 * MIB, sampler)
    with pytest.raises(OverMemoryLimitError, match=r"250 MiB, .*249 MiB") as refused:
        memory.refuse_more(249 * MIB, sampler)
    assert refused.value.peak_bytes == 250 * MIB


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.long
def test_a_profile_of_the_host_has_the_peak_of_the_whole_run(tmp_path):
    """The figure of `/usr/bin/time -v` for a run without workers."""
    pytest.importorskip("torch")
    from harness.store.results import ResultsStore

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    run = [
        *("-m", "pytest", f"{root}/benchmarks/test_training.py", "-p", "no:cacheprovider", "-q", "--device", "host"),
        *("--workload", "resnet18-cifar10", "--batch-size", "16", "--minibatches", "4", "--interval", "0.2"),
        *("--workers", "0", "--data-scale", "0.002", "--results", str(tmp_path / "r.sqlite")),
    ]
    # `make test` has the C library keep freed memory, which the figure leaves out and the kernel's does not.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    child = os.posix_spawn(
        sys.executable, [sys.executable, *run], {**variables, "XDG_STATE_HOME": str(tmp_path)},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(tmp_path / "out"), os.O_CREAT | os.O_WRONLY, 0o600)],
    )  # fmt: skip
    _, status, usage = os.wait4(child, 0)
    assert status == 0, (tmp_path / "out").read_text()
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        profiles = list(store.profiles())
    [profile] = profiles
    assert profile.aggregates["memory_peak_bytes"] == pytest.approx(usage.ru_maxrss * 1024, rel=0.05)
    assert profile.telemetry.series["memory_processes_bytes"].values


def test_memory_that_earlier_cases_freed_does_not_count_as_in_use():
    before = bytes_before(torch_with())
    blocks = [bytes(2000) for _ in range(100_000)]
    last = blocks.pop()  # at the end of the heap, which the C library therefore keeps
    del blocks
    assert bytes_before(torch_with()) < before + 50 * MIB
    assert len(last) == 2000


@pytest.mark.training
def test_a_case_ends_after_the_minibatch_that_exceeds_the_limit_and_its_least_memory_is_counted(tmp_path):
    pytest.importorskip("torch")
    device = HostDevice(Configuration(storage={"ssd": tmp_path}))
    settings = CaseSettings(data_scale=0.002, interval_s=0.1, minibatches=10)
    case = Case("host", "lenet-mnist", mode_on(), 0, "ssd", 4, settings)
    lines = []
    with device.session():
        floor = least_memory(case, device, lines.append)
        assert floor.fixed_bytes > 50 * MIB  # the process with torch
        assert 10_000 < floor.sample_bytes < 1_000_000
        with pytest.raises(OverMemoryLimitError, match="more than the limit of 50 MiB") as refused:
            run(case, device, lines.append, memory_limit_bytes=50 * MIB)
    assert refused.value.peak_bytes > floor.fixed_bytes
    assert not any("minibatch 1 " in line for line in lines)
