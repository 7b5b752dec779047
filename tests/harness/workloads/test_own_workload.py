"""A user's own network: found by its name, with data in memory or in a folder, and failing with whose code it was."""

from __future__ import annotations

import functools
import importlib.metadata
import multiprocessing
import os
import re
import sys
from pathlib import Path

import pytest

from harness.board import containers
from harness.board.oom_kills import OomKills
from harness.core.cases import Case, CaseSettings
from harness.core.errors import (
    CannotRunError,
    DoesNotFitError,
    HarnessError,
    InvalidValueError,
    ProcessEndedError,
)
from harness.workloads import WORKLOADS, Workload, get_workload, registry
from harness.workloads.data import data_set
from harness.workloads.failures import fragmentation_hint, is_out_of_memory, other_trouble, worker_start_method
from tests.named_modes import mode_on

MODULE = """
import torch
from jetwatt import Workload

SAMPLES = [(torch.rand(3, 8, 8), index % 2) for index in range(64)]

def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

def make(name, **options):
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2)
    usual = {"model": lambda: torch.nn.Sequential(*layers), "data": lambda: SAMPLES, "loss": loss}
    return Workload(name, **{**usual, **options})

WORKLOAD = make("my-net")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module with further lines into the current folder, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_own", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    written = []

    def write(lines="", start=MODULE):
        written.append(f"own_{os.getpid()}_{len(written)}_{abs(hash(str(tmp_path)))}")
        (tmp_path / f"{written[-1]}.py").write_text(start + lines)
        return written[-1]

    yield write
    for name in set(sys.modules) - before:
        if name in written:
            del sys.modules[name]


training = pytest.mark.training


@pytest.fixture
def run_own(module):
    """A function that measures a workload of such a module on this machine."""
    pytest.importorskip("torch")
    from harness.core.configuration import Configuration
    from harness.devices.registry import open_device
    from harness.measure.run import check, run

    def run_(
        lines="", name="WORKLOAD", workers=0, batch_size=4, device="host", task="training", report=None, **settings
    ):
        opened = open_device(device, Configuration())
        workload = get_workload(f"{module(lines)}:{name}").name
        settings = CaseSettings(**{"minibatches": 2, "interval_s": 0.2, **settings})
        case = Case(device, workload, mode_on(device), workers, "ssd", batch_size, settings, task)
        with opened.session():
            check(case, opened)
            return run(case, opened, report or (lambda line: None))

    return run_


@pytest.fixture
def start_by():
    """Sets how processes are started: workers are spawned as on macOS, and where a fork server would start them."""
    yield functools.partial(multiprocessing.set_start_method, force=True)
    multiprocessing.set_start_method(None, force=True)


NO_DEFAULT = pytest.mark.skipif(
    multiprocessing.get_all_start_methods()[0] == "forkserver", reason="Python's default here, in whose place is fork"
)
SPAWNED = pytest.mark.parametrize(
    "method", [pytest.param("spawn", marks=pytest.mark.exhaustive), pytest.param("forkserver", marks=NO_DEFAULT)]
)


@training
def test_a_workload_is_known_by_its_own_name_once_it_was_loaded(module):
    name = module()
    workload = get_workload(f"{name}:WORKLOAD")
    assert workload is get_workload(f"{name}:WORKLOAD") is get_workload("my-net")
    assert workload.is_own
    assert workload.real_samples == 64
    assert not any(one.is_own for one in WORKLOADS.values())


def test_the_path_of_imports_is_put_back_with_the_current_folder_last(module, tmp_path):
    before = list(sys.path)
    with pytest.raises(HarnessError):
        get_workload(f"{module('', 'raise ValueError(3)')}:WORKLOAD")
    assert sys.path == before
    get_workload(f"{module('', PLAIN)}:WORKLOAD")
    assert sys.path == [*before, str(tmp_path)]


PLAIN = """
from jetwatt import Workload
def with_changed(**options):
    usual = {"name": "my-net", "model": lambda: None, "data": lambda: [1], "loss": lambda model, batch: None}
    return Workload(**{**usual, **options})
