"""A command as a process of its own: started on order, its signals handed on, ended with all that it started.

Its standard input, output and errors are the run's. A terminal sends Ctrl-C to both; the command decides what it means,
and the run ends after it. Where its lines are wanted, its output goes through the run: byte by byte as it was, and from
a terminal again where the run writes to one.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from harness.core.errors import CannotRunError, ProcessEndedError
from harness.measure import command_guard
from harness.measure.command_guard import BEGIN, END_ALL, KILL_GUARD, LEFT, NO_SIGNAL
from harness.workloads.command_secrets import without_secrets

LineTaken = Callable[[str, float], None]
"""Takes a line of a command's output, and when it came, in seconds of the monotonic clock."""

GRACE_S = 10.0  # for a command to end after SIGTERM or SIGHUP, before it is killed
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_SENT_BY_A_PROCESS = 0  # si_code of sigaction(2), SI_USER: a terminal's signals are the kernel's
_START_S = 10.0
_GUARD_S = 10.0  # longer than the guard tries to kill; what then is there is held by the kernel
_HELD_HINT = "see its state in ps: D waits for a device or a network disk, which only that or a reboot ends"
_OUTPUT_S = 1.0  # how long output is taken after the end: a process left behind may hold it open


class CommandEnd(NamedTuple):
    """How a command ended; its times are in seconds of the monotonic clock."""

    start_s: float
    end_s: float
    exit_code: int  # 128 + the signal that ended it, as shells have it
    cpu_s: float  # of it and of the processes that it waited for
    peak_bytes: Optional[float]  # of the largest of them; None if it is below that of the process that started it
    interrupted_by: str = ""  # the signal that ended this run meanwhile, by its name; empty for none
    left_behind: int = 0  # processes that it had started, and that were killed after its end
    read_bytes: Optional[float] = None  # from storage, by all its processes; None without the kernel's accounting


