"""A copy of this process that does some work, and is killed before any change that it makes on disk."""

from __future__ import annotations

import os
import signal
import sys


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
