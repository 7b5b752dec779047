"""`jetwatt run` in a process of its own, on an emulated board whose kernel takes the writes and whose tools it has."""

from __future__ import annotations

import importlib
import subprocess
import sys

from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process

from harness.__main__ import main as call
from tests.harness.board_suite import suite_environment

READY = "ready"

_RUNNER = "import sys; from tests.harness.command_on_board import main; sys.exit(main(sys.argv[1], sys.argv[2:]))"


def main(root, arguments):
    """Run a command where a tree is the board; what it needs is loaded before it says so."""
    importlib.import_module("harness.command_runs")
    with intercepted(Kernel(root)), tools_in_process(root):
        print(READY, flush=True)
        return call(["run", "--root", root, *arguments])


def start(tree, folder, *arguments, device):
    """Start it in a folder; returns its process once everything is loaded."""
    words = [sys.executable, "-c", _RUNNER, tree.root, "--device", device, *map(str, arguments)]
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=suite_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline().strip() == READY
    return process
