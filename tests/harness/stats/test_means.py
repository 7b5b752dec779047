"""Means with their noise, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.means import (
    ANY_MACHINE,
    BOARD,
    Mean,
    RunNoise,
    interval,
    learned,
    mean_of,
    over_runs,
    product,
    quotient,
)

pytest.importorskip("scipy")

means = st.builds(Mean, st.floats(0.001, 1e6), st.floats(0.0, 0.5), st.integers(1, 50))


def test_a_mean_of_nothing_or_of_zeros_is_missing():
    assert mean_of([]) is None
    assert mean_of([0.0, 0.0]) is None
    assert mean_of([5.0]) is None


def test_an_alternating_series_is_known_better_than_one_of_slow_swings():
    fast = mean_of([1.0, 3.0] * 100)
    slow = mean_of([1.0] * 100 + [3.0] * 100)
    assert fast.value == slow.value == 2.0
    assert fast.error < slow.error / 2


def test_a_share_is_a_ratio_of_sums():
    assert mean_of([1.0, 1.0, 4.0], [10.0, 10.0, 10.0]).value == pytest.approx(0.2)


def test_the_interval_of_a_mean_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = interval(mean_of(np.exp(0.3 * generator.standard_normal(100)).tolist()), 0.95)
        covered += found.low <= np.exp(0.3**2 / 2) <= found.high
    assert 0.91 <= covered / 400 <= 0.98


def test_one_run_keeps_its_own_noise_and_that_between_runs():
    single = over_runs([Mean(10.0, 0.03, 20)], RunNoise(0.04, 20))
    assert single.value == pytest.approx(10.0)
    assert single.error == pytest.approx(0.05)


def test_a_run_of_two_minibatches_is_trusted_little():
    few = over_runs([mean_of([9.0, 11.0])])
    many = over_runs([mean_of([9.0, 11.0] * 500)])
    assert few.freedom < 3
    assert interval(few, 0.95).high > 2 * interval(many, 0.95).high


def test_runs_that_differ_more_than_is_known_of_others_widen_the_error():
    alike = over_runs([Mean(value, 0.001, 20) for value in (10.0, 10.01, 9.99)])
    unlike = over_runs([Mean(value, 0.001, 20) for value in (8.0, 10.0, 12.5)])
    assert unlike.error > 5 * alike.error


def test_a_repeated_case_tells_the_noise_of_the_others():
    repeated = [Mean(value, 0.001, 20) for value in (1.0, 1.2, 0.9)]
    noise = learned([repeated, [Mean(5.0, 0.001, 20)]], BOARD)
    assert noise.share == pytest.approx(np.std(np.log([1.0, 1.2, 0.9]), ddof=1))
    assert (noise.repetitions, noise.freedom) == (2, BOARD.freedom + 2)
    assert over_runs([Mean(5.0, 0.001, 20)], noise).error > 10 * over_runs([Mean(5.0, 0.001, 20)], BOARD).error


def test_without_repetitions_noise_is_what_is_known_before():
    assert learned([[Mean(1.0, 0.01, 20)], [Mean(2.0, 0.01, 20)]], ANY_MACHINE) == ANY_MACHINE


def test_a_machine_that_repeats_better_is_believed_only_bit_by_bit():
    few, many = (learned([[Mean(1.0, 0.001, 20)] * count], BOARD) for count in (3, 300))
    assert many.share < few.share < BOARD.share


@given(st.lists(st.lists(means, min_size=1, max_size=4), max_size=4), st.sampled_from([BOARD, ANY_MACHINE]))
def test_learned_noise_is_never_less_than_what_repetitions_show(groups, known):
    noise = learned(groups, known)
    logs = [np.log([mean.value for mean in group]) for group in groups]
    repetitions = sum(len(group) - 1 for group in logs)
    if repetitions:
        shown = np.sqrt(sum(float(np.sum((group - group.mean()) ** 2)) for group in logs) / repetitions)
        assert noise.share >= shown * (1 - 1e-9)
    assert noise.freedom == known.freedom + repetitions


@given(means, means)
def test_a_quotient_times_its_divisor_is_the_dividend(before, after):
    back = product(quotient(before, after), before)
    assert back.value == pytest.approx(after.value)


@given(means, st.floats(0.5, 0.99))
def test_more_confidence_is_a_wider_interval_around_the_value(mean, confidence):
    narrow, wide = interval(mean, confidence), interval(mean, confidence + 0.005)
    assert wide.low <= narrow.low <= mean.value <= narrow.high <= wide.high
