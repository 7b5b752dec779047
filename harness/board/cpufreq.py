"""The CPU clock limits, one pair for each cpufreq policy (the CPUs that share a clock)."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
from typing import ContextManager, Dict, List, NamedTuple, Optional, Tuple

from harness.board.cpu_online import kept_online
from harness.board.kernel_file import read_int_setting, read_setting, why_closed, write
from harness.board.knob import Knob, KnobSpec
from harness.core.capability import Capability
from harness.core.errors import ControlError, InvalidValueError

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


def write_order(
    now: Limits, target: Limits, minimum_file: str = MINIMUM, maximum_file: str = MAXIMUM
) -> List[Tuple[str, int]]:
    """The two writes from one pair of limits to another, such that minimum <= maximum holds after each.

    The kernel refuses a write that breaks it: the maximum goes first when raising, the minimum when lowering. What a
    program that writes past these rules may have left, the minimum above the maximum, is mended too.
    """
    lowest, highest = target
    maximum, minimum = (maximum_file, highest), (minimum_file, lowest)
    return [maximum, minimum] if highest >= max(now) else [minimum, maximum]


class CpuFrequency(Knob):
    """Policy name to [lowest, highest] clock in kHz."""

    spec = KnobSpec("cpufreq")
    name = "CPU frequency limits"

    def __init__(self, root: str) -> None:
        """The policies below `root`."""
        self._root = root
        self._directory = os.path.join(root, "sys/devices/system/cpu/cpufreq")

    def policies(self) -> List[Policy]:
        """Those that are there now, by their first CPU.

        One whose CPUs are all offline is left out where the kernel does not show it then (Linux 5.19 on).
        """
        directories = glob.glob(os.path.join(self._directory, "policy*"))
        found = filter(None, map(_read_policy, directories))
        return sorted(found, key=lambda policy: policy.cpus)

    def online_policies(self) -> List[Policy]:
        """Those with a CPU that is online; the others take no write."""
        cpus = os.path.dirname(self._directory)

        def is_online(cpu: int) -> bool:
            switch = os.path.join(cpus, f"cpu{cpu}", "online")
            return not os.path.exists(switch) or read_int_setting(switch) == 1

        return [policy for policy in self.policies() if any(map(is_online, policy.cpus))]

    def available(self) -> Capability:
        """Needs cpufreq and the right to write its limits."""
        topic = "set CPU clocks"
        policies = self.policies()
        if not policies:
            return Capability(topic, False, f"there is no cpufreq policy in {self._directory}")
        files = [self._file(policy.name, limit) for policy in policies for limit in (MINIMUM, MAXIMUM)]
        closed = why_closed(files)
        if closed:
            return Capability(topic, False, *closed)
        return Capability(topic, True, f"cpufreq limits of {', '.join(policy.name for policy in policies)}")

    def pinned(self, khz: int) -> Dict[str, Limits]:
        """The setting that holds every online CPU at one clock; a policy that cannot have it gets its own nearest.

        Raises:
            InvalidValueError: no policy can have `khz`; says what they can have.
        """
        policies = self.online_policies()
        nearest = {policy.name: _nearest_khz(policy, khz) for policy in policies}
        if khz not in nearest.values():
            able = "; ".join(f"{policy.name}: {_range_text(policy)}" for policy in policies)
            raise InvalidValueError(f"no CPU here runs at {khz} kHz", f"allowed: {able}")
        return {name: [clock, clock] for name, clock in nearest.items()}

    def read(self) -> Dict[str, Limits]:
        """The limits of every policy that tells them: one whose CPUs are all offline may not (Linux 5.19 on)."""
        limits = {policy.name: self._limits(policy.name) for policy in self.policies()}
        return {name: pair for name, pair in limits.items() if pair is not None}

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set the policies that `value` names; one that stands right is not written, one that sleeps is woken."""
        for name, target in value.items():
            if self._limits(name) == target:
                continue
            with self.writable(name):
                now = [read_int_setting(self._file(name, limit)) for limit in (MINIMUM, MAXIMUM)]
                for limit, khz in write_order(now, target):
                    path = self._file(name, limit)
                    write(path, khz)

    def _limits(self, name: str) -> Optional[Limits]:
        """The limits of a policy; None where the kernel does not tell them because its CPUs are offline."""
        try:
            return [read_int_setting(self._file(name, limit)) for limit in (MINIMUM, MAXIMUM)]
        except ControlError as error:
            if _is_asleep(error):
                return None
            raise

    def writable(self, name: str) -> ContextManager[None]:
        """Have a policy take writes during the block: where its CPUs are all offline, its first comes up for it."""
        if name in [policy.name for policy in self.online_policies()]:
            return contextlib.nullcontext()
        return kept_online(self._root, self.first_cpu(name))

    @staticmethod
    def first_cpu(name: str) -> int:
        """The CPU that the kernel names a policy for; told also while the policy sleeps."""
        return int(name[len("policy") :])

    def verify(self, value: Dict[str, Limits]) -> None:
        """Compare the policies that `value` names; CPUs that came online since have others.

        Raises:
            ControlError: one stands at something else.
        """
        now = self.read()
        found = {name: now.get(name) for name in value}
        if found != value:
            raise ControlError(f"{self.name} was set to {value} and reads back {found}")

    def _file(self, policy: str, limit: str) -> str:
        return os.path.join(self._directory, policy, limit)


def _read_policy(directory: str) -> Optional[Policy]:
    """What a policy's folder tells; None where the kernel shows nothing because its CPUs are offline."""
    levels_file = os.path.join(directory, "scaling_available_frequencies")
    try:
        levels = read_setting(levels_file).split() if os.path.exists(levels_file) else []
        return Policy(
            name=os.path.basename(directory),
            cpus=tuple(int(cpu) for cpu in read_setting(os.path.join(directory, "related_cpus")).split()),
            lowest_khz=read_int_setting(os.path.join(directory, "cpuinfo_min_freq")),
            highest_khz=read_int_setting(os.path.join(directory, "cpuinfo_max_freq")),
            levels_khz=tuple(sorted(int(level) for level in levels)),
        )
    except ControlError as error:
        if _is_asleep(error):
            return None
        raise


def _is_asleep(error: ControlError) -> bool:
    """Whether the kernel refused because the CPUs of a policy are all offline."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EBUSY


def _nearest_khz(policy: Policy, khz: int) -> int:
    if policy.levels_khz:
        return min(policy.levels_khz, key=lambda level: abs(level - khz))
    return min(max(khz, policy.lowest_khz), policy.highest_khz)


def _range_text(policy: Policy) -> str:
    if policy.levels_khz:
        return ", ".join(map(str, policy.levels_khz))
    return f"{policy.lowest_khz} to {policy.highest_khz}"


def open_knob(root: str) -> CpuFrequency:
    """The cpufreq policies below `root`."""
    return CpuFrequency(root)
