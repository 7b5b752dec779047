"""Tuning while a training loop runs: on a pretended device whose clock is moved by the minibatches."""

from __future__ import annotations

import re
import time

import pytest

from harness.core.errors import CannotRunError, ControlError, InvalidValueError
from predictors.choose.request import Search
from predictors.choose.tuning import OnlineTuner
from predictors.contest.judged_choices import judge
from predictors.goals import power_budget
from predictors.settings import Settings
from predictors.strategies.closed_loop import ClosedLoop
from tests.messages import says
from tests.predictors.strategies.strategy_examples import NearlyRight, example_table, middle_modes

TABLE = example_table()
GOAL = power_budget(25_000.0)
MODES = [TABLE.mode(index) for index in range(len(TABLE))]
CANDIDATES = Settings.of(MODES)


class PretendedDevice:
    """A device and its training loop, in time of its own."""

    def __init__(self, switching_s=0.5, fails_at=(), speaks=True):
        self.now_s, self.place, self.changes = 0.0, len(MODES) - 1, 0
        self.refused = []
        self._switching_s, self._fails_at, self._speaks = switching_s, fails_at, speaks

    def apply(self, mode):
        self.changes += 1
        if self.changes in self._fails_at:
            self.refused.append(mode)
            raise ControlError(f"{mode.name} did not take")
        self.place = MODES.index(mode)
        self.now_s += self._switching_s
        return mode

    def power_mw(self, start_s, end_s):
        return float(TABLE.power_mw[self.place]) if self._speaks and end_s - start_s > 0.05 else None

    def train(self):
        self.now_s += TABLE.time_ms[self.place] / 1e3

    def tuner(self, kind=ClosedLoop, goal=GOAL, candidates=CANDIDATES, **options):
        strategy = kind(lambda: NearlyRight(TABLE, log_sd=0.03), middle_modes)
        search = Search(profiles=options.pop("profiles", 10), minibatches=options.pop("minibatches", 5))
        options = {"search": search, "settling_s": 0.2, "clock": lambda: self.now_s, **options}
        return OnlineTuner(strategy, goal, candidates, self.apply, self.power_mw, **options)


def train_until(device, tuner, is_done, most=20_000):
    for _ in range(most):
        device.train()
        tuner.step()
        if is_done():
            return
        if tuner._running is None:
            time.sleep(0.001)  # the strategy's thread thinks in real time
    raise AssertionError("the search did not end")


def settle(device, **options):
    """What a search that came to its end tells."""
    tuner = device.tuner(**options)
    train_until(device, tuner, lambda: tuner.settled)
    return tuner.close()


def test_it_settles_on_a_good_mode_within_the_limit_and_sets_it():
    device = PretendedDevice()
    found = settle(device)
    assert found.finished
    assert "too short" not in found.describe()
    assert found.choice.feasible
    assert MODES[device.place] == found.choice.power_mode
    assert judge(TABLE, GOAL, found.choice).penalty_pct < 20
    assert len(found.profiled) == 10
    for mode, measured in found.profiled:
        place = MODES.index(mode)
        assert measured[:2] == pytest.approx((TABLE.time_ms[place], TABLE.power_mw[place]))


def test_a_printed_tuner_says_how_far_it_is():
    device = PretendedDevice()
    tuner = device.tuner()
    assert says(repr(tuner), "searching", "0 modes of at most 10", "0 minibatches")
    train_until(device, tuner, lambda: tuner.settled)
    assert repr(tuner).startswith(f"<tuner: settled on {MODES[device.place].name} after 10 modes, ")
    stopped = PretendedDevice().tuner()
    stopped.close()
    assert "ended before its search" in repr(stopped)


def test_the_lost_time_is_what_the_search_took_longer_than_the_chosen_mode():
    device = PretendedDevice()
    found = settle(device)
    first_ms = TABLE.time_ms[len(MODES) - 1]  # ended before the search began
    assert found.search_s == pytest.approx(device.now_s - first_ms / 1e3)
    assert found.lost_s == pytest.approx(found.search_s - found.minibatches * found.choice.measured.time_ms / 1e3)
    assert f"{found.lost_s:.1f} s longer than in that mode" in found.describe()
    quicker = found._replace(lost_s=-41.0).describe()
    assert "41.0 s less" in quicker


