"""Stands for the package nvidia-ml-py: its functions, names and errors, over GPUs in a file of JSON.

The file is named by FAKE_NVML: `{"root": true, "gpus": [{"name": ..., "uuid": ..., ...}]}`. What a GPU has not in the
file it does not support. What is set is written back, with a line in `log`, so that other processes see it.
"""

# ruff: noqa: A002, F821, N802, N803 - names of the real package, errors made below

import json
import os
import time
from types import SimpleNamespace

_CODES = {"NotSupported": 3, "NoPermission": 4, "InvalidArgument": 2, "FunctionNotFound": 13, "DriverNotLoaded": 9}


class NVMLError(Exception):
    pass


for _name in _CODES:
    globals()[f"NVMLError_{_name}"] = type(f"NVMLError_{_name}", (NVMLError,), {})


def _read():
    with open(os.environ["FAKE_NVML"]) as file:
        return json.load(file)


def _change(handle, function, arguments, **values):
    found = _read()
    if not found.get("root", True):
        raise NVMLError_NoPermission("Insufficient Permissions")
    found["gpus"][handle].update(values)
    found.setdefault("log", []).append([function, *arguments])
    with open(os.environ["FAKE_NVML"], "w") as file:
        json.dump(found, file)


def _of(handle, name):
    gpus = _read()["gpus"]
    value = gpus[handle[0]]["instances"][handle[1]] if isinstance(handle, tuple) else gpus[handle].get(name)
    if value is None:
        raise NVMLError_NotSupported("Not Supported")
    if value == "fails":
        raise NVMLError("Unknown Error")
    return value


for _name, _field in {
    "Name": "name",
    "UUID": "uuid",
    "EccMode": "ecc",
    "SupportedMemoryClocks": "memory_clocks",
    "PowerManagementLimitConstraints": "limits",
    "PowerManagementLimit": "limit",
    "PowerUsage": "milliwatt",
    "FanSpeed": "fan",
    "CurrentClocksThrottleReasons": "reasons",
}.items():
    globals()[f"nvmlDeviceGet{_name}"] = lambda handle, _field=_field: _of(handle, _field)


def nvmlInit():
    if not _read().get("driver", "595.1"):
        raise NVMLError_DriverNotLoaded("Driver Not Loaded")


def nvmlSystemGetDriverVersion():
    return _read().get("driver", "595.1")


def nvmlSystemGetCudaDriverVersion():
    return 13000


def nvmlDeviceGetCount():
    return len(_read()["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetMigMode(device):
    return [int(bool(_of(device, "instances"))), 0]


def nvmlDeviceGetMaxMigDeviceCount(device):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(device, index):
    if index >= len(_of(device, "instances")):
        raise NVMLError_InvalidArgument("Not Found")
    return device, index


def nvmlDeviceGetMemoryInfo(handle, version=None):
    return SimpleNamespace(total=_of(handle, "memory"), used=1 << 30)


def nvmlDeviceGetCudaComputeCapability(handle):
    return tuple(_of(handle, "capability"))


def nvmlDeviceGetCurrPcieLinkGeneration(handle):
    return _of(handle, "pcie")[0]


def nvmlDeviceGetCurrPcieLinkWidth(handle):
    return _of(handle, "pcie")[1]


def nvmlDeviceGetSupportedGraphicsClocks(handle, memoryClockMHz):
    return _of(handle, "graphics_clocks")


def nvmlDeviceSetPowerManagementLimit(handle, limit):
    least, most = _of(handle, "limits")
    if not least <= limit <= most:
        raise NVMLError_InvalidArgument("Invalid Argument")
    _change(handle, "power-limit", [limit], limit=limit)


def nvmlDeviceSetGpuLockedClocks(handle, minGpuClockMHz, maxGpuClockMHz):
    _change(handle, "lock-gpu", [minGpuClockMHz, maxGpuClockMHz], sm=maxGpuClockMHz)


def nvmlDeviceResetGpuLockedClocks(handle):
    _change(handle, "reset-gpu", [])


def nvmlDeviceSetMemoryLockedClocks(handle, minMemClockMHz, maxMemClockMHz):
    _change(handle, "lock-memory", [minMemClockMHz, maxMemClockMHz], mem=maxMemClockMHz)


def nvmlDeviceResetMemoryLockedClocks(handle):
    _change(handle, "reset-memory", [])


def nvmlDeviceGetTotalEnergyConsumption(handle):
    """`energy_mj` where a test sets it, else what `watt` has added up to."""
    if "energy_mj" in _read()["gpus"][handle]:
        return _of(handle, "energy_mj")
    return int(_of(handle, "watt") * 1000 * (time.monotonic() - _of(handle, "since_s")))


def nvmlDeviceGetClockInfo(handle, type):
    return _of(handle, {0: "sm", 1: "sm", 2: "mem"}[type])


def nvmlDeviceGetUtilizationRates(handle):
    return SimpleNamespace(gpu=_of(handle, "busy"), memory=0)


def nvmlDeviceGetTemperature(handle, sensor):
    return _of(handle, "temperature")


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [SimpleNamespace(pid=pid) for pid in _of(handle, "processes")]
