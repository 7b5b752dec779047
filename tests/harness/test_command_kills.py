"""Each end of a command, or of the run that measures it, leaves the board as found and no process behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.board.saved_state import left_behind, restore
from harness.store.results import ResultsStore
from tests.harness.board import killed
from tests.harness.command_on_board import start

DEVICE = "emulated-orin-nano"

TRAIN = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
with open(f"/proc/{os.getppid()}/stat") as file:
    keeper = file.read().rpartition(")")[2].split()[1]
with open("pids.new", "w") as file:
    file.write(f"{keeper} {os.getppid()} {os.getpid()} {worker.pid}")
os.rename("pids.new", "pids")
time.sleep(float(sys.argv[1]))
worker.kill()
"""

KEEPER, GUARD, COMMAND, RUN = range(4)

ENDS = {
    "run-killed": (RUN, signal.SIGKILL),
    "command-killed": (COMMAND, signal.SIGKILL),
    "guard-killed": (GUARD, signal.SIGKILL),
    "keeper-killed": (KEEPER, signal.SIGKILL),
    "run-interrupted": (RUN, signal.SIGINT),
    "run-terminated": (RUN, signal.SIGTERM),
}


def pids_of(folder):
    """The guard's keeper, the guard, the command and its worker, if the command runs already."""
    file = folder / "pids"
    return list(map(int, file.read_text().split())) if file.is_file() else []


def put_back(tree):
    """What `jetwatt restore` does after a run that was killed."""
    with intercepted(Kernel(tree.root)), tools_in_process(tree.root):
        for device in left_behind():
            restore(device)
    Kernel(tree.root).forget_record()


def end_after(tmp_path, monkeypatch, end, moment_s, lasts_s=0.6):
    """End the command or its run at a moment, and check what is left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    before = tree.controls()
    (tmp_path / "train.py").write_text(TRAIN)
    command = (sys.executable, "-I", "train.py", lasts_s)
    options = ("--interval", "0.1", "--results", "r.sqlite", "--power-mode", "2c-729.6-306-2133", "--")
    process = start(tree, tmp_path, *options, *command, device=DEVICE)
    if moment_s is None:
        while len(pids_of(tmp_path)) < 4 and process.poll() is None:
            time.sleep(0.01)
    else:
        time.sleep(moment_s)
    who, number = ENDS[end]
    pids = pids_of(tmp_path) if who != RUN else []
    is_hit = who == RUN or bool(pids)
    if is_hit:
        try:
            os.kill(process.pid if who == RUN else pids[who], number)
        except ProcessLookupError:
            is_hit = False  # it had ended before
    printed = process.communicate(timeout=60)[1]
    assert killed.end(pids_of(tmp_path)), f"left running after {end} at {moment_s} s: {printed}"
    if number != signal.SIGKILL or who != RUN:
        assert not left_behind(), printed
    put_back(tree)
    assert tree.controls() == before, f"{end} at {moment_s} s: {printed}"
    return process.returncode, is_hit, printed


def stored(folder):
    with ResultsStore(folder / "r.sqlite", read_only=True) as store:
        return list(store.records())


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        ("run-killed", -signal.SIGKILL),
        ("command-killed", 128 + signal.SIGKILL),
        ("guard-killed", 2),
        ("keeper-killed", 128 + signal.SIGKILL),
        ("run-interrupted", 130),
        ("run-terminated", 130),
    ],
)
@pytest.mark.exhaustive
def test_a_board_is_as_before_and_nothing_runs_whoever_is_ended(tmp_path, monkeypatch, end, exit_code):
    code, is_hit, printed = end_after(tmp_path, monkeypatch, end, None, lasts_s=60)
    assert is_hit
    assert code == exit_code, printed
    assert stored(tmp_path) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(24))
def test_a_board_is_as_before_also_at_drawn_moments(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    end = list(ENDS)[seed % len(ENDS)]
    end_after(tmp_path, monkeypatch, end, draw.uniform(0.0, 2.0))
