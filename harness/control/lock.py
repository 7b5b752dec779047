"""One run per device: a lock that goes with its process, and says who holds it."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Iterator, Optional

from harness.errors import ControlError

_OPEN_TO_ALL = ("/run/lock", "/dev/shm")  # empty after a boot; some systems keep the first for root


@contextlib.contextmanager
def locked(device: str, *, lock_dir: Optional[Path] = None) -> Iterator[None]:
    """Hold the lock of `device` during the block; it is free again when this process ends, however it ends.

    Args:
        device: the device's name.
        lock_dir: where the lock file lies; None for a place where runs of different users exclude each other too.

    Raises:
        ControlError: another process holds it; says which, since when, and its command.
    """
    path = (lock_dir or default_lock_dir()) / f"jetwatt-{device}.lock"
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ControlError(f"{device} is in use by {_holder(fd)}", "wait for its end, or end it") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, _introduction().encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(fd, 0)
            # Workers that were forked in the block share the lock: closing it here would leave it to them.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def default_lock_dir() -> Path:
    """The same directory for every user: the first usual one in which each of them may make files.

    Raises:
        ControlError: there is none.
    """
    for directory in map(Path, _OPEN_TO_ALL):
        if directory.is_dir() and directory.stat().st_mode & stat.S_IWOTH:
            return directory
    raise ControlError(f"neither of {', '.join(_OPEN_TO_ALL)} can be written by every user", "give a lock directory")


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


def _introduction() -> str:
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return f"process {os.getpid()} since {since}: {' '.join(map(shlex.quote, [sys.executable, *sys.argv]))}"


def _holder(fd: int) -> str:
    return os.pread(fd, 4096, 0).decode(errors="replace") or "a process that has not said who it is yet"
