"""Ratios of two sides: as wide as runs differ, right as often as they say, finding what is there."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import estimates
from harness.stats.comparison import (
    FEWEST_RUNS,
    combined_ranks,
    compare_runs,
    dealt_p_value,
    holm,
    learn_noise,
    mean_ratio,
    median_of_runs,
    randomised_change,
    rank_test,
)
from harness.stats.noise import ANY_MACHINE, BOARD, RunNoise

Case = Tuple[List[List[float]], List[List[float]]]
KNOWN = RunNoise(0.01, 4)


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "RESAMPLES", 200)


def runs_of(generator: np.random.Generator, runs: int, between: float, factor: float = 1.0) -> List[List[float]]:
    """Runs of 40 minibatches around 100 ms, with 5 % noise within a run."""
    medians = 100 * factor * np.exp(between * generator.normal(size=runs))
    return [list(median * np.exp(0.05 * generator.normal(size=40))) for median in medians]


def cases(seed: int, count: int, runs: int, between: float, factor: float = 1.0) -> List[Case]:
    generator = np.random.default_rng(seed)
    return [(runs_of(generator, runs, between), runs_of(generator, runs, between, factor)) for _ in range(count)]


def logs_of(pairs: Sequence[Case]) -> List[np.ndarray]:
    """The logarithms of the runs' medians on both sides, as `mean_ratio` takes them."""
    return [np.log([[np.median(run) for run in pair[side]] for pair in pairs]).T for side in (0, 1)]


@pytest.mark.parametrize(
    "factors", [(), (1.3,), (1.0,) * 20, (1, 1.001, 0.999, 1, 1.002, 2, 3)], ids=["none", "one", "calm", "few changed"]
)
def test_single_runs_that_scatter_little_or_by_a_few_changed_cases_leave_the_prior(factors: Sequence[float]) -> None:
    """What all cases of a run have in common shows in no scatter, so calm runs do not lower it."""
    assert learn_noise([([[100.0] * 40], [[100.0 * factor] * 40]) for factor in factors], True, KNOWN) == KNOWN


def test_several_runs_teach_their_noise() -> None:
    learned = learn_noise(cases(1, 20, 4, 0.03), False, KNOWN)
    assert learned.share == pytest.approx(math.hypot(0.03, 0.01), rel=0.15)  # with the noise of a run's median in it
    assert learn_noise([([[100.0] * 40] * 30,) * 2], False, KNOWN).share < KNOWN.share / 3


def test_single_runs_teach_by_their_scatter_where_cases_may_be_taken_to_change_alike() -> None:
    single = cases(2, 30, 1, 0.03, factor=1.3)
    assert learn_noise(single, True, KNOWN).share == pytest.approx(math.hypot(0.03, 0.01), rel=0.3)
    assert learn_noise(single, False, KNOWN) == KNOWN


def test_one_run_on_each_side_has_an_honest_interval() -> None:
    change = compare_runs([[100.0] * 40], [[105.0] * 40], KNOWN, KNOWN).change()
    assert change.ratio == pytest.approx(1.05)
    # Student's t with 4 degrees of freedom: 2.776
    assert math.log(change.high / change.ratio) == pytest.approx(2.776 * 0.01 * math.sqrt(2), rel=1e-3)
    assert 0.02 < change.p_value < 0.05


def test_sides_that_are_swapped_give_the_inverse_whatever_the_unit() -> None:
    [(before, after)] = cases(3, 1, 3, 0.02)
    there, back = (compare_runs(*sides, KNOWN, KNOWN).change() for sides in ((before, after), (after, before)))
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value)
    scaled = compare_runs(*([[1e4 * time for time in run] for run in side] for side in (before, after)), KNOWN, KNOWN)
    assert scaled.change() == pytest.approx(there)


def test_single_values_and_runs_of_unequal_length_can_be_compared() -> None:
    change = compare_runs([[9000.0]], [[9900.0]], KNOWN, KNOWN).change()
    assert change.ratio == pytest.approx(1.1)
    assert change.p_value < 0.01
    before = [np.random.default_rng(6).lognormal(0, 0.05, count) for count in (30, 40, 50)]
    assert compare_runs(before, [run * 1.3 for run in before], KNOWN, KNOWN).change().low > 1.1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("known", "runs", "between"),
    [(BOARD, 1, 0.005), (BOARD, 3, 0.005), (BOARD, 3, 0.03), (ANY_MACHINE, 1, 0.05), (ANY_MACHINE, 3, 0.03)],
)
def test_the_interval_covers_equal_code_as_often_as_it_says(known: RunNoise, runs: int, between: float) -> None:
    covered = 0
    pairs = cases(4, 300, runs, between)
    noise = learn_noise(pairs[:10], True, known)
    for pair in pairs:
        change = compare_runs(*pair, noise, known).change()
        covered += change.low <= 1 <= change.high
    assert covered / 300 >= 0.93


def test_a_median_of_runs_is_as_unsure_as_they_differ() -> None:
    one = median_of_runs([[10.0] * 20], BOARD)
    assert one.value == 10.0
    assert one.error == pytest.approx(0.005)
    assert median_of_runs([[10.0] * 20] * 4, BOARD).error < 0.6 * one.error
    assert median_of_runs([[10.0] * 20, [12.0] * 20], BOARD).error > 10 * one.error


