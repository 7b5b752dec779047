"""Statistics on exact synthetic signals, and on simulated runs whose truth is known."""

from __future__ import annotations

import math
from typing import List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats import intervals as statistics
from harness.stats.intervals import (
    block_length,
    compare_medians,
    holm,
    median_estimate,
    paired_ratio,
)

MINIBATCHES = 40


def simulate(
    generator: np.random.Generator, runs: int, between: float, within: float, correlation: float, scale: float = 1.0
) -> List[np.ndarray]:
    """Runs of log-normal times around `scale`, each with an offset of its own and noise that is an AR(1) process."""
    noise = generator.normal(size=(runs, MINIBATCHES + 50))
    for place in range(1, noise.shape[1]):
        noise[:, place] = correlation * noise[:, place - 1] + math.sqrt(1 - correlation**2) * noise[:, place]
    offsets = between * generator.normal(size=(runs, 1))
    return list(scale * np.exp(offsets + within * noise[:, 50:]))


def test_constant_times_have_an_exact_median() -> None:
    assert median_estimate([[5.0] * 7, [5.0] * 9]) == (5.0, 5.0, 5.0)


def test_a_median_lies_in_its_interval() -> None:
    times = np.random.default_rng(1).lognormal(4, 0.1, 40)
    estimate = median_estimate([times])
    assert estimate.median == np.median(times)
    assert estimate.low < estimate.median < estimate.high


def test_the_same_seed_gives_the_same_interval() -> None:
    times = [list(np.random.default_rng(1).lognormal(4, 0.1, 40))]
    assert median_estimate(times, seed=3) == median_estimate(times, seed=3)
    assert median_estimate(times, seed=3) != median_estimate(times, seed=4)


def test_an_interval_shrinks_with_the_number_of_minibatches() -> None:
    generator = np.random.default_rng(2)
    few, many = (median_estimate([generator.lognormal(0, 0.1, count)]) for count in (30, 3000))
    assert many.high - many.low < (few.high - few.low) / 3


def test_autocorrelation_widens_an_interval() -> None:
    generator = np.random.default_rng(3)
    widths = []
    for correlation in (0.0, 0.8):
        estimates = [median_estimate(simulate(generator, 1, 0, 0.1, correlation)) for _ in range(30)]
        widths.append(np.mean([math.log(estimate.high / estimate.low) for estimate in estimates]))
    assert widths[1] > 1.3 * widths[0]


def test_exact_signals_give_an_exact_ratio() -> None:
    slower = compare_medians([[10.0] * 20], [[12.0] * 20])
    assert slower == pytest.approx((1.2, 1.2, 1.2, 0.0, 1.0, False))
    same = compare_medians([[10.0] * 20] * 2, [[10.0] * 20] * 2)
    assert same == (1.0, 1.0, 1.0, 0.5, 0.5, True)


def test_a_comparison_turned_round_is_the_reciprocal() -> None:
    generator = np.random.default_rng(4)
    before, after = simulate(generator, 3, 0.02, 0.05, 0.3), simulate(generator, 3, 0.02, 0.05, 0.3, 1.1)
    there, back = compare_medians(before, after), compare_medians(after, before)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.p_slower == pytest.approx(back.p_faster, abs=0.02)
    assert there.p_slower + there.p_faster == pytest.approx(1)


@given(scale=st.floats(1e-3, 1e6))
def test_the_unit_of_the_times_does_not_matter(scale: float) -> None:
    generator = np.random.default_rng(5)
    before, after = simulate(generator, 2, 0.02, 0.05, 0.3), simulate(generator, 2, 0.02, 0.05, 0.3)
    plain = compare_medians(before, after)
    scaled = compare_medians([run * scale for run in before], [run * scale for run in after])
    assert scaled == pytest.approx(plain)


def test_runs_of_unequal_length_are_compared() -> None:
    generator = np.random.default_rng(6)
    before = [generator.lognormal(0, 0.05, count) for count in (30, 40, 50)]
    result = compare_medians(before, [run * 1.3 for run in before])
    assert result.ratio == pytest.approx(1.3)
    assert result.low > 1.1


@pytest.mark.parametrize(
    ("runs", "between", "correlation", "least", "most"),
    [
        ((1, 1), 0.0, 0.0, 0.90, 1.0),
        ((1, 1), 0.0, 0.5, 0.83, 1.0),
        ((3, 3), 0.03, 0.5, 0.93, 1.0),
        ((5, 5), 0.03, 0.5, 0.93, 1.0),
        ((5, 1), 0.03, 0.5, 0.92, 1.0),
        # What the note on single runs is for: nothing tells how much they differ
        ((1, 1), 0.03, 0.5, 0.30, 0.75),
    ],
)
def test_a_95_percent_interval_covers_the_truth(
    runs: tuple, between: float, correlation: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    generator = np.random.default_rng(7)
    covered = 0
    trials = 300
    for _ in range(trials):
        before, after = (simulate(generator, count, between, 0.05, correlation) for count in runs)
        result = compare_medians(before, after)
        covered += result.low <= 1 <= result.high
    assert least <= covered / trials <= most


@pytest.mark.parametrize(("runs", "most"), [((3, 3), 0.05), ((5, 5), 0.06), ((5, 1), 0.06)])
def test_false_alarms_of_the_bare_test_stay_near_its_level(
    runs: tuple, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 5 % and without the gate's threshold; 300 trials of equal runs."""
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    generator = np.random.default_rng(8)
    alarms = 0
    for _ in range(300):
        before, after = (simulate(generator, count, 0.03, 0.05, 0.5) for count in runs)
        alarms += compare_medians(before, after).p_slower < 0.05
    assert alarms / 300 <= most


def test_a_slowdown_of_a_fifth_is_found_in_three_runs_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    generator = np.random.default_rng(9)
    found = 0
    for _ in range(100):
        before, after = (simulate(generator, 3, 0.03, 0.05, 0.5, scale) for scale in (1.0, 1.2))
        found += compare_medians(before, after).p_slower < 0.05
    assert found >= 95


def test_holm_adjusts_by_rank_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_only_raises(p_values: List[float]) -> None:
    adjusted = holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted))
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    assert [adjusted[place] for place in order] == sorted(adjusted)
    assert min(adjusted) == min(1.0, len(p_values) * min(p_values))


def test_a_block_is_the_cube_root_rounded_up() -> None:
    assert [block_length(count) for count in (1, 2, 8, 9, 27, 28, 1000)] == [1, 2, 2, 3, 3, 4, 10]


def test_a_paired_ratio_is_the_median_ratio_whatever_drifts() -> None:
    drift = np.exp(np.linspace(0, 3, 21))
    assert paired_ratio(drift, drift * 1.02) == pytest.approx((1.02, 1.02, 1.02))


def test_the_interval_of_a_paired_ratio_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    found = [paired_ratio(np.ones(30), np.exp(generator.standard_cauchy(30) / 50)) for _ in range(1000)]
    assert 0.94 <= sum(estimate.low <= 1 <= estimate.high for estimate in found) / 1000 <= 0.98


def test_few_pairs_give_their_whole_range() -> None:
    assert paired_ratio([1.0, 1.0, 1.0], [1.1, 0.9, 1.2]) == (1.1, 0.9, 1.2)
