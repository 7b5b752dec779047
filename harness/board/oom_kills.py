"""Whether the kernel ended a process because memory ran out: it counts those, and any program may send signal 9."""

from __future__ import annotations

import os
import re
from typing import Dict, Optional

from harness.board.control_groups import own_groups
from harness.board.kernel_file import text_of
from harness.core.errors import ControlError, ProcessEndedError

_OF_GROUP = ("memory.events", "memory.oom_control")  # versions 2 and 1 of control groups
_OF_MACHINE = "proc/vmstat"


class OomKills:
    """The kernel's count of such kills, from Linux 4.13 on; it rises before the signal is sent."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._before = self._counts()

    def _counts(self) -> Dict[str, int]:
        """By file: of this process's control group and those above it, or else of the whole machine.

        Children are in its own, or beside it while their reads are limited: version 2 counts them in those above too.
        """
        try:
            groups = [group for hierarchy in own_groups(self._root, "memory") for group in hierarchy]
        except (OSError, ValueError, ControlError):  # what cannot be read is no evidence
            groups = []
        files = [os.path.join(group, name) for group in groups for name in _OF_GROUP]
        counts = {file: count for file, count in zip(files, map(_count, files)) if count is not None}
        if not counts:
            of_machine = _count(os.path.join(self._root, _OF_MACHINE))
            counts = {} if of_machine is None else {_OF_MACHINE: of_machine}
        return counts

    def since(self) -> Optional[int]:
        """How many there were since this object was made; None if the kernel does not say."""
        now = self._counts()
        return max((now[file] - count for file, count in self._before.items() if file in now), default=None)

    def other_kill(self, what: str) -> ProcessEndedError:
        """The error of a process that signal 9 ended, where the kernel counted no kill for lack of memory."""
        hint = "`journalctl -e` may show who did it, such as systemd-oomd; by the kernel's count memory did not run out"
        if self.since() is None:
            hint = "`sudo dmesg` shows whether memory ran out, which this kernel does not count"
        return ProcessEndedError(f"{what} was killed by signal 9", hint)


def _count(file: str) -> Optional[int]:
    match = re.search(r"^oom_kill (\d+)$", text_of(file), re.MULTILINE)
    return int(match[1]) if match else None
