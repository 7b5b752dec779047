"""CPU clocks, one per cpufreq policy (the CPUs that share a clock)."""

from __future__ import annotations

import glob
import os
from typing import Dict

from harness.board.kernel_file import read_int, read_text
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError


class CpuFrequencySource:
    """The clock that each policy runs at, named for its first CPU: `cpu4_khz`."""

    def __init__(self, policies: Dict[str, str]) -> None:
        """Reads the file `scaling_cur_freq` of each policy directory; `policies` is channel to directory."""
        self._policies = policies
        self.notes = {
            channel: f"scaling_cur_freq of CPUs {read_text(os.path.join(directory, 'related_cpus'))}"
            for channel, directory in policies.items()
        }

    def read(self, now_s: float) -> Reading:
        """Every policy; one whose CPUs are all offline fails."""
        values, failed = {}, {}
        for channel, directory in self._policies.items():
            try:
                values[channel] = read_int(os.path.join(directory, "scaling_cur_freq"))
            except (OSError, ValueError) as error:
                failed[channel] = str(error)
        return Reading(values, failed)


def open_source(root: str) -> CpuFrequencySource:
    """The policies below `root` with a CPU online now: what others show is left from when they had one.

    Raises:
        SourceUnavailableError: there is none, as in most virtual machines.
    """
    pattern = os.path.join(root, "sys/devices/system/cpu/cpufreq/policy*")
    directories = sorted(glob.glob(pattern), key=lambda path: int(path.rpartition("policy")[2]))
    if not directories:
        raise SourceUnavailableError(
            f"there is no cpufreq policy in {os.path.dirname(pattern)}",
            "none is to be had in most virtual machines; elsewhere load the CPU's cpufreq driver",
        )
    running = {f"cpu{path.rpartition('policy')[2]}_khz": path for path in directories if _is_running(path)}
    return CpuFrequencySource(running)


def _is_running(directory: str) -> bool:
    """Whether a CPU of a policy is online; where the kernel has no such file, reading its clock will tell."""
    try:
        return bool(read_text(os.path.join(directory, "affected_cpus")))
    except FileNotFoundError:
        return True
    except OSError:
        return False  # some kernels refuse every file of such a policy
