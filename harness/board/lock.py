"""What guards a run that changes a machine: a lock per device, and signals that end the run through its finalizers.

A lock ends with its process, and the kernel reports who holds it.
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
import threading
import time
from pathlib import Path
from typing import Iterator, List, Set

from harness.core.errors import ControlError
from harness.core.files import is_shared
from harness.core.terminal import shown

LOCK_DIR_VARIABLE = "JETWATT_LOCK_DIR"

_OPEN_TO_ALL = ("/run/lock", "/dev/shm")  # empty after a boot; some systems keep the first for root
_FOR_ALL = 0o666
_NAMES = 100  # how many files of others in the way are passed over

_open_fds: Set[int] = set()


def _close_in_child() -> None:
    while _open_fds:  # the lock is the parent's alone: else workers that outlive a killed run would hold it on
        os.close(_open_fds.pop())


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def locked(device: str) -> Iterator[None]:
    """Hold the lock of `device` during the block; it is free again when this process ends, however it ends."""
    owner = os.getpid()
    fd = _open(default_lock_dir(), device)
    _open_fds.add(fd)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"wait for its end, or end it; {LOCK_DIR_VARIABLE}=FOLDER is a lock that only runs with it share"
            raise ControlError(f"{device} is in use by {_holder(fd)}", hint) from None
        try:
            yield
        finally:
            if os.getpid() == owner:
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
        if directory.is_dir() and is_shared(directory):
            return directory
    raise ControlError(f"neither of {', '.join(_OPEN_TO_ALL)} can be written by every user", f"set {LOCK_DIR_VARIABLE}")


def _open(folder: Path, device: str) -> int:
    """Open the lock file, which is never removed, so that all lock the same; or make it for every user."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(_NAMES):
            path = folder / f"jetwatt-{device}{f'-{number}' if number else ''}.lock"
            umask = os.umask(0)  # with the file, its mode: a run that starts now too must not pass over it
            try:
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FOR_ALL)
            except FileExistsError:
                pass
            finally:
                os.umask(umask)
            status = path.lstat()  # where another user laid a link, or a file closed to others, all take the next name
            if stat.S_ISREG(status.st_mode) and status.st_mode & _FOR_ALL == _FOR_ALL:
                return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        what = f"no lock file can be opened in {folder}: {error.strerror}"
        raise ControlError(what, f"set {LOCK_DIR_VARIABLE}") from error
    raise ControlError(f"{_NAMES} files like {path} are no lock files", "remove them, if no run is on")


def _holder(fd: int) -> str:
    """Who holds a file's lock, according to the kernel: the content of a world-writable file proves nothing."""
    file, holders = os.fstat(fd), []
    with contextlib.suppress(OSError), open("/proc/locks") as locks:
        for words in map(str.split, locks):  # 3: FLOCK ADVISORY WRITE 27919 fe:00:5751504 0 EOF
            device, _, inode = words[5].rpartition(":") if words[1] == "FLOCK" else ("", "", "")
            if inode == str(file.st_ino):
                holders.append((device == f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}", words[4]))
    if not holders:
        return "a process that this one may not see"
    process = Path("/proc") / max(holders)[1]  # some file systems have another number in that table
    try:
        command = " ".join(map(shlex.quote, os.fsdecode((process / "cmdline").read_bytes()).rstrip("\0").split("\0")))
        printable = shown(command).replace("\n", "\\n")
        up_s, ticks = float(Path("/proc/uptime").read_text().split()[0]), (process / "stat").read_text()
        began_s = time.time() - up_s + int(ticks.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        since = datetime.datetime.fromtimestamp(began_s).astimezone().isoformat(timespec="seconds")
        return f"process {process.name} of user {process.stat().st_uid} since {since}: {printable[:300]}"
    except OSError:
        return f"process {process.name}"


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP (a lost terminal) do what Ctrl-C does: raise KeyboardInterrupt, which runs finalizers."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    # A signal that is ignored or handled already stays so; outside the main thread Python delivers none.
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
    """Hold back Ctrl-C, SIGTERM, SIGHUP and the death of a child until the end of the block, then let them act."""
    if not _in_main_thread():
        yield
        return
    came: List[int] = []
    # SIGCHLD because torch raises where a DataLoader worker has died, as they all do on Ctrl-C.
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
