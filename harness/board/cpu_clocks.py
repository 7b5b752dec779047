"""The CPU clocks: their limits, a pair for each cpufreq policy (the CPUs that share a clock), and what they run at."""

from __future__ import annotations

import errno
import functools
import glob
import math
import os
import re
from typing import Any, Callable, ContextManager, Dict, Iterable, List, NamedTuple, Tuple

from harness.board.bounded_reads import unread
from harness.board.cpu import CpuOnline, kept_online
from harness.board.helper_stream import SensorFiles
from harness.board.kernel_file import (
    LimitFiles,
    Limits,
    check_writable,
    numbers_in,
    read_int_setting,
    read_setting,
    read_text,
    text_of,
)
from harness.board.knob import Knob, KnobSpec
from harness.board.source import Reading, Source, file_source, read_each
from harness.core.errors import ControlError, InvalidValueError, SourceUnavailableError

MINIMUM, MAXIMUM = "scaling_min_freq", "scaling_max_freq"

_DIRECTORY = "sys/devices/system/cpu/cpufreq"
_WITHOUT_POLICY = "most virtual machines have none; elsewhere load the CPU's cpufreq driver"


class Policy(NamedTuple):
    name: str  # `policy0`
    cpus: Tuple[int, ...]  # their numbers
    lowest_khz: int  # of the hardware
    highest_khz: int
    levels_khz: Tuple[int, ...]  # what it can have, ascending; empty: any in between (intel_pstate)

    def nearest_khz(self, khz: int) -> int:
        if self.levels_khz:
            return min(self.levels_khz, key=lambda level: abs(level - khz))
        return min(max(khz, self.lowest_khz), self.highest_khz)


