"""The terms of the model: the limits between which each of them moves; roughness: seeded, sized, with structure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.boards import load_board
from harness.simulation import terms
from harness.simulation.terms import SHARES, deviations

AMOUNTS = st.floats(0.0, 1e6)


@given(AMOUNTS, AMOUNTS, st.floats(0.5, 50.0))
def test_a_smooth_maximum_lies_above_both_is_a_sum_at_one_and_the_maximum_at_last(one, other, sharpness):
    assert terms.smooth_maximum(one, other, sharpness) >= max(one, other) * (1 - 1e-12)
    assert terms.smooth_maximum(one, other, 1.0) == pytest.approx(one + other)
    assert terms.smooth_maximum(one, other, 1e4) == pytest.approx(max(one, other), rel=1e-3)


@given(st.integers(1, 12), st.floats(1.0, 20.0), st.floats(0.0, 1e6))
def test_processes_share_what_the_system_leaves_of_the_cores(cores, processes, background_khz):
    share = terms.core_share(cores, processes, background_khz, 1e6, 8.0)
    assert 0 < share <= 1
    assert share * processes <= cores * (1 + 1e-9)


def test_more_workers_gain_less_where_some_work_is_serial():
    assert terms.worker_speedup(1, 0.3) == pytest.approx(1.0)
    assert terms.worker_speedup(4, 0.0) == pytest.approx(4.0)
    assert 1 < terms.worker_speedup(4, 0.3) < terms.worker_speedup(100, 0.3) < 1 / 0.3


@given(st.floats(0.01, 1.0), st.floats(0.1, 1.0), st.floats(1.0, 8.0))
def test_a_lower_clock_draws_less_than_its_share_of_time(share, floor, curve):
    assert terms.switching(share, 1.0, floor, curve) <= share * (1 + 1e-9)
    assert terms.switching(1.0, 1.0, floor, curve) == pytest.approx(1.0)
    assert terms.switching(1e-6, 1.0, floor, curve) == pytest.approx(1e-6 * floor**2, rel=1e-4)


MODES = np.array(list(load_board("orin-agx").power_mode_space().paper_grid()))


def test_roughness_is_as_large_as_asked_for_the_same_of_a_seed_and_another_of_another():
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert (deviations(0.0, "a", MODES) == 1.0).all()
    one, again, other = (np.log(deviations(0.05, seed, MODES)) for seed in ("a board", "a board", "b"))
    assert one.std() == pytest.approx(0.05, rel=0.15)
    assert abs(one.mean()) < 0.02
    assert (one == again).all()
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_modes_that_share_settings_deviate_more_alike_than_others():
    logarithms = np.log(deviations(0.05, "a", MODES))
    groups = [logarithms[(MODES[:, :2] == pair).all(axis=1)].mean() for pair in np.unique(MODES[:, :2], axis=0)]
    independent = 0.05 / np.sqrt(len(MODES) / len(groups))
    assert np.std(groups) > 2 * independent
