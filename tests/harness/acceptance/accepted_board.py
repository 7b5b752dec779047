"""An emulated board that goes through its acceptance test, with all times scaled."""

from __future__ import annotations

import contextlib

from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.acceptance.runner import accept

SCALE = 0.002


@contextlib.contextmanager
def emulated(root):
    """Within the block, this process has the tree's kernel and tools."""
    with intercepted(Kernel(root)), tools_in_process(root):
        yield


def built(tmp_path, board="orin-agx", l4t="r36.4", **options):
    return build_board(tmp_path / "root", board, l4t, **options)


def accepted(tree, *lines, **options):
    """The findings of these lines, or of all."""
    with emulated(tree.root):
        options = {"scale": SCALE, "reboots": False, "lines": lines or None, **options}
        return accept(root=tree.root, **options)


def line_of(findings, name):
    [line] = [line for line in findings["lines"] if line["name"] == name]
    return line
