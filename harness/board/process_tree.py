"""The CPU time of a process and of all its descendants, from `/proc/<pid>/stat`."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, List, NamedTuple

from harness.board.kernel_file import read_text

_ATTEMPTS = 5


class ProcessTimes(NamedTuple):
    """One process as `/proc/<pid>/stat` shows it.

    Its CPU time, user and system, is that of its own threads, living and ended, and of the children that it has waited
    for, with theirs.
    """

    parent: int
    ticks: int


def parse_process_stat(text: str) -> ProcessTimes:
    """Read the text of a `/proc/<pid>/stat`, whatever the command is called.

    Raises:
        ValueError: it is not of that form.
    """
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) < 15:
        raise ValueError(f"not the text of a /proc/<pid>/stat: {text!r}")
    # proc(5) counts from 1 and two fields stand before these: 4 ppid, 14 utime, 15 stime, 16 cutime, 17 cstime
    return ProcessTimes(parent=int(fields[1]), ticks=sum(int(field) for field in fields[11:15]))


class ProcessTree:
    """A process and its descendants.

    A process that ended and was waited for counts in its parent's times: nothing is lost when workers come and go.
    `without` is a descendant to leave out, with its own descendants.
    """

    def __init__(self, proc: str, pid: int, without: int) -> None:
        self._proc = proc
        self._pid = pid
        self._without = without
        self._parents: Dict[int, int] = {}

    def ticks(self) -> int:
        """CPU time of the whole tree so far, in clock ticks.

        Raises:
            OSError: the root of the tree is gone, or processes end faster than they can be read.
        """
        for _ in range(_ATTEMPTS - 1):
            # Parents are read before their children, so that a child that ends meanwhile is never counted twice; where
            # one ends before it is read, its time is in neither, and all are read again.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                return self._sum()
        return self._sum()

    def _sum(self) -> int:
        return sum(self._read(pid).ticks for pid in [self._pid, *self._descendants()])

    def _read(self, pid: int) -> ProcessTimes:
        return parse_process_stat(read_text(os.path.join(self._proc, str(pid), "stat")))

    def _descendants(self) -> List[int]:
        """All that are alive, parents before children."""
        self._learn_parents()
        children: Dict[int, List[int]] = {}
        for pid, parent in self._parents.items():
            if pid != self._without:
                children.setdefault(parent, []).append(pid)
        found = [self._pid]
        for pid in found:
            found.extend(children.pop(pid, []))
        return found[1:]

    def _learn_parents(self) -> None:
        """Bring the parent of every process up to date, reading only those that are new.

        A process whose parent ended goes to the parent's parent, so that it still belongs to the run that started it.
        """
        alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        for ended in self._parents.keys() - alive:
            above = self._parents.pop(ended)
            self._parents.update({pid: above for pid, parent in self._parents.items() if parent == ended})
        for pid in alive - self._parents.keys():
            try:
                self._parents[pid] = self._read(pid).parent
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended since it was listed
            except PermissionError:
                continue  # proc(5), hidepid: another user's, so none of this run's
