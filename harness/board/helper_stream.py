"""Sensors that only root may read: one helper process stays for the whole run and reads them on request.

    the run --- sudo --- helper `stream`       started before the first sampler, ends when its input ends
       |__ a sampler for each profile          inherits both pipes, and requests on its own

A request gets one answer, and the process that waits for it holds a lock on the file of the helper's error output. An
answer that a killed sampler no longer read is skipped, because its id is of another process.

A file may hang in the kernel, and the helper with it; root's process cannot be killed. The request ends after
`_ANSWER_S`, and another helper is started; after `MOST_FAILED` of them the run does without these sensors.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import itertools
import json
import os
import select
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from harness.board.kernel_file import KeptFile, may_read, read_text, whole_number
from harness.core.errors import ControlError

if TYPE_CHECKING:
    import subprocess

    from harness.board.source import SourceSpec

_START_S = 20.0  # sudo and Python, at the lowest clock of a slow board
_ANSWER_S = 5.0  # the kernel answers within a ms for each file
MOST_FAILED = 2  # helpers of a process; one that hangs stays until the kernel lets it go
_END_S = 2.0
_BLOCK_BYTES = 1 << 16
ROOT_ONLY = "only root may read this sensor"

Answer = Union[str, OSError]


class StreamEnds(NamedTuple):
    """What another process of the run needs in order to use the stream; in types that JSON has."""

    to_helper: int
    from_helper: int
    errors: int  # the helper's error output; its lock is held while an answer is awaited
    pids: List[int]  # sudo's and the helper's


class HelperStream:
    """Requests to the helper's `stream`, from this process."""

    def __init__(self, ends: StreamEnds) -> None:
        self.ends = ends
        self.process: Optional[subprocess.Popen[bytes]] = None  # sudo's, if this process started it
        self._threads = threading.Lock()
        self._ids = itertools.count(1)
        self.failure = ""  # why it is of no use any more
        self._first_cpu_s: Optional[float] = None
        self.cpu_s = 0.0  # of the helper since its first answer to this process, as it reports it

    def is_answering(self) -> bool:
        """Whether the helper answers a request for no file; takes as long as an answer may take."""
        self.read([""])
        return not self.failure

    def read(self, paths: Sequence[str]) -> Dict[str, Answer]:
        """The text of each file, or the error that reading it gave; no error of the stream itself is raised either."""
        try:
            return self._read(paths)
        except OSError as error:
            return dict.fromkeys(paths, error)

    def _read(self, paths: Sequence[str]) -> Dict[str, Answer]:
        if self.failure:
            raise OSError(self.failure)
        number = f"{os.getpid()}-{next(self._ids)}"
        request = "\t".join([number, *paths]) + "\n"
        with self._threads, _locked(self.ends.errors):
            try:
                os.write(self.ends.to_helper, os.fsencode(request))
                answer = _next_line(self.ends, _ANSWER_S, lambda line: line.get("id") == number)
            except OSError as error:
                reason = error.strerror if error.errno != errno.EPIPE else self.last_words()
                self.failure = f"the helper that reads {paths[0] or 'sensors'} has failed: {reason}"
                raise OSError(self.failure) from error
        if self._first_cpu_s is None:
            self._first_cpu_s = answer["cpu_s"]
        self.cpu_s = answer["cpu_s"] - self._first_cpu_s
        texts = zip(paths, answer["files"])
        return {path: text if isinstance(text, str) else _error(path, *text) for path, text in texts}

    def has_ended(self) -> bool:
        """Whether sudo has ended; only the process that started it knows."""
        return self.process is not None and self.process.poll() is not None

    def last_words(self) -> str:
        said = os.pread(self.ends.errors, _BLOCK_BYTES, 0).decode(errors="replace").strip()
        return said.splitlines()[-1] if said else "it has ended"

    def close(self) -> None:
        """Let the helper end, and wait for it where this process started it."""
        for fd in self.ends[:3]:
            with contextlib.suppress(OSError):
                os.close(fd)
        if self.process is not None:
            import subprocess

            with contextlib.suppress(subprocess.TimeoutExpired):  # root's: it cannot be killed, and ends by itself
                self.process.wait(timeout=_END_S)


