"""What minibatches and telemetry say: mean times, variability, reading, profile length."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import metrics
from harness.core.cases import Case, Settings
from harness.core.profiles import CLEAN, FIRST, Minibatch, Profile, Series, Telemetry
from harness.stats.breakdown import mean_times
from harness.stats.profile_length import length_errors, stretches_of
from harness.stats.reading import reading_by_epoch
from harness.stats.variability import between, variability


def minibatches(e2e_ms=100.0, stall_ms=30.0, count=20, epochs=2):
    found, start = [], 0.0
    for number in range(count * epochs):
        phase = FIRST if number == 0 else CLEAN
        stall = 10 * stall_ms if number % count == 0 else stall_ms  # workers start with every epoch
        took = e2e_ms - stall_ms + stall
        found.append(Minibatch(number // count, number, phase, start, stall, 60.0, took))
        start += took / 1000
    return found


def test_mean_times_leave_out_what_begins_an_epoch():
    times = mean_times(minibatches())
    assert times.stall.value == pytest.approx(30.0)
    assert times.time.value == pytest.approx(100.0)
    assert times.stall_share.value == pytest.approx(0.3)


def test_a_part_that_never_takes_time_is_missing():
    assert mean_times(minibatches(stall_ms=0.0)).stall is None


def test_variability_of_equal_epochs_is_zero_and_of_one_unknown():
    pytest.importorskip("scipy")
    same = variability([5.0, 5.0, 5.0], [0.0, 1.0, 2.0])
    assert (same.deviation, same.coefficient, same.trend_per_h, same.count) == (0.0, 0.0, pytest.approx(0.0), 3)
    assert variability([5.0]).coefficient is None
    assert variability([]) is None


def test_variability_sees_the_greatest_deviation_and_a_drift():
    pytest.importorskip("scipy")
    found = variability([10.0, 10.0, 11.0], [0.0, 1.0, 2.0])
    assert found.deviation == pytest.approx(0.1)
    assert found.coefficient_low < found.coefficient < found.coefficient_high
    assert found.trend_per_h == pytest.approx(0.05)


def test_boards_are_compared_by_their_medians():
    assert between([100.0, 105.0, 102.0]) == pytest.approx(0.05)
    assert between([100.0]) is None


def profile(series, conditions):
    case = Case("host", "lenet-mnist", "maxn", 0, "ssd", 16, Settings(minibatches=None, epochs=2))
    return Profile(case, "measured", conditions, minibatches(), Telemetry(1.0, series=series), {}, [], "")


def test_reading_is_told_by_epoch():
    times = tuple(float(second) for second in range(6))
    series = {"disk_read_bytes_per_s": Series(times, (1000.0,) * 6)}
    first, second = reading_by_epoch(profile(series, {"cache_residency_by_epoch": [0.0, 1.0]}))
    assert (first.cached_share, second.cached_share) == (0.0, 1.0)
    assert second.read_bytes == pytest.approx(1000.0 * (second.end_s - second.start_s))
    assert second.reads is None


def test_a_longer_profile_errs_less_and_holds_power_samples():
    wave = [
        Minibatch(0, number, CLEAN, number * 0.1, 0.0, 1.0, 100.0 + (50.0 if number // 10 % 2 else 0.0))
        for number in range(80)
    ]
    power = Series((1.0, 4.0, 7.0), (1.0, 1.0, 1.0))
    short, long = length_errors(wave, power, (5, 60))
    assert short.time_error > long.time_error
    assert short.without_power > long.without_power
    assert length_errors(wave, power, (81,)) == []
    assert length_errors(wave, Series((), ()), (5,))[0].without_power == 1.0


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
