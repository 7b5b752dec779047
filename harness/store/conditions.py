"""Comparable conditions: what must agree before two profiles are compared, or before one stands in for the other."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping

from harness.core.cases import STATIC, Case
from harness.store.plain import canonical_json, plain

NAMED_IN_CONDITIONS = (
    "device_model",
    "device_specification",
    "power_mode",
    "tpc_mask",
    "dvfs",
    "accelerator",
    "threads",
    "torch",
    "cuda",
    "l4t",
    "jetpack",
    "data_source",
    "data_samples",
)
"""Taken from a profile's conditions as they are; one that is not there is left out.

The power mode counts by the numbers that were read back, not by its name: `maxn` is another mode on another board.
"""

OF_THE_MEDIUM = ("kind", "transport", "rotational", "filesystem")
"""What makes a storage medium; not where it is mounted, and not how full it is."""

KEY_LENGTH = 16


def comparable_conditions(conditions: Mapping[str, Any], case: Case, provenance: str = "measured") -> Dict[str, Any]:
    """What must agree for two profiles to be compared, or for `--resume` to skip a case.

    Args:
        conditions: those of a profile, or as far as known before measuring; `NAMED_IN_CONDITIONS`, `storage_medium` and
            `python` are used.
        case: what was or will be asked for.
        provenance: `measured`, `simulated` or `replayed`.

    Returns:
        Plain values by name. Settings that change what is measured (cache, counts, seed) are in; what was seen while
        measuring (residency, load of others) is not: that is for the flags.
    """
    comparable: Dict[str, Any] = {
        "provenance": provenance,
        "device": case.device,
        "workload": case.workload,
        "task": case.task,
        "batch_size": case.batch_size,
        "workers": case.workers,
        "storage": case.storage,
        "cache": case.settings.cache,
        "minibatches": case.settings.minibatches,
        "epochs": case.settings.epochs,
        "seed": case.settings.seed,
    }
    comparable.update({name: conditions[name] for name in NAMED_IN_CONDITIONS if conditions.get(name) is not None})
    if case.settings.clocks != STATIC:  # what was measured before there was a choice had static ones
        comparable["clocks"] = case.settings.clocks
    for name in ("idle_s", "duration_s"):
        if getattr(case.settings, name) is not None:
            comparable[name] = getattr(case.settings, name)
    medium = conditions.get("storage_medium")
    if medium is not None:
        comparable["storage_medium"] = {name: medium[name] for name in OF_THE_MEDIUM if medium.get(name) is not None}
    if conditions.get("python") is not None:
        comparable["python"] = ".".join(str(conditions["python"]).split(".")[:2])
    return {name: plain(value, f"condition {name}") for name, value in comparable.items()}


def key(comparable: Mapping[str, Any]) -> str:
    """A short hash of comparable conditions: equal for equal conditions on any machine, Python version and day."""
    return hashlib.sha256(canonical_json(comparable).encode("ascii")).hexdigest()[:KEY_LENGTH]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> List[str]:
    """What differs between two comparable conditions, a line for each: `torch: "2.14.0" -> "2.15.0"`."""
    old, new = _leaves(before), _leaves(after)
    names = list(old) + [name for name in new if name not in old]
    return [f"{name}: {_text(old, name)} -> {_text(new, name)}" for name in names if old.get(name) != new.get(name)]


def _leaves(conditions: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Nested conditions flattened: `power_mode.gpu_khz`."""
    leaves: Dict[str, Any] = {}
    for name, value in conditions.items():
        if isinstance(value, Mapping):
            leaves.update(_leaves(value, f"{prefix}{name}."))
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def _text(leaves: Mapping[str, Any], name: str) -> str:
    value = leaves.get(name)
    return "unknown" if value is None else json.dumps(value, sort_keys=True)