WORKLOAD = with_changed()
"""


@pytest.mark.parametrize(
    ("lines", "name", "words"),
    [
        ("", "OTHER", r"has no 'OTHER'; workloads there: WORKLOAD"),
        ("NUMBER = 3", "NUMBER", r"is a int, expected a Workload"),
        ("raise ValueError('half done')", "WORKLOAD", r"in own_\w+.py, line 7 \(<module>\): ValueError: half done"),
        ("import no_such_package_of_mine", "WORKLOAD", r"line 7 .*No module named.*; install no_such_package_of_mine"),
        ("import sys; sys.exit(2)", "WORKLOAD", r"line 7 \(<module>\): SystemExit: 2"),
        ("1 +", "WORKLOAD", r"SyntaxError: invalid syntax"),
        ("B = with_changed(name='bert-squad')", "B", r"name 'bert-squad' .* another"),
        ("B = with_changed(name='idle')", "B", r"name 'idle' .* is reserved"),
        ("B = with_changed(name='../x')", "B", r"name is '\.\./x', expected letters"),
        ("B = with_changed(precision='int8')", "B", r"precision is 'int8'; available: fp32"),
        ("B = with_changed(loss=None)", "B", r"loss is None, expected a function"),
        ("B = with_changed(smallest_batch=0)", "B", r"smallest_batch is 0"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_that_says_why(module, lines, name, words):
    with pytest.raises(HarnessError, match=words):
        get_workload(f"{module(lines, PLAIN)}:{name}")


def test_a_missing_module_is_named_with_the_folder_and_two_workloads_of_one_name_are_refused(module, tmp_path):
    with pytest.raises(HarnessError, match=r"no module 'nowhere' .*start in the folder"):
        get_workload("nowhere.deep:WORKLOAD")
    with pytest.raises(HarnessError, match=r"write nowhere:WORKLOAD, without \.py"):
        get_workload("nowhere.py:WORKLOAD")
    get_workload(f"{module('', PLAIN)}:WORKLOAD")
    with pytest.raises(InvalidValueError, match=r"'my-net' .*another workload"):
        get_workload(f"{module('', PLAIN)}:WORKLOAD")


def test_a_working_directory_that_was_deleted_is_an_error_and_no_traceback(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(HarnessError, match=r"my_net:NET: .*deleted; .*cd DIR"):
        get_workload("my_net:NET")


def test_an_installed_package_brings_workloads_by_entry_points(module, monkeypatch):
    name = module("", PLAIN)
    points = [importlib.metadata.EntryPoint("bird-net", f"{name}:WORKLOAD", "jetwatt.workloads")]
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert get_workload("bird-net").name == "my-net"
    with pytest.raises(HarnessError, match=r"available: .*bird-net"):
        get_workload("fish-net")
    points.append(importlib.metadata.EntryPoint("bird-net", "elsewhere:WORKLOAD", "jetwatt.workloads"))
    with pytest.raises(InvalidValueError, match="declared twice"):
        get_workload("bird-net")


@training
def test_what_was_used_is_a_condition_of_the_profile_and_storage_is_in_memory(run_own):
    assert run_own(task="inference").aggregates["minibatch_time_ms"] > 0, "the loss is run: there is no forward"
    options = "make('full', precision='bf16', channels_last=True, gradient_accumulation=2, optimizer=torch.optim.Adam)"
    profile = run_own(f"FULL = {options}", "FULL", workers=1, cache="evicted")
    assert profile.case.id == "host-full-maxn-w1-ssd-bs4-evicted"
    known = {name: profile.conditions[name] for name in ("precision", "compile", "channels_last", "optimizer")}
    assert known == {"precision": "bf16", "compile": False, "channels_last": True, "optimizer": "Adam"}
    assert profile.conditions["gradient_accumulation"] == 2
    assert profile.conditions["parameters"] == 3 * 4 * 9 + 4 + 144 * 2 + 2
    assert profile.conditions["flops_forward"] == 2 * (36 * 4 * 27 + 144 * 2)
    assert profile.conditions["storage_medium"] == {"kind": "in-memory"}
    assert profile.conditions["cache_method"] == "in-memory"
    assert [flag for flag in profile.flags if flag.startswith(("cache", "not-", "storage"))] == []
    assert profile.aggregates["minibatch_time_ms"] > 0


@training
def test_a_simulated_board_says_roughly_what_an_own_network_takes_and_that_it_is_rough(run_own):
    profile = run_own(device="sim:orin-agx", workers=2)
    assert profile.provenance == "simulated"
    assert profile.conditions["scaled_from"] in WORKLOADS
    assert profile.conditions["flops_forward"] == 2 * (36 * 4 * 27 + 144 * 2)
    assert profile.conditions["storage_medium"] == {"kind": "in-memory"}
    assert any(flag.startswith("rough: ") for flag in profile.flags)
    assert profile.aggregates["minibatch_time_ms"] > 0
    with pytest.raises(CannotRunError, match=r"fp32.*device='host'"):
        run_own("B = make('b', precision='fp16')", "B", device="sim:orin-agx")


@training
def test_a_small_shape_is_simulated_as_roughly():
    pytest.importorskip("torchvision")
    from harness.core.configuration import Configuration
    from harness.devices.registry import open_device

    device = open_device("sim:orin-agx", Configuration())
    small, whole = (
        device.profile(Case("sim:orin-agx", name, mode_on("sim:orin-agx"), 4, "ssd", 16))
        for name in ("resnet18-cifar10-32", "resnet18-cifar10")
    )
    assert small.conditions["data_samples"] == whole.conditions["data_samples"]
    assert small.aggregates["minibatch_time_ms"] < whole.aggregates["minibatch_time_ms"]
    assert small.conditions["scaled_from"]
    assert "scaled_from" not in whole.conditions


BROKEN = {
    "model": ("B = make('b', model=lambda: torch.nn.Linear(0.5, 1))", "TypeError"),
    "loss": ("B = make('b', loss=lambda model, batch: model(batch[2]))", "IndexError"),
    "shape": ("B = make('b', model=lambda: torch.nn.Linear(7, 2))", "RuntimeError: .*mat1 and mat2 shapes"),
    "data": ("B = make('b', data=lambda: open('nowhere'))", "FileNotFoundError"),
    "collate": ("def pack(samples):\n    return {}['key']\n\nB = make('b', collate=pack)", "KeyError"),
    "optimizer": ("B = make('b', optimizer=lambda parameters: parameters.nothing)", "AttributeError"),
}


@training
@pytest.mark.parametrize("part", BROKEN)
def test_a_workload_that_fails_says_whose_code_failed(run_own, part):
    lines, error = BROKEN[part]
    with pytest.raises(HarnessError, match=rf"b failed in own_\w+\.py, line \d+ \(.+\): {error}") as caught:
        run_own(lines, "B")
    assert len(str(caught.value)) < 250


@training
def test_what_fails_in_a_worker_is_told_as_well(run_own):
    late = """
