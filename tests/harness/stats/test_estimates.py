"""Estimates of noisy series, the noise between runs, and what is made of them: on exact and on simulated signals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.estimates import (
    Estimate,
    block_length,
    drawn,
    geometric_mean,
    paired_ratio,
    product,
    quotient,
    series_mean,
    series_median,
)
from harness.stats.noise import (
    ANY_MACHINE,
    BOARD,
    BOARD_POWER,
    RunNoise,
    describe_noise,
    learn,
    noise_of,
    over_runs,
    prior,
)

estimates = st.builds(Estimate, st.floats(0.001, 1e6), st.floats(0.0, 0.5), st.integers(1, 50))


def correlated(generator: np.random.Generator, correlation: float, count: int = 40) -> np.ndarray:
    """Log-normal times around 1 with 10 % noise that is an AR(1) process."""
    noise = generator.normal(size=count + 50)
    for place in range(1, len(noise)):
        noise[place] = correlation * noise[place - 1] + math.sqrt(1 - correlation**2) * noise[place]
    return np.exp(0.1 * noise[50:])


def test_an_alternating_series_is_known_better_than_one_of_slow_swings():
    fast = series_mean([1.0, 3.0] * 100)
    slow = series_mean([1.0] * 100 + [3.0] * 100)
    assert fast.value == slow.value == 2.0
    assert fast.error < slow.error / 2


def test_a_mean_may_be_a_ratio_of_sums_and_is_missing_of_nothing_and_of_zeros():
    assert series_mean([]) is series_mean([0.0, 0.0]) is series_mean([5.0]) is None
    assert series_mean([1.0, 1.0, 4.0], [10.0, 10.0, 10.0]).value == pytest.approx(0.2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("estimate", "truth"), [(series_mean, np.exp(0.3**2 / 2)), (series_median, 1.0)])
def test_an_interval_covers_the_truth_as_often_as_it_says(estimate, truth):
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = estimate(np.exp(0.3 * generator.standard_normal(100)).tolist()).interval()
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 400 <= 0.98


def test_the_same_seed_gives_the_same_median_and_a_longer_series_a_surer_one():
    assert series_median([5.0] * 9).interval() == (5.0, 5.0, 5.0)
    assert series_median([5.0]) == Estimate(5.0, 0.0, 1)
    times = np.random.default_rng(1).lognormal(4, 0.1, 3000)
    assert series_median(times[:40], seed=3) == series_median(times[:40], seed=3)
    assert series_median(times[:40], seed=3) != series_median(times[:40], seed=4)
    assert series_median(times[:40]).value == np.median(times[:40])
    assert series_median(times).error < series_median(times[:30]).error / 3


def test_autocorrelation_widens_the_error_of_a_median():
    generator = np.random.default_rng(3)
    free, bound = (
        np.mean([series_median(correlated(generator, correlation)).error for _ in range(30)])
        for correlation in (0.0, 0.8)
    )
    assert bound > 1.3 * free


def test_a_block_is_the_cube_root_rounded_up():
    assert [block_length(count) for count in (1, 2, 8, 9, 27, 28, 1000)] == [1, 2, 2, 3, 3, 4, 10]


@given(estimates, estimates)
def test_a_quotient_times_its_divisor_is_the_dividend(before, after):
    assert product(quotient(before, after), before).value == pytest.approx(after.value)


@given(estimates, st.floats(0.5, 0.99))
def test_more_confidence_is_a_wider_interval_around_the_value(estimate, confidence):
    narrow, wide = estimate.interval(confidence), estimate.interval(confidence + 0.005)
    assert wide.low <= narrow.low <= estimate.value <= narrow.high <= wide.high


@given(st.floats(0.5, 2.0), st.floats(0.001, 0.5), st.integers(1, 50))
def test_an_interval_ends_where_its_p_value_says(value, error, dof):
    estimate = Estimate(value, error, dof)
    low, high = estimate.interval()[1:]
    assert estimate.p_differs(low) == pytest.approx(0.05)
    assert estimate.p_above(high) == pytest.approx(0.975)
    assert estimate.p_above(low) == pytest.approx(0.025)


def test_without_noise_a_difference_is_sure_and_equality_is_a_toss():
    assert (Estimate(1.2, 0.0, 1).p_above(), Estimate(0.8, 0.0, 1).p_above()) == (0.0, 1.0)
    assert (Estimate(1.0, 0.0, 1).p_above(), Estimate(1.0, 0.0, 1).p_differs()) == (0.5, 1.0)


def test_a_geometric_mean_of_equally_noisy_figures_is_surer_by_the_root_of_their_number():
    found = geometric_mean([Estimate(value, 0.02, 10) for value in (1.0, 2.0, 4.0, 8.0)])
    assert found == pytest.approx((2**1.5, 0.01, 40))


def test_one_run_keeps_its_own_noise_and_that_between_runs_and_two_minibatches_are_trusted_little():
    assert over_runs([Estimate(10.0, 0.03, 20)], RunNoise(0.04, 20))[:2] == pytest.approx((10.0, 0.05))
    few = over_runs([series_mean([9.0, 11.0])], BOARD)
    many = over_runs([series_mean([9.0, 11.0] * 500)], BOARD)
    assert few.dof < 3
    assert few.interval().high > 2 * many.interval().high


def test_a_repeated_case_tells_the_noise_of_the_others():
    repeated = [Estimate(value, 0.001, 20) for value in (1.0, 1.2, 0.9)]
    noise = learn([repeated, [Estimate(5.0, 0.001, 20)]], BOARD)
    assert noise.share == pytest.approx(np.std(np.log([1.0, 1.2, 0.9]), ddof=1))
    assert (noise.repetitions, noise.dof) == (2, BOARD.dof + 2)
    assert over_runs([Estimate(5.0, 0.001, 20)], noise).error > 10 * over_runs([Estimate(5.0, 0.001, 20)], BOARD).error


def test_a_machine_that_repeats_better_is_believed_only_bit_by_bit():
    assert learn([[Estimate(1.0, 0.01, 20)], [Estimate(2.0, 0.01, 20)]], BOARD) == BOARD
    few, many = (learn([[Estimate(1.0, 0.001, 20)] * count], BOARD) for count in (3, 300))
    assert many.share < few.share < BOARD.share


@given(st.lists(st.lists(estimates, min_size=1, max_size=4), max_size=4), st.sampled_from([BOARD, ANY_MACHINE]))
def test_learned_noise_is_never_less_than_what_repetitions_show(groups, known):
    noise = learn(groups, known)
    logs = [np.log([each.value for each in group]) for group in groups]
    repetitions = sum(len(group) - 1 for group in logs)
    if repetitions:
        shown = np.sqrt(sum(float(np.sum((group - group.mean()) ** 2)) for group in logs) / repetitions)
        assert noise.share >= shown * (1 - 1e-9)
    assert noise.dof == known.dof + repetitions


def test_there_is_a_prior_for_each_class_of_devices():
    assert prior("orin-agx") == prior("sim:orin-agx@2") == prior("replay:nano") == BOARD
    assert prior("xavier-nx").share == 3 * BOARD.share
    assert prior("orin-agx", "power") == prior("xavier-nx", "energy") == BOARD_POWER
    assert prior("host") == prior("host", "power") == prior("") == ANY_MACHINE


def test_a_quantity_that_was_never_repeated_differs_as_times_do():
    time = [{("time", "warm"): Estimate(value, 0.001, 20)} for value in (1.0, 1.3)]
    noise = noise_of("orin-agx", [time, [{("stall", "warm"): Estimate(1.0, 0.1, 20)}]])
    assert noise["stall"] == noise["time"]
    assert describe_noise(noise) == f"time {noise['time'].share:.1%} (learned from 1 repetitions)"


def test_a_drawn_statistic_is_as_unsure_as_its_estimates():
    for dof in (4, 1000):
        estimate = Estimate(2.0, 0.05, dof)
        found = drawn("one", [[estimate]], lambda values: float(values[0]))
        assert found == drawn("one", [[estimate]], lambda values: float(values[0]))
        assert found.interval().high == pytest.approx(estimate.interval().high, rel=0.02)


def test_a_paired_ratio_is_the_median_ratio_whatever_drifts():
    drift = np.exp(np.linspace(0, 3, 21))
    assert paired_ratio(drift, drift * 1.02) == pytest.approx((1.02, 1.02, 1.02))
    assert paired_ratio([1.0, 1.0, 1.0], [1.1, 0.9, 1.2]) == (1.1, 0.9, 1.2), "few pairs give their whole range"


@pytest.mark.exhaustive
def test_the_interval_of_a_paired_ratio_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    found = [paired_ratio(np.ones(30), np.exp(generator.standard_cauchy(30) / 50)) for _ in range(1000)]
    assert 0.94 <= sum(interval.low <= 1 <= interval.high for interval in found) / 1000 <= 0.98
