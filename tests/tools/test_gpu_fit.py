"""Simulated GPUs follow the measured tables that they were fitted to, under every power limit of these."""

from __future__ import annotations

import numpy as np
import pytest

from tools.gpu_fit import STARTS, deviations, fit, rows_of, without_scale

GREATEST = {
    ("v100", "bert"): (8, 3),
    ("v100", "resnet50"): (5, 3),
    ("a40", "bert"): (6, 3),
    ("a40", "resnet50"): (9, 4),
}
"""Greatest mean absolute errors in %, of times around their mean and of power; docs/simulation_accuracy.md has them."""


def errors_of(gpu, **values):
    rows = rows_of(gpu)
    shape = without_scale(deviations(gpu, rows, **values), rows)
    networks = np.array([row.network.partition("-")[0] for row in rows])
    return {
        (gpu, network): 100 * np.abs(np.expm1(shape[networks == network])).mean(axis=0) for network in set(networks)
    }


@pytest.mark.parametrize("gpu", STARTS)
def test_time_and_power_follow_the_limit_as_measured(gpu):
    for key, (time, power) in errors_of(gpu).items():
        assert time <= GREATEST[key][0], key
        assert power <= GREATEST[key][1], key


@pytest.mark.parametrize("change", [{"gpu_voltage": 0.4}, {"base_mw": 10_000.0}, {"gpu_mw": 120_000.0}], ids=str)
def test_other_values_do_not(change):
    errors = errors_of("v100", **change)
    assert any(error[place] > GREATEST[key][place] for key, error in errors.items() for place in (0, 1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("gpu", STARTS)
@pytest.mark.long
def test_the_fit_gives_the_shipped_values(gpu):
    fitted = errors_of(gpu, **fit(gpu))
    for key, shipped in errors_of(gpu).items():
        assert fitted[key] == pytest.approx(shipped, abs=0.5)