class Late:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return SAMPLES[index] if torch.utils.data.get_worker_info() is None else 1 / 0

B = make('b', data=Late)
"""
    with pytest.raises(HarnessError, match=r"own_\w+\.py, line \d+ \(__getitem__\): ZeroDivisionError"):
        run_own(late, "B", workers=1, cache="as-is")


@training
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("loss=lambda model, batch: 3.0", "the loss of workload b is a float; expected a tensor of one value"),
        ("loss=lambda model, batch: model(batch[0])", r"is a Tensor of shape \(4, 2\); expected"),
        ("data=lambda: iter([1])", "data made a list_iterator, expected a map-style data set"),
        ("data=lambda: []", "the data set of b holds no sample"),
        ("data='nowhere'", "which is no folder"),
        ("data='here', folder='there'", "data and folder are both folders"),
    ],
)
def test_what_a_function_must_return_is_said(run_own, options, words):
    with pytest.raises(HarnessError, match=words):
        run_own(f"B = make('b', {options})", "B")


@training
@SPAWNED
@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_lambdas_that_cannot_be_sent_to_workers_are_an_error_that_says_what_to_do(run_own, start_by, method):
    lines = "B = make('b', collate=lambda samples: torch.utils.data.default_collate(samples))"
    assert run_own(lines, "B", workers=1).aggregates["minibatch_time_ms"] > 0
    registry._own.clear()
    start_by(method)
    with pytest.raises(HarnessError, match=r"workers, .*spawn.*0 workers"):
        run_own(lines, "B", workers=1)


@pytest.mark.parametrize(
    ("default", "method", "expected"),
    [
        ("fork", None, "fork"),
        ("fork", "spawn", "spawn"),
        ("fork", "forkserver", "spawn"),
        ("forkserver", None, "fork"),
        ("forkserver", "spawn", "spawn"),
        ("spawn", None, "spawn"),
    ],
)
def test_workers_are_forked_where_python_starts_processes_by_a_fork_server_of_its_own_accord(
    monkeypatch, default, method, expected
):
    """As from Python 3.14 on; macOS spawns. A method that a user sets is kept, unless it is the fork server."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: [default, "another"])
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: method or default)
    assert worker_start_method() == expected


