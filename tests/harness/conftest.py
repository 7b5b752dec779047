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
from tests import warm_pytest
from tests.harness.counting_rapl import COUNTING_RAPL, POWER_W

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
def plain_user(monkeypatch):
    """The rest of the test has no privileges, even where the tests are run by root; gives a directory it can write."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(directory))  # TMPDIR may be one of root's own
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield directory
    os.seteuid(user)
    for folder, _, _ in os.walk(directory):  # a test may have closed them, which holds for all but root
        os.chmod(folder, 0o700)
    shutil.rmtree(directory)


def suite_arguments(*arguments):
    """What `pytest` is given to run the suite's own benchmarks wherever it stands."""
    return ["-c", PROJECT / "pytest.ini", "--rootdir", PROJECT, PROJECT / "benchmarks", *arguments]


def suite_environment():
    return {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


@pytest.fixture
def start_suite(tmp_path):
    """Starts `pytest benchmarks` where the test's data and results are to go; returns the process, in its own group."""
    return lambda *arguments: warm_pytest.start(
        suite_arguments(*arguments), tmp_path, suite_environment(), own_group=True
    )


@pytest.fixture
def run_suite(tmp_path):
    """Runs `pytest benchmarks` to its end and returns what it said; `fresh` where nothing may be loaded before."""

    def run(*arguments, check=True, fresh=False):
        words, environment = suite_arguments(*arguments), suite_environment()
        if fresh:
            command = [sys.executable, "-m", "pytest", *map(str, words)]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        else:
            done = warm_pytest.run(words, tmp_path, environment)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def machine_with_rapl(tree, tmp_path_factory, monkeypatch):
    """This machine, but for a RAPL package that draws `POWER_W` all the time.

    The counter is set right before it is read, in the sampler's process: a process that counts by itself lags behind
    on a busy machine. Python imports `sitecustomize` wherever it starts.
    """
    zone, package = "sys/class/thermal/thermal_zone0", "sys/class/powercap/intel-rapl:0"
    tree.write({f"{zone}/type": "x86_pkg_temp", f"{zone}/temp": 40000, f"{package}/name": "package-0"})
    tree.write({f"{package}/max_energy_range_uj": 262143328850, f"{package}/energy_uj": 0})
    for name in ("proc", "sys/block", "sys/devices"):  # not sys/dev: a mount may not name what lies outside
        if Path("/", name).exists():
            tree.link(name, f"/{name}")
    customization = tmp_path_factory.mktemp("customization")
    counting = COUNTING_RAPL.format(counter=f"{package}/energy_uj", power_w=POWER_W)
    (customization / "sitecustomize.py").write_text(counting)
    monkeypatch.setenv("PYTHONPATH", str(customization))
    return tree.path
