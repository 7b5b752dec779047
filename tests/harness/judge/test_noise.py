"""Ratios of two sides: as wide as runs differ, right as often as they say, finding what is there."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats import intervals as statistics
from harness.stats.noise import RUN_TO_RUN, combined_ranks, compare_runs, learn_noise, mean_change, rank_test

Case = Tuple[List[List[float]], List[List[float]]]


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 200)


def drawn(generator: np.random.Generator, runs: int, between: float, factor: float = 1.0) -> List[List[float]]:
    """Runs of 40 minibatches around 100 ms, with 5 % noise within a run."""
    medians = 100 * factor * np.exp(between * generator.normal(size=runs))
    return [list(median * np.exp(0.05 * generator.normal(size=40))) for median in medians]


def cases(seed: int, count: int, runs: int, between: float, factor: float = 1.0) -> List[Case]:
    generator = np.random.default_rng(seed)
    return [(drawn(generator, runs, between), drawn(generator, runs, between, factor)) for _ in range(count)]


def logs_of(pairs: Sequence[Case]) -> List[np.ndarray]:
    """The logarithms of the runs' medians on both sides, as `mean_change` takes them."""
    return [np.log([[np.median(run) for run in pair[side]] for pair in pairs]).T for side in (0, 1)]


def test_before_any_run_was_seen_the_noise_is_what_is_known() -> None:
    assert learn_noise([], same_question=True) == pytest.approx(RUN_TO_RUN)
    assert learn_noise([([[100.0] * 40], [[130.0] * 40])], same_question=True) == pytest.approx(RUN_TO_RUN)


def test_several_runs_teach_their_noise() -> None:
    learned = learn_noise(cases(1, 20, 4, 0.03), same_question=False)
    assert learned == pytest.approx(math.hypot(0.03, 0.01), rel=0.15)  # with the noise of a run's median within it
    assert learn_noise([([[100.0] * 40] * 30,) * 2], same_question=False) < RUN_TO_RUN / 3


def test_single_runs_teach_by_their_scatter_where_cases_may_be_taken_to_change_alike() -> None:
    single = cases(2, 30, 1, 0.03, factor=1.3)
    assert learn_noise(single, same_question=True) == pytest.approx(math.hypot(0.03, 0.01), rel=0.3)
    assert learn_noise(single, same_question=False) == pytest.approx(RUN_TO_RUN)


def test_a_few_changed_cases_do_not_pass_for_noise() -> None:
    single = [([[100.0] * 40], [[100.0 * factor] * 40]) for factor in (1, 1.001, 0.999, 1, 1.002, 2, 3)]
    assert learn_noise(single, same_question=True) == pytest.approx(RUN_TO_RUN)


def test_calm_single_runs_do_not_lower_what_is_known() -> None:
    """What all cases of a run have in common shows in no scatter."""
    assert learn_noise([([[100.0] * 40], [[100.0] * 40])] * 20, same_question=True) == pytest.approx(RUN_TO_RUN)


def test_one_run_on_each_side_has_an_honest_interval() -> None:
    change = compare_runs([[100.0] * 40], [[105.0] * 40], RUN_TO_RUN).change
    assert change.ratio == pytest.approx(1.05)
    # Student's t with 4 degrees of freedom: 2.776
    assert math.log(change.high / change.ratio) == pytest.approx(2.776 * RUN_TO_RUN * math.sqrt(2), rel=1e-3)
    assert 0.02 < change.p_value < 0.05


def test_sides_that_are_swapped_give_the_inverse() -> None:
    [(before, after)] = cases(3, 1, 3, 0.02)
    there, back = (compare_runs(*sides, RUN_TO_RUN).change for sides in ((before, after), (after, before)))
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value)


def test_single_values_can_be_compared() -> None:
    change = compare_runs([[9000.0]], [[9900.0]], RUN_TO_RUN).change
    assert change.ratio == pytest.approx(1.1)
    assert change.p_value < 0.01