class CpuFrequency(Knob):
    """Policy name to [lowest, highest] clock in kHz.

    A run leaves its limits on clusters that slept before: to put those back, a core of each is woken for the writes.
    What a kernel hides of a sleeping cluster (Linux 5.19 on) is not saved: nvpmodel sets it when it wakes one.
    """

    spec = KnobSpec("cpufreq")
    name = "CPU frequency limits"
    topic = "set CPU clocks"
    has_parts = True

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory = os.path.join(root, _DIRECTORY)
        self._online = CpuOnline(root)

    def policies(self) -> List[Policy]:
        """Those that are there now, by their first CPU; without those whose sleep the kernel hides, or that fail."""
        return self._policies()[0]

    def _policies(self) -> Tuple[List[Policy], List[ControlError]]:
        """As `policies`; and the errors of those of which a file cannot be read."""
        policies: List[Policy] = []
        errors: List[ControlError] = []
        for directory in glob.glob(os.path.join(self._directory, "policy*")):
            try:
                policy = _read_while_online(_read_policy, directory)
            except ControlError as error:
                errors.append(error)
                unread[directory] = error.what
            else:
                unread.pop(directory, None)
                policies += [] if policy is None else [policy]
        return sorted(policies, key=lambda policy: policy.cpus), errors

    def online_policies(self) -> List[Policy]:
        return [policy for policy in self.policies() if any(map(self._online.is_online, policy.cpus))]

    def usable(self) -> str:
        policies, errors = self._policies()
        if errors:
            raise errors[0]
        if not policies:
            raise ControlError(f"there is no cpufreq policy in {self._directory}", _WITHOUT_POLICY)
        check_writable([file for policy in policies for file in self._files(policy.name)])
        return f"cpufreq limits of {', '.join(policy.name for policy in policies)}"

    def pinned(self, khz: int) -> Dict[str, Limits]:
        """The setting that holds every online CPU at one clock; a policy that cannot have it gets its own nearest."""
        errors = self._policies()[1]
        if errors:
            raise errors[0]
        policies = self.online_policies()
        nearest = {policy.name: policy.nearest_khz(khz) for policy in policies}
        if khz not in nearest.values():
            able = "; ".join(
                f"{name}: {', '.join(map(str, levels_khz)) or f'{lowest_khz} to {highest_khz}'}"
                for name, _, lowest_khz, highest_khz, levels_khz in policies
            )
            raise InvalidValueError(f"no CPU here runs at {khz} kHz", f"allowed: {able}")
        return {name: [clock, clock] for name, clock in nearest.items()}

    def read(self) -> Dict[str, Limits]:
        limits = {policy.name: _read_while_online(self._files(policy.name).read) for policy in self.policies()}
        return {name: pair for name, pair in limits.items() if pair is not None}

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set policies that do not stand right and are there (some kernels remove those that sleep)."""
        there = [name for name in value if os.path.isdir(os.path.join(self._directory, name))]
        wrong = [name for name in there if _read_while_online(self._files(name).read) != value[name]]
        with self.awake(wrong):
            for name in wrong:
                self._files(name).write(value[name])

    def awake(self, names: Iterable[str]) -> ContextManager[None]:
        """Have policies take writes during the block: where all CPUs of one are offline, its first comes up for it."""
        taking = {policy.name for policy in self.online_policies()}
        return kept_online(self._root, [int(name[len("policy") :]) for name in names if name not in taking])

    def _files(self, name: str) -> LimitFiles:
        return LimitFiles(*(os.path.join(self._directory, name, limit) for limit in (MINIMUM, MAXIMUM)))


def _read_policy(directory: str) -> Policy:
    """What a folder of cpufreq holds; the policy is named for the first of its CPUs, where their list is no list."""
    name = os.path.basename(directory)
    levels_file = os.path.join(directory, "scaling_available_frequencies")
    levels_khz = numbers_in(read_setting(levels_file)) if os.path.exists(levels_file) else []
    cpus = numbers_in(read_setting(os.path.join(directory, "related_cpus")))
    return Policy(
        name=name,
        cpus=tuple(cpus) or tuple(int(number) for number in re.findall(r"\d+$", name)),
        lowest_khz=read_int_setting(os.path.join(directory, "cpuinfo_min_freq")),
        highest_khz=read_int_setting(os.path.join(directory, "cpuinfo_max_freq")),
        levels_khz=tuple(levels_khz),
    )


def _read_while_online(read: Callable[..., Any], *arguments: str) -> Any:
    """What a function reads of a policy; None if the kernel refuses because its CPUs are offline."""
    try:
        return read(*arguments)
    except ControlError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EBUSY:
            return None
        raise


MEASURED_EVERY_S = 5.0  # reading it stops the CPU for a moment


def open_source(root: str, measured: bool = False) -> Source:
    """The clock of each policy below `root`, named for its first CPU: `cpu4_khz`; one that goes to sleep fails.

    `scaling_cur_freq` shows what the driver has requested. A chip that holds its CPUs down shows it only in
    `cpuinfo_cur_freq`, which counts cycles (Thor, L4T r38.4: 2,601,000 shown, 649,000 real): with `measured` that is
    `cpu4_measured_khz`, every `MEASURED_EVERY_S`. Only those with a CPU online now: what others show is left from when
    they had one. Raises SourceUnavailableError if there is no policy, as in most virtual machines.
    """
    directory = os.path.join(root, _DIRECTORY)
    cpus = sorted(int(path.rpartition("policy")[2]) for path in glob.glob(os.path.join(directory, "policy*")))
    if not cpus:
        raise SourceUnavailableError(
            f"there is no cpufreq policy in {directory}",
            _WITHOUT_POLICY,
        )

    def is_running(path: str) -> bool:
        try:
            return bool(read_text(f"{path}/affected_cpus"))
        except OSError as error:
            return error.errno != errno.EBUSY  # some kernels refuse every file of a policy whose CPUs are offline

    running = {cpu: path for cpu, path in ((cpu, f"{directory}/policy{cpu}") for cpu in cpus) if is_running(path)}
    related = {cpu: text_of(f"{path}/related_cpus") for cpu, path in running.items()}
    asked = file_source(
        {f"cpu{cpu}_khz": (f"{path}/scaling_cur_freq", int) for cpu, path in running.items()},
        {f"cpu{cpu}_khz": f"scaling_cur_freq of CPUs {cpus}" for cpu, cpus in related.items()},
    )
    if not measured:
        return asked
    paths = {f"cpu{cpu}_measured_khz": f"{path}/cpuinfo_cur_freq" for cpu, path in running.items()}
    files = SensorFiles(list(paths.values()), root)
    readers = {channel: functools.partial(files.read_int, path) for channel, path in paths.items()}
    due_s = -math.inf

    def read(now_s: float) -> Reading:
        nonlocal due_s
        requested = asked.read(now_s)
        if now_s < due_s:
            return requested
        due_s = now_s + MEASURED_EVERY_S
        files.refresh()
        real = read_each(readers)
        return Reading({**requested.values, **real.values}, {**requested.failed, **real.failed})

    notes = {f"cpu{cpu}_measured_khz": f"cpuinfo_cur_freq of CPUs {cpus}" for cpu, cpus in related.items()}
    return Source({**asked.notes, **notes}, read)
