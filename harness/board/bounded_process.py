"""Runs an executable that may ask questions or hang: it gets an answer, a time limit, and no shell."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from harness.core.errors import ControlError

_GRACE_S = 5.0  # a killed process is gone in milliseconds, unless the kernel holds it

_NO_VARIABLES: Mapping[str, str] = {}


class Finished(NamedTuple):
    status: int
    output: str


def run_bounded(
    command: Sequence[str],
    *,
    timeout_s: float,
    answer: str = "",
    grace_s: float = _GRACE_S,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Finished:
    """`answer` is what the command reads; killed for its time limit with its children, it has `grace_s` to be gone.

    `variables` are added to this process's environment.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", **variables},
            start_new_session=True,  # a process group of its own, to be killed as a whole
        )
    except OSError as error:
        raise ControlError(f"{command[0]} cannot be run: {error.strerror}") from error
    try:
        output, _ = process.communicate(answer.encode(), timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        ended = "was ended" if ended_by_kill(process, grace_s) else f"cannot be ended (process {process.pid})"
        line = " ".join(map(shlex.quote, command))
        raise ControlError(f"`{line}` did not end within {timeout_s:g} s and {ended}") from error
    except BaseException:  # Ctrl-C: what comes next must not run beside it
        if not ended_by_kill(process, grace_s):
            with contextlib.suppress(subprocess.TimeoutExpired):  # sudo's, which has a time limit of its own
                process.communicate(timeout=timeout_s)
        raise
    return Finished(process.returncode, output.decode(errors="replace"))


def run_checked(
    command: Sequence[str], *, timeout_s: float, hint: str, variables: Mapping[str, str] = _NO_VARIABLES
) -> str:
    """Run a command as `run_bounded` and return what it printed; ControlError if it ended with a status."""
    done = run_bounded(command, timeout_s=timeout_s, variables=variables)
    if done.status:
        said = done.output.strip() or f"status {done.status}"
        raise ControlError(f"`{' '.join(command)}` failed: {said}", hint)
    return done.output


def run_within(
    timeout_s: float, command: Sequence[str], *, given: Optional[bytes] = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run`, which waits without a limit for a process that it has killed; `given` is what it reads.

    Raises subprocess.TimeoutExpired.
    """
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen(command, start_new_session=True, **streams)
    try:
        output, errors = process.communicate(given, timeout=timeout_s)
    except BaseException:
        ended_by_kill(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def ended_by_kill(process: subprocess.Popen[bytes], grace_s: float = _GRACE_S) -> bool:
    """Kill the group that a process leads, and wait `grace_s` for its end; False if the kernel still holds it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile
    except PermissionError:
        return False  # sudo made it another user's
    try:
        process.communicate(timeout=grace_s)
    except subprocess.TimeoutExpired:
        return process.poll() is not None
    return True
