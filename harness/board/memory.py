"""Memory of the whole machine, from `/proc/meminfo`, of its zram, and of this run's processes."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from typing import Dict, List, Optional

from harness.board import helper_stream
from harness.board.cpu import ProcessTree
from harness.board.kernel_file import read_text
from harness.board.source import Reading, Source
from harness.core.errors import SourceUnavailableError
from harness.core.units import kib_to_bytes

USED, SWAP, ZRAM, PROCESSES = "memory_used_bytes", "swap_used_bytes", "zram_used_bytes", "memory_processes_bytes"

MOST_TIME = 0.01
"""Share of time that adding up PSS may take: the kernel walks the page tables. On a busy x86-64 machine a process of
2 GB took 40 to 60 ms, so that it is read every 4 to 6 s."""

_CHANNELS = {
    USED: ({"MemTotal": 1, "MemAvailable": -1}, "MemTotal - MemAvailable"),
    "memory_available_bytes": ({"MemAvailable": 1}, "MemAvailable: what can be allocated without swapping"),
    "page_cache_bytes": (
        {"Cached": 1, "Buffers": 1, "Shmem": -1},
        "Cached + Buffers - Shmem: file pages, without tmpfs and shared memory",
    ),
    SWAP: ({"SwapTotal": 1, "SwapFree": -1}, "SwapTotal - SwapFree"),
}
"""Channel to the fields whose sum it is, and what that means."""


class ProcessMemory:
    """PSS of a process and its descendants: what they share counts once, and a share of what others have too."""

    def __init__(self, proc: str, pid: int) -> None:
        self._proc = proc
        self._tree = ProcessTree(proc, pid, without=(os.getpid(), *helper_stream.pids()))
        self._next_s = -1.0

    def read(self, now_s: float) -> Optional[float]:
        """Bytes in use; None while reading again would take more than `MOST_TIME`."""
        if now_s < self._next_s:
            return None
        began_s = time.monotonic()
        root, *others = self._tree.pids()
        total = self._pss_bytes(root)
        for pid in others:
            # It has ended; or it is another user's, such as one that sudo started.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                total += self._pss_bytes(pid)
        self._next_s = now_s + (time.monotonic() - began_s) / MOST_TIME
        return total

    def _pss_bytes(self, pid: int) -> int:
        path = os.path.join(self._proc, str(pid), "smaps_rollup")
        if not os.path.exists(path):
            path = os.path.join(self._proc, str(pid), "smaps")  # Linux before 4.14: of each mapping
        return sum(kib_to_bytes(int(kib)) for kib in re.findall(r"^Pss:\s*(\d+) kB", read_text(path), re.MULTILINE))


def _zram_bytes(paths: List[str]) -> float:
    """What compressed swap takes of the memory: the third field of mm_stat (Linux, zram: mem_used_total)."""
    return sum(int(read_text(path).split()[2]) for path in paths)


def open_source(root: str, pid: Optional[int] = None) -> Source:
    """Memory of the machine below `root`; with `pid` also of that process and its descendants, without this one."""
    path = os.path.join(root, "proc/meminfo")
    if not os.path.exists(path):
        raise SourceUnavailableError(f"{path} does not exist", "mount /proc")

    def read(now_s: float) -> Reading:
        pairs = (line.partition(":")[::2] for line in read_text(path).splitlines())
        # what has no unit is no size (huge-page counts)
        fields = {name: kib_to_bytes(int(value.split()[0])) for name, value in pairs if value.endswith(" kB")}
        values: Dict[str, float] = {}
        failed: Dict[str, str] = {}
        for channel, (terms, _) in _CHANNELS.items():
            absent = [name for name in terms if name not in fields]
            if absent:
                failed[channel] = f"{path} has no {', '.join(absent)}"
            else:
                values[channel] = sum(sign * fields[name] for name, sign in terms.items())
        if zram:
            try:
                values[ZRAM] = _zram_bytes(zram)
            except (OSError, ValueError, IndexError) as error:
                failed[ZRAM] = str(error)
        if processes is not None:
            try:
                in_use = processes.read(now_s)
            except (OSError, ValueError) as error:
                failed[PROCESSES] = str(error)
            else:
                values.update({} if in_use is None else {PROCESSES: in_use})
        return Reading(values, failed)

    zram = glob.glob(os.path.join(root, "sys/block/zram*/mm_stat"))
    processes = None if pid is None else ProcessMemory(os.path.join(root, "proc"), pid)
    notes = {channel: note for channel, (_, note) in _CHANNELS.items()}
    if zram:
        notes[ZRAM] = "memory that zram takes for what is swapped into it"
    if processes is not None:
        notes[PROCESSES] = "PSS of the run's process and all its descendants, without the sampler and the helper"
    return Source(notes, read)