def _error(path: str, number: int, reason: str) -> OSError:
    if number == errno.EPERM:  # the helper's own words
        return OSError(f"{path} was not read by the helper: {reason}")
    return OSError(number, reason, path)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Hold the lock, which goes with a process that is killed; OSError if another holds it longer than it may."""
    deadline_s = time.monotonic() + 2 * _ANSWER_S
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline_s:
                what = f"another process of this run has held it for {2 * _ANSWER_S:g} s"
                raise OSError(errno.ETIMEDOUT, what) from None
            time.sleep(0.002)
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _next_line(ends: StreamEnds, within_s: float, is_wanted: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
    """The next line from the helper that is wanted; OSError (ETIMEDOUT, EPIPE) where none comes."""
    deadline_s = time.monotonic() + within_s
    rest = b""
    while True:
        readable, _, _ = select.select([ends.from_helper], [], [], max(0.0, deadline_s - time.monotonic()))
        if not readable:
            raise OSError(errno.ETIMEDOUT, f"it gave no answer within {within_s:g} s")
        block = os.read(ends.from_helper, _BLOCK_BYTES)
        if not block:
            raise OSError(errno.EPIPE, "it has ended")
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # the rest of a line that a killed sampler began to read
                answer = json.loads(line)
                if isinstance(answer, dict) and is_wanted(answer):
                    return answer


# -- the stream of this process ----------------------------------------------------------------------------------------

_stream: Optional[HelperStream] = None
_refusal: Optional[ControlError] = None  # sudo is not tried again for each sample
_failed = 0  # helpers so far


class Inherited(NamedTuple):
    """What a sampler takes over from the process that started it; in types that JSON has."""

    ends: Optional[StreamEnds]
    refusal: Optional[Tuple[str, str]] = None  # why there is no helper, and what to do


def inherit(inherited: Inherited) -> None:
    """Use the stream that another process of the run started."""
    global _stream, _refusal
    ends, refusal = inherited
    _stream = HelperStream(StreamEnds(*ends)) if ends else None
    _refusal = ControlError(*refusal) if refusal else None


def bequest(sources: Sequence[SourceSpec], root: str) -> Inherited:
    """What a sampler of these sources inherits; a helper that no longer answers is replaced first."""
    stream = open_for(sources, root)
    refusal = None if _refusal is None else (_refusal.what, _refusal.hint)
    return Inherited(stream.ends if stream else None, refusal)


def opened() -> HelperStream:
    """The run's stream, started where there is none that works; ControlError, with what to do, where that fails."""
    global _stream, _refusal, _failed
    if _refusal is not None:
        raise _refusal
    if _stream is not None and (_stream.failure or _stream.has_ended()):
        failure = _stream.failure
        _leave_stream()
        _failed += bool(failure)
        if _failed >= MOST_FAILED:
            what = f"{ROOT_ONLY}, and no further helper is started after {_failed}: {failure}"
            _refusal = ControlError(what, "see `dmesg` for a file that hangs; a reboot ends it")
            raise _refusal
    if _stream is None:
        try:
            _stream = _start()
        except ControlError as error:
            _refusal = error
            raise
    return _stream


def close() -> None:
    """End the run's stream; the next request starts another."""
    global _refusal, _failed
    _leave_stream()
    _refusal, _failed = None, 0


def _leave_stream() -> None:
    global _stream
    stream, _stream = _stream, None
    if stream is not None:
        stream.close()


def _leave_to_parent() -> None:
    """In a forked child, such as a DataLoader worker: the helper must not wait for the child's end too."""
    global _stream
    stream, _stream = _stream, None
    if stream is not None:
        for fd in stream.ends[:3]:
            with contextlib.suppress(OSError):
                os.close(fd)


atexit.register(close)
os.register_at_fork(after_in_child=_leave_to_parent)


