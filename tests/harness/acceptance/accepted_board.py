"""An emulated board that goes through its acceptance test, with all times scaled."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys

from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import TESTS, build_board

from harness.acceptance.runner import accept
from harness.board.privileged import BOOT_ID
from harness.core import metrics
from tests.programs import write_python_program

SCALE = 0.002
SETTLED_S = 0.3  # a real board's power takes two seconds to settle; an emulated one's does not move

TEGRASTATS = """import time
from pathlib import Path

FILES = {files!r}
while True:
    rails = []
    for label, volts, amps in FILES:
        mw = int(Path(volts).read_text()) * int(Path(amps).read_text()) // 1000
        rails.append(f"{{label}} {{mw}}mW/{{mw}}mW")
    print("RAM 1655/62841MB (lfb 311x4MB)", *rails, flush=True)
    time.sleep(0.05)
"""


@contextlib.contextmanager
def emulated(root):
    """Within the block, this process has the tree's kernel and tools."""
    with intercepted(Kernel(root)), tools_in_process(root):
        yield


def built(tmp_path, board="orin-agx", l4t="r36.4", **options):
    tree = build_board(tmp_path / "root", board, l4t, **options)
    booted(tree, "first")
    return tree


def booted(tree, name):
    """The kernel's id of this boot."""
    path = tree.path / BOOT_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name}\n")


def add_tegrastats(tree):
    """A tegrastats that shows the rails of the tree."""
    files = []
    for rail in Kernel(tree.root).state()["places"]["rails"]:
        label, _, volts, amps = rail[:4]
        if label != "NC":
            files.append((label, str(tree.path / volts), str(tree.path / amps)))
    write_python_program(tree.path / "usr/bin/tegrastats", TEGRASTATS.format(files=files))


def accepted(tree, *lines, **options):
    """The findings of these lines, or of all."""
    with emulated(tree.root):
        options = {"scale": SCALE, "reboots": False, "lines": lines or None, **options}
        return accept(root=tree.root, **options)


def line_of(findings, name):
    [line] = [line for line in findings["lines"] if line["name"] == name]
    return line


def powered_off(tree, *lines):
    """An acceptance test in a process of its own, which dies when it asks for the power cut; its last message.

    No fork: threads that this process has trained with would be missing in a copy of it.
    """
    command = [sys.executable, "-c", _RUNNER, tree.root, *lines]
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stderr.splitlines()[-1]


_RUNNER = "import sys; from tests.harness.acceptance.accepted_board import main; main(sys.argv[1], sys.argv[2:])"


def main(root, lines):
    """Accept the tree until the plug is to be pulled; one thread, as in the tests that train in their own process."""
    if "repeatability" in lines:
        import torch

        torch.set_num_threads(1)
        torch.set_num_threads = lambda count: None
    metrics.stable_from = functools.partial(metrics.stable_from, window_s=SETTLED_S)
    with emulated(root):
        accept(root=root, scale=SCALE, lines=lines, report=_die_at_the_plug)


def _die_at_the_plug(line):
    if "PULL THE PLUG" in line:
        print(line, file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
