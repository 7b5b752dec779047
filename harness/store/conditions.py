"""Which profiles may be compared: comparable conditions, their hash, and their differences; canonical JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from harness.core.cases import COMMAND, INSTANCE_MARK, STATIC, Case
from harness.core.environment import slurm_job
from harness.core.errors import StoreError
from harness.core.profiles import TRAINED_BY, Profile

INSTANCE = "board_instance"

NAMED_IN_CONDITIONS = (
    "device_model", "device_specification", INSTANCE, "power_mode", "tpc_mask", "dvfs", "accelerator", "threads",
    "omp_wait_policy", "torch", "cuda", "l4t", "jetpack", "driver", "data_source", "data_samples",
)  # fmt: skip
"""Taken from a profile's conditions if present; the power mode as read back: `maxn` differs between boards.
`omp_wait_policy`, how torch's threads wait for each other, is present unless it is libgomp's default."""

OF_AN_OWN_WORKLOAD = (
    "precision", "compile", "channels_last", "gradient_accumulation", "optimizer", "parameters", "flops_forward",
)  # fmt: skip
"""Settings that a user may have changed in a workload of the same name; those of the papers' workloads are fixed."""

OF_A_COMMAND = ("command", "command_digest", "script", "minibatch_pattern", "rehearsed_as")
"""What a case of the task `command` ran: its words, a digest of them where some are masked, the content of its script,
the pattern of its minibatches, and what it was rehearsed as."""

OF_THE_MEDIUM = ("kind", "transport", "rotational", "filesystem")
"""Properties of a storage medium; its mount point and free space are ignored."""

CHOSEN_BY = "chosen_by"
"""What chose a profile's power mode from earlier profiles, such as a search: these modes are not a sample of the
device's modes, and do not count for claims."""

OF_AN_OWN_LOOP = (TRAINED_BY, "model_fingerprint", "data_fingerprint", "simulated_workload")
"""What identifies a training that the suite did not run itself, besides the name that its user gave it."""

KEY_LENGTH = 16

MEASURED_ALREADY = "measured already under the same conditions"
"""Skip reason of a case with a profile in the results file, maybe under another case name: `maxn` by its clocks."""


def comparable_conditions(conditions: Mapping[str, Any], case: Case, provenance: str = "measured") -> Dict[str, Any]:
    """What must agree for two profiles to be compared: all that changes the work; observations during it are flags."""
    of_case = ("device", "workload", "task", "batch_size", "workers", "storage")
    of_settings = ("cache", "minibatches", "epochs", "seed")
    comparable: Dict[str, Any] = {
        "provenance": provenance,
        **{name: getattr(case, name) for name in of_case},
        **{name: getattr(case.settings, name) for name in of_settings},
    }
    comparable.update({name: conditions[name] for name in NAMED_IN_CONDITIONS if conditions.get(name) is not None})
    if conditions.get("own_workload"):
        comparable.update({name: conditions[name] for name in OF_AN_OWN_WORKLOAD if conditions.get(name) is not None})
    elif conditions.get("precision", "fp32") != "fp32":  # a workload of the suite whose precision depends on the device
        comparable["precision"] = conditions["precision"]
    comparable.update({name: conditions[name] for name in OF_AN_OWN_LOOP if conditions.get(name) is not None})
    if case.task == COMMAND:
        comparable.update({name: conditions[name] for name in OF_A_COMMAND if conditions.get(name) is not None})
    if conditions.get("worker_start_method", "fork") != "fork":  # a user's choice, or not Linux
        comparable["worker_start_method"] = conditions["worker_start_method"]
    if case.settings.clocks != STATIC:  # profiles from before this setting had static clocks
        comparable["clocks"] = case.settings.clocks
    for name in ("idle_s", "duration_s", "power_limit_w", "switching_ms"):
        if getattr(case.settings, name) is not None:
            comparable[name] = getattr(case.settings, name)
    limit_mw = conditions.get("gpu_power_limit_mw")
    if case.settings.power_limit_w is None and limit_mw is not None:  # set by somebody else, and read back
        comparable["gpu_power_limit_mw"] = limit_mw
    medium = conditions.get("storage_medium")
    if medium is not None:
        comparable["storage_medium"] = {name: medium[name] for name in OF_THE_MEDIUM if medium.get(name) is not None}
    if conditions.get("python") is not None:
        comparable["python"] = ".".join(str(conditions["python"]).split(".")[:2])
    return {name: plain(value, f"condition {name}") for name, value in comparable.items()}


def key(comparable: Mapping[str, Any]) -> str:
    """A short hash of comparable conditions: equal for equal conditions on any machine, Python version and day."""
    return hashlib.sha256(canonical_json(comparable).encode("ascii")).hexdigest()[:KEY_LENGTH]


def without_instance(comparable: Mapping[str, Any]) -> Dict[str, Any]:
    """Comparable conditions without the board instance, as of a machine that has none."""
    return {name: value for name, value in comparable.items() if name != INSTANCE}


def board_instance(conditions: Mapping[str, Any], device: str) -> Optional[str]:
    """The instance of a device among several of its type, a simulated one by its name; None if unknown."""
    named = device.partition(INSTANCE_MARK)[2] if device.startswith("sim:") else ""
    return conditions.get(INSTANCE) or named or None


def device_labels(devices: Sequence[Tuple[str, Optional[str]]]) -> List[str]:
    """Names of devices, each with its board instance if there are several of that name: `orin-agx@orin3`."""
    instances: Dict[str, Set[Optional[str]]] = {}
    for name, instance in devices:
        instances.setdefault(name, set()).add(instance)
    return [
        f"{name}{INSTANCE_MARK}{instance}"
        if len(instances[name]) > 1 and instance and INSTANCE_MARK not in name
        else name
        for name, instance in devices
    ]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> List[str]:
    """Differences between two comparable conditions, a line for each: `torch: "2.14.0" -> "2.15.0"`."""
    old, new = leaves(before), leaves(after)
    names = list(old) + [name for name in new if name not in old]
    return [f"{name}: {_text(old, name)} -> {_text(new, name)}" for name in names if old.get(name) != new.get(name)]


def leaves(conditions: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Nested conditions flattened: `power_mode.gpu_khz`."""
    flat: Dict[str, Any] = {}
    for name, value in conditions.items():
        flat.update(leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return "unknown" if value is None else json.dumps(value, sort_keys=True)


def plain(value: Any, name: str) -> Any:
    """A value as it will be read back: tuples become lists, numpy's numbers become Python's."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{name}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise StoreError(f"{name} has the key {key!r}; a record's keys are strings")
        return {key: plain(item, f"{name}.{key}") for key, item in value.items()}
    number = value.item() if hasattr(value, "item") else value  # a numpy scalar
    if isinstance(number, bool) or (isinstance(number, (int, float)) and number - number == 0):
        return number
    raise StoreError(
        f"{name} is {value!r}; a record holds finite numbers, strings, booleans, None, and lists and dicts of them",
        "write None where there is no value",
    )


def canonical_json(value: Any) -> str:
    """The one text of a plain value: equal values have equal texts, regardless of the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def with_job(profile: Profile) -> Profile:
    """A profile with the Slurm job in which it was measured, and how often that was queued again."""
    return dataclasses.replace(profile, conditions={**profile.conditions, **slurm_job()})
