"""A virtual data set: how much of it the page cache holds before, during and after a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import CACHE_STATES
from harness.simulation.parameters import load_board, load_workload
from harness.simulation.virtual_run import VirtualData, virtual_data


def data_of(board="orin-nano", cache="cold", data_scale=None, workers=4, batch_size=16):
    parameters = load_board(board), load_workload("resnet18-imagenet")
    return virtual_data(*parameters, batch_size, workers, cache, default_samples=1024, data_scale=data_scale)


def test_without_a_scale_it_is_as_small_as_one_that_would_be_written():
    data = data_of()
    assert (data.samples, data.per_pass) == (1024, 64)
    assert data.byte_count == pytest.approx(1024 / 50_000 * 6.7e9)


def test_more_data_and_more_workers_leave_a_smaller_share_in_memory():
    shares = [data_of(data_scale=scale).holds for scale in (1, 2, 4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 1
    assert data_of(data_scale=4, workers=8).holds < data_of(data_scale=4, workers=0).holds
    assert data_of(data_scale=0.01).holds == 1.0


@given(st.sampled_from(CACHE_STATES), st.floats(0.001, 8.0), st.integers(1, 400))
def test_residency_never_falls_within_a_pass_and_never_passes_what_fits(cache, scale, count):
    data = data_of(cache=cache, data_scale=scale, batch_size=1)
    held = data.held(count)
    assert (held <= data.holds).all()
    first_pass = held[: data.per_pass]
    assert (np.diff(first_pass) >= 0).all()
    assert held[0] >= min(data.before, data.holds)


def test_after_a_pass_all_that_fits_is_held():
    data = VirtualData(100, 1.0, 1000, 10, before=0.0, later=0.6, holds=0.6)
    assert data.held(12).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6])
