"""Quantiles and miss ratios: exact on independent values, and right often enough on simulated tails that are known."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.tails import (
    EXPECTED_LENGTH,
    design_effect,
    miss_ratio,
    quantile,
    share_interval,
    values_needed,
)

LEVEL = 0.05
SPREAD = 0.3


def independent(generator: np.random.Generator, count: int) -> np.ndarray:
    return np.exp(SPREAD * generator.normal(size=count))


def correlated(generator: np.random.Generator, count: int) -> np.ndarray:
    """The same distribution; neighbours are correlated by 0.6."""
    noise = generator.normal(size=count)
    for place in range(1, count):
        noise[place] = 0.6 * noise[place - 1] + 0.8 * noise[place]
    return np.exp(SPREAD * noise)


def true_quantile(share: float) -> float:
    return math.exp(SPREAD * NormalDist().inv_cdf(share))


def misses_in_runs(generator: np.random.Generator, count: int, share: float, followed: float = 0.74) -> np.ndarray:
    """Times of 1, and of 2 for a share of all; a slow one is followed by another with that probability."""
    begins = share * (1 - followed) / (1 - share)
    draws = generator.random(count)
    is_slow = np.empty(count, dtype=bool)
    before = bool(generator.random() < share)
    for place, draw in enumerate(draws):
        before = bool(draw < (followed if before else begins))
        is_slow[place] = before
    return np.where(is_slow, 2.0, 1.0)


def test_the_interval_of_a_share_is_the_exact_binomial_one():
    """Of C. Clopper and E. Pearson, 10 of 100: 4.90 to 17.62 %."""
    assert share_interval(10, 100) == pytest.approx((0.1, 0.0490, 0.1762), abs=5e-5)
    assert share_interval(0, 368).high <= 0.01 < share_interval(0, 367).high
    assert share_interval(0, 20).low == 0.0
    assert share_interval(20, 20).high == 1.0


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]), st.floats(0.1, 1e3))
def test_an_interval_has_its_value_inside_and_grows_with_the_times(times, share, limit):
    interval = quantile([times], share, limit)
    assert interval.low <= interval.value <= interval.high
    doubled = quantile([[2 * time for time in times]], share, 2 * limit)
    assert doubled == pytest.approx([2 * end for end in interval])
    ratio = miss_ratio([times], limit)
    assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1


def test_a_quantile_keeps_a_limit_exactly_where_the_share_beyond_it_is_small_enough():
    times = np.random.default_rng(8).permutation(400) + 1.0
    verdicts = []
    for limit in np.arange(320.0, 401.0):
        interval, beyond = quantile([times], 0.9, limit), miss_ratio([times], limit)
        keeps, breaks = interval.high <= limit, interval.low > limit
        assert keeps == (beyond.high <= 1 - 0.9)
        assert breaks == (beyond.low >= 1 - 0.9)
        verdicts.append((bool(keeps), bool(breaks)))
    assert set(verdicts) == {(False, True), (False, False), (True, False)}


def test_runs_of_slow_values_count_for_less_than_scattered_ones():
    scattered = [1.0, 1.0, 1.0, 1.0, 2.0] * 80
    together = [1.0] * 160 + [2.0] * 40
    assert design_effect([scattered], 1.5) < 1.2
    assert design_effect([together * 2], 1.5) > 20
    assert miss_ratio([together * 2], 1.5).high > miss_ratio([scattered], 1.5).high


def test_without_a_slow_value_runs_of_them_are_expected_and_a_few_of_its_own_outweigh_that():
    assert design_effect([[1.0] * 400], 1.5) == pytest.approx(EXPECTED_LENGTH)
    assert design_effect([([1.0] * 60 + [2.0]) * 10], 1.5) < 2


def test_scattered_slow_values_count_for_less_where_some_stretches_have_more_of_them():
    stretches = [1.0, 2.0] * 50 + [1.0] * 300
    assert design_effect([stretches * 2], 1.5) > 5
    assert design_effect([[1.0] * 300 + [1.0, 2.0] * 50, [1.0] * 400], 1.5) > 5


def test_runs_that_are_too_short_for_a_block_are_blocks():
    some_slow, all_fast = [2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [1.0] * 9
    assert design_effect([some_slow, all_fast] * 10, 1.5) > 3
    assert design_effect([[1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0]] * 20, 1.5) < 1.5


def test_where_most_values_are_beyond_a_limit_that_is_plain_from_a_few():
    assert miss_ratio([[5.0] * 40], 1.0).low > 0.5
    assert quantile([[5.0] * 40], 0.99, 1.0).low > 1.0


def test_the_number_of_values_that_decides_is_the_one_that_does():
    needed = values_needed(0.0, 0.01, EXPECTED_LENGTH)
    assert needed == pytest.approx(1415, rel=0.02)  # 368 independent ones, and misses come by 3.8
    assert miss_ratio([[1.0] * needed], 1.5).high <= 0.01
    assert miss_ratio([[1.0] * (needed - 30)], 1.5).high > 0.01
    assert values_needed(0.01, 0.01, 1.0) is None


@pytest.mark.parametrize("make", [independent, correlated])
@pytest.mark.parametrize(("share", "count"), [(0.95, 400), pytest.param(0.99, 1600, marks=pytest.mark.exhaustive)])
def test_a_limit_at_the_true_quantile_is_rarely_called_kept_or_broken(make, share, count):
    generator = np.random.default_rng(5)
    limit = true_quantile(share)
    draws = 200
    wrong = 0
    for _ in range(draws):
        interval = quantile([make(generator, count)], share, limit)
        wrong += not interval.low <= limit <= interval.high
    assert wrong / draws <= LEVEL


@pytest.mark.parametrize(("share", "count"), [(0.05, 800), pytest.param(0.01, 3000, marks=pytest.mark.exhaustive)])
def test_a_miss_ratio_at_its_true_value_is_rarely_called_kept_or_broken(share, count):
    generator = np.random.default_rng(6)
    draws = 200
    wrong = 0
    for _ in range(draws):
        interval = miss_ratio([misses_in_runs(generator, count, share)], 1.5)
        wrong += not interval.low <= share <= interval.high
    assert wrong / draws <= LEVEL


def test_a_limit_well_above_the_quantile_is_kept_and_one_well_below_is_broken():
    generator = np.random.default_rng(7)
    for _ in range(20):
        times = correlated(generator, 600)
        assert quantile([times], 0.95, 1.5 * true_quantile(0.95)).high <= 1.5 * true_quantile(0.95)
        assert quantile([times], 0.95, true_quantile(0.8)).low > true_quantile(0.8)