@training
def test_how_workers_are_started_is_recorded_where_there_are_any(run_own):
    lines = "B = make('b', collate=lambda samples: torch.utils.data.default_collate(samples))"
    assert run_own(lines, "B", workers=1).conditions["worker_start_method"] == worker_start_method()
    registry._own.clear()
    assert "worker_start_method" not in run_own(lines, "B", workers=0).conditions


@training
@SPAWNED
def test_a_module_from_the_current_folder_is_found_by_workers_that_are_spawned(run_own, start_by, method):
    start_by(method)
    lines = "class Mine(list):\n    pass\n\nB = make('b', data=lambda: Mine(SAMPLES))"
    assert run_own(lines, "B", workers=1).aggregates["minibatch_time_ms"] > 0


@pytest.mark.training
def test_workers_whose_batches_shared_memory_cannot_hold_are_refused_before_torch_waits_for_them(run_own, monkeypatch):
    """Each of 3 x 8 x 8 numbers of four bytes and a label of eight: 776 bytes."""
    pytest.importorskip("torch")
    monkeypatch.setattr(containers, "shared_memory_bytes", lambda: (4 << 20, 4 << 20))
    with pytest.raises(DoesNotFitError, match=r"2 workers .*2048 .*8\.58 MiB .*4 of 4 free; .*size[ =]9m"):
        run_own(workers=2, batch_size=2048)


@pytest.mark.parametrize("text", [
    "CUDA out of memory. Tried to allocate 20.00 MiB",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
    'r INTERNAL ASSERT FAILED at "/opt/c10/cuda/CUDACachingAllocator.cpp":1131, please report a bug',
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "std::bad_alloc",
    "NvMapMemAllocInternalTagged: 1075072515 error 12",
    "[enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    "DataLoader worker (pid(s) 12) exited unexpectedly: out of shared memory",
    "[Errno 12] Cannot allocate memory",
    "Unable to allocate 3.00 TiB for an array",
])  # fmt: skip
def test_what_allocators_say_is_memory_that_ran_out_and_other_errors_are_not(text):
    assert is_out_of_memory(RuntimeError(text))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("DataLoader worker (pid 3) is killed by signal: Segmentation fault."))
    assert not is_out_of_memory(RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed."))
    assert not is_out_of_memory(RuntimeError("memory format option is only supported by strided tensors"))


ASSERT = 'INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":963, please report a bug to PyTorch.'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NvRmMemInitNvmap failed with Permission denied", "may not open"),
        ("Error: Can't initialize nvrm channel, nvmap: Permission denied", "may not open"),
        (f"NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() {ASSERT}", "could not report why"),
        (f"NVML_SUCCESS == DriverAPI::get()->nvmlDeviceGetHandleByPciBusId_v2_( pci_id, &d) {ASSERT}", "report why"),
        (f"!block->allocated && block->event_count == 0 {ASSERT}", "no lack of memory"),
        (f"captures_underway.empty() {ASSERT}", "no lack of memory"),
    ],
)
def test_an_assertion_of_the_allocator_or_a_driver_that_refuses_is_no_lack_of_memory(text, words):
    assert not is_out_of_memory(RuntimeError(text))
    assert words in other_trouble(RuntimeError(text)).what
    wrapped = RuntimeError("caught in a thread")
    wrapped.__cause__ = RuntimeError(text)
    assert words in other_trouble(wrapped).what
    assert other_trouble(RuntimeError("shape '[3]' is invalid for input of size 4")) is None


