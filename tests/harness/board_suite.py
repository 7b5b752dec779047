"""Runs of the suite on an emulated board, whose kernel takes the writes and whose tools run in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import TESTS

from harness.core.errors import StoreError
from harness.store.results import ResultsStore
from tests import warm_pytest

PROJECT = TESTS.parent
RESULTS = "r.sqlite"

_RUNNER = "import sys; from tests.harness.board_suite import main; sys.exit(main(sys.argv[1], sys.argv[2:]))"


def main(root, arguments):
    """Run pytest where a tree is the board."""
    with intercepted(Kernel(root)), tools_in_process(root):
        return pytest.main(arguments)


def suite_arguments(tree, arguments):
    """What pytest is given; what `arguments` repeat replaces what is here."""
    files = [argument for argument in arguments if str(argument).endswith(".py")] or ["."]
    rest = [argument for argument in arguments if argument not in files]
    fixed = ["-c", PROJECT / "pytest.ini", "--rootdir", PROJECT, *(PROJECT / "benchmarks" / file for file in files),
             "--device-root", tree.root, "--results", RESULTS, "--workload", "lenet-mnist", "--workers", "0",
             "--minibatches", "5", "--interval", "0.1"]  # fmt: skip
    return list(map(str, [*fixed, *rest]))


def suite_environment(folder):
    paths = os.pathsep.join([str(PROJECT), str(TESTS)])
    return {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}


def start(tree, folder, *arguments, before=()):
    """Start `pytest benchmarks --device-root TREE` in a folder, after the words `before`; returns the process."""
    words, environment = suite_arguments(tree, arguments), suite_environment(folder)
    if not before:
        return warm_pytest.start(words, folder, environment, partial(main, tree.root))
    command = [*map(str, before), sys.executable, "-c", _RUNNER, tree.root, *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    """Wait for the end of a run; returns what it said."""
    stdout, stderr = process.communicate(timeout=500)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run(tree, folder, *arguments):
    """A run from its start to its end."""
    return finish(start(tree, folder, *arguments))


def profiles(folder):
    """What is stored."""
    with ResultsStore(folder / RESULTS, read_only=True) as store:
        return list(store.profiles())


def wait_for_profile(folder, process):
    """Wait until a run has stored its first profile."""
    while process.poll() is None:
        try:
            if profiles(folder):
                return
        except StoreError:
            pass  # the file is only being made
        time.sleep(0.02)
    raise AssertionError(f"the run ended before: {finish(process)}")