def test_a_mean_of_many_cases_is_surer_but_not_surer_than_what_they_share_and_of_one_it_is_the_case() -> None:
    [pair] = cases(5, 1, 2, 0.02)
    one = compare_runs(*pair, KNOWN, KNOWN)
    assert mean_ratio([one], *logs_of([pair])) == one
    one = compare_runs([[100.0] * 40], [[105.0] * 40], RunNoise(0.03, 4), KNOWN)
    many = mean_ratio([one] * 50, np.zeros((1, 50)), np.zeros((1, 50)))
    assert many.change().ratio == pytest.approx(one.change().ratio)
    assert many.change().p_value < one.change().p_value
    assert KNOWN.share * math.sqrt(2) <= many.between < one.between


def test_runs_that_are_slow_in_all_their_cases_are_no_proof() -> None:
    generator = np.random.default_rng(7)
    alike = generator.normal(scale=0.08, size=(2, 30, 1)) + generator.normal(scale=0.005, size=(2, 30, 8))
    pairs = [tuple([[100 * math.exp(log)] * 40 for log in side[:, place]] for side in alike) for place in range(8)]
    noise = learn_noise(pairs, True, KNOWN)
    ratios = [compare_runs(*pair, noise, KNOWN) for pair in pairs]
    together = mean_ratio(ratios, *logs_of(pairs))
    expected = 0.08 * math.sqrt(2 / 30)  # eight cases of such runs are worth one
    assert together.between == pytest.approx(expected, rel=0.2)
    assert together.between > 2 * ratios[0].between / math.sqrt(8)


def test_ranks_tell_a_shift_from_none_and_do_not_mind_outliers_and_too_few_blocks_are_not_ranked() -> None:
    before = runs_of(np.random.default_rng(6), 1, 0.0)
    shifted = [[1.2 * time for time in before[0]]]
    shifted[0][0] = 1e6
    assert rank_test(before, shifted) < 0.01
    assert rank_test(before, before) == pytest.approx(1.0, abs=0.05)
    assert rank_test([[1.0] * 10], [[1.0] * 10]) is rank_test([[9000.0]] * 3, [[9900.0]] * 3) is None


def test_rank_tests_that_agree_are_surer_together_and_such_that_do_not_cancel() -> None:
    assert combined_ranks([1.1, 1.1], [0.05, 0.05]) == pytest.approx(0.0056, abs=1e-4)  # sf(1.96 sqrt 2) x 2
    assert combined_ranks([1.1, 0.9], [0.05, 0.05]) == pytest.approx(1.0)
    assert combined_ranks([1.1, 0.9], [0.05, None]) == pytest.approx(0.05)
    assert combined_ranks([1.1], [None]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_adjusts_by_rank_keeps_the_order_and_only_raises(p_values: List[float]) -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    adjusted = holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted))
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    assert [adjusted[place] for place in order] == sorted(adjusted)
    assert min(adjusted) == min(1.0, len(p_values) * min(p_values))


def shared_noise(seed: int, runs: int, count: int, factor: float = 1.0) -> np.ndarray:
    """Logarithms of figures that something else slows: rarely and much, all cases of a run together."""
    generator = np.random.default_rng(seed)
    slowed = 0.3 * generator.random(size=(runs, 1)) ** 4
    return math.log(factor) + slowed + 0.01 * generator.standard_normal((runs, count))


@pytest.mark.exhaustive
@pytest.mark.parametrize("runs", [4, 8])
def test_equal_sides_are_told_apart_by_permutation_no_more_often_than_it_says(runs: int) -> None:
    found = [
        dealt_p_value(shared_noise(2 * seed, runs, 3), shared_noise(2 * seed + 1, runs, 3)) < 0.05 for seed in range(60)
    ]
    assert sum(found) <= 8  # of 60 at 5 %, more has a chance of 1 %


def test_five_percent_is_found_beneath_noise_that_only_slows() -> None:
    found = randomised_change(shared_noise(1, 10, 4), shared_noise(2, 10, 4, 1.05))
    assert found.p_value < 0.05
    assert found.low < 1.05 < found.high
    assert found.ratio == pytest.approx(1.05, abs=0.02)


def test_runs_that_are_all_equal_have_an_interval_with_ends() -> None:
    found = randomised_change(np.zeros((5, 1)), np.full((5, 1), math.log(1.05)))
    assert found.ratio == pytest.approx(1.05)
    assert (found.low, found.high) == pytest.approx((1.05 / 1000, 1050))


@pytest.mark.exhaustive
def test_cases_that_swing_together_do_not_pass_for_many_witnesses() -> None:
    one, many = (
        (np.repeat(shared_noise(3, 6, 1), n, axis=1), np.repeat(shared_noise(4, 6, 1), n, axis=1)) for n in (1, 9)
    )
    assert randomised_change(*one) == pytest.approx(randomised_change(*many))


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 2.0))
@pytest.mark.exhaustive
def test_a_factor_moves_ratio_and_interval_and_swapping_inverts_them(seed: int, factor: float) -> None:
    before, after = shared_noise(seed, FEWEST_RUNS, 2), shared_noise(seed + 1, FEWEST_RUNS, 2)
    plain, moved = randomised_change(before, after), randomised_change(before, after + math.log(factor))
    assert moved.ratio == pytest.approx(plain.ratio * factor)
    # The ends are searched from how far all runs lie apart, so they agree to that search's step.
    assert moved.low == pytest.approx(plain.low * factor, rel=2e-3)
    back = randomised_change(after, before)
    assert (back.ratio, back.p_value) == pytest.approx((1 / plain.ratio, plain.p_value))
    assert plain.low <= plain.ratio <= plain.high