class CommandProcess:
    """A command that waits for `run`; in a `with` statement it has ended afterwards, with all its processes."""

    def __init__(self, argv: Sequence[str], on_line: Optional[LineTaken] = None) -> None:
        self._argv = list(argv)
        self._on_line = on_line
        self.pid = 0
        self._text = b""
        self._readers: List[threading.Thread] = []
        self._unread: Dict[int, int] = {}  # where its output is read, and where it goes

    def __enter__(self) -> CommandProcess:
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as handed_on:
            self._control, theirs = socket.socketpair()
            stack.callback(self._control.close)
            handed_on.callback(theirs.close)
            streams: Dict[str, int] = {}
            stack.callback(self._close_unread)
            for name, number in (("stdout", 1), ("stderr", 2)) if self._on_line is not None else ():
                source, streams[name] = _output_like(number)
                self._unread[source] = number
                handed_on.callback(os.close, streams[name])
            guard = [sys.executable, "-I", "-S", str(Path(command_guard.__file__)), str(theirs.fileno()), *self._argv]
            self._guard = subprocess.Popen(guard, pass_fds=[theirs.fileno()], **streams)  # type: ignore[call-overload]
            stack.callback(self._end)
            handed_on.close()  # else their ends would stay open here
            self._control.settimeout(_START_S)
            message = self._message()
            if message is None:
                raise ProcessEndedError(f"{self._argv[0]} could not be started: its parent process ended", "see above")
            self.pid = message["pid"]
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def _end(self) -> None:
        """End all of it, within a bound: what the kernel holds is left behind."""
        self._order(END_ALL)
        self._control.close()
        if self._waited_for() or self._waited_for(KILL_GUARD):
            all_ended = self._guard.returncode != LEFT
        else:
            self._guard.kill()
            all_ended = False
        if not all_ended:
            warnings.warn(self._held(), stacklevel=2)
        for reader in self._readers:
            reader.join(_OUTPUT_S)

    def _waited_for(self, number: int = 0) -> bool:
        """Send the keeper of the guard a signal, 0 for none; returns whether it ends within a bound."""
        self._guard.send_signal(number)
        try:
            self._guard.wait(_GUARD_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _held(self) -> str:
        return f"{self._argv[0]} (process {self.pid}) does not end although it was killed, and is left behind"

    def _close_unread(self) -> None:
        """Close the outputs that no thread reads, as `run` was not called."""
        while self._unread:
            os.close(self._unread.popitem()[0])

    def run(self, on_tick: Callable[[], None], tick_s: float = 0.2) -> CommandEnd:
        """Let the command begin, and wait for its end; whatever `on_tick` raises meanwhile ends it.

        Signals that end a run are handed on to the command, unless a terminal sent them to it already.
        """
        with _signals_held() as held:
            while self._unread:
                reader = threading.Thread(target=self._pass_on, args=self._unread.popitem(), daemon=True)
                reader.start()
                self._readers.append(reader)
            self._order(BEGIN)
            self._control.settimeout(0.0)
            interrupted_by, kill_at_s, give_up_at_s = "", float("inf"), float("inf")
            while True:
                message = self._message()
                if message is not None:
                    break
                came = _wait(held, tick_s)
                if came is not None and came.si_signo in _ENDING:
                    interrupted_by = signal.Signals(came.si_signo).name
                    if came.si_signo != signal.SIGINT:
                        kill_at_s = min(kill_at_s, time.monotonic() + GRACE_S)
                    if came.si_code == _SENT_BY_A_PROCESS:
                        self._order(came.si_signo)
                if time.monotonic() > kill_at_s:
                    self._order(END_ALL)
                    kill_at_s, give_up_at_s = float("inf"), time.monotonic() + _GUARD_S
                if time.monotonic() > give_up_at_s:
                    raise ProcessEndedError(self._held(), _HELD_HINT)
                on_tick()
        for reader in self._readers:
            reader.join(_OUTPUT_S)
        status = message["status"]
        if status is None:
            raise ProcessEndedError(self._held(), _HELD_HINT)
        exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        peak_bytes = None if message["peak_kib"] is None else 1024.0 * message["peak_kib"]
        times = message["start_s"], message["end_s"]
        left_behind, read_bytes = message["left_behind"], message["read_bytes"]
        return CommandEnd(*times, exit_code, message["cpu_s"], peak_bytes, interrupted_by, left_behind, read_bytes)

    def _order(self, order: int) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its last message tells how
            self._control.sendall(bytes([order]), NO_SIGNAL)

    def _message(self) -> Optional[Dict[str, Any]]:
        """The next message of the guard; None while there is none."""
        while b"\n" not in self._text:
            try:
                part = self._control.recv(4096)
            except (BlockingIOError, socket.timeout):
                return None
            if not part:
                raise ProcessEndedError(f"{self._argv[0]} lost its parent process, which watched it", "run it again")
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        message: Dict[str, Any] = json.loads(line)
        return message

    def _pass_on(self, source: int, number: int) -> None:
        """Write what the command writes to a stream, as it is, and hand on its lines, which a `CR` ends too."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        begun = ""
        while True:
            try:
                block = os.read(source, 1 << 16)
            except OSError:  # a terminal without writers
                block = b""
            came_s = time.monotonic()
            if not block:
                break
            _write_all(number, block)
            *lines, begun = re.split("[\r\n]", begun + decode(block))
            for line in filter(None, lines):
                assert self._on_line is not None
                self._on_line(line, came_s)
        os.close(source)


def check_command(argv: Sequence[str]) -> None:
    """CannotRunError if there is no such program, before anything is touched."""
    import shutil

    if shutil.which(argv[0]) is None:
        there = "it may not be executed" if os.path.exists(argv[0]) else "there is no such program"
        [program] = without_secrets(argv[:1])  # TOKEN=... in front of it is not for a shell
        raise CannotRunError(f"{program} cannot be run: {there}", "write the command as in a shell: -- python train.py")


def _output_like(number: int) -> Tuple[int, int]:
    """The ends of a pipe for a command's output; of a terminal like that of this process, if it has one."""
    if not os.isatty(number):
        return os.pipe()
    ours, theirs = os.openpty()
    with contextlib.suppress(termios.error):
        attributes = termios.tcgetattr(theirs)
        attributes[1] &= ~termios.OPOST  # what it writes is changed once, by the real terminal
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    with contextlib.suppress(AttributeError, OSError, termios.error):  # Python 3.11
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(number))  # type: ignore[attr-defined]
    return ours, theirs


def _wait(held: Set[signal.Signals], seconds: float) -> Optional[signal.struct_siginfo]:
    """Wait for a signal, at most for some seconds."""
    if held:
        return signal.sigtimedwait(held, seconds)
    time.sleep(seconds)
    return None


def _write_all(number: int, block: bytes) -> None:
    with contextlib.suppress(OSError):  # whoever read it has ended; the command goes on
        while block:
            block = block[os.write(number, block) :]


@contextlib.contextmanager
def _signals_held() -> Iterator[Set[signal.Signals]]:
    """Hold back the signals that end a run and that of a child's end, to be waited for; none outside Linux.

    Those that come after the command's end act after the block.
    """
    if not hasattr(signal, "sigtimedwait") or threading.current_thread() is not threading.main_thread():
        yield set()
        return
    ignored = {number for number in _ENDING if signal.getsignal(number) == signal.SIG_IGN}  # nohup
    held = {*_ENDING, signal.SIGCHLD} - ignored
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield held
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
