"""Dealing whole runs anew: as often wrong as it says, whatever the noise, and sure of what stands out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats.permutation import FEWEST_RUNS, randomised_change


def shared_noise(seed: int, runs: int, cases: int, factor: float = 1.0) -> np.ndarray:
    """Logarithms of figures that something else slows: rarely and much, all cases of a run together."""
    generator = np.random.default_rng(seed)
    slowed = 0.3 * generator.random(size=(runs, 1)) ** 4
    return math.log(factor) + slowed + 0.01 * generator.standard_normal((runs, cases))


@pytest.mark.exhaustive
@pytest.mark.parametrize("runs", [4, 8])
def test_equal_sides_are_told_apart_no_more_often_than_it_says(runs: int) -> None:
    found = [
        randomised_change(shared_noise(2 * seed, runs, 3), shared_noise(2 * seed + 1, runs, 3)).p_value < 0.05
        for seed in range(60)
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


def test_cases_that_swing_together_do_not_pass_for_many_witnesses() -> None:
    one, many = (
        (np.repeat(shared_noise(3, 6, 1), n, axis=1), np.repeat(shared_noise(4, 6, 1), n, axis=1)) for n in (1, 9)
    )
    assert randomised_change(*one) == pytest.approx(randomised_change(*many))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 2.0))
def test_a_factor_moves_ratio_and_interval_and_swapping_inverts_them(seed: int, factor: float) -> None:
    before, after = shared_noise(seed, FEWEST_RUNS, 2), shared_noise(seed + 1, FEWEST_RUNS, 2)
    plain, moved = randomised_change(before, after), randomised_change(before, after + math.log(factor))
    assert moved.ratio == pytest.approx(plain.ratio * factor)
    # The ends are searched from how far all runs lie apart, so they agree to that search's step.
    assert moved.low == pytest.approx(plain.low * factor, rel=2e-3)
    back = randomised_change(after, before)
    assert (back.ratio, back.p_value) == pytest.approx((1 / plain.ratio, plain.p_value))
    assert plain.low <= plain.ratio <= plain.high
