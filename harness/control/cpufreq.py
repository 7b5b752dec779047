"""The CPU clock limits, one pair for each cpufreq policy (the CPUs that share a clock)."""

from __future__ import annotations

import glob
import os
import shlex
from typing import Dict, List, NamedTuple, Tuple

from harness.control.kernel_file import read_int, read_text, write
from harness.control.knob import Knob, KnobSpec
from harness.devices.protocol import Capability
from harness.errors import InvalidValueError

MINIMUM, MAXIMUM = "scaling_min_freq", "scaling_max_freq"

Limits = List[int]
"""Lowest and highest clock in kHz."""


class Policy(NamedTuple):
    """The CPUs that share a clock, and what it may be.

    Attributes:
        name: `policy0`.
        cpus: their numbers.
        lowest_khz: the hardware's lowest clock.
        highest_khz: its highest.
        levels_khz: the clocks it can have, ascending; empty where it may have any in between (intel_pstate).
    """

    name: str
    cpus: Tuple[int, ...]
    lowest_khz: int
    highest_khz: int
    levels_khz: Tuple[int, ...]


def write_order(now: Limits, target: Limits) -> List[Tuple[str, int]]:
    """The two writes from one pair of limits to another, such that minimum <= maximum holds after each.

    The kernel refuses a write that breaks it: the maximum goes first when raising, the minimum when lowering.
    """
    lowest, highest = target
    maximum, minimum = (MAXIMUM, highest), (MINIMUM, lowest)
    return [maximum, minimum] if highest >= now[1] else [minimum, maximum]


class CpuFrequency(Knob):
    """Policy name to [lowest, highest] clock in kHz."""

    spec = KnobSpec("cpufreq")
    name = "CPU frequency limits"

    def __init__(self, root: str) -> None:
        """The policies below `root`."""
        self._directory = os.path.join(root, "sys/devices/system/cpu/cpufreq")

    def policies(self) -> List[Policy]:
        """Those that are there now, by their first CPU."""
        directories = glob.glob(os.path.join(self._directory, "policy*"))
        return sorted((_read_policy(directory) for directory in directories), key=lambda policy: policy.cpus)

    def available(self) -> Capability:
        """Needs cpufreq and the right to write its limits."""
        topic = "set CPU clocks"
        policies = self.policies()
        if not policies:
            return Capability(topic, False, f"there is no cpufreq policy in {self._directory}")
        files = [self._file(policy.name, limit) for policy in policies for limit in (MINIMUM, MAXIMUM)]
        closed = [file for file in files if not os.access(file, os.W_OK, effective_ids=True)]
        if closed:
            return Capability(topic, False, f"{closed[0]} may not be written by this user", _grant(closed))
        return Capability(topic, True, f"cpufreq limits of {', '.join(policy.name for policy in policies)}")

    def pinned(self, khz: int) -> Dict[str, Limits]:
        """The setting that holds every policy at one clock; a policy that cannot have it gets its own nearest.

        Raises:
            InvalidValueError: no policy can have `khz`; says what they can have.
        """
        nearest = {policy.name: _nearest_khz(policy, khz) for policy in self.policies()}
        if khz not in nearest.values():
            able = "; ".join(f"{policy.name}: {_range_text(policy)}" for policy in self.policies())
            raise InvalidValueError(f"no CPU here runs at {khz} kHz", f"allowed: {able}")
        return {name: [clock, clock] for name, clock in nearest.items()}

    def read(self) -> Dict[str, Limits]:
        """The limits of every policy."""
        return {
            policy.name: [read_int(self._file(policy.name, limit)) for limit in (MINIMUM, MAXIMUM)]
            for policy in self.policies()
        }

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set the policies that `value` names."""
        for name, target in value.items():
            now = [read_int(self._file(name, limit)) for limit in (MINIMUM, MAXIMUM)]
            for limit, khz in write_order(now, target):
                path = self._file(name, limit)
                write(path, khz, way_out=_grant([path]))

    def _file(self, policy: str, limit: str) -> str:
        return os.path.join(self._directory, policy, limit)


def _read_policy(directory: str) -> Policy:
    levels_file = os.path.join(directory, "scaling_available_frequencies")
    levels = read_text(levels_file).split() if os.path.exists(levels_file) else []
    return Policy(
        name=os.path.basename(directory),
        cpus=tuple(int(cpu) for cpu in read_text(os.path.join(directory, "related_cpus")).split()),
        lowest_khz=read_int(os.path.join(directory, "cpuinfo_min_freq")),
        highest_khz=read_int(os.path.join(directory, "cpuinfo_max_freq")),
        levels_khz=tuple(sorted(int(level) for level in levels)),
    )


def _nearest_khz(policy: Policy, khz: int) -> int:
    if policy.levels_khz:
        return min(policy.levels_khz, key=lambda level: abs(level - khz))
    return min(max(khz, policy.lowest_khz), policy.highest_khz)


def _range_text(policy: Policy) -> str:
    if policy.levels_khz:
        return ", ".join(map(str, policy.levels_khz))
    return f"{policy.lowest_khz} to {policy.highest_khz}"


def _grant(files: List[str]) -> str:
    return f"until the next boot: `sudo chown $USER {' '.join(map(shlex.quote, files))}`"


def open_knob(root: str) -> CpuFrequency:
    """The cpufreq policies below `root`."""
    return CpuFrequency(root)
