"""What guards a run that changes a machine: a lock per device, and signals that end the run through its finalizers.

A lock goes with its process, and says who holds it.
The locks lie where runs of different users exclude each other too, or in the directory that the environment variable
`JETWATT_LOCK_DIR` names: runs that do not share it do not exclude each other.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shlex
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import Iterator, List, Optional, Set

from harness.core.errors import ControlError

LOCK_DIR_VARIABLE = "JETWATT_LOCK_DIR"

_OPEN_TO_ALL = ("/run/lock", "/dev/shm")  # empty after a boot; some systems keep the first for root

_open_fds: Set[int] = set()


def _close_in_child() -> None:
    """Leave the lock to the parent alone: else workers that outlive a killed run would hold it on."""
    while _open_fds:
        os.close(_open_fds.pop())


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def locked(device: str, *, lock_dir: Optional[Path] = None) -> Iterator[None]:
    """Hold the lock of `device` during the block; it is free again when this process ends, however it ends.

    Raises ControlError where another process holds it; says which, since when, and its command.
    """
    owner = os.getpid()
    path = (lock_dir or default_lock_dir()) / f"jetwatt-{device}.lock"
    fd = _open(path)
    _open_fds.add(fd)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0).decode(errors="replace") or "a process that has not said who it is yet"
            raise ControlError(f"{device} is in use by {holder}", "wait for its end, or end it") from None
        since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        command = " ".join(map(shlex.quote, [sys.executable, *sys.argv]))
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {owner} since {since}: {command}".encode(), 0)
        try:
            yield
        finally:
            if os.getpid() == owner:
                os.ftruncate(fd, 0)
                # A worker that was forked just now may not have closed its copy yet: closing alone would not unlock.
                fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        # A worker that unwinds its copy of this block has closed the lock at its start; the number is of another file.
        if os.getpid() == owner:
            _open_fds.remove(fd)
            os.close(fd)


def default_lock_dir() -> Path:
    """`$JETWATT_LOCK_DIR`, or the first usual directory in which every user may make files."""
    chosen = os.environ.get(LOCK_DIR_VARIABLE)
    if chosen:
        return Path(chosen)
    for directory in map(Path, _OPEN_TO_ALL):
        if directory.is_dir() and directory.stat().st_mode & stat.S_IWOTH:
            return directory
    raise ControlError(f"neither of {', '.join(_OPEN_TO_ALL)} can be written by every user", f"set {LOCK_DIR_VARIABLE}")


def _open(path: Path) -> int:
    """Open the lock file, or make it for every user; it is never removed, so that all lock the same file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            os.fchmod(fd, 0o666)  # whatever the umask
            return fd
    except OSError as error:
        raise ControlError(
            f"the lock file {path} cannot be opened: {error.strerror}", "remove it, if no run is on"
        ) from error


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP (a lost terminal) do what Ctrl-C does: raise KeyboardInterrupt, which runs finalizers.

    A signal that is ignored or handled already stays so. Outside the main thread, where Python delivers none, this does
    nothing.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    changed = [number for number in _ENDING if _in_main_thread() and signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM, SIGHUP and the death of a child until the end of the block, then let them act.

    The last because torch handles it by raising where a DataLoader worker has died, as they all do on Ctrl-C.
    """
    if not _in_main_thread():
        yield
        return
    came: List[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD, *_ENDING)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
