"""A discrete NVIDIA GPU, by a stand-in of the driver's library whose functions are those of the real package."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import runpy
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from boards.tree import build_board

import jetwatt
from harness.board import bounded_reads, nvml, privileges
from harness.board.knob import KnobSpec, open_knob
from harness.board.nvml import GpuSettings
from harness.board.saved_state import restore
from harness.core.cases import DVFS, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import limits_of, named_mode
from harness.core.errors import CannotRunError, ControlError, SourceUnavailableError, UnknownNameError
from harness.core.profiles import POWER_IS_UNSURE, flag_kinds
from harness.devices.registry import open_device
from harness.measure.command_device import CommandDevice, command_case
from harness.measure.doctor import training_capabilities, unread_files
from harness.measure.run import check
from harness.workloads.command import Command
from predictors.choose.device_profiler import DeviceProfiler, power_sampler
from predictors.choose.recommend import locked_clocks
from tests.harness.bare_machine import make_bare
from tests.messages import says

FAKE = Path(__file__).resolve().parents[2] / "boards" / "fake_nvml"

RTX_3090 = {
    "name": "NVIDIA GeForce RTX 3090", "uuid": "GPU-11111111-2222-3333-4444-555555555555", "memory": 24 << 30,
    "capability": [8, 6], "pcie": [4, 16], "graphics_clocks": [2100, 1695, 210], "memory_clocks": [9751, 405],
    "limits": [100_000, 366_000], "limit": 350_000, "watt": 300, "since_s": time.monotonic() - 100,
    "milliwatt": 299_000, "sm": 1695, "mem": 9751, "busy": 95, "temperature": 61, "fan": 40, "reasons": 0,
    "processes": [],
}  # fmt: skip
A5000 = {**RTX_3090, "name": "NVIDIA RTX A5000", "uuid": "GPU-99999999-2222-3333-4444-555555555555"}


class Driver:
    """What the stand-in reads and writes."""

    def __init__(self, path):
        self.path = path
        self.write(gpus=[RTX_3090, A5000])

    def write(self, **content):
        self.path.write_text(json.dumps(content))

    def read(self):
        return json.loads(self.path.read_text())

    def change(self, **values):
        """Change the first GPU."""
        found = self.read()
        found["gpus"][0].update(values)
        self.write(**found)

    @property
    def log(self):
        return self.read().get("log", [])


@pytest.fixture
def driver(tmp_path, monkeypatch):
    make_bare(monkeypatch, tmp_path / "bare")
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("JETWATT_LOCK_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that what a test leaves there is removed
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(privileges, "needed", lambda root: False)  # the tests act as root would
    nvml.find_gpus.cache_clear()
    yield Driver(tmp_path / "nvml.json")
    nvml.find_gpus.cache_clear()
    sys.modules.pop("pynvml", None)


def a_case(power_mode="maxn", **settings):
    named = named_mode(open_device("nvidia-gpu", Configuration()), power_mode)
    return Case("nvidia-gpu", "lenet-mnist", named, 0, "ssd", 16, CaseSettings(**settings))


def test_the_stand_in_has_the_functions_of_the_real_package_and_every_call_fits():
    spec = importlib.util.find_spec("pynvml")
    if spec is None:
        pytest.skip("nvidia-ml-py is not installed")
    functions = (one for one in ast.parse(Path(spec.origin).read_text()).body if isinstance(one, ast.FunctionDef))
    real = {function.name: [one.arg for one in function.args.args] for function in functions}
    stand_in = runpy.run_path(str(FAKE / "pynvml.py"))
    fake = {name: function for name, function in stand_in.items() if name.startswith("nvml")}
    for name, function in fake.items():
        assert real[name] == [one for one in inspect.signature(function).parameters if not one.startswith("_")], name
    named = {one.value for one in ast.walk(ast.parse(inspect.getsource(nvml))) if _is_function(one)}
    assert len(named) > 15
    assert {f"nvmlDevice{name}" for name in named} <= {*real} & {*fake}


def _is_function(one):
    name = getattr(one, "value", None)
    return isinstance(name, str) and name.startswith(("Get", "Set", "Reset")) and name.isidentifier()


@pytest.mark.parametrize(
    ("given", "name", "uuid"),
    [
        ("nvidia-gpu", "nvidia-geforce-rtx-3090", RTX_3090["uuid"]),
        ("nvidia-gpu:1", "nvidia-rtx-a5000", A5000["uuid"]),
        ("nvidia-gpu:GPU-9999", "nvidia-rtx-a5000", A5000["uuid"]),
        ("nvidia-rtx-a5000", "nvidia-rtx-a5000", A5000["uuid"]),
    ],
)
def test_a_gpu_is_named_after_its_product(driver, given, name, uuid):
    device = open_device(given, Configuration())
    assert (device.name, device.gpu_uuid) == (name, uuid)
    assert uuid not in str(device.identity())
    assert device.identity().specification["compute_capability"] == "8.6"


def test_two_gpus_alike_are_two_devices_and_an_unknown_one_lists_those_there(driver):
    driver.write(gpus=[RTX_3090, {**RTX_3090, "uuid": A5000["uuid"]}])
    first, second = (open_device(f"nvidia-gpu:{index}", Configuration()) for index in (0, 1))
    assert (first.name, second.name) == ("nvidia-geforce-rtx-3090:0", "nvidia-geforce-rtx-3090:1")
    assert first.board_instance != second.board_instance
    assert open_device(second.name, Configuration()).gpu_uuid == A5000["uuid"]
    with pytest.raises(UnknownNameError, match=r"available: 0 \(NVIDIA GeForce RTX 3090"):
        open_device("nvidia-gpu:2", Configuration())


SLICES = ["MIG-aaaa", "MIG-bbbb"]
A100 = {**RTX_3090, "name": "NVIDIA A100", "uuid": "GPU-77777777-2222", "instances": SLICES}


@pytest.mark.parametrize(
    ("visible", "name", "uuid"),
    [
        ("0", "nvidia-geforce-rtx-3090", RTX_3090["uuid"]),
        ("1", "nvidia-rtx-a5000", A5000["uuid"]),
        ("1,0", "nvidia-rtx-a5000", A5000["uuid"]),
        (A5000["uuid"], "nvidia-rtx-a5000", A5000["uuid"]),
        ("GPU-9999", "nvidia-rtx-a5000", A5000["uuid"]),
        ("MIG-bbbb", "nvidia-a100", "MIG-bbbb"),
        ("MIG-GPU-77777777-2222/1/0", "nvidia-a100", "MIG-GPU-77777777-2222/1/0"),
    ],
)
def test_the_gpu_is_the_one_that_the_user_left_cuda(driver, monkeypatch, visible, name, uuid):
    driver.write(gpus=[RTX_3090, A5000, A100])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = open_device("nvidia-gpu", Configuration())
    assert (device.name, device.gpu_uuid) == (name, uuid)
    assert nvml.find_gpu().slug == name
    assert GpuSettings("/")._gpu.slug == name
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize("visible", ["-1", "", "7", "-1,0", "GPU-ffff", "MIG-cccc"])
def test_where_the_user_left_cuda_no_gpu_none_is_taken(driver, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(CannotRunError, match=f"CUDA_VISIBLE_DEVICES={visible} .*no GPU.*here: 0 "):
        open_device("nvidia-gpu", Configuration())
    with pytest.raises(SourceUnavailableError, match="leaves no GPU"):
        nvml.open_source("/")


@pytest.mark.training
@pytest.mark.parametrize(
    ("visible", "uuid", "left", "words"),
    [
        ("1", A5000["uuid"], "1", ""),
        ("1,0", A5000["uuid"], "1,0", ""),
        ("1,0", RTX_3090["uuid"], RTX_3090["uuid"], ""),  # one of the user's
        (None, A5000["uuid"], A5000["uuid"], ""),
        ("MIG-bbbb", "MIG-bbbb", "MIG-bbbb", ""),
        ("0", A5000["uuid"], "0", "CUDA_VISIBLE_DEVICES=0 hides the GPU"),
        ("-1", RTX_3090["uuid"], "-1", "leaves no GPU"),
    ],
)
def test_what_the_user_left_cuda_is_never_set_to_another_gpu(driver, monkeypatch, visible, uuid, left, words):
    torch = pytest.importorskip("torch")
    training_loop = importlib.import_module("harness.measure.training_loop")
    driver.write(gpus=[RTX_3090, A5000, A100])
    monkeypatch.setattr(training_loop, "_chosen", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: object())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "restored at the end")
    if visible is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    with pytest.raises(CannotRunError, match=words) if words else contextlib.nullcontext():
        training_loop.use_gpu(uuid)
        training_loop.use_gpu(uuid)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


def test_a_gpu_that_is_lost_costs_no_other_and_is_named(driver, monkeypatch):
    library = importlib.import_module("pynvml")
    lost = {0}

    def handle(index):
        if index in lost:
            raise library.NVMLError("GPU is lost")
        return index

    monkeypatch.setattr(library, "nvmlDeviceGetHandleByIndex", handle)
    device = open_device("nvidia-gpu:1", Configuration())
    assert (device.name, device.gpu_uuid) == ("nvidia-rtx-a5000", A5000["uuid"])
    assert any("GPU is lost" in line.detail for line in unread_files(Path("/"), []))
    nvml.find_gpus.cache_clear()
    driver.write(gpus=[])
    with pytest.raises(CannotRunError, match="it lists none"):
        open_device("nvidia-gpu", Configuration())
    lost.add(1)
    driver.write(gpus=[RTX_3090, A5000])
    with pytest.raises(CannotRunError, match="GPU is lost"):
        open_device("nvidia-gpu", Configuration())


@pytest.mark.parametrize(
    ("visible", "which", "used"),
    [
        (None, "nvidia-gpu:1", A5000["uuid"]),
        (None, "nvidia-gpu", RTX_3090["uuid"]),
        ("1", "nvidia-gpu", "1"),
        ("0,1", "nvidia-gpu:1", A5000["uuid"]),
        ("0", "nvidia-gpu:1", None),
    ],
)
def test_a_command_uses_the_gpu_that_is_measured(driver, monkeypatch, tmp_path, visible, which, used):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    shows = "import os, sys; open(sys.argv[1], 'w').write(os.environ.get('CUDA_VISIBLE_DEVICES', ''))"
    command = Command([sys.executable, "-I", "-S", "-c", shows, str(tmp_path / "used")])
    device = CommandDevice(open_device(which, Configuration()), command)
    mode = named_mode(device, "maxn")
    case = command_case(device.name, command, mode, CaseSettings(interval_s=0.1))
    if used is None:
        with pytest.raises(CannotRunError, match="CUDA_VISIBLE_DEVICES=0 hides the GPU"):
            device.check(case)
        return
    device.check(case)
    with device.session():
        device.profile(case)
    assert (tmp_path / "used").read_text() == used
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_the_power_of_a_gpu_that_mig_splits_is_no_total_and_its_clocks_stay(driver, monkeypatch, tmp_path):
    driver.write(gpus=[{**A100, "energy_mj": 1_000_000}])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bbbb")
    device = open_device("nvidia-gpu", Configuration())
    source = nvml.open_source(str(tmp_path), device._gpu.uuid)
    source.read(0.0)
    driver.change(energy_mj=1_200_000)
    found = source.read(1.0)
    assert found.values["power_gpu_mw"] == 200_000
    assert "power_total_mw" not in found.values
    assert "MIG splits this GPU" in found.failed["power_total_mw"]
    assert "MIG splits" in device._knob.available().detail
    assert not device._sets_gpu


def test_the_gpu_of_a_jetson_is_measured_as_its_board(driver, monkeypatch, tmp_path):
    driver.write(gpus=[{"name": "Orin (nvgpu)", "uuid": "GPU-0"}])
    with pytest.raises(CannotRunError, match="no discrete NVIDIA GPU"):
        open_device("nvidia-gpu", Configuration())
    board = build_board(tmp_path / "root", "orin-agx", "r36.4")
    with pytest.raises(CannotRunError, match=r"Orin \(nvgpu\) .*this board, emulated-orin-agx"):
        open_device("nvidia-gpu", Configuration(), board.path)
    driver.write(gpus=[{"name": "Orin (nvgpu)", "uuid": "GPU-0"}, RTX_3090])
    nvml.find_gpus.cache_clear()
    assert open_device("nvidia-gpu", Configuration()).gpu_uuid == RTX_3090["uuid"]


def test_without_a_driver_the_way_out_is_said(driver):
    driver.write(driver="", gpus=[])
    with pytest.raises(CannotRunError, match="driver has to be loaded"):
        open_device("nvidia-gpu", Configuration())
    with pytest.raises(SourceUnavailableError, match="Driver Not Loaded"):
        nvml.open_source("/", "0")


def test_power_is_the_growth_of_the_energy_counter_and_the_total_says_what_is_in_it(driver, tmp_path):
    driver.change(energy_mj=1_000_000)
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    assert "power_total_mw" not in source.read(10.0).values
    driver.change(energy_mj=1_030_000)
    found = source.read(10.1)
    assert found.values["power_gpu_mw"] == pytest.approx(300_000)
    assert found.values["power_total_mw"] == found.values["power_gpu_mw"]
    assert says(source.notes["power_total_mw"], "without the CPU", "RAPL")
    assert found.values["gpu_khz"] == 1_695_000
    assert found.values["gpu_load_share"] == 0.95
    assert found.values["throttle_gpu_hw_thermal_state"] == 0
    assert found.values["gpu_other_processes"] == 0


def test_the_cpu_package_is_a_channel_of_its_own_and_part_of_the_sum(driver, tree):
    zone = "sys/class/powercap/intel-rapl:0"
    tree.write({f"{zone}/name": "package-0", f"{zone}/max_energy_range_uj": 262143328850, f"{zone}/energy_uj": 1000000})
    driver.change(watt=None)  # an older GPU: sampled power alone
    source = nvml.open_source(tree.root, "0")
    source.read(10.0)
    tree.write({f"{zone}/energy_uj": 51000000})
    values = source.read(11.0).values
    assert values["power_gpu_mw"] == 299_000
    assert values["power_cpu_mw"] == pytest.approx(50_000)
    assert values["power_total_mw"] == pytest.approx(349_000)
    assert "sampled power" in source.notes["power_gpu_mw"]
    assert "RAPL domains package-0" in source.notes["power_total_mw"]


@pytest.mark.parametrize(
    ("change", "channel", "said"),
    [
        ({"sm": "fails"}, "gpu_khz", "Unknown Error"),
        ({"temperature": "fails"}, "temperature_gpu_c", "Unknown Error"),
        ({"watt": 0, "milliwatt": None}, "power_gpu_mw", "no sampled power"),
        ({"processes": [1, 2]}, "gpu_other_processes", "a container has numbers of its own"),
    ],
)
def test_what_fails_is_missing_by_itself(driver, tmp_path, change, channel, said):
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    source.read(time.monotonic() - 1)
    driver.change(**change)
    found = source.read(time.monotonic())
    assert said in found.failed[channel]
    assert channel not in found.values
    assert ("power_total_mw" in found.values) == (channel != "power_gpu_mw")


OF_FIELDS = {
    "sm": "gpu_khz",
    "mem": "gpu_mem_khz",
    "temperature": "temperature_gpu_c",
    "busy": "gpu_load_share",
    "memory": "gpu_memory_used_bytes",
    "fan": "fan_gpu_share",
    "reasons": "throttle_gpu_hw_slowdown_state",
    "processes": "gpu_other_processes",
}


def test_a_field_of_nvml_that_fails_costs_its_own_channel(driver, tmp_path):
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    before = source.read(time.monotonic()).values
    for field, channel in OF_FIELDS.items():
        driver.write(gpus=[{**RTX_3090, field: "fails"}])
        found = source.read(time.monotonic())
        assert "Unknown Error" in found.failed[channel]
        lost = set(before) - set(found.values)
        assert {name.partition("throttle_gpu")[0] for name in lost} <= {channel, "", "gpu_power_capped_share"}, field


def test_a_gpu_none_of_whose_settings_answer_is_measured_and_doctor_says_why_it_is_not_set(driver, tmp_path):
    driver.write(gpus=[{**RTX_3090, "limits": "fails", "limit": "fails", "memory_clocks": "fails"}])
    device = open_device("nvidia-gpu", Configuration())
    settable = device.capabilities()[-1]
    assert not settable.available
    assert "Unknown Error" in settable.detail
    case = a_case("maxn")
    device.check(case)
    with device.session():
        assert device.set_case(case)["gpu_power_limit_mw"] is None


def test_a_gpu_with_nothing_to_set_is_no_yes(driver):
    driver.write(gpus=[{**RTX_3090, "limits": None, "graphics_clocks": None, "memory_clocks": None}])
    settable = GpuSettings("/", "0").available()
    assert not settable.available
    assert "no power limit" in settable.detail


def test_no_limit_that_a_driver_tells_makes_the_bound_of_power_greater_than_that_of_any_gpu(driver, tmp_path):
    driver.change(limits=[0, 2**32 - 1], milliwatt=2**32 - 1, energy_mj=0)
    found = nvml.open_source(str(tmp_path), "0", pid=7).read(0.0)
    assert "its supply gives at most" in found.failed["power_gpu_mw"]


@pytest.mark.parametrize(
    ("function", "topic"),
    [
        ("PowerManagementLimit", "set GPU clocks and power limit"),
        ("SupportedMemoryClocks", "set GPU clocks and power limit"),
        ("Temperature", "measure the GPU and its power"),
        ("FanSpeed", "measure the GPU and its power"),
    ],
)
def test_a_call_of_nvml_that_never_ends_is_named_and_costs_its_own_alone(driver, monkeypatch, function, topic):
    device = open_device("nvidia-gpu", Configuration())
    released = threading.Event()
    for name, seconds in (("WAIT_S", 0.02), ("HANG_S", 0.1), ("NEXT_S", 0.1)):
        monkeypatch.setattr(bounded_reads, name, seconds)
    monkeypatch.setattr(importlib.import_module("pynvml"), f"nvmlDeviceGet{function}", lambda *_: released.wait(60))
    try:
        lines = {line.name: line for line in device.capabilities()}
        device.conditions(a_case())
    finally:
        released.set()
    assert f"nvmlDeviceGet{function} of GPU 0" in lines[topic].detail
    assert lines["measure the GPU and its power"].available


def test_versions_that_nvml_does_not_tell_cost_nothing(driver, tmp_path, monkeypatch):
    library = importlib.import_module("pynvml")

    def fails():
        raise library.NVMLError("Unknown Error")

    for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"):
        monkeypatch.setattr(library, name, fails)
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    assert "temperature_gpu_c" in source.read(0.0).values
    assert source.notes["nvml"].startswith("NVIDIA GeForce RTX 3090, driver unknown, CUDA unknown")


@pytest.mark.parametrize(
    ("counter", "said"),
    [
        ({"energy_mj": 0}, "its energy counter stands at 0"),
        ({"energy_mj": "fails"}, "the energy counter cannot be read: nvmlDeviceGetTotalEnergyConsumption: Unknown"),
    ],
    ids=["stands-at-0", "unknown-error"],
)
def test_a_gpu_without_a_counter_that_works_is_measured_by_sampled_power(driver, tmp_path, counter, said):
    driver.change(milliwatt=42_000, pcie="fails", limits="fails", **counter)
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    assert said in source.notes["power_gpu_mw"]
    assert source.read(0.0).values["power_total_mw"] == 42_000


def test_a_counter_that_fails_later_costs_no_power_and_is_named(driver, tmp_path):
    driver.change(milliwatt=42_000, energy_mj=1_000_000)
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    source.read(0.0)
    counters = [(1_000_000, "stands still"), ("fails", "Unknown Error"), (10, "was reset")]
    for second, (counter, said) in enumerate(counters, start=1):
        driver.change(energy_mj=counter)
        found = source.read(float(second))
        assert found.values["power_total_mw"] == 42_000
        assert said in found.failed[nvml.ENERGY]


def test_counter_and_sampled_power_are_compared_once_while_power_is_steady(driver, tmp_path):
    driver.change(milliwatt=42_000, energy_mj=1_000_000)
    source = nvml.open_source(str(tmp_path), "0", pid=7)
    taken = []
    for second in range(5):
        driver.change(energy_mj=1_000_000 + 42 * second)  # a counter of joules
        found = source.read(float(second))
        taken.append((found.values.get("power_total_mw"), found.failed.get(nvml.ENERGY, "")))
    assert [power for power, _ in taken] == [None, 42, 42_000, 42_000, 42_000]
    assert says(taken[2][1], "0.042 W", "sampled power 42 W")


def test_heat_is_a_throttle_and_a_power_cap_is_what_a_limit_is_for(driver, tmp_path):
    driver.change(reasons=0x40 | 0x04, processes=[7, 8])
    values = nvml.open_source(str(tmp_path), "0", pid=7).read(0.0).values
    assert values["throttle_gpu_hw_thermal_state"] == 1
    assert values["throttle_gpu_power_brake_state"] == 0
    assert values["gpu_power_capped_share"] == 1
    assert values["gpu_other_processes"] == 1


def test_processes_that_the_run_started_are_no_others(driver, tree):
    for pid, parent in ((20, 7), (21, 20), (30, 1), (1, 0)):
        tree.write({f"proc/{pid}/stat": f"{pid} (python) S {parent} " + "0 " * 40})
    for pids, others in (([20, 21], 0), ([7, 20, 30], 1)):
        driver.change(processes=pids)
        assert nvml.open_source(tree.root, "0", pid=7).read(0.0).values["gpu_other_processes"] == others


def test_a_mode_locks_clocks_and_limit_and_the_end_of_the_run_puts_them_back(driver):
    device = open_device("nvidia-gpu", Configuration())
    space = device.power_mode_space()
    assert space.gpu_khz == (210_000, 1_695_000, 2_100_000)
    assert space.mem_khz == (405_000, 9_751_000)
    mode = space.greatest._replace(gpu_khz=1_695_000)
    with device.session():
        device.apply(mode)
        limited = a_case("1c-x-1695-405", power_limit_w=250)
        assert device.set_case(limited)["gpu_power_limit_mw"] == 250_000
        assert device.set_case(a_case(clocks=DVFS))["gpu_power_limit_mw"] == 350_000  # not that of the case before
    assert driver.log == [
        ["lock-gpu", 1695, 1695],
        ["lock-memory", 9751, 9751],
        ["lock-gpu", 1695, 1695],
        ["lock-memory", 405, 405],
        ["power-limit", 250_000],
        ["lock-gpu", 210, 2100],
        ["lock-memory", 9751, 9751],
        ["power-limit", 350_000],
        ["reset-gpu"],
        ["reset-memory"],
    ]


def test_after_a_kill_the_clocks_are_unlocked_whatever_is_read(driver, tmp_path):
    device = open_device("nvidia-gpu", Configuration())
    pid = os.fork()
    if pid == 0:
        with device.session():
            device.set_case(a_case(power_limit_w=200))
            os._exit(9)  # as a kill would, without putting anything back
    os.waitpid(pid, 0)
    assert driver.read()["gpus"][0]["limit"] == 200_000
    assert "GPU clocks and power limit" in restore(device.name)
    assert driver.read()["gpus"][0]["limit"] == 350_000
    assert ["reset-gpu"] in driver.log


def test_without_rights_the_clocks_that_are_are_measured_and_a_limit_is_refused(driver, monkeypatch):
    monkeypatch.setattr(privileges, "refusal", lambda root: "sudo asks for a password")
    device = open_device("nvidia-gpu", Configuration())
    assert device.power_mode_space().gpu_khz == (0,)
    device.check(a_case())
    with device.session():
        assert "dvfs" not in device.set_case(a_case()) or device.power_mode_space().cpu_khz[1:]
    assert driver.log == []
    with pytest.raises(ControlError, match="sudo asks for a password"):
        device.check(a_case(power_limit_w=250))


def test_limits_to_choose_from_are_those_that_nvml_accepts_in_steps_of_25_w(driver, monkeypatch):
    device = open_device("nvidia-gpu", Configuration())
    assert limits_of(device)[:3] == (100_000, 125_000, 150_000)
    assert limits_of(device)[-2:] == (350_000, 366_000)
    assert limits_of(open_device("host", Configuration())) == ()
    monkeypatch.setattr(privileges, "refusal", lambda root: "sudo asks for a password")
    assert limits_of(open_device("nvidia-gpu", Configuration())) == ()


def test_a_search_chooses_among_limits_and_some_locked_clocks_and_sets_both(driver):
    device = open_device("nvidia-gpu", Configuration())
    modes = locked_clocks(device)
    assert [mode.gpu_khz for _, mode in modes] == [1_695_000, 2_100_000]  # of three the least is left out
    template = a_case()
    profiler = DeviceProfiler(device, template, modes, batch_sizes=(16, 32), power_limits_mw=limits_of(device))
    assert len(profiler.candidates.modes) == 2 * 2 * len(limits_of(device))
    index = int(np.flatnonzero(profiler.candidates.power_limit_mw == 150_000)[-1])
    case = profiler.case(index)
    assert (case.settings.power_limit_w, case.batch_size) == (150.0, 32)
    cores = len(os.sched_getaffinity(0))
    assert profiler.candidates.name(index) == f"{cores}c-x-2100-9751, power limit 150 W, batch size 32"
    with device.session():
        assert device.set_case(case)["gpu_power_limit_mw"] == 150_000
    assert ["lock-gpu", 2100, 2100] in driver.log


def test_a_search_waits_for_the_second_reading_of_the_energy_counter(driver, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))  # of the sampler's process
    with power_sampler(open_device("nvidia-gpu", Configuration()), 0.2, Path("/")) as sampler:
        assert sampler.series(nvml.GPU_POWER).values[0] > 0  # how much, on a busy machine, depends on when it is read


def test_a_limit_that_the_gpu_does_not_take_is_refused_and_what_it_lists_may_be_too(driver):
    with pytest.raises(CannotRunError, match="allowed: 100 to 366 W"):
        open_device("nvidia-gpu", Configuration()).check(a_case(power_limit_w=500))
    driver.write(root=False, gpus=[RTX_3090])
    knob = open_knob(KnobSpec("nvml", {"gpu": RTX_3090["uuid"]}), "/")
    with pytest.raises(ControlError, match="Insufficient Permissions"):
        knob.set({"power_limit_mw": 350_000, "clocks_mhz": [1695, 1695, 0]})


@pytest.mark.parametrize("name", ["host", "sim:orin-agx"])
def test_a_device_without_such_a_gpu_refuses_a_power_limit_instead_of_carrying_it_in_the_cases_name(name):
    device = open_device(name, Configuration())
    case = Case(name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16, CaseSettings(power_limit_w=250))
    with pytest.raises(CannotRunError, match=r"power limit .*power_limit_w="):
        check(case, device)


@pytest.mark.training
@pytest.mark.parametrize(("cuda", "said"), [(None, "is built without CUDA"), ("12.1", "does not see the GPU")])
def test_the_doctor_says_that_torch_cannot_train_on_the_gpu(driver, monkeypatch, cuda, said):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = training_capabilities(open_device("nvidia-gpu", Configuration()).gpu_uuid)[0]
    assert not found.available
    assert said in found.detail
    assert "torch with CUDA" in found.hint


class StandInTorch:
    """A torch that trains on the GPU of a UUID; its kernels are done at once."""

    __version__ = "2.15"
    version = SimpleNamespace(cuda="13.0")
    get_num_threads = staticmethod(lambda: 1)

    def __init__(self, uuid):
        event = SimpleNamespace(record=lambda stream: None, query=lambda: True, elapsed_time=lambda other: 5.0)
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: event,
            is_available=lambda: True,
            is_initialized=lambda: True,
            current_device=lambda: 0,
            current_stream=lambda gpu: None,
            device_count=lambda: 1,
            get_device_name=lambda gpu: "NVIDIA",
            get_device_properties=lambda gpu: SimpleNamespace(uuid=uuid[len("GPU-") :], is_integrated=0),
            max_memory_allocated=lambda gpu: 1 << 20,
            max_memory_reserved=lambda gpu: 1 << 20,
            memory_allocated=lambda gpu: 1 << 20,
            memory_stats=lambda gpu: {},
        )


@pytest.mark.parametrize("trains_on", [RTX_3090, A5000], ids=["the-measured-one", "another"])
def test_a_loop_of_the_users_own_on_another_gpu_is_flagged_and_its_power_is_not_compared(
    driver, monkeypatch, trains_on
):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))  # of the sampler's process
    monkeypatch.setitem(sys.modules, "torch", StandInTorch(trains_on["uuid"]))
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        with jetwatt.measuring("nvidia-gpu", workload="mine", batch_size=4) as run:
            for _ in range(3):
                time.sleep(0.01)
                run.step()
    flags = [flag for flag in run.profile.flags if flag.startswith("other-gpu")]
    said = [str(note.message) for note in notes if "the training runs on" in str(note.message)]
    if trains_on == RTX_3090:
        assert (flags, said) == ([], [])
        return
    (flag,) = flags
    assert A5000["uuid"] in flag
    assert RTX_3090["uuid"] in flag
    assert len(said) == 1
    assert not set(flag_kinds(flags)).isdisjoint(POWER_IS_UNSURE)


@pytest.mark.parametrize("trains_on", [RTX_3090, A5000], ids=["the-tuned-one", "another"])
def test_tuning_of_another_gpu_than_the_one_that_trains_is_refused_at_the_first_mode(driver, monkeypatch, trains_on):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))  # of the sampler's process
    monkeypatch.setitem(sys.modules, "torch", StandInTorch(trains_on["uuid"]))
    refuses = trains_on == A5000
    said = pytest.raises(CannotRunError, match=f"cuda:0, .*{RTX_3090['uuid']}")
    tuning = jetwatt.tuning("nvidia-gpu", power_w=300, report=lambda line: None)
    with said if refuses else contextlib.nullcontext(), tuning as tuner:
        ended_s = time.monotonic() + 30
        while not driver.log and time.monotonic() < ended_s:
            time.sleep(0.01)
            tuner.step()
    assert bool(driver.log) is not refuses  # clocks were set
