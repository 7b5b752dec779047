"""Baseload, spread of repetitions and length of profiles."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import metrics
from harness.core.profiles import CLEAN, Minibatch, Series
from harness.stats.experiments import baseload_share, stretches_of, variability


def test_the_baseload_is_a_share_of_the_energy():
    assert baseload_share(energy_mwh=10.0, idle_mw=6_000.0, epoch_s=3.0) == pytest.approx(0.5)


def test_variability_of_equal_epochs_is_zero_and_sees_the_greatest_deviation_of_others():
    same = variability([5.0, 5.0, 5.0])
    assert (same.deviation, same.coefficient, same.count) == (0.0, 0.0, 3)
    assert variability([5.0]).coefficient is None
    assert variability([]) is None
    values = [10.0, 10.0, 11.0]
    found = variability(values)
    assert (found.deviation, found.interquartile) == pytest.approx((0.1, 0.05))
    assert found.coefficient == pytest.approx(statistics.stdev(values) / statistics.mean(values))


def test_a_longer_profile_errs_less_and_holds_power_samples():
    wave = [
        Minibatch(0, number, CLEAN, number * 0.1, 0.0, 1.0, 100.0 + (50.0 if number // 10 % 2 else 0.0))
        for number in range(80)
    ]
    power = Series((1.0, 4.0, 7.0), (1.0, 1.0, 1.0))
    short, long = (stretches_of(wave, power, length) for length in (5, 60))
    assert short.time_error > long.time_error
    assert short.without_power > long.without_power
    assert stretches_of(wave, Series((), ()), 5).without_power == 1.0


@given(
    st.lists(st.floats(50.0, 150.0), min_size=3, max_size=30),
    st.lists(st.floats(0.0, 5.0), max_size=8, unique=True),
    st.integers(1, 30),
)
def test_every_stretch_is_held_against_the_whole(times_ms, sampled_s, length):
    starts_s = [sum(times_ms[:number]) / 1e3 for number in range(len(times_ms))]
    run = [Minibatch(0, n, CLEAN, start_s, 0.0, 1.0, ms) for n, (start_s, ms) in enumerate(zip(starts_s, times_ms))]
    power = Series(tuple(sorted(sampled_s)), tuple(1.0 + number for number in range(len(sampled_s))))
    end_s = starts_s[-1] + times_ms[-1] / 1e3
    found = stretches_of(run, power, length)
    assert len(found.time_errors) == max(0, len(run) - length + 1)
    for first, (time_error, power_error) in enumerate(zip(found.time_errors, found.power_errors)):
        stretch = run[first : first + length]
        median_ms = statistics.median(one.e2e_ms for one in stretch)
        assert time_error == pytest.approx(abs(median_ms / statistics.median(times_ms) - 1), abs=1e-9)
        inside = metrics.between(power, stretch[0].start_s, stretch[-1].start_s + stretch[-1].e2e_ms / 1e3).values
        if not inside:
            assert math.isnan(power_error)
            continue
        mean = statistics.mean(inside) / statistics.mean(metrics.between(power, 0.0, end_s).values)
        assert power_error == pytest.approx(abs(mean - 1), abs=1e-9)
