"""Free values of single clocks learn a board whose memory clocks have latencies of their own, and harm no other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from predictors.evaluation import mape
from predictors.models import physical_gp
from predictors.models.base import Inputs
from predictors.models.physical_gp import PhysicalGP, clocks
from predictors.models.physical_gp.prior import any_board
from predictors.models.physical_gp.response import (
    PARAMETERS,
    UNIT_BATCH,
    Features,
    by_name,
    features,
    log_response,
    minibatch_times,
    traffic_share,
)
from tests.predictors.models.physical_gp.made_tables import make_table

MEMORY = PARAMETERS.index("memory")
ROWS = Features(
    cores=np.log([2.0, 4.0, 8.0]),
    cpu=np.array([-0.5, 0.0, -0.5]),
    gpu=np.array([-1.0, 0.0, 0.2]),
    memory=np.array([-2.0, 0.0, -2.0]),
    batch=np.zeros(3),
    inference=np.zeros(3),
)


def memory_bound_table(seed, shifts=(0.0, 0.0, 0.0, 0.0)):
    """A network that waits for memory on a board that multiplies its traffic by exp(shift) at each memory clock."""
    table = make_table(seed)
    at = features(Inputs(table.modes.astype(float), np.full(len(table), UNIT_BATCH), np.zeros(len(table), dtype=bool)))
    clocks_khz, place = np.unique(table.modes[:, 3], return_inverse=True)
    theta = any_board().mean.copy()
    logs = np.empty((2, len(table)))
    for number, shift in enumerate(shifts[: len(clocks_khz)]):
        theta[MEMORY] = any_board().mean[MEMORY] + 1.5 + shift
        here = place == number
        logs[:, here] = log_response(theta, Features(*(column[here] for column in at))).reshape(2, -1)
    noise = 0.01 * np.random.default_rng(seed).normal(size=logs.shape)
    time_ms, power_mw = 1000 * np.exp(logs + noise)
    return dataclasses.replace(table, time_ms=time_ms, power_mw=power_mw)


def errors(table, count=40):
    chosen = np.random.default_rng(1).permutation(len(table))
    few, rest = table.take(chosen[:count]), table.take(chosen[count:])
    predictor = PhysicalGP().fit(few.modes, few.time_ms, few.power_mw)
    prediction = predictor.predict(rest.modes)
    return mape(rest.time_ms, prediction.time_ms), mape(rest.power_mw, prediction.power_mw)


def test_the_share_of_traffic_is_the_derivative_of_the_time():
    theta = any_board().mean[None]
    step = np.zeros(len(PARAMETERS))
    step[MEMORY] = 1e-6
    values = by_name(theta)
    share = traffic_share(values, minibatch_times(values, ROWS))[0]
    difference = (log_response(theta + step, ROWS) - log_response(theta - step, ROWS))[0, :3] / 2e-6
    np.testing.assert_allclose(share, difference, rtol=1e-5)


def test_rows_of_one_clock_vary_together_and_those_of_others_do_not():
    effects = clocks.clock_effects(clocks.FREE_SD, any_board().mean[None], ROWS)
    time, power = clocks.clock_covariance(ROWS, ROWS, effects, effects)[0]
    assert time[0, 2] > 0  # one memory clock
    assert time[0, 1] == time[1, 2] == 0
    assert power[0, 2] > 0  # one CPU clock and one memory clock
    np.testing.assert_allclose(clocks.clock_variance(effects)[0], [np.diag(time), np.diag(power)])
    assert (np.linalg.eigvalsh(time) > -1e-12).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_latencies_of_single_memory_clocks_are_learned(seed, monkeypatch):
    table = memory_bound_table(seed, shifts=(0.3, -0.35, 0.35, -0.2))
    with_values, _ = errors(table)
    monkeypatch.setattr(physical_gp, "FREE_SD", clocks.FORM_ALONE)
    without, _ = errors(table)
    assert with_values < 0.6 * without


def test_a_clock_that_was_not_profiled_is_less_certain(monkeypatch):
    table = memory_bound_table(0)
    lowest = table.modes[:, 3] == table.modes[:, 3].min()
    few = table.take(np.flatnonzero(~lowest)[::9])

    def widths():
        predictor = PhysicalGP().fit(few.modes, few.time_ms, few.power_mw)
        low, high = predictor.predict(table.modes[lowest]).time_interval_ms(0.8)
        return np.median(np.log(high / low))

    width = widths()
    monkeypatch.setattr(physical_gp, "FREE_SD", clocks.FORM_ALONE)
    assert width > 1.2 * widths()


def test_a_board_of_the_form_alone_is_predicted_as_well(monkeypatch):
    table = make_table(2)
    with_values = errors(table)
    monkeypatch.setattr(physical_gp, "FREE_SD", clocks.FORM_ALONE)
    without = errors(table)
    assert all(new < 1.25 * old for new, old in zip(with_values, without))


def test_on_a_board_of_the_prior_the_form_is_alone():
    table = make_table(2).take(slice(0, None, 20))
    fitted = [PhysicalGP(board=board).fit(table.modes, table.time_ms, table.power_mw) for board in ("orin-agx", "tx2")]
    assert [predictor.posterior_.free_sd.any() for predictor in fitted] == [False, True]
