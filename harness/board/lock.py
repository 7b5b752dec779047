"""What guards a run that changes a machine: a lock per device, and signals that end the run through its finalizers.

A lock ends with its process, and the kernel reports who holds it.
The locks lie where runs of different users exclude each other too, or in the directory that the environment variable
`JETWATT_LOCK_DIR` names: runs that do not share it do not exclude each other.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import math
import os
import shlex
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Iterator, Optional, Set

from harness.board.bounded_reads import bounded
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
            raise ControlError(f"{device} is in use by {_holder(fd)}", "wait for its end, or end it") from None
        except OSError as error:  # of a network share: ENOLCK
            what = f"the lock file of {device} in {default_lock_dir()} cannot be locked: {error.strerror}"
            raise ControlError(what, f"set {LOCK_DIR_VARIABLE} to a folder on a disk of this machine") from error
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
        content = bounded(str(process / "cmdline"), (process / "cmdline").read_bytes)  # waits for memory that is held
        command = " ".join(map(shlex.quote, os.fsdecode(content).rstrip("\0").split("\0")))
        printable = shown(command).replace("\n", "\\n")
        up_s, ticks = float(Path("/proc/uptime").read_text().split()[0]), (process / "stat").read_text()
        began_s = time.time() - up_s + int(ticks.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        since = datetime.datetime.fromtimestamp(began_s).astimezone().isoformat(timespec="seconds")
        return f"process {process.name} of user {process.stat().st_uid} since {since}: {printable[:300]}"
    except OSError:
        return f"process {process.name}"


_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
AGAIN_S = 2.0  # a closed ssh session sends SIGHUP, and systemd SIGTERM right after it: that is one request to end

_BEING_RESTORED = (
    "\nthe run is ending, and the device is being restored; if that hangs: kill -9 {}, then jetwatt restore\n"
)


class Interrupted(KeyboardInterrupt):
    """The end of a run by a signal. Its name is short where pytest prints it, and pytest shows no line of this file."""

    __module__ = "builtins"


class _Interrupt:
    """The signal that ends this run, until the KeyboardInterrupt that it caused has ended what ran."""

    def __init__(self) -> None:
        self.waiting = ""  # why the run is to end, while nothing has ended by it
        self.came_s = -math.inf  # monotonic
        self.is_ending = False  # finalizers are running

    def arrive(self, number: int) -> None:
        """Raise KeyboardInterrupt, unless the run is ending already."""
        if self.is_ending:
            with contextlib.suppress(OSError):  # the terminal is closed
                os.write(2, _BEING_RESTORED.format(os.getpid()).encode())
            return
        if time.monotonic() < self.came_s + AGAIN_S:
            return
        self.waiting, self.came_s = f"ended by {signal.Signals(number).name}", time.monotonic()
        # DataLoader workers get the signal too, and torch would raise RuntimeError in the place of this interrupt. A
        # run that ends needs no message about its workers any more.
        if callable(signal.getsignal(signal.SIGCHLD)):
            signal.signal(signal.SIGCHLD, _ignore)
        raise Interrupted(self.waiting)

    def raise_if_waiting(self, cause: Optional[BaseException] = None) -> None:
        if self.waiting:
            raise Interrupted(self.waiting) from cause


def _ignore(number: int, frame: object) -> None:
    """Handle a signal by doing nothing."""


_interrupt = _Interrupt()


@contextlib.contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP (a lost terminal) do what Ctrl-C does: raise KeyboardInterrupt, which runs finalizers.

    Signals that follow within `AGAIN_S` are part of the first one.
    """
    global _interrupt
    owner = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != owner:  # a DataLoader worker
            raise KeyboardInterrupt
        _interrupt.arrive(number)

    # A signal that is ignored or handled already stays so; outside the main thread Python delivers none.
    default = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in _ENDING if _in_main_thread()}
    changed = {number: handler for number, handler in before.items() if handler in default}
    if changed:
        _interrupt = _Interrupt()
    for number in changed:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)
        if changed:
            _interrupt.waiting = ""


@contextlib.contextmanager
def interrupt_kept() -> Iterator[None]:
    """Raise a signal's KeyboardInterrupt again where it was lost, before the block or in it.

    Python drops an interrupt that is raised while an object is finalized (`__del__`), and another error may take its
    place.
    """
    _interrupt.raise_if_waiting()
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of pytest too: a skipped or failed test
        _interrupt.raise_if_waiting(error)
        raise
    _interrupt.raise_if_waiting()


def run_is_ending() -> None:
    """Ignore further signals: the interrupt of one has ended the run, and only finalizers are left."""
    _interrupt.waiting, _interrupt.is_ending = "", True


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM, SIGHUP and the death of a child until the end of the block, then let them act."""
    if not _in_main_thread():
        yield
        return
    came: Set[int] = set()
    # SIGCHLD because torch raises where a DataLoader worker has died, as they all do on Ctrl-C.
    before = {number: signal.getsignal(number) for number in (signal.SIGCHLD, *_ENDING)}
    for number in before:
        signal.signal(number, lambda number, frame: came.add(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in sorted(came):  # SIGCHLD last: the error that torch raises would be in the place of an interrupt
            signal.raise_signal(caught)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
