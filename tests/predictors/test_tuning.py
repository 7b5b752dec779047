"""`with tuning(...)` on this machine: a loop that does nothing, and a power meter of its own."""

from __future__ import annotations

import functools
import multiprocessing
import os
import time

import pytest

from harness.board.lock import LOCK_DIR_VARIABLE
from harness.core.errors import CannotRunError
from predictors import tuning as module
from predictors.strategies.online import OnlineTuner

CPUS = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="a change of the core count takes 2 CPUs")


@pytest.fixture(autouse=True)
def on_its_own(monkeypatch, tmp_path):
    """No other run on this machine is in the way, and power need not settle."""
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "OnlineTuner", functools.partial(OnlineTuner, settling_s=0.01))


@pytest.fixture
def worker():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    yield process
    process.kill()
    process.join()


def test_a_meter_that_falls_silent_ends_the_block_and_puts_back_this_process_and_its_workers(worker):
    seen, lines = [], []

    def meter(start_s, end_s):
        now = sorted(os.sched_getaffinity(0))
        seen.append((now, sorted(os.sched_getaffinity(worker.pid))))
        return 20_000.0 if now == CPUS else None

    def train():
        options = {"minibatches": 2, "silence_s": 0.05, "power_mw": meter, "report": lines.append}
        with module.tuning("host", power_budget_w=100.0, **options) as tuner:
            while not tuner.settled:
                time.sleep(0.002)
                tuner.step()

    with pytest.raises(CannotRunError, match="no power above 0"):
        train()
    assert seen[0] == (CPUS, CPUS)
    of_this_process, of_the_worker = seen[-1]
    assert of_this_process == of_the_worker != CPUS
    assert sorted(os.sched_getaffinity(0)) == sorted(os.sched_getaffinity(worker.pid)) == CPUS
    assert "best of 1 tried" in lines[-1]
