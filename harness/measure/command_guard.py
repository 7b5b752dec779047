"""A program beside the run that starts a command, and ends it with all its processes if the run ends first.

It uses the standard library alone and is started by its path, so that the command's environment is the user's. It is
two processes. The guard is the parent of the command, and adopts the processes that it leaves behind, which it kills
after the command's end. If the guard itself is killed, the kernel kills the command, and the keeper, its parent, adopts
and kills what that had started. If the keeper is killed, the guard ends all. Only both at once would leave something.

    run --- keeper --- guard --- command --- its processes

    guard  {"pid": 812}              the command waits, and its sensors can be opened
    run    0                         it begins
    run    2                         a signal to hand on: SIGINT
    guard  {"start_s": ..., ...}     how it ended

The end of the run closes the socket between the two, whatever ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set

BEGIN, END_ALL = 0, 255  # orders of the run; others are the number of a signal to hand on
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
KILL_GUARD = signal.SIGUSR1  # to the keeper: the guard does not answer
LEFT = 1  # exit code of the keeper: not all could be ended
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the exit codes of shells

NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)  # macOS has none; Python ignores SIGPIPE

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_GROWN_KIB = 2048  # what a forked process may grow by before it becomes the command
_LEAVING_S = 0.5
_KILLED_S = 5.0  # killed processes are gone in milliseconds, unless the kernel holds them


def main(fd: int, words: List[str]) -> int:
    """Run a command as the run at the other end of a socket orders; returns the exit code of the keeper."""
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in (*ENDING, signal.SIGCHLD):  # a terminal sends them to the command, too, which decides
        signal.signal(number, lambda number, frame: None)
    kept, keeps = os.pipe()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    guard = os.fork()
    if guard:
        os.close(kept)
        control.close()
        return _keep(guard)
    os.close(keeps)
    _prctl(_SET_CHILD_SUBREAPER, 1)  # a fork does not inherit it
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    begun, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(begin)
        _become(words, before, begun)
    os.close(begun)
    control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    _Guard(control, pid, begin, woken, kept).watch()
    return 0


def _keep(guard: int) -> int:
    """Wait for the end of the guard, and end what it leaves if it was killed."""
    signal.signal(KILL_GUARD, lambda number, frame: os.kill(guard, signal.SIGKILL))
    os.waitpid(guard, 0)
    end_descendants(_reap_all)
    return LEFT if _descendants(os.getpid()) else 0


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(words: List[str], before: Dict[signal.Signals, Any], begun: int) -> None:
    """Become the command, with the signals as the run found them, once the run says so."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else signal.SIG_DFL)
    for name in ("SIGCHLD", "SIGPIPE", "SIGXFSZ"):  # Python ignores two of them
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.read(begun, 1) != b"b":
        os._exit(NOT_FOUND)  # the run ended before it began
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


class _Guard:
    def __init__(self, control: socket.socket, pid: int, begin: int, woken: int, kept: int) -> None:
        self._control, self._pid, self._begin, self._woken = control, pid, begin, woken
        self._kept = kept  # whose other end is the keeper's
        self._start_s = time.monotonic()
        # A forked process has this peak, too, until it has more.
        self._own_peak_kib = _own_peak_kib() + _GROWN_KIB
        self._read_before = _read_bytes()
        self._ended: Optional[Dict[str, Any]] = None
        self._is_stuck = False

    def watch(self) -> None:
        while self._ended is None and not self._is_stuck:
            control = self._control.fileno()
            ready, _, _ = select.select([control, self._woken, self._kept], [], [])
            if self._woken in ready:
                os.read(self._woken, 512)
            self._reap()
            if self._kept in ready:  # the keeper was killed
                self._follow(END_ALL)
            if control in ready and self._ended is None:
                orders = self._control.recv(64)
                for order in orders or [END_ALL]:
                    self._follow(order)
        if self._ended is None:  # the kernel holds it, so that it cannot be killed
            self._ended = {"status": None}
        elif not os.WIFSIGNALED(self._ended["status"]):
            self._let_leave()
        self._ended["left_behind"] = self._end_all()  # nothing runs on into the next power mode
        before, after = self._read_before, _read_bytes()
        self._ended["read_bytes"] = None if before is None or after is None else after - before
        with contextlib.suppress(OSError):  # the run has ended meanwhile
            self._control.sendall(json.dumps(self._ended).encode() + b"\n", NO_SIGNAL)

    def _follow(self, order: int) -> None:
        if order == BEGIN:
            self._start_s = time.monotonic()
            os.write(self._begin, b"b")
        elif order == END_ALL:
            self._end_all()
            self._is_stuck = self._ended is None
        else:
            os.kill(self._pid, order)  # it was not reaped yet, so that its number is its own

    def _reap(self) -> None:
        """Take the ends of the command and of processes that it left behind."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._ended = {
                    "start_s": self._start_s,
                    "end_s": time.monotonic(),
                    "status": status,
                    "cpu_s": used.ru_utime + used.ru_stime,
                    "peak_kib": used.ru_maxrss if used.ru_maxrss > self._own_peak_kib else None,
                }

    def _let_leave(self) -> None:
        """Give helpers that end by themselves a moment for it, such as the resource tracker of Python's processes."""
        deadline_s = time.monotonic() + _LEAVING_S
        while _descendants(os.getpid()) and time.monotonic() < deadline_s:
            if select.select([self._control], [], [], 0.01)[0]:
                return  # the run ended, or ends all
            self._reap()

    def _end_all(self) -> int:
        return end_descendants(self._reap)


def end_descendants(reap: Callable[[], None]) -> int:
    """Kill all that descends from this process, also what was started meanwhile; returns how many.

    `reap` takes the ends of those that have ended.
    """
    killed: Set[int] = set()
    deadline_s = time.monotonic() + _KILLED_S
    while time.monotonic() < deadline_s:
        alive = _descendants(os.getpid())
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        killed.update(alive)
        reap()
        if not alive:
            break
        time.sleep(0.002)
    return len(killed)


def _own_peak_kib() -> int:
    """The peak of this program; its `ru_maxrss` has that of the run, too, which started it."""
    peak_kib = _of_this_process("status", "VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak_kib is None else peak_kib


def _read_bytes() -> Optional[int]:
    """What this process and all that it has waited for have read from storage; None without the kernel's accounting."""
    return _of_this_process("io", "read_bytes")


def _of_this_process(name: str, field: str) -> Optional[int]:
    """The number of a field in a file of the kernel about this process; None if it is not there."""
    try:
        with open(f"/proc/self/{name}", encoding="ascii") as file:
            [number] = [line.split()[1] for line in file if line.startswith(f"{field}:")]
    except (OSError, ValueError):
        return None
    return int(number)


def _descendants(root: int) -> List[int]:
    """The live processes below one, without itself, from `/proc`."""
    children: Dict[int, List[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        if state not in (b"Z", b"X"):
            children.setdefault(int(parent), []).append(int(name))
    family = children.get(root, [])
    for pid in family:
        family.extend(children.get(pid, []))
    return family


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
