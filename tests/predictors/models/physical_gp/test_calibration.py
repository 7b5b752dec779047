"""Intervals are as wide as residuals of figures that were left out ask for."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.evaluation import coverage
from predictors.models.physical_gp import PhysicalGP
from predictors.models.physical_gp.posterior import TAILS, leave_each_out, spread
from tests.predictors.models.physical_gp.made_tables import make_table

pytestmark = pytest.mark.exhaustive


def test_leaving_out_is_what_learning_without_the_figure_would_say():
    random = np.random.default_rng(0)
    count, parameters = 7, 3
    slopes = random.normal(size=(2, count, parameters))
    factors = np.tril(random.normal(size=(2, count, count))) + 3 * np.eye(count)
    prior = np.diag([0.5, 1.0, 2.0])
    measured = random.normal(size=(2, count))
    flat = slopes.reshape(-1, parameters)
    noise = np.zeros((2 * count, 2 * count))
    for what in range(2):
        place = slice(what * count, (what + 1) * count)
        noise[place, place] = factors[what] @ factors[what].T
    covariance = np.linalg.inv(np.linalg.inv(prior) + flat.T @ np.linalg.inv(noise) @ flat)
    learned = covariance @ flat.T @ np.linalg.inv(noise) @ measured.ravel()
    residual, variance = leave_each_out(
        np.linalg.inv(factors)[None], (measured - slopes @ learned)[None], slopes[None], covariance[None]
    )
    whole = flat @ prior @ flat.T + noise
    for figure in range(2 * count):
        others = np.delete(np.arange(2 * count), figure)
        gain = whole[figure, others] @ np.linalg.inv(whole[np.ix_(others, others)])
        assert residual.ravel()[figure] == pytest.approx(measured.ravel()[figure] - gain @ measured.ravel()[others])
        assert variance.ravel()[figure] == pytest.approx(whole[figure, figure] - gain @ whole[others, figure])


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_many_residuals_tell_the_spread(factor):
    residuals = factor * np.random.default_rng(0).standard_t(TAILS, size=(2, 4000))
    assert spread(residuals**2) == pytest.approx(factor, rel=0.06)


def test_few_residuals_move_the_belief_a_little_and_more_residuals_more():
    believed = spread(np.zeros((0,)))
    found = [spread(np.full(count, 9.0)) for count in (1, 5, 50)]
    assert believed < found[0] < found[1] < found[2]
    assert found[0] < 2 * believed


def test_one_residual_that_is_far_off_changes_little():
    squares = np.random.default_rng(1).standard_t(TAILS, size=30) ** 2
    assert spread(np.append(squares, 1e6)) < 1.2 * spread(squares)


@pytest.mark.parametrize("noise", [0.005, 0.05, 0.1])
def test_intervals_hold_whatever_the_noise(noise):
    held = []
    for seed in range(6):
        table = make_table(seed, noise=noise)
        few, rest = map(table.take, np.split(np.random.default_rng(seed).permutation(len(table)), [60]))
        found = PhysicalGP(seed=seed).fit(few.modes, few.time_ms, few.power_mw).predict(rest.modes)
        held.append(coverage(rest.time_ms, *found.interval("time_ms", 0.8)))
        held.append(coverage(rest.power_mw, *found.interval("power_mw", 0.8)))
    assert 76 < np.mean(held) < 86