def _start() -> HelperStream:
    import subprocess

    from harness.board import privileged, privileges

    why_not = privileges.other_version()
    if why_not is not None:
        raise ControlError(f"{ROOT_ONLY}: {why_not}", privileges.ASK_FOR_RULE)
    requests, to_helper = os.pipe()
    from_helper, answers = os.pipe()
    ends = StreamEnds(to_helper, from_helper, _scratch_file(), [])
    stream = HelperStream(ends)
    try:
        stream.process = subprocess.Popen(
            ["sudo", "-n", privileges.HELPER, privileged.STREAM],
            stdin=requests,
            stdout=answers,
            stderr=ends.errors,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C is the run's to handle
        )
        os.close(answers)  # so that the helper's end is seen
        answers = -1
        of_helper = _next_line(ends, _START_S, lambda line: "pids" in line)["pids"]
        # sudo may run the helper in its own place, so that what started the helper is this process.
        ends.pids.extend(sorted({stream.process.pid, *of_helper} - {os.getpid()}))
    except OSError as error:
        why_not = stream.last_words() if error.errno == errno.EPIPE else f"sudo: {error.strerror}"
        stream.close()
        raise ControlError(f"{ROOT_ONLY}: {why_not}", privileges.ASK_FOR_RULE) from error
    except BaseException:  # Ctrl-C
        stream.close()
        raise
    finally:
        os.close(requests)
        if answers >= 0:
            os.close(answers)
    return stream


def _scratch_file() -> int:
    if hasattr(os, "memfd_create"):  # glibc 2.27
        return os.memfd_create("helper")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# -- files of sensors --------------------------------------------------------------------------------------------------


class SensorFiles:
    """Files of a whole number each: open files of those that this user may read, one request for all the others."""

    def __init__(self, paths: Sequence[str], root: str) -> None:
        closed = _root_only(paths)
        self._closed = closed if closed and _reaches(root) else []
        self._kept = {path: KeptFile(path) for path in paths if path not in self._closed}
        self._answers: Dict[str, Answer] = {}

    def refresh(self) -> None:
        """Take new values of those that the helper reads."""
        if self._closed:
            self._answers = _read_closed(self._closed)

    def read_int(self, path: str) -> int:
        """The value now, or that of the last `refresh`; OSError or ValueError where there is none."""
        if path in self._kept:
            return self._kept[path].read_int()
        answer = self._answers.get(path, OSError(f"{path} was not read"))
        if isinstance(answer, OSError):
            raise answer
        return whole_number(path, answer.strip("\0 \t\n"))


def read_sensor(path: str, root: str) -> str:
    """The text of one file, by the helper where only root may read it; stripped. Raises OSError."""
    if not (_root_only([path]) and _reaches(root)):
        return read_text(path)
    answer = _read_closed([path])[path]
    if isinstance(answer, OSError):
        raise answer
    return answer.strip("\0 \t\n")


def open_for(sources: Sequence[SourceSpec], root: str) -> Optional[HelperStream]:
    """The stream if one of these telemetry sources needs it and it can be had, otherwise None.

    The sampler of each profile inherits it: started here, it is one for all of them.
    """
    from harness.board.privileged import sensor_files

    for source in sources:
        place = source.root or root
        reads = source.name == "ina" or (source.name == "cpufreq" and source.options.get("measured"))
        if reads and _reaches(place) and _root_only(sensor_files(place)[source.name]):
            with contextlib.suppress(ControlError):  # the sampler records the reason
                stream = opened()
                return stream if stream.is_answering() else opened()
    return None


def pids() -> List[int]:
    """The processes of this run's stream: sudo's and the helper's; none where there is no stream."""
    return list(_stream.ends.pids) if _stream else []


def reported_cpu_s() -> float:
    """CPU time of the helper as it reports it itself, for where /proc hides root's processes (hidepid)."""
    return _stream.cpu_s if _stream else 0.0


def _reaches(root: str) -> bool:
    """Whether files below `root` are read by the helper where only root may: those of this machine."""
    if _stream is not None:
        return True
    from harness.board import privileges

    return privileges.needed(root)


def _root_only(paths: Sequence[str]) -> List[str]:
    return [path for path in paths if os.path.exists(path) and not may_read(path)]


def _read_closed(paths: Sequence[str]) -> Dict[str, Answer]:
    try:
        return opened().read(paths)
    except ControlError as error:
        return dict.fromkeys(paths, OSError(f"{paths[0]}: {error}"))
