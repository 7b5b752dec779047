"""Processes of `multiprocessing` that a case starts: their sockets, and their end, even if the kernel holds one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from multiprocessing import connection
from typing import Any, List, Sequence

from harness.core.errors import CannotRunError

KILLED_S = 5.0  # a killed process is gone in milliseconds, unless the kernel holds it


def end_workers(processes: Sequence[Any], within_s: float = KILLED_S) -> List[int]:
    """Kill processes, and return the pids of those that the kernel holds.

    These are left behind: the device is restored now, and Python must not wait for them at its own end.
    """
    for process in processes:
        with contextlib.suppress(RuntimeError):  # torch raises it for each of its workers that is killed
            process.kill()
    deadline_s = time.monotonic() + within_s
    left = []
    for process in processes:
        while process.exitcode is None and time.monotonic() < deadline_s:
            with contextlib.suppress(RuntimeError):
                process.join(max(0.0, deadline_s - time.monotonic()))
        if process.exitcode is None:
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined] # there is no public way
            left.append(process.pid)
    return left


def check_sockets() -> None:
    """CannotRunError if workers cannot hand over their batches: they use Unix sockets in the folder for short files."""
    try:
        connection.Listener(family="AF_UNIX").close()
    except (OSError, ValueError) as error:
        folder = os.environ.get("TMPDIR", "")
        what = f"DataLoader workers cannot use the folder for temporary files, TMPDIR={folder or tempfile.gettempdir()}"
        raise CannotRunError(f"{what}: {error}", "set TMPDIR to a short path, such as /tmp") from error
