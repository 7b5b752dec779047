"""`with tuning(...)` on this machine: a loop that does nothing, and a power meter of its own."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import threading
import time

import pytest

from harness.board.lock import LOCK_DIR_VARIABLE
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.power_modes import PowerMode
from predictors.choose import tuning as module
from predictors.choose.request import Job, Search
from predictors.goals import Goal
from predictors.settings import Settings
from predictors.strategies.protocol import MeasuredMode

CPUS = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="a change of the core count takes 2 CPUs")


@pytest.fixture(autouse=True)
def on_its_own(monkeypatch, tmp_path):
    """No other run on this machine is in the way, and power need not settle."""
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "OnlineTuner", functools.partial(module.OnlineTuner, settling_s=0.01))


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
        options = {"search": Search(minibatches=2), "silence_s": 0.05, "meter": meter, "report": lines.append}
        with module.tuning("host", power_w=10.0, **options) as tuner:  # another mode is tried
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


def test_a_budget_in_milliwatts_is_refused():
    with pytest.raises(InvalidValueError, match="30000 mW are 30 W"), module.tuning("host", power_w=30_000):
        raise AssertionError("it began")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give power_w=30"),
        ({"power_w": 20, "search": Search(risk=0.1)}, "risk= has no effect in tuning"),
        ({"power_w": [20, 30]}, "power_w is"),
        ({"goal": "power"}, "without any limit .* give power_w= or time_ms=$"),
        ({"power_w": 20, "search": 4}, r"search is 4, expected Search\("),
        ({"power_w": 20, "workload": []}, "no workload= was given"),
        ({"power_w": 20, "workload": Job("lenet-mnist", epochs=3)}, "epochs= has no effect in tuning"),
        ({"goal": Goal("time_ms", {"power_mw": 20e3}), "time_ms": -1}, "time_ms is -1"),
    ],
)
def test_a_goal_that_tuning_cannot_have_is_refused_before_a_device_is_opened(monkeypatch, options, words):
    monkeypatch.setattr(module, "open_device", lambda *given: pytest.fail("a device was opened"))
    with pytest.raises(HarnessError, match=words), module.tuning("host", **options):
        raise AssertionError("it began")


@pytest.mark.parametrize(("profiles", "is_noted"), [(1, False), (2, True)])  # the second is of the greatest mode
def test_a_power_limit_that_no_mode_reaches_is_noted_when_the_search_ends(profiles, is_noted):
    lines = []
    search = Search(profiles=profiles, minibatches=1)
    with module.tuning("sim:orin-nano", power_w=5000, search=search, report=lines.append) as tuner:
        while not tuner.settled:
            time.sleep(0.0002)
            tuner.step()
    assert ("power limit of 5000 W excludes none" in lines[-1]) == is_noted


def test_what_a_device_draws_at_most_is_known_if_the_search_ended_and_tried_its_greatest_mode():
    greatest, least = PowerMode(6, 1_510_400, 624_750, 2_133_000), PowerMode(2, 115_200, 306_000, 665_600)
    at_greatest, at_least = (greatest, MeasuredMode(50.0, 9e3, 1.0)), (least, MeasuredMode(90.0, 4e3, 1.0))
    both = module.OnlineReport(None, True, 10, 1.0, None, (at_least, at_greatest), ())
    assert module.greatest_power_mw(both, greatest) == 9e3
    assert module.greatest_power_mw(both._replace(finished=False), greatest) is None
    assert module.greatest_power_mw(both._replace(profiled=(at_least,)), greatest) is None


@pytest.mark.exhaustive
def test_a_simulated_board_is_rehearsed_on_in_its_own_time():
    lines = []
    how = {"search": Search(profiles=6, minibatches=5), "workload": "mobilenetv3-gld23k", "report": lines.append}
    with module.tuning("sim:orin-agx", power_w=25, **how) as tuner:
        while not tuner.settled:
            time.sleep(0.0002)
            tuner.step()
    assert "simulated" in lines[0]
    found = tuner.close()
    assert found.choice.feasible
    assert found.choice.measured.power_mw <= 25_000
    assert found.search_s > len(found.profiled) * 3  # of the board: settling alone takes as long


class Slow:
    """A strategy that thinks for a while, and takes one mode."""

    thinking_s = 0.5

    def choose(self, history, goal):
        time.sleep(self.thinking_s)
        history.profile(len(history.usable) - 1)
        return history.choose_measured(goal, "the only one")


def test_a_rehearsal_runs_no_more_minibatches_than_the_board_would_while_the_strategy_thinks(monkeypatch):
    monkeypatch.setattr(module, "make_closed_loop", lambda *args: Slow())
    began_s = time.monotonic()
    steps = 0
    search = Search(profiles=1, minibatches=5)
    with module.tuning("sim:orin-agx", power_w=25, search=search, report=lambda line: None) as tuner:
        while not tuner.settled:
            tuner.step()  # the user's own minibatch takes no time
            steps += 1
        minibatch_s = tuner.close().choice.measured.time_ms / 1000
    waited_s = time.monotonic() - began_s
    assert waited_s > Slow.thinking_s
    assert steps < (waited_s + 3.0) / minibatch_s + 5 + 5


class Deaf:
    """A strategy that goes on whatever a profile raises."""

    def __init__(self, ends):
        self._ends = ends

    def choose(self, history, goal):
        while not self._ends.is_set():
            with contextlib.suppress(Exception):
                history.profile(0)


def test_a_strategy_that_does_not_end_holds_up_no_training(monkeypatch):
    monkeypatch.setattr(module, "END_S", 0.1)
    ends = threading.Event()
    candidates = Settings.of([PowerMode(1, 1_000_000, 500_000, 2_000_000)], 16)
    tuner = module.OnlineTuner(Deaf(ends), Goal(), candidates, lambda mode: None, lambda *_: 1.0)
    with pytest.warns(UserWarning, match="has not ended within 0.1 s"):
        tuner.close()
    ends.set()
