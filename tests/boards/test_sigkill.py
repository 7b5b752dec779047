"""SIGKILL between any two writes, those of nvpmodel and jetson_clocks among them: `restore` mends everything."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys

import pytest

from boards.board_state import FOLDER, write_state
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.readings import settle
from boards.tools_in_process import tools_in_process
from boards.tree import build_board
from harness.board.saved_state import default_state_dir, left_behind, restore
from harness.core.configuration import Configuration
from harness.core.power_modes import PowerMode
from harness.devices.host import lock_name
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board

pytestmark = pytest.mark.exhaustive

MOVES = "proc/stat"  # CPU time


@pytest.fixture(autouse=True)
def state_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # what a killed process has written stays without it


def device_of(tree):
    return JetsonDevice(read_board(tree.path), Configuration(), tree.path)


def contents(tree):
    """Every file of the board, byte for byte."""
    files = [path for path in tree.path.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {str(path.relative_to(tree.path)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(FOLDER) and name != MOVES}


def difference(before, after):
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return {name: (before.get(name), after.get(name)) for name in names}


@contextlib.contextmanager
def everything_in_this_process(tree):
    with intercepted(Kernel(tree.root)), tools_in_process(tree.root):
        yield


def run(tree, mode):
    """A run that sets a power mode."""
    device = device_of(tree)
    with everything_in_this_process(tree), device.session():
        assert device.apply(mode) == mode


def mend(tree):
    with everything_in_this_process(tree):
        restore(lock_name(device_of(tree).name, tree.path))
    Kernel(tree.root).forget_record()


def die_before_write(tree, number):
    """Kill this process before its write of this number, be it the suite's or a tool's, to the kernel or to a disk."""
    writes = itertools.count()
    take = Kernel._take
    kernels = tuple(os.path.join(tree.root, folder, "") for folder in ("sys", "proc", FOLDER))

    def die_or_take(self, state, name, text):
        if next(writes) == number:
            write_state(self.root, state)  # the kernel of a board knows what it was told
            settle(self.root, state)
            os.kill(os.getpid(), signal.SIGKILL)
        take(self, state, name, text)

    def watch(event, arguments):
        opened = event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        changes = opened or event in ("os.rename", "os.remove")
        if changes and not os.path.abspath(arguments[0]).startswith(kernels) and next(writes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Kernel._take = die_or_take
    sys.addaudithook(watch)


def killed_before_write(tree, number, work):
    """Whether `work`, in a process of its own, had a write of this number and was killed before it."""
    child = os.fork()
    if child == 0:
        try:
            die_before_write(tree, number)
            work()
            os._exit(0)
        except BaseException as error:
            print(f"it failed before: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def other_mode(tree, cores=2):
    """One with low clocks."""
    space = device_of(tree).power_mode_space()
    return PowerMode(cores, space.cpu_khz[2], space.gpu_khz[1], space.mem_khz[0])


@pytest.mark.parametrize(
    ("board", "l4t", "boots", "cores"),
    [("orin-nano", "r36.4", "7W", 6), ("nano", "r32.7", "MAXN", 2)],  # wakes a cluster, takes cores offline
)
@pytest.mark.long
def test_a_board_is_as_before_whichever_write_a_run_was_killed_before(tmp_path, board, l4t, boots, cores):
    tree = build_board(tmp_path / "root", board, l4t, mode=boots)
    mode, before = other_mode(tree, cores), contents(tree)
    for number in itertools.count():
        killed = killed_before_write(tree, number, lambda: run(tree, mode))
        mend(tree)
        assert difference(before, contents(tree)) == {}, f"killed before write {number}"
        assert left_behind() == []
        if not killed:
            break
    assert number > 70


@pytest.mark.long
def test_a_board_is_as_before_also_where_its_restore_was_killed_before_any_write(tmp_path):
    tree = build_board(tmp_path / "root", "nano", "r32.7")
    mode, before = other_mode(tree), contents(tree)
    for number in itertools.count():
        assert killed_before_write(tree, 45, lambda: run(tree, mode))  # most of it is set
        killed = killed_before_write(tree, number, lambda: mend(tree))
        mend(tree)
        assert difference(before, contents(tree)) == {}, f"killed before write {number}"
        if not killed:
            break
    assert number > 10
    assert list(default_state_dir().iterdir()) == []