@pytest.mark.parametrize(("runs", "between"), [(1, 0.01), (3, 0.01), (3, 0.03)])
def test_the_interval_covers_equal_code_as_often_as_it_says(runs: int, between: float) -> None:
    covered = 0
    pairs = cases(4, 300, runs, between)
    noise = learn_noise(pairs[:10], same_question=True)
    for pair in pairs:
        change = compare_runs(*pair, noise).change
        covered += change.low <= 1 <= change.high
    assert covered / 300 >= 0.93


def test_the_mean_of_one_case_is_the_case() -> None:
    [pair] = cases(5, 1, 2, 0.02)
    one = compare_runs(*pair, RUN_TO_RUN)
    assert mean_change([one], *logs_of([pair])).change == pytest.approx(one.change)


def test_a_mean_of_many_cases_is_surer_but_not_surer_than_what_they_share() -> None:
    one = compare_runs([[100.0] * 40], [[105.0] * 40], 0.03)
    many = mean_change([one] * 50, np.zeros((1, 50)), np.zeros((1, 50)))
    assert many.change.ratio == pytest.approx(one.change.ratio)
    assert many.change.p_value < one.change.p_value
    assert RUN_TO_RUN * math.sqrt(2) <= many.between.error < one.between.error


def test_runs_that_are_slow_in_all_their_cases_are_no_proof() -> None:
    generator = np.random.default_rng(7)
    alike = generator.normal(scale=0.08, size=(2, 30, 1)) + generator.normal(scale=0.005, size=(2, 30, 8))
    pairs = [tuple([[100 * math.exp(log)] * 40 for log in side[:, place]] for side in alike) for place in range(8)]
    noise = learn_noise(pairs, same_question=True)
    changes = [compare_runs(*pair, noise) for pair in pairs]
    together = mean_change(changes, *logs_of(pairs))
    expected = 0.08 * math.sqrt(2 / 30)  # eight cases of such runs are worth one
    assert together.between.error == pytest.approx(expected, rel=0.2)
    assert together.between.error > 2 * changes[0].between.error / math.sqrt(8)


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=6))
def test_a_mean_is_the_geometric_one(ratios: Sequence[float]) -> None:
    changes = [compare_runs([[100.0]], [[100.0 * ratio]], RUN_TO_RUN) for ratio in ratios]
    assert mean_change(
        changes, *logs_of([([[100.0]], [[100.0 * ratio]]) for ratio in ratios])
    ).change.ratio == pytest.approx(float(np.prod(ratios)) ** (1 / len(ratios)))


def test_ranks_tell_a_shift_from_none_and_do_not_mind_outliers() -> None:
    generator = np.random.default_rng(6)
    before = drawn(generator, 1, 0.0)
    shifted = [[1.2 * time for time in before[0]]]
    shifted[0][0] = 1e6
    assert rank_test(before, shifted) < 0.01
    assert rank_test(before, before) == pytest.approx(1.0, abs=0.05)


def test_rank_tests_that_agree_are_surer_together_and_such_that_do_not_cancel() -> None:
    slower, faster = (compare_runs([[100.0]], [[time]], RUN_TO_RUN).change for time in (110.0, 90.0))
    assert combined_ranks([slower, slower], [0.05, 0.05]) == pytest.approx(0.0056, abs=1e-4)  # sf(1.96 sqrt 2) x 2
    assert combined_ranks([slower, faster], [0.05, 0.05]) == pytest.approx(1.0)
    assert combined_ranks([slower, faster], [0.05, None]) == pytest.approx(0.05)
    assert combined_ranks([slower], [None]) is None


def test_too_few_blocks_are_not_ranked() -> None:
    assert rank_test([[1.0] * 10], [[1.0] * 10]) is None
    assert rank_test([[9000.0]] * 3, [[9900.0]] * 3) is None