@pytest.mark.parametrize(
    ("release", "said"),
    [("R36 (release), REVISION: 4.7", True), ("R38 (release), REVISION: 2.0", True),
     ("R36 (release), REVISION: 4.3", False), ("R35 (release), REVISION: 6.1", False), ("", False)],
)  # fmt: skip
def test_memory_that_stays_fragmented_until_a_reboot_is_said_with_the_release(tmp_path, release, said):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text(f"# {release}, GCID: 1, BOARD: generic\n")
    hint = fragmentation_hint(tmp_path)
    assert bool(hint) == said
    if said:
        assert re.search(r"on L4T 3[68]\.[\d.]+ .* until a reboot", hint)


KILLED = """import os, pathlib, signal

class Mine(list):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            counted = pathlib.Path("counted")
            if counted.exists():
                counted.replace("proc/vmstat")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

B = make('b', data=lambda: Mine(SAMPLES))"""


@pytest.fixture
def vmstat(tmp_path, monkeypatch):
    """The kernel's counters, of a tree; a worker of `KILLED` puts the file `counted` in their place."""
    loop = pytest.importorskip("harness.measure.training_loop")
    monkeypatch.setattr(loop, "OomKills", functools.partial(OomKills, str(tmp_path)))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("oom_kill 7\n")


@training
def test_a_worker_that_the_kernel_ended_for_lack_of_memory_is_a_case_that_cannot_run(run_own, vmstat, tmp_path):
    (tmp_path / "counted").write_text("oom_kill 8\n")
    what = r"b with batches of 4 does not fit into the memory of .* peak \d+ MiB.*a smaller batch size, or fewer"
    with pytest.raises(DoesNotFitError, match=what):
        run_own(KILLED, "B", workers=1)


@training
def test_a_worker_that_somebody_killed_is_a_failure_and_no_batch_size_that_does_not_fit(run_own, vmstat):
    with pytest.raises(ProcessEndedError, match=r"b with batches of 4 .*signal 9"):
        run_own(KILLED, "B", workers=1)


def write_pictures(folder):
    image = pytest.importorskip("PIL.Image")
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(3):
            image.new("RGB", (40, 30), (90 * number, 0, 0)).save(folder / label / f"{number}.jpg")
    return folder


@training
def test_what_the_watch_of_a_gpu_says_is_shown_while_the_case_runs(run_own, monkeypatch):
    patience, shown = importlib.import_module("harness.measure.patience"), []

    class Hasty(patience.GpuWatch):
        def __init__(self, waits):
            super().__init__(waits)
            waits.report("the GPU has not ended a minibatch")

    monkeypatch.setattr(patience, "GpuWatch", Hasty)
    run_own(report=shown.append)
    assert "the GPU has not ended a minibatch" in shown


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_folder_is_put_on_the_storage_under_test(tmp_path, monkeypatch, is_elsewhere):
    pictures = write_pictures(tmp_path / "pictures")
    (pictures / "manifest.json").write_text("mine")
    if is_elsewhere:
        monkeypatch.setattr(data_set, "_lies_on", lambda folder, storage: False)
    workload = Workload("mine", lambda: None, lambda folder: sorted(folder.rglob("*.jpg")), len, folder=pictures)
    for _ in range(2):  # the second time it is there already
        prepared = workload.prepare(tmp_path / "storage", None, 0.5, 0, lambda line: None)
    assert prepared.samples == 3
    assert len(prepared.files) == 7
    assert prepared.source == ("own, copied" if is_elsewhere else "own")
    assert (tmp_path / "storage" in prepared.directory.parents) == is_elsewhere
    assert (prepared.directory / "manifest.json").read_text() == "mine"
    assert all(str(path).startswith(str(prepared.directory)) for path in prepared.own)


@training
def test_a_folder_of_pictures_is_read_as_imagenets_and_one_that_a_function_opens_tells_its_files(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    pictures = write_pictures(tmp_path / "pictures")

    def prepare(data):
        workload = Workload("mine", lambda: None, data, len)
        return workload, workload.prepare(tmp_path / "storage", None, None, 0, lambda line: None)

    workload, prepared = prepare(str(pictures))
    picture, label = workload.build_data_set(prepared, 0)[5]
    assert (picture.shape, label, prepared.in_memory) == ((3, 224, 224), 1, False)
    _, prepared = prepare(lambda: datasets.ImageFolder(str(pictures)))
    assert (prepared.directory, len(prepared.files), prepared.in_memory) == (pictures, 6, False)
