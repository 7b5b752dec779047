"""Roughness: seeded, of the size asked for, and with the structure of interactions."""

import numpy as np
import pytest

from harness.core.boards import load_board as load_spec
from harness.simulation.terms import SHARES, deviations

MODES = np.array(list(load_spec("orin-agx").power_mode_space().paper_grid()))


def test_the_shares_are_a_whole():
    assert sum(SHARES.values()) == pytest.approx(1.0)


def test_it_is_as_large_as_asked_for():
    logarithms = np.log(deviations(0.05, "a board", MODES))
    assert logarithms.std() == pytest.approx(0.05, rel=0.15)
    assert abs(logarithms.mean()) < 0.02


def test_the_same_seed_deviates_alike_and_another_differently():
    one, again, other = (np.log(deviations(0.05, seed, MODES)) for seed in ("a", "a", "b"))
    assert (one == again).all()
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_a_mode_deviates_alike_alone():
    assert deviations(0.05, "a", MODES[17:18])[0] == deviations(0.05, "a", MODES)[17]


def test_modes_that_share_settings_deviate_more_alike_than_others():
    logarithms = np.log(deviations(0.05, "a", MODES))
    groups = [logarithms[(MODES[:, :2] == pair).all(axis=1)].mean() for pair in np.unique(MODES[:, :2], axis=0)]
    independent = 0.05 / np.sqrt(len(MODES) / len(groups))
    assert np.std(groups) > 2 * independent


def test_none_of_it_changes_nothing():
    assert (deviations(0.0, "a", MODES) == 1.0).all()
