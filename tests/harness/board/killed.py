"""A copy of this process, killed before any change that it makes on disk; and whether other processes have ended."""

from __future__ import annotations

import os
import signal
import sys
import time


def in_a_child(work):
    """Run `work` in a forked process, which goes no further than that; returns its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            print(f"the killed run failed before: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def die_before_change(number):
    """Kill this process before it changes anything on disk, or starts a program, for the `number`th time."""
    changes = 0

    def watch(event, arguments):
        nonlocal changes
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.rename", "os.remove", "os.mkdir", "subprocess.Popen"):
            changes += 1
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def is_open(fd):
    """Whether the number is a file of this process: to list them takes one itself."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pids, timeout_s=10.0):
    """Whether all of these processes come to an end: killed, they may take a moment for it."""
    until = time.monotonic() + timeout_s
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(is_alive, pids))
