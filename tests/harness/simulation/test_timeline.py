"""Minibatches in virtual time: how they follow each other and which count; what the page cache holds of their data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import CACHE_STATES
from harness.core.metrics import stable_from
from harness.simulation.parameters import load_board_parameters, load_workload_parameters
from harness.simulation.timeline import LEAD_S, Steady, Timeline, choose_clean, run_minibatches
from harness.simulation.virtual_run import VirtualData, virtual_data

STEADY = Steady(1.0, 10.0, 50.0, 2.0, 30.0, {"base": 5_000.0, "cpu": 3_000.0}, 0.5, 0.8)
COLD = STEADY._replace(cached_share=0.0, stall_ms=40.0)


def run(epochs=2, per_epoch=20, workers=4, pause_s=0.0, states=(COLD, STEADY), seed=0):
    epoch = np.repeat(np.arange(epochs), per_epoch)
    return run_minibatches(
        states,
        np.minimum(epoch, 1),
        epoch,
        workers=workers,
        worker_start_ms=25.0,
        tuning_ms=700.0,
        pause_s=pause_s,
        time_factor=1.0,
        noise=np.random.default_rng(seed),
    )


@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 8), st.sampled_from([0.0, 0.5]), st.integers(0, 5))
def test_minibatches_follow_each_other_with_pauses_between_epochs_only(epochs, per_epoch, workers, pause_s, seed):
    line = run(epochs, per_epoch, workers, pause_s, seed=seed)
    gaps = line.start_s[1:] - line.end_s[:-1]
    assert line.start_s[0] == LEAD_S
    assert gaps == pytest.approx(np.diff(line.epoch) * pause_s, abs=1e-9)
    assert (line.e2e_ms > line.stall_ms + line.compute_ms).all()


def test_the_median_is_that_of_the_steady_state():
    line = run(epochs=2, per_epoch=2001)
    assert np.median(line.stall_ms[line.epoch == 0]) == pytest.approx(COLD.stall_ms, rel=0.01)
    assert np.median(line.stall_ms[line.epoch == 1]) == pytest.approx(STEADY.stall_ms, rel=0.01)
    assert np.median(line.compute_ms) == pytest.approx(STEADY.compute_ms, rel=0.01)


def test_the_first_minibatch_is_tuned_and_every_epoch_waits_for_its_workers():
    line = run(epochs=2, per_epoch=20, workers=4)
    assert line.compute_ms[0] > 700.0 + STEADY.compute_ms
    started = 4 * (25.0 + STEADY.supply_ms)
    assert line.stall_ms[[0, 20]] == pytest.approx([COLD.stall_ms + started, STEADY.stall_ms + started], rel=0.1)
    assert run(workers=0).stall_ms[20] == pytest.approx(STEADY.stall_ms, rel=0.5)


@st.composite
def samples(draw):
    """Power that steps around at first and is steady then, sampled every second."""
    steps = draw(st.lists(st.floats(1_000, 20_000), max_size=12))
    power = np.array([*steps, *[10_000.0] * 60])
    return np.arange(len(power), dtype=float), power


@given(samples(), st.floats(20.0, 4_000.0), st.integers(1, 50))
def test_minibatches_count_as_in_a_loop_that_learns_of_power_as_it_goes(power, e2e_ms, wanted):
    times, values = power
    count = int(60_000 / e2e_ms) + wanted + 2
    start = LEAD_S + np.arange(count) * e2e_ms / 1e3
    line = Timeline(*[np.zeros(count)] * 2, start, *[np.full(count, e2e_ms / 2)] * 2, np.full(count, e2e_ms))
    chosen = choose_clean(line, times, values, wanted, least_samples=3, longest_s=30.0)

    clean_from, clean = None, 0
    for number in range(count):
        heard = (times >= start[0]) & (times <= start[number])
        settled = stable_from(times[heard], values[heard]) is not None or start[number] >= 30.0
        if clean_from is None and number and settled:
            clean_from = number
        if clean_from is not None:
            clean += 1
            end = line.end_s[number]
            seen = np.count_nonzero((times >= start[clean_from]) & (times <= end))
            if clean >= wanted and (seen >= 3 or end >= start[clean_from] + 30.0):
                break
    assert chosen == (clean_from, number + 1)


def data_of(board="orin-nano", cache="cold", data_scale=None, workers=4, batch_size=16):
    parameters = load_board_parameters(board), load_workload_parameters("resnet18-imagenet")
    return virtual_data(*parameters, batch_size, workers, cache, default_samples=1024, data_scale=data_scale)


def test_without_a_scale_data_is_as_small_as_written_and_more_of_it_has_a_smaller_share_in_memory():
    data = data_of()
    assert (data.samples, data.per_pass) == (1024, 64)
    assert data.byte_count == pytest.approx(1024 / 50_000 * 6.7e9)
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
