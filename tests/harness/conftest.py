"""What the tests share: a root to put kernel files in, a plain user's rights, and runs of the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.board.lock import LOCK_DIR_VARIABLE

PROJECT = Path(__file__).resolve().parents[2]
NOBODY = 65534


class Tree:
    """Writes files below a root by their path: `tree.write({"proc/stat": "cpu ..."})`."""

    def __init__(self, root):
        self.path = root
        self.root = str(root)

    def write(self, files):
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")

    def link(self, name, target):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def contents(self):
        """Every file's text by its path."""
        return {str(path.relative_to(self.path)): path.read_text() for path in self.path.rglob("*") if path.is_file()}


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory):
    """Runs of the tests, and what they start, exclude each other only: neither a run of the suite nor other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_DIR_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path / "root")


@pytest.fixture
def tree_in():
    """Makes a tree in a directory, for tests that need one for each of their examples."""
    return Tree


@pytest.fixture
def plain_user():
    """The rest of the test has no privileges, even where the tests are run by root; gives a directory it can write."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield directory
    os.seteuid(user)
    shutil.rmtree(directory)


@pytest.fixture
def start_suite(tmp_path):
    """Starts `pytest benchmarks` where the test's data and results are to go; returns the process."""

    def start(*arguments, **kwargs):
        command = [sys.executable, "-m", "pytest", "-c", PROJECT / "pytest.ini", "--rootdir", PROJECT,
                   PROJECT / "benchmarks", *arguments]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
        return subprocess.Popen(list(map(str, command)), cwd=tmp_path, env=environment, **kwargs)

    return start


@pytest.fixture
def run_suite(start_suite):
    """Runs `pytest benchmarks` to its end and returns what it said."""

    def run(*arguments, check=True):
        process = start_suite(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        stdout, stderr = process.communicate(timeout=300)
        if check:
            assert process.returncode == 0, stdout + stderr
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    return run
