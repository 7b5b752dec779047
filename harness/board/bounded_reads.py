"""Reads that cannot hold up a run: a watched thread makes them, and a file that does not answer is left alone.

    caller   --|-- waits ---------------------|-- the content, or an OSError that names the file -->
    thread     |-- open, read, ... -----------|   stays with a file that hangs; another thread takes its place

One thread serves many reads: `watched_each` hands all sources of a sample over to it at once, and each file is entered
where it is read (`bounded`), which costs two assignments. A thread that a file holds up is abandoned. If the file
answers after all, it is read again, until it has hung `MOST_HANGS` times.

Time counts in waits of the caller and not by the clock, and a thread that could run but gets no CPU is not held up: an
overloaded or stopped machine loses no sensor.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar

WAIT_S = 0.1
HANG_S = 1.0  # for the first file; the kernel answers in microseconds, and Tegra's I2C gives up after a second
NEXT_S = 0.2  # for further files: those of one driver hang together
MOST_HANGS = 2
WRITE_S = 60.0  # dropping a large page cache takes seconds, taking a CPU offline some 100 ms

silent: Dict[str, str] = {}
"""Files that did not answer this process and are not read again: path to the reason."""

unread: Dict[str, str] = {}
"""Files that only identify a sensor and could not be read: path to the reason. What they identify is left out."""

_hangs: Dict[str, int] = {}  # how often a file has held up a thread
_local = threading.local()
_Result = TypeVar("_Result")


class StuckError(OSError):
    """What was done did not end in its time, for another reason than a file."""


class _AbandonedError(BaseException):
    """Ends the work of an abandoned thread when its file has answered after all."""


class _ReaderThread:
    """A thread that does one act after the other."""

    def __init__(self) -> None:
        self.acts: queue.SimpleQueue[Optional[Callable[[], Any]]] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Tuple[Any, Optional[BaseException]]] = queue.SimpleQueue()
        self.file = ""  # what it reads now
        self.is_abandoned = False
        self.thread = threading.Thread(target=self._serve, name="jetwatt-reader", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        _local.reader = self
        while True:
            act = self.acts.get()
            if act is None:
                return
            result: Tuple[Any, Optional[BaseException]]
            try:
                result = act(), None
            except _AbandonedError:
                return
            except BaseException as error:
                result = None, error
            if self.is_abandoned:
                return
            self.results.put(result)

    def abandon(self) -> None:
        self.is_abandoned = True
        self.acts.put(None)

    def wants_cpu(self) -> bool:
        """Whether it can run, and only waits for a CPU."""
        try:
            with open(f"/proc/self/task/{self.thread.native_id}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] == "R"
        except (OSError, IndexError):
            return False


_idle: List[_ReaderThread] = []


def _take_idle() -> _ReaderThread:
    try:
        return _idle.pop()
    except IndexError:
        return _ReaderThread()


def _end_idle() -> None:
    """Before a fork: a child has no threads, and Python warns of a fork beside them."""
    while _idle:
        reader = _take_idle()
        reader.abandon()
        reader.thread.join(HANG_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_idle)


def bounded(path: str, read: Callable[[], _Result]) -> _Result:
    """What `read`, which reads the file at `path`, returns; OSError (ETIMEDOUT) if the file does not answer."""
    if path in silent:
        raise OSError(errno.ETIMEDOUT, silent[path], path)
    reader: Optional[_ReaderThread] = getattr(_local, "reader", None)
    if reader is None:
        return watched(lambda: bounded(path, read))
    reader.file = path
    try:
        return read()
    finally:
        reader.file = ""
        if reader.is_abandoned:
            if _hangs.get(path, 0) < MOST_HANGS:
                silent.pop(path, None)
            raise _AbandonedError


def unanswered(texts: Iterable[str]) -> Dict[str, str]:
    """The files in `silent` and `unread` that none of some texts names, with the reason."""
    files = {**unread, **silent}
    if not files:
        return {}
    said = "\n".join(texts)
    return {path: why for path, why in files.items() if path not in said}


def watched(act: Callable[[], _Result], most_s: Optional[float] = None, what: str = "") -> _Result:
    """What `act` returns, done by a watched thread. If a file holds it up, it begins anew and gets an OSError for that.

    Args:
        act: may run more than once.
        most_s: how long it may take for another reason than a file; None for any time.
        what: its name in the StuckError then.
    """
    if getattr(_local, "reader", None) is not None:
        return act()
    while True:
        reader = _take_idle()
        try:
            reader.acts.put(act)
            answer = _answer(reader, most_s, what)
        except BaseException:
            reader.abandon()
            raise
        if answer is not None:
            _idle.append(reader)
            result, error = answer
            if error is not None:
                raise error
            return result


def watched_each(acts: Mapping[str, Callable[[], Any]], most_s: float, what: str) -> Dict[str, Any]:
    """What each act returns, or the exception that it raises, by its name; one thread does them all in turn.

    An act that takes longer than `most_s` for another reason than a file has a StuckError, and the others go on.
    """
    results: Dict[str, Any] = {}
    while len(results) < len(acts):
        turn = _Turn(acts, results)
        try:
            watched(turn.run, most_s, what)
        except StuckError:
            turn.is_over = True
            why = f"{what} {turn.name} gave no answer within {most_s:g} s"
            results[turn.name] = StuckError(errno.ETIMEDOUT, why)
    return results


class _Turn:
    """The acts that have no result yet, done in turn until one of them is stuck."""

    def __init__(self, acts: Mapping[str, Callable[[], Any]], results: Dict[str, Any]) -> None:
        self._acts, self._results = acts, results
        self.name = ""  # of the act that is being done
        self.is_over = False

    def run(self) -> None:
        for name, act in self._acts.items():
            if name in self._results:
                continue
            self.name = name
            try:
                result = act()
            except Exception as error:
                result = error
            if self.is_over:  # it was stuck, and has ended after all
                return
            self._results[name] = result


def _answer(reader: _ReaderThread, most_s: Optional[float], what: str) -> Optional[Tuple[Any, Optional[BaseException]]]:
    """The result of the reader's act; None if a file holds it up, which is then in `silent`."""
    file, waits, waits_in_all = "", 0, 0
    while True:
        try:
            return reader.results.get(timeout=WAIT_S)
        except queue.Empty:
            pass
        if reader.wants_cpu():
            continue
        waits_in_all += 1
        waits = waits + 1 if reader.file == file else 0
        file = reader.file
        patience_s = NEXT_S if _hangs else HANG_S
        if file and waits * WAIT_S >= patience_s:
            _hangs[file] = _hangs.get(file, 0) + 1
            silent[file] = f"it gave no answer within {patience_s:g} s, and is not read again"
            reader.abandon()
            if reader.file != file:  # it has answered just now
                silent.pop(file, None)
            return None
        if most_s is not None and not file and waits_in_all * WAIT_S >= most_s:
            raise StuckError(errno.ETIMEDOUT, f"{what} gave no answer within {most_s:g} s")


def write_bounded(path: str, write: Callable[[], None]) -> None:
    """Run `write`, which writes to the file at `path`; OSError (ETIMEDOUT) if it does not end within `WRITE_S`."""
    if path in silent:
        raise OSError(errno.ETIMEDOUT, silent[path], path)
    watched(write, WRITE_S, path)
