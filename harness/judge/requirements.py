"""Requirements: absolute limits of figures, for the cases that their axes select; from a TOML file or a test's mark.

    [[require]]
    workload = "lenet-mnist"
    device = "orin-*"
    p99_ms = 20
    miss_ratio = { period_ms = 33, most = 0.01 }
    power_w = 25

`harness.judge.requirement_verdicts` judges profiles by them.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

import msgspec

from harness.core.cases import CONCURRENT, IDLE, INFERENCE, TRAINING
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.terminal import available_hint

Pattern = Union[None, int, str]
"""A value of an axis, or a text with the wildcards `*`, `?` and `[...]`; None for any."""


class MissRatio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the minibatches, at most the share `most` takes longer than the period."""

    period_ms: float  # a minibatch that takes longer is a miss
    most: float  # the share of minibatches that may miss


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of figures, and the cases that have to keep them."""

    device: Pattern = None  # selects devices, by name (as requested, or with its instance) or type of board
    workload: Pattern = None  # selects workloads
    task: Pattern = None  # selects tasks: training, inference, concurrent, idle; None for all but idle
    power_mode: Pattern = None  # selects power modes, by the name as requested
    workers: Pattern = None  # selects values of num_workers
    storage: Pattern = None  # selects storage media, by name
    batch_size: Pattern = None  # selects batch sizes
    cache: Pattern = None  # selects states of the page cache
    p50_ms: Optional[float] = None  # the most that the median of minibatch times may be
    p90_ms: Optional[float] = None  # the most that 90 % of the minibatches may take
    p95_ms: Optional[float] = None  # the most that 95 % of the minibatches may take
    p99_ms: Optional[float] = None  # the most that 99 % of the minibatches may take
    miss_ratio: Optional[MissRatio] = None  # the share of minibatches that may exceed a period
    samples_per_s: Optional[float] = None  # the least throughput
    energy_per_sample_mj: Optional[float] = None  # the most energy per sample
    power_w: Optional[float] = None  # the most power
    peak_power_w: Optional[float] = None  # the highest power sample
    memory_mib: Optional[float] = None  # the highest peak memory
    temperature_c: Optional[float] = None  # the highest temperature of any sensor that follows the heat

    @property
    def axes(self) -> Dict[str, str]:
        """The patterns that are given, by axis."""
        patterns = {axis: getattr(self, axis) for axis in AXES_OF_REQUIREMENTS}
        return {axis: str(pattern) for axis, pattern in patterns.items() if pattern is not None}

    @property
    def limits(self) -> List[Limit]:
        limits = []
        for key in RANGES:
            value = getattr(self, key)
            if isinstance(value, MissRatio):
                limits.append(Limit(key, value.most, value.period_ms))
            elif value is not None:
                limits.append(Limit(key, value))
        return limits

    def selects(self, axes: Mapping[str, Sequence[str]]) -> bool:
        """Whether it is about a case; `axes` has the names that the value of each axis goes by."""
        if self.task is None and IDLE in axes["task"]:
            return False
        return all(any(fnmatchcase(name, pattern) for name in axes[axis]) for axis, pattern in self.axes.items())

    def __str__(self) -> str:
        return ", ".join(f"{axis} {pattern}" for axis, pattern in self.axes.items()) or "every case"


AXES_OF_REQUIREMENTS = ("device", "workload", "task", "power_mode", "workers", "storage", "batch_size", "cache")

_TASKS = (TRAINING, INFERENCE, CONCURRENT, IDLE)


class Limit(NamedTuple):
    """The limit of one figure."""

    key: str  # of the requirement: `p99_ms`
    value: float  # in the unit that ends the key; of a miss ratio the share
    period_ms: Optional[float] = None  # of a miss ratio

    @property
    def figure(self) -> str:
        return self.key if self.period_ms is None else f"{self.key} at {self.period_ms:g} ms"

    @property
    def is_least(self) -> bool:
        """Whether it bounds the figure from below."""
        return self.key in LEAST


LEAST = ("samples_per_s",)
"""The figures that a requirement bounds from below."""


class PlausibleRange(NamedTuple):
    """Values that a limit can have; beyond them it is probably in another unit."""

    least: float
    most: float
    unit: str
    mistaken: str  # what a value beyond them probably is


_TIME = PlausibleRange(0.1, 10_000, "ms", "is it in s or us? For longer minibatches require samples_per_s")
_POWER = PlausibleRange(0.1, 2_000, "W", "is it in mW or kW?")

RANGES: Dict[str, PlausibleRange] = {
    **dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms"), _TIME),
    "miss_ratio": PlausibleRange(1e-5, 0.5, "as a share", "is it in percent? 0.01 is 1 percent"),
    "samples_per_s": PlausibleRange(1e-3, 1e7, "samples/s", "is it per minibatch or hour?"),
    "energy_per_sample_mj": PlausibleRange(1e-3, 1e6, "mJ", "is it in J or uJ?"),
    "power_w": _POWER,
    "peak_power_w": _POWER,
    "memory_mib": PlausibleRange(1, 1_000_000, "MiB", "is it in GiB or bytes?"),
    "temperature_c": PlausibleRange(20, 150, "degrees Celsius", "is it in kelvin or thousandths?"),
}
"""The figures that a requirement can limit, in the order in which they are judged."""

_EXAMPLE = 'write one: [[require]], below it workload = "lenet-mnist" and p99_ms = 20'


class RequirementsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    require: List[Requirement] = []


class Origin(NamedTuple):
    """A requirement and where it stands."""

    place: str  # `require[0]` of a file, `mark`
    requirement: Requirement

    def __str__(self) -> str:
        return f"{self.place} ({self.requirement})"


def read_requirements(path: Path) -> List[Origin]:
    """The requirements of a TOML file, in its order.

    Raises:
        HarnessError: it cannot be read, has none, has an unknown key, or a limit that is implausible in its unit.
    """
    requirements = typed(read_toml(path), RequirementsFile, str(path)).require
    if not requirements:
        raise InvalidValueError(f"{path} has no requirement", _EXAMPLE)
    origins = [Origin(f"require[{number}]", requirement) for number, requirement in enumerate(requirements)]
    for origin in origins:
        _check(origin.requirement, f"{origin.place} of {path}")
    return origins


def requirement_from(keys: Mapping[str, Any], place: str) -> Origin:
    """The requirement of some keys, as of a mark `require`; HarnessError as in `read_requirements`."""
    requirement = typed(keys, Requirement, place)
    _check(requirement, place)
    return Origin(place, requirement)


def _check(requirement: Requirement, what: str) -> None:
    if not requirement.limits:
        raise InvalidValueError(f"{what} limits no figure", f"give one of {', '.join(RANGES)}")
    task = requirement.axes.get("task", "*")
    if task not in _TASKS and not any(mark in task for mark in "*?["):
        raise UnknownNameError(f"task of {what} is {task!r}", available_hint(task, _TASKS))
    for limit in requirement.limits:
        _check_value(limit.value, RANGES[limit.key], f"{limit.key} of {what}")
        if limit.period_ms is not None:
            _check_value(limit.period_ms, _TIME, f"period_ms of {what}")


def _check_value(value: float, plausible: PlausibleRange, what: str) -> None:
    if not (math.isfinite(value) and plausible.least <= value <= plausible.most):
        expected = f"{plausible.least:g} to {plausible.most:g} {plausible.unit}"
        raise InvalidValueError(f"{what} is {value:g}, expected {expected}", plausible.mistaken)
