"""Runs that a signal ends: no further test begins, and the board is as it was before."""

from __future__ import annotations

import os
from functools import partial

import pytest
from boards.tree import build_board

from tests import warm_pytest
from tests.harness.board_suite import main, suite_environment
from tests.messages import says

LOST = """
import os, signal, sys

class EndedWhileFinalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def test_a(device, power_mode):
    sys.unraisablehook = lambda _: None
    EndedWhileFinalized()
    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")
"""

IN_A_FINALIZER = """
import os, signal, pytest
from harness.board import lock
lock.AGAIN_S = 0.0

@pytest.fixture(scope="session")
def slow(hold_device):
    yield
    os.kill(os.getpid(), signal.SIGINT)

def test_a(slow, device, power_mode):
    os.kill(os.getpid(), signal.SIGINT)
"""

BEFORE_ALL_FINALIZERS = """
import os, signal, pytest

@pytest.fixture(scope="session")
def slow(hold_device):
    yield
    raise KeyboardInterrupt

def test_a(slow, device, power_mode):
    raise KeyboardInterrupt
"""

BEFORE_THE_FIRST_MINIBATCH = """
import os, signal

def test_a(measure):
    os.kill(os.getpid(), signal.SIGINT)
"""

SECOND = "\ndef test_b():\n    pass\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(LOST, " Interrupted: ended by SIGTERM !", id="lost"),
        pytest.param(
            IN_A_FINALIZER,
            "the device is being restored; if that hangs: kill -9",
            id="in-a-finalizer",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(BEFORE_ALL_FINALIZERS, "", id="finalizers-skipped", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.exhaustive
def test_a_signal_ends_the_run_and_the_board_is_put_back(tmp_path, text, words):
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    before = tree.controls()
    (tmp_path / "test_mine.py").write_text(text + SECOND)
    options = ["-p", "jetwatt", "--rootdir", ".", "--device-root", tree.root, "--results", "r.sqlite"]
    environment = {**suite_environment(tmp_path), "JETWATT_LOCK_DIR": os.environ["JETWATT_LOCK_DIR"]}
    done = warm_pytest.run([*options, "-v", "test_mine.py"], tmp_path, environment, partial(main, tree.root))
    printed = done.stdout + done.stderr
    assert "test_b PASSED" not in printed
    assert "failed" not in printed
    assert words in printed
    assert tree.controls() == before
    assert not list(tmp_path.glob("state/jetwatt/*.json"))


@pytest.mark.training
def test_an_interrupted_run_says_how_to_go_on_and_nothing_of_its_code(tmp_path):
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    (tmp_path / "test_mine.py").write_text(BEFORE_THE_FIRST_MINIBATCH + SECOND)
    options = ["-p", "jetwatt", "--rootdir", ".", "--device-root", str(tree.root), "--results", "r.sqlite"]
    environment = {**suite_environment(tmp_path), "JETWATT_LOCK_DIR": os.environ["JETWATT_LOCK_DIR"]}
    done = warm_pytest.run([*options, "test_mine.py"], tmp_path, environment, partial(main, tree.root))
    printed = done.stdout + done.stderr
    assert done.returncode == 2
    assert " Interrupted: ended by SIGINT !" in printed
    assert says(printed, "interrupted", "0 profiles of 1 case")
    assert "\n  pytest -p jetwatt" in printed
    assert "test_mine.py --resume\n" in printed
    for unwanted in ("lock.py", "--full-trace", "Benchmark fixture"):
        assert unwanted not in printed