def test_training_that_ends_early_gets_the_best_mode_so_far():
    device = PretendedDevice()
    tuner = device.tuner()
    train_until(device, tuner, lambda: len(tuner._history.taken) >= 4)
    found = tuner.close()
    assert not found.finished
    assert found.choice.measured is not None
    assert not tuner._thread.is_alive()
    assert says(found.describe(), "10 modes", "5 minibatches", "0.2 s")
    at_least = found.minibatches * 10 / len(found.profiled)
    assert at_least <= minibatches_in(found.needed) < at_least + 10


def test_training_that_ends_at_once_has_nothing_to_tell():
    found = PretendedDevice().tuner().close()
    assert found.choice is None
    assert "no mode" in found.describe()
    assert says(found.describe(), "10 modes", "5 minibatches", "0.2 s")


def test_training_that_ends_in_the_first_mode_is_told_how_many_minibatches_a_search_takes():
    device = PretendedDevice()
    tuner = device.tuner(settling_s=50.0)
    train_until(device, tuner, lambda: tuner._minibatches >= 3)
    found = tuner.close()
    assert found.profiled == ()
    of_a_mode = 50.0 * found.minibatches / found.search_s + 5
    assert abs(minibatches_in(found.needed) - 10 * of_a_mode) <= 10


def minibatches_in(text):
    [number] = re.findall(r"about ([\d,]+) minibatches", text)
    return int(number.replace(",", ""))


def test_a_mode_that_does_not_take_is_left_out_and_named():
    device = PretendedDevice(fails_at=[3, 5])
    found = settle(device)
    assert [mode for mode, _ in found.failed] == device.refused
    assert found.choice.power_mode not in device.refused
    assert len(found.profiled) == 10 - 2
    assert f"failed: {device.refused[0].name}: " in found.describe()


def test_a_device_that_takes_no_mode_reaches_the_training_loop():
    device = PretendedDevice(fails_at=range(100))
    tuner = device.tuner()
    with pytest.raises(CannotRunError, match=r"none of the last modes .*did not take"):
        train_until(device, tuner, lambda: tuner.settled)
    assert tuner.close().choice is None


def test_a_chosen_mode_that_does_not_take_reaches_the_training_loop():
    device = PretendedDevice(fails_at=[11])  # ten are tried
    tuner = device.tuner()
    with pytest.raises(ControlError, match="did not take"):
        train_until(device, tuner, lambda: tuner.settled)
    assert not tuner.close().finished


def test_a_power_meter_that_says_nothing_is_given_up_after_the_stated_time():
    device = PretendedDevice(speaks=False)
    tuner = device.tuner(silence_s=5.0)
    with pytest.raises(CannotRunError, match=r"no power .*5 s in mode .*doctor"):
        train_until(device, tuner, lambda: tuner.settled)
    assert device.now_s < 10
    device.train()
    tuner.step()  # the search is over, and training may go on
    ended = tuner.close()
    assert ended.choice is None
    assert ended.needed == ""


def test_a_power_meter_that_speaks_late_is_waited_for():
    device = PretendedDevice(speaks=False)
    tuner = device.tuner(silence_s=5.0)
    train_until(device, tuner, lambda: device.now_s > 4)
    device._speaks = True
    train_until(device, tuner, lambda: tuner.settled)
    assert tuner.close().finished


def test_once_settled_steps_change_nothing():
    device = PretendedDevice()
    tuner = device.tuner()
    train_until(device, tuner, lambda: tuner.settled)
    changes = device.changes
    for _ in range(50):
        device.train()
        tuner.step()
    assert device.changes == changes


def test_no_mode_to_choose_from_is_refused():
    with pytest.raises(InvalidValueError, match="no power mode"):
        PretendedDevice().tuner(candidates=CANDIDATES.take(slice(0)))


class Failing(ClosedLoop):
    """A strategy that fails once it has two profiles."""

    def choose(self, history, goal):
        for index in (0, 1):
            history.profile(index)
        raise ControlError("the model broke")


def test_a_search_that_fails_reaches_the_training_loop_and_is_not_called_settled():
    device = PretendedDevice()
    tuner = device.tuner(Failing)
    with pytest.raises(ControlError, match="the model broke"):
        train_until(device, tuner, lambda: tuner.settled)
    found = tuner.close()
    assert not found.finished
    assert found.search_s > 0


def test_a_goal_that_nothing_keeps_is_told_so():
    assert "BREAKS THE LIMITS" in settle(PretendedDevice(), goal=power_budget(3_000.0), profiles=6).describe()
