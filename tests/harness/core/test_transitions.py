"""How long a series takes to reach its new level, where the right answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.profiles import CLEAN, Minibatch, Series
from harness.core.transitions import FEWEST, NEAR_SHARE, RecordedTransition, settling_s, transition_of

TIMES_S = np.arange(0, 18, 0.05)
CHANGED_S = 6.0


def exponential(time_constant_s, before=20.0, after=10.0):
    reached = 1 - np.exp(-np.maximum(TIMES_S - CHANGED_S, 0) / time_constant_s)
    return before + (after - before) * reached


@pytest.mark.parametrize("time_constant_s", [0.2, 0.8, 1.2])
@pytest.mark.parametrize("after", [10.0, 35.0], ids=["falls", "rises"])
def test_an_exponential_is_near_its_level_after_three_time_constants(time_constant_s, after):
    settled_s = settling_s(TIMES_S, exponential(time_constant_s, after=after), CHANGED_S)
    assert settled_s == pytest.approx(-np.log(NEAR_SHARE) * time_constant_s, abs=0.06)


@pytest.mark.parametrize("late_s", [0.0, 0.5, 3.0])
def test_a_step_is_where_it_is_also_in_noise_with_outliers(late_s):
    random = np.random.default_rng(0)
    values = np.where(CHANGED_S + late_s <= TIMES_S, 50.0, 80.0) + random.standard_normal(len(TIMES_S))
    values[random.choice(len(values), 5, replace=False)] += 40
    assert settling_s(TIMES_S, values, CHANGED_S) == pytest.approx(late_s, abs=0.06)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(len(TIMES_S), 20.0), id="no-step"),
        pytest.param(np.random.default_rng(0).standard_normal(len(TIMES_S)) + (TIMES_S > 6), id="noise-hides-it"),
        pytest.param(20.0 - np.maximum(TIMES_S - 6, 0), id="never-settles"),
    ],
)
def test_without_a_level_there_is_no_time(values):
    assert settling_s(TIMES_S, values, CHANGED_S) is None


def test_too_few_values_show_nothing():
    few = TIMES_S[:: len(TIMES_S) // FEWEST]
    assert settling_s(few, np.where(few < CHANGED_S, 2.0, 1.0), CHANGED_S) is None


def test_the_slowest_clock_counts_and_is_known_as_well_as_it_is_sampled():
    at_once = Series(tuple(TIMES_S), tuple(np.where(TIMES_S < CHANGED_S, 2.0, 1.0)))
    late = Series(tuple(TIMES_S), tuple(np.where(TIMES_S < CHANGED_S + 0.4, 2.0, 1.0)))
    still = Series(tuple(TIMES_S), tuple(np.ones(len(TIMES_S))))
    minibatches = [Minibatch(0, n, CLEAN, 0.1 * n, 0.0, 0.0, 100.0 if n < 63 else 50.0) for n in range(180)]
    transition = transition_of(RecordedTransition(CHANGED_S, 0.02, minibatches, {"gpu_khz": at_once, "emc_khz": still}))
    assert transition.clock_ms == pytest.approx(50)
    assert transition.minibatch_ms == pytest.approx(300)
    assert (transition.set_ms, transition.power_ms) == (20, None)
    both = transition_of(RecordedTransition(CHANGED_S, None, [], {"gpu_khz": at_once, "cpu0_khz": late}))
    assert both.clock_ms == pytest.approx(400, abs=51)
    assert (transition.sampled_ms, both.sampled_ms) == (None, None)  # there is no power
    assert not transition_of(RecordedTransition(CHANGED_S, None, [], {"emc_khz": still})).shows_something
