"""CPU time in use, in cores: by this run, by the sampler, by everyone else, and taken by the hypervisor."""

from __future__ import annotations

import os
import time
from typing import Dict

from harness.board.kernel_file import read_text
from harness.board.process_tree import ProcessTree
from harness.board.source import Counters, Reading
from harness.core.errors import SourceUnavailableError

NOTES = {
    "cpu_own_cores": "the run's process and all its descendants, without the sampler; 2.0 is two cores fully busy",
    "cpu_sampler_cores": "the telemetry sampler itself",
    "cpu_other_cores": "user, nice and system time of the whole machine, less the run's and the sampler's",
    "cpu_interrupt_cores": "hard and soft interrupts, whoever they served",
    "cpu_steal_cores": "time that the hypervisor gave to other virtual machines",
}


def parse_cpu_ticks(text: str) -> Dict[str, int]:
    """Clock ticks of all CPUs together from the text of `/proc/stat`: `processes`, `interrupt` and `steal`.

    Raises:
        ValueError: the text does not begin with the line of all CPUs.
    """
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        raise ValueError(f"/proc/stat begins with {text[:80]!r}, not with the line of all CPUs")
    # proc(5): guest time is part of user time already
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
    return {"processes": user + nice + system, "interrupt": irq + softirq, "steal": steal}


class CpuSource:
    """Cores in use since the reading before."""

    notes = NOTES

    def __init__(self, proc: str, tree: ProcessTree, ticks_per_s: float) -> None:
        """Reads the `/proc` directory, the process tree, and the CPU time of this process: the sampler."""
        self._stat = os.path.join(proc, "stat")
        self._tree = tree
        self._ticks_per_s = ticks_per_s
        self._counters = Counters()

    def read(self, now_s: float) -> Reading:
        """All channels; none at the first reading."""
        ticks = {**parse_cpu_ticks(read_text(self._stat)), "own": self._tree.ticks()}
        totals_s = {name: count / self._ticks_per_s for name, count in ticks.items()}
        growth = self._counters.growth(now_s, {**totals_s, "sampler": time.process_time()})
        if growth is None:
            return Reading({}, {})
        window_s, busy_s = growth
        cores = {name: seconds / window_s for name, seconds in busy_s.items()}
        values = {
            "cpu_sampler_cores": cores["sampler"],
            "cpu_interrupt_cores": cores["interrupt"],
            "cpu_steal_cores": cores["steal"],
        }
        if cores["own"] < 0:
            why = "a process of this run ended, and the one that waited for it is none of this run's"
            return Reading(values, {"cpu_own_cores": why, "cpu_other_cores": why})
        # The kernel rounds each side of this difference to ticks on its own: below 0 there is nothing but rounding.
        other = max(0.0, cores["processes"] - cores["own"] - cores["sampler"])
        return Reading({**values, "cpu_own_cores": cores["own"], "cpu_other_cores": other}, {})


def open_source(root: str, pid: int) -> CpuSource:
    """CPU time of the machine whose `/proc` is below `root`, and of the process tree under `pid` there.

    Raises:
        SourceUnavailableError: there is no `/proc/stat`, or no process `pid`.
    """
    proc = os.path.join(root, "proc")
    for path in ("stat", f"{pid}/stat"):
        if not os.path.exists(os.path.join(proc, path)):
            raise SourceUnavailableError(f"{os.path.join(proc, path)} does not exist", "mount /proc")
    return CpuSource(proc, ProcessTree(proc, pid, without=os.getpid()), os.sysconf("SC_CLK_TCK"))
