"""The papers' formulas on signals whose answer is known."""

from __future__ import annotations

import math
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.metrics import (
    STABLE_WINDOW_S,
    between,
    end_s,
    energy_mwh,
    epoch_sums,
    integral,
    overhead_ms,
    quartiles,
    samples_per_s,
    stable_from,
)
from harness.core.profiles import CLEAN, Minibatch, Series


@given(st.lists(st.floats(1, 1e4), min_size=1, max_size=30), st.integers(1, 4))
def test_stall_compute_and_overhead_of_an_epoch_add_up_to_its_time(e2e_ms: List[float], per_epoch: int) -> None:
    made: List[Minibatch] = []
    for index, time_ms in enumerate(e2e_ms):
        start_s = end_s(made[-1]) if made else 100.0
        made.append(Minibatch(index // per_epoch, index, CLEAN, start_s, 0.1 * time_ms, 0.8 * time_ms, time_ms))
    sums = epoch_sums(made)
    assert [epoch.epoch for epoch in sums] == sorted({minibatch.epoch for minibatch in made})
    assert math.isclose(sum(epoch.e2e_s for epoch in sums), sum(e2e_ms) / 1000)
    for epoch in sums:
        assert math.isclose(epoch.stall_s + epoch.compute_s + epoch.overhead_s, epoch.e2e_s)
        assert math.isclose(epoch.end_s - epoch.start_s, epoch.e2e_s, rel_tol=1e-6)


def test_overhead_is_what_stall_and_compute_leave() -> None:
    assert overhead_ms(Minibatch(0, 0, CLEAN, 0.0, 3.0, 5.0, 10.0)) == 2.0


def test_energy_of_constant_power_is_power_times_time() -> None:
    assert energy_mwh([0, 1200, 2000, 3600], [5000] * 4) == pytest.approx(5000)


def test_energy_follows_the_formula_on_irregular_samples() -> None:
    # p(1) x 1 + p(3) x 2 + p(3.5) x 0.5, in mWs
    assert energy_mwh([0, 1, 3, 3.5], [999, 10, 20, 40]) == pytest.approx((10 + 40 + 20) / 3600)


def test_energy_in_a_window_counts_the_overlap_only() -> None:
    assert integral([0, 1, 2, 3], [0, 10, 20, 40], 0.5, 2.25) == pytest.approx(0.5 * 10 + 20 + 0.25 * 40)
    assert integral([0, 1, 2, 3], [0, 10, 20, 40], 1.25, 1.5) == pytest.approx(0.25 * 20)


def test_the_nearest_sample_holds_for_one_interval_beyond_the_ends() -> None:
    assert integral([1, 2, 3], [10, 20, 30], 0.5, 3.5) == pytest.approx(0.5 * 10 + 20 + 30 + 0.5 * 30)


@pytest.mark.parametrize("window", [(-0.5, 2.0), (2.0, 4.5), (3.0, 2.0)])
def test_energy_of_a_window_that_samples_do_not_cover_is_missing(window: Tuple[float, float]) -> None:
    assert integral([1, 2, 3], [10, 20, 30], *window) is None


@pytest.mark.parametrize("gap_s", [2.9, 3.1])
def test_a_sample_is_charged_for_no_more_than_three_intervals(gap_s: float) -> None:
    taken = [0, 1, 2, 2 + gap_s, 3 + gap_s]
    total = integral(taken, [10, 10, 10, 40, 20])
    assert total == (None if gap_s > 3 else pytest.approx(20 + 40 * gap_s + 20))


def test_what_lies_beside_a_gap_is_covered_and_the_nearest_sample_holds_for_one_interval() -> None:
    taken, values = [0, 1, 2, 10, 11, 12], [10, 20, 30, 40, 50, 60]
    assert integral(taken, values, 0, 2.5) == pytest.approx(20 + 30 + 0.5 * 30)
    assert integral(taken, values, 9.5, 12) == pytest.approx(0.5 * 40 + 50 + 60)
    for start_s, stop_s in ((0, 3.5), (8.5, 12), (5, 6), (2.5, 9.5), (0, 12)):
        assert integral(taken, values, start_s, stop_s) is None


@pytest.mark.parametrize("samples", [0, 1])
def test_energy_of_fewer_than_two_samples_is_missing(samples: int) -> None:
    assert energy_mwh(range(samples), [5.0] * samples) is None


@given(st.lists(st.floats(1, 3), min_size=2, max_size=20), st.data())
def test_energies_of_two_halves_add_up(steps: List[float], data: st.DataObject) -> None:
    taken = [sum(steps[:count]) for count in range(len(steps) + 1)]
    values = data.draw(st.lists(st.floats(0, 1e5), min_size=len(taken), max_size=len(taken)))
    middle = data.draw(st.floats(0, taken[-1]))
    first, second = integral(taken, values, 0, middle), integral(taken, values, middle, taken[-1])
    assert first is not None
    assert second is not None
    assert math.isclose(first + second, integral(taken, values) or 0.0, rel_tol=1e-6, abs_tol=1e-6)


def test_constant_power_is_stable_at_once() -> None:
    assert stable_from(range(10), [5000] * 10) == 0


def test_power_is_stable_where_the_transient_ends() -> None:
    ramp = [2000, 4000, 6000, 8000]
    found = stable_from(range(20), ramp + [9000] * 16)
    assert found is not None
    assert 3 <= found <= 4


def test_an_exponential_transient_is_left_once_within_the_tolerance() -> None:
    values = [9000 - 5000 * math.exp(-tick / 8) for tick in range(100)]  # 0.1 s apart, settles with 0.8 s
    found = stable_from([tick / 10 for tick in range(100)], values)
    assert found is not None
    assert 1.0 < found < 3.0  # PowerTrain sec. 2.5: 2-3 s, found from where the window begins
    assert abs(values[round(found * 10)] - 9000) < 0.15 * 9000


def test_the_alternation_of_stall_and_compute_is_stable() -> None:
    values = [4000 + 5000 * (tick % 4 < 2) for tick in range(100)]  # 0.4 s period, sampled every 0.1 s
    assert stable_from([tick / 10 for tick in range(100)], values, 3.2) == 0


def test_power_that_keeps_rising_never_becomes_stable() -> None:
    assert stable_from(range(20), [1000 * 1.1**tick for tick in range(20)]) is None


def test_a_window_that_was_not_observed_to_its_end_is_not_stable() -> None:
    assert stable_from([0, 1, 2], [5000] * 3, STABLE_WINDOW_S) is None
    assert stable_from([0, 1, 2, 3], [5000] * 4, STABLE_WINDOW_S) == 0
    assert stable_from([], []) is None


def test_jitter_does_not_hide_stability() -> None:
    assert stable_from([0, 1.1, 1.9, 3.2, 4.0], [5000] * 5, 3.0) == 0


def test_rare_samples_make_a_window_of_two() -> None:
    assert stable_from([0, 10, 20], [1000, 5000, 5000], 3.0) == 10


def test_quartiles_are_interpolated() -> None:
    assert quartiles([1, 2, 3, 4]) == (1.75, 2.5, 3.25)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_throughput_of_no_time_is_missing() -> None:
    assert samples_per_s(10, 16, 2.0) == 80
    assert samples_per_s(0, 16, 0.0) is None


def test_between_keeps_both_ends() -> None:
    assert between(Series((1.0, 2.0, 3.0, 4.0), (10.0, 20.0, 30.0, 40.0)), 2, 3) == Series((2.0, 3.0), (20.0, 30.0))
