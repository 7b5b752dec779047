"""The CPU clocks: their limits, a pair for each cpufreq policy (the CPUs that share a clock), and what they run at."""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import os
from typing import ContextManager, Dict, List, NamedTuple, Optional, Tuple

from harness.board.cpu import CpuOnline, kept_online
from harness.board.kernel_file import read_int, read_int_setting, read_setting, read_text, why_closed, write
from harness.board.knob import Knob, KnobSpec
from harness.board.source import FileSource
from harness.core.capability import Capability
from harness.core.errors import ControlError, InvalidValueError, SourceUnavailableError

MINIMUM, MAXIMUM = "scaling_min_freq", "scaling_max_freq"

Limits = List[int]
"""Lowest and highest clock in kHz."""


class Policy(NamedTuple):
    """The CPUs that share a clock, and what it may be."""

    name: str  # `policy0`
    cpus: Tuple[int, ...]  # their numbers
    lowest_khz: int  # the hardware's lowest clock
    highest_khz: int  # its highest
    # the clocks it can have, ascending; empty where it may have any in between (intel_pstate)
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
    has_parts = True

    def __init__(self, root: str) -> None:
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

        Raises InvalidValueError where no policy can have `khz`; says what they can have.
        """
        policies = self.online_policies()
        nearest = {policy.name: _nearest_khz(policy, khz) for policy in policies}
        if khz not in nearest.values():
            able = "; ".join(
                f"{name}: {', '.join(map(str, levels_khz)) or f'{lowest_khz} to {highest_khz}'}"
                for name, _, lowest_khz, highest_khz, levels_khz in policies
            )
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
                    write(self._file(name, limit), khz)

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
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EBUSY


def _nearest_khz(policy: Policy, khz: int) -> int:
    if policy.levels_khz:
        return min(policy.levels_khz, key=lambda level: abs(level - khz))
    return min(max(khz, policy.lowest_khz), policy.highest_khz)


class ClusterLimits(CpuFrequency):
    """Policy name to [lowest, highest] clock in kHz.

    A run that had all cores online leaves its limits on clusters that slept before: to put those back, a core of each
    is woken for as long as the write takes. Where a kernel does not tell the limits of a sleeping cluster they are not
    saved: nvpmodel sets them whenever it wakes one.
    """

    spec = KnobSpec("cluster_limits")

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._online = CpuOnline(root)

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set the policies that `value` names and that are there: some kernels remove those that sleep."""
        told = self.read()
        value = {name: limits for name, limits in value.items() if os.path.isdir(os.path.join(self._directory, name))}
        online = self._online.read()
        cpus = {policy.name: policy.cpus for policy in self.policies()}
        wrong = [cpus.get(name, (self.first_cpu(name),)) for name, limits in value.items() if told.get(name) != limits]
        woken = [some[0] for some in wrong if not set(some) & set(online)]
        if not woken:
            super().apply(value)
            return
        self._online.set(sorted([*online, *woken]))
        try:
            super().apply(value)
        finally:
            self._online.set(online)


def open_source(root: str) -> FileSource:
    """The clock of each policy below `root`, named for its first CPU: `cpu4_khz`; one that goes to sleep fails.

    Only those with a CPU online now: what others show is left from when they had one. Raises SourceUnavailableError
    where there is no policy, as in most virtual machines.
    """
    pattern = os.path.join(root, "sys/devices/system/cpu/cpufreq/policy*")
    directories = sorted(glob.glob(pattern), key=lambda path: int(path.rpartition("policy")[2]))
    if not directories:
        raise SourceUnavailableError(
            f"there is no cpufreq policy in {os.path.dirname(pattern)}",
            "none is to be had in most virtual machines; elsewhere load the CPU's cpufreq driver",
        )
    running = {f"cpu{path.rpartition('policy')[2]}_khz": path for path in directories if _is_running(path)}
    return FileSource(
        {channel: functools.partial(read_int, f"{path}/scaling_cur_freq") for channel, path in running.items()},
        {channel: f"scaling_cur_freq of CPUs {read_text(f'{path}/related_cpus')}" for channel, path in running.items()},
    )


def _is_running(directory: str) -> bool:
    """Whether a CPU of a policy is online; where the kernel has no such file, reading its clock will tell."""
    try:
        return bool(read_text(os.path.join(directory, "affected_cpus")))
    except FileNotFoundError:
        return True
    except OSError:
        return False  # some kernels refuse every file of such a policy
