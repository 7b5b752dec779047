"""How long does a power mode take to come into effect after it was set, while a network trains (001 sec. 2.5)?

Three figures: the clocks, the time of a minibatch, and power. They are in pytest-benchmark's JSON, where the longest of
them is the time of the one round; the results file has the verdict on power.
"""

import pytest

from harness.core.units import ms_to_s
from harness.fixtures import as_pytest_outcome
from harness.judge.claims import DeviceFacts, claim
from harness.judge.mode_transitions import time_until
from harness.judging import JUDGING, judging_own_figures
from harness.measure.mode_transition import ModeTransitions
from harness.plan import plan_of
from harness.playback import recorded_time, time_rounds


@pytest.fixture(scope="session")
def transitions():
    """The transitions of this run; other files' tests run before they are judged."""
    return ModeTransitions()


@pytest.mark.benchmark(timer=recorded_time)
@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k"])
def test_mode_transitions(transitions, case, device, progress, benchmark):
    """Change to a mode with lower clocks while a network trains; at least one figure shows when it is in effect."""

    def change():
        measured = transitions.measure(device, case, progress)
        assert measured.transition.shows_something
        benchmark.extra_info.update(measured.plain(), provenance=device.provenance)
        return ms_to_s(measured.transition.in_effect_ms)

    with as_pytest_outcome():
        time_rounds(benchmark, lambda: None, change, count=1)


@pytest.fixture(name=JUDGING)
def judging(request, judged_device, transitions):
    """Claims are judged on the transitions of this run, in the place of profiles."""
    plan = plan_of(request.config)
    facts = DeviceFacts(plan.board(judged_device), plan.device(judged_device).provenance)
    with as_pytest_outcome():
        transitions.check(judged_device)
        return judging_own_figures(request, judged_device, facts)


@pytest.fixture
def until(judging, transitions, judged_device):
    """How long a figure takes to follow, in ms, whose comparison makes the verdict."""
    return lambda figure: judging.bound(time_until(figure, transitions.of(judged_device)))


@claim("001 2.5", facts="F348", fitted="the time in which simulated power settles was set by hand, to these seconds")
def test_power_settles_within_three_seconds(until):
    """Power is at the level of a new mode after 1 to 3.5 s; 001 has 2 to 3 s."""
    assert until("power").within(1000, 3500)
