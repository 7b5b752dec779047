"""Frequency residency: shares of the time, of what was seen only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.frequency_residency import clock_use, frequency_residency
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import Series, Telemetry


@pytest.mark.parametrize(
    ("times_s", "khz", "greatest_khz", "window_s", "shares"),
    [
        ((0.0, 1.0, 3.0, 4.0), (1000, 500, 114.75, 1000), 1000, (), {0.1: 0.25, 0.5: 0.5, 1.0: 0.25}),
        ((0.0, 1.0, 2.0), (2_262_000, 2_151_800, 0), 2_265_000, (), {1.0: 1.0}),  # just below the maximum counts as it
        ((10.0, 11.0, 12.0), (1000, 500, 1000), 1000, (10.5, 11.5), {0.5: 0.5, 1.0: 0.5}),
        ((10.0, 11.0, 12.0), (1000, 500, 1000), 1000, (0.0, 10.5), {1.0: 1.0}),  # of what was seen only
        ((10.0, 11.0, 12.0), (1000, 500, 1000), 1000, (12.0, 20.0), {}),
        ((), (), 1000, (), {}),
        ((1.0,), (5,), 1000, (), {}),
    ],
)
def test_time_is_shared_among_the_shares_of_the_maximum(times_s, khz, greatest_khz, window_s, shares):
    assert frequency_residency(Series(times_s, khz), greatest_khz, *window_s) == shares


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2_500_000)), min_size=2, max_size=30))
def test_shares_sum_to_one_and_edges_lie_within_the_scale(steps):
    times = [0]
    for gap, _ in steps[1:]:
        times.append(times[-1] + gap)
    residency = frequency_residency(Series(tuple(times), tuple(khz for _, khz in steps)), 2_265_000)
    assert sum(residency.values()) == pytest.approx(1.0)
    assert all(0 <= edge <= 1 and edge != 0.95 for edge in residency)
    assert list(residency) == sorted(residency)


MODE = PowerMode(8, 2_265_000, 1_000_000, UNKNOWN_KHZ)


def test_each_clock_of_the_mode_has_its_residency_and_its_readings_that_are_off():
    times_s = (0.0, 1.0, 2.0, 3.0, 4.0)
    series = {
        "cpu0_khz": Series(times_s, (2_262_000,) * 5),
        "cpu4_khz": Series(times_s, (2_262_000, 2_262_000, 1_132_500, 2_262_000, 1_132_500)),
        "gpu_khz": Series(times_s, (1_100_000,) * 5),
        "emc_khz": Series(times_s, (3_199_000,) * 5),
        "jtop_cpu0_khz": Series(times_s, (1,) * 5),
        "power_total_mw": Series(times_s, (1,) * 5),
    }
    used = clock_use(Telemetry(1.0, series=series), MODE, 1.0, 4.0)
    assert {name: (use["set_khz"], use["samples"], use["off"]) for name, use in used.items()} == {
        "cpu0_khz": (2_265_000, 4, 0),
        "cpu4_khz": (2_265_000, 4, 2),
        "gpu_khz": (1_000_000, 4, 4),  # not lowered: as far off as one that fell
    }
    assert used["cpu0_khz"]["residency"] == {"1": 1.0}
    assert used["cpu4_khz"]["residency"] == pytest.approx({"0.5": 1 / 3, "1": 2 / 3})


def test_what_was_asked_for_and_what_was_measured_are_told_apart():
    series = {"cpu0_khz": Series((0.0,), (2_265_000,)), "cpu0_measured_khz": Series((0.0,), (649_000,))}
    notes = {"cpu0_khz": "scaling_cur_freq", "cpu0_measured_khz": "cpuinfo_cur_freq"}
    used = clock_use(Telemetry(1.0, series=series, notes=notes), MODE, 0.0, 1.0)
    assert {name: (use["off"], use["source"]) for name, use in used.items()} == {
        "cpu0_khz": (0, "scaling_cur_freq"),
        "cpu0_measured_khz": (1, "cpuinfo_cur_freq"),
    }


def test_readings_a_little_off_count_as_the_clock_that_was_set_and_such_of_another_time_say_nothing():
    assert clock_use(Telemetry(1.0, series={"cpu0_khz": Series((0.0, 9.0), (1, 1))}), MODE, 1.0, 8.0) == {}
    for reading_khz, off in ((2_262_000, 0), (2_151_750, 0), (2_151_749, 2), (2_378_251, 2), (0, 2)):
        read = Telemetry(1.0, series={"cpu0_khz": Series((0.0, 1.0), (reading_khz,) * 2)})
        assert clock_use(read, MODE, 0.0, 1.0)["cpu0_khz"]["off"] == off
