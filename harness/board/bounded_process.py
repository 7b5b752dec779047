"""Runs an executable that may ask questions or hang: it gets an answer, a time limit, and no shell."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from typing import Mapping, NamedTuple, Sequence

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
        ended = "was ended" if _kill(process, grace_s) else f"cannot be ended (process {process.pid})"
        line = " ".join(map(shlex.quote, command))
        raise ControlError(f"`{line}` did not end within {timeout_s:g} s and {ended}") from error
    except BaseException:  # Ctrl-C: what comes next must not run beside it
        if not _kill(process, grace_s):
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


def _kill(process: subprocess.Popen[bytes], grace_s: float) -> bool:
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
