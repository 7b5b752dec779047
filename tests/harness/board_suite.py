"""Runs of the suite on an emulated board, whose kernel takes the writes and whose tools run in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from boards.tree import TESTS

from harness.core.errors import StoreError
from harness.store.results import ResultsStore

PROJECT = TESTS.parent
RESULTS = "r.sqlite"

_RUNNER = """
import sys
import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process

with intercepted(Kernel(sys.argv[1])), tools_in_process(sys.argv[1]):
    sys.exit(pytest.main(sys.argv[2:]))
"""


def start(tree, folder, *arguments, before=(), **options):
    """Start `pytest benchmarks --device-root TREE` in a folder; returns the process.

    `before` holds words before the command, `options` go to `Popen`. What `arguments` repeat replaces what is here.
    """
    files = [argument for argument in arguments if str(argument).endswith(".py")] or ["."]
    rest = [argument for argument in arguments if argument not in files]
    command = [*before, sys.executable, "-c", _RUNNER, tree.root, "-c", PROJECT / "pytest.ini", "--rootdir", PROJECT,
               *(PROJECT / "benchmarks" / file for file in files), "--device-root", tree.root,
               "--results", RESULTS, "--workload", "lenet-mnist", "--workers", "0", "--minibatches", "5",
               "--interval", "0.1", *rest]  # fmt: skip
    paths = os.pathsep.join([str(PROJECT), str(TESTS)])
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    return subprocess.Popen(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process):
    """Wait for the end of a run; returns what it said."""
    stdout, stderr = process.communicate(timeout=500)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run(tree, folder, *arguments, **options):
    """A run from its start to its end."""
    return finish(start(tree, folder, *arguments, **options))


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
