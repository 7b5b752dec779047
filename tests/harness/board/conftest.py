"""A plain user with the helper for what needs root, and one without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.board import privileged, privileges
from harness.board.lock import LOCK_DIR_VARIABLE
from tests.harness.board.nvpmodel_board import Board
from tests.programs import python_program

PROJECT = Path(privileged.__file__).resolve().parents[2]
SOURCE = Path(privileged.__file__).read_bytes()  # read now: a plain user may not see a clone in root's home folder


@pytest.fixture
def states(tmp_path, monkeypatch):
    """The folder of saved states, of this test alone; so is that of locks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path / "lock"))
    return tmp_path / "state/jetwatt"


def install_sudo(folder, monkeypatch, script):
    """Put a `sudo` on the PATH and a helper where it is looked for."""
    for name in ("privileged", "source.py"):
        (folder / name).write_bytes(SOURCE)
    monkeypatch.setattr(privileged, "__file__", str(folder / "source.py"))
    (folder / "sudo").write_text(script)
    (folder / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(privileges, "HELPER", str(folder / "privileged"))


@pytest.fixture
def user(plain_user, monkeypatch):
    """A plain user where the helper is installed, and a `sudo` that writes down what it is asked and answers `says`."""

    def install(says="", status=0, to_stderr=False):
        log = plain_user / "log"
        install_sudo(
            plain_user,
            monkeypatch,
            f'#!/bin/sh\necho "$*" >> {log}\n[ "$2" != -l ] || exit 0\necho "{says}" {">&2" if to_stderr else ""}\n'
            f"cat >> {log}\nexit {status}\n",
        )
        return log

    return install


@pytest.fixture
def nothing_installed(plain_user, monkeypatch):
    monkeypatch.setattr(privileges, "HELPER", str(plain_user / "privileged"))


ON_A_TREE = """# Does what the real one has the helper do, but on a tree; writes down what it is asked.
import os, sys
sys.path.insert(0, {project!r})
from harness.board import privileged
from harness.board.privileged import Machine, RefusedError, perform
if sys.argv[2] == "-l":
    sys.exit(0)
with open({log!r}, "a") as log:
    print(*sys.argv[3:], file=log)
if os.path.exists({limit!r}):
    privileged.NVPMODEL_TIMEOUT_S = float(open({limit!r}).read())
os.umask(0o022)
if sys.argv[3:] == ["stream"]:
    sys.exit(privileged.serve(Machine({root!r}, os.geteuid()), sys.stdin.buffer, sys.stdout.buffer))
try:
    status, output = perform(sys.argv[3:], Machine({root!r}, os.geteuid()), sys.stdin.buffer.read)
except RefusedError as error:
    status, output = 2, f"refused: {{error}}"
print(output, end="")
sys.exit(status)
"""


@pytest.fixture
def helped_board(tmp_path, monkeypatch):
    """A board whose knobs are used as by a plain user: what needs root goes to the real operations of the helper."""
    before = os.umask(0o022)
    board = Board(tmp_path / "board")
    log, limit = tmp_path / "log", tmp_path / "limit"
    script = ON_A_TREE.format(project=str(PROJECT), log=str(log), limit=str(limit), root=str(board.path))
    install_sudo(tmp_path, monkeypatch, python_program(script, "-IS"))
    monkeypatch.setattr(privileges, "needed", lambda root: True)
    board.asked = lambda: log.read_text().splitlines() if log.exists() else []
    board.helper_waits = lambda seconds: limit.write_text(str(seconds))
    yield board
    os.umask(before)
