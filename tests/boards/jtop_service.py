"""Runs the real jtop service of jetson-stats on a tree, in a mount namespace of its own: the machine stays as it is.

There, the tree's folders lie over `/sys`, `/etc` (with a group jtop), `/usr/bin` and some files of `/proc`, and `/run`
is empty. A user other than root gets a user namespace, too, in which they are root. The service runs as on a board, not
in its test mode, so that our sensors and it read the same files. It takes the machine for an aarch64 one, and keeps its
own configuration in a temporary folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, List, Mapping

import pytest

SOCKET = "run/jtop.sock"
NO_NAMESPACE = 97
PROC_FILES = ("stat", "cpuinfo", "meminfo", "buddyinfo")
START_S, STOP_S = 30.0, 10.0

_MOUNTS = f"""
root=$1 etc=$2; shift 2
{{
    mount --make-rprivate / &&
    mount --bind "$root/sys" /sys &&
    mount -t tmpfs tmpfs /run &&
    mount -t overlay overlay -o "lowerdir=$etc:/etc" /etc &&
    mount -t overlay overlay -o "lowerdir=$root/usr/bin:/usr/bin" /usr/bin &&
    for file in {" ".join(PROC_FILES)}; do mount --bind "$root/proc/$file" "/proc/$file" || exit {NO_NAMESPACE}; done
}} || exit {NO_NAMESPACE}
exec "$@"
"""

SERVE = """
import platform, sys
platform.machine = lambda: "aarch64"
sys.base_prefix = sys.argv[1]
from jtop.service import JtopServer
JtopServer(force=True).loop_for_ever()
"""


class JtopNotPossibleError(Exception):
    """The service cannot run here; says why."""


class JtopService:
    """A running service."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process = process
        self._log = log

    def python(self, code: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run Python code beside the service, where its socket and the tree's `/sys` are; returns what it printed."""
        command = [*self.enter(), sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode:
            raise RuntimeError(f"{done.stderr}\nThe service said:\n{self._log.read_text()}")
        return done.stdout

    def enter(self) -> List[str]:
        """The words before a command that is to run beside the service."""
        namespaces = [f"--mount=/proc/{self.process.pid}/ns/mnt"]
        if not _is_root():
            namespaces += [f"--user=/proc/{self.process.pid}/ns/user", "--preserve-credentials"]
        return ["nsenter", *namespaces]


def _is_root() -> bool:
    return os.geteuid() == 0


def skip_or_fail(reason: str, environment: Mapping[str, str] = os.environ, tests: str = "the tests of jtop") -> None:
    """Skip a test that this machine cannot run; in CI, which has to run them all, fail it."""
    if environment.get("CI"):
        pytest.fail(f"{tests} must run in CI, where CI is set: {reason}", pytrace=False)
    pytest.skip(reason)


@contextlib.contextmanager
def jtop_or_skip(root: str) -> Iterator[JtopService]:
    """As `running_jtop`; where the service cannot run here, the test is skipped, or fails in CI."""
    with contextlib.ExitStack() as stack:
        try:
            service = stack.enter_context(running_jtop(root))
        except JtopNotPossibleError as error:
            skip_or_fail(str(error))
        yield service


def why_not() -> str:
    """What prevents the service from running here; empty if nothing is known to."""
    if importlib.util.find_spec("jtop") is None:
        return "jetson-stats is not installed: make install EXTRAS=train,report,dev,jetson"
    missing = [tool for tool in ("unshare", "nsenter", "mount") if shutil.which(tool) is None]
    return f"there is no {missing[0]}" if missing else ""


@contextlib.contextmanager
def running_jtop(root: str) -> Iterator[JtopService]:
    """The service on the tree at `root`, until the end of the block."""
    reason = why_not()
    if reason:
        raise JtopNotPossibleError(reason)
    namespaces = ["--mount"] if _is_root() else ["--mount", "--user", "--map-root-user"]
    group = 64999 if _is_root() else 0  # a user namespace of a plain user has no other group
    with tempfile.TemporaryDirectory() as folder:
        etc = Path(folder) / "etc"
        shutil.copytree(os.path.join(root, "etc"), str(etc), symlinks=True)
        (etc / "group").write_text(Path("/etc/group").read_text().rstrip("\n") + f"\njtop:x:{group}:\n")
        log = Path(folder) / "log"
        serve = [sys.executable, "-c", SERVE, str(Path(folder) / "prefix")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["unshare", *namespaces, "sh", "-c", _MOUNTS, "sh", root, str(etc), *serve],
                stdout=output,
                stderr=subprocess.STDOUT,
                # jetson-stats runs swapon, which a plain user's PATH may lack
                env={**os.environ, "PATH": f"{root}/usr/sbin:{os.environ['PATH']}:/usr/sbin:/sbin", "USER": "root"},
                start_new_session=True,
            )
        try:
            _wait_for_socket(process, log)
            yield JtopService(process, log)
        finally:
            _stop(process)


def _wait_for_socket(process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START_S
    while not os.path.exists(f"/proc/{process.pid}/root/{SOCKET}"):
        if process.poll() == NO_NAMESPACE:
            raise JtopNotPossibleError(f"no mount namespace can be made here: {log.read_text().strip()}")
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the jtop service did not start:\n{log.read_text()}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen) -> None:
    """Ctrl-C, as a terminal sends it to all of its processes; what is left of them after that is killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
