"""A test that hangs fails: in its fixtures, in itself, and where Python cannot interrupt it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

CONFTEST = """
import sys
sys.path.insert(0, {project!r})
from tests.time_limit import TimeLimit

def pytest_configure(config):
    config.pluginmanager.register(TimeLimit(limit_s=1.0, grace_s=1.0))
"""

HANGING = """
import time
import pytest

@pytest.fixture
def hangs_before():
    time.sleep(300)

@pytest.fixture
def hangs_after():
    yield
    time.sleep(300)

def test_set_up(hangs_before):
    pass

def test_call():
    try:
        time.sleep(300)
    except Exception:
        time.sleep(300)

def test_teardown(hangs_after):
    pass
"""

NOT_INTERRUPTED = """
import signal, time

def test_signals_are_blocked():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(300)
"""

A_THREAD_IS_LEFT = """
import threading, time

def test_thread():
    threading.Thread(target=time.sleep, args=(300,)).start()
"""


def run_tests(folder, text):
    (folder / "conftest.py").write_text(CONFTEST.format(project=str(PROJECT)))
    (folder / "test_hanging.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=str(folder), capture_output=True, text=True, timeout=120, check=False)


def test_each_phase_of_a_test_that_hangs_fails(tmp_path):
    done = run_tests(tmp_path, HANGING)
    assert done.stdout.count("Failed: it did not end within 1 s") >= 3, done.stdout + done.stderr
    outcomes = {word: int(number) for number, word in re.findall(r"(\d+) (failed|passed|errors?)", done.stdout)}
    assert outcomes == {"failed": 1, "passed": 1, "errors": 2}


def test_a_test_that_cannot_be_interrupted_ends_the_process_and_shows_where_it_was(tmp_path):
    done = run_tests(tmp_path, NOT_INTERRUPTED)
    assert done.returncode == 1
    assert "in test_signals_are_blocked" in done.stderr


def test_a_thread_that_a_test_left_does_not_keep_the_process(tmp_path):
    done = run_tests(tmp_path, A_THREAD_IS_LEFT)
    assert "1 passed" in done.stdout
    assert "Timeout" in done.stderr
