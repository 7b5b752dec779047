"""Training with inference in between: the loop on a clock of its own, and what is expected of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.interleaving import expect, interleave


class Clock:
    """Time that passes only where something is done."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s

    def spend(self, ms):
        def work(*_):
            self.now_s += ms / 1e3

        return work


def run(training_ms=40.0, inference_ms=10.0, rate=20.0, batch=4, duration_s=30.0, switching_ms=0.0):
    clock = Clock()
    return interleave(
        clock=clock,
        train=training_ms and clock.spend(training_ms),
        serve=inference_ms and clock.spend(inference_ms),
        arrivals_per_s=rate,
        batch_size=batch,
        duration_s=duration_s,
        switch_to=clock.spend(switching_ms),
        wait=lambda seconds: clock.spend(1e3 * seconds)(),
    )


def test_every_request_is_served_once_in_the_order_of_arrival():
    found = run()
    assert len(found.latency_ms) == 4 * len(found.inference_ms)
    assert len(found.latency_ms) + found.waiting == int(found.duration_s * 20)
    assert found.waiting < 2 * 4


def test_time_is_spent_on_training_inference_and_switching_and_on_nothing_else():
    found = run(switching_ms=3.0)
    spent_ms = sum(found.training_ms) + sum(found.inference_ms) + sum(found.switching_ms)
    assert spent_ms == pytest.approx(1e3 * found.duration_s)


def test_alone_nothing_waits_for_the_other():
    serving, training = run(training_ms=None), run(inference_ms=None)
    assert sorted(set(np.round(serving.latency_ms, 3))) == pytest.approx([10.0, 60.0, 110.0, 160.0], abs=0.2)
    assert not serving.training_ms
    assert not training.inference_ms
    assert training.waiting == 0
    assert training.training_per_s(1) == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("training_ms", "inference_ms", "trained", "served"),
    [(40.0, None, 1, 0), (None, 10.0, 0, 1), (40.0, 10.0, 0, 1)],
    ids=["training", "inference", "both"],
)
def test_a_thread_that_wakes_after_the_end_still_does_one_minibatch(training_ms, inference_ms, trained, served):
    clock = Clock()
    late_by_ms = 2000.0
    found = interleave(
        clock=clock,
        train=training_ms and clock.spend(training_ms),
        serve=inference_ms and clock.spend(inference_ms),
        arrivals_per_s=20.0,
        batch_size=4,
        duration_s=1.0,
        wait=clock.spend(late_by_ms),
        began_s=-2.0,
    )
    assert len(found.training_ms) == trained
    assert len(found.inference_ms) == served


def test_what_has_not_arrived_is_not_waited_for_after_the_end():
    found = run(training_ms=None, rate=1.0, batch=4, duration_s=3.0)
    assert not found.inference_ms
    assert found.duration_s == pytest.approx(3.0)


sizes = st.floats(5, 100)


@pytest.mark.exhaustive
@given(training_ms=sizes, inference_ms=sizes, batch=st.integers(1, 16), switching_ms=st.floats(0, 5))
def test_what_is_expected_comes_true(training_ms, inference_ms, batch, switching_ms):
    rate = batch / 0.25  # a batch every 250 ms, which is more than both need together
    found = run(training_ms, inference_ms, rate, batch, 60.0, switching_ms)
    ones = (np.array(value) for value in (training_ms, 10_000.0, inference_ms, 20_000.0, batch))
    expected = expect(*ones, rate, switching_ms)
    assert len(found.training_ms) / found.duration_s == pytest.approx(float(expected.training_per_s), rel=0.03)
    assert max(found.latency_ms) <= float(expected.latency_ms) + 1e-6
    assert max(found.latency_ms) >= float(expected.latency_ms) - training_ms - 1e-6
    assert len(found.inference_ms) / found.duration_s == pytest.approx(4.0, rel=0.03)


def test_inference_that_needs_more_than_all_time_leaves_none_for_training():
    expected = expect(*(np.array(value) for value in (40.0, 1e4, 300.0, 2e4, 4)), 20.0)
    assert expected.load > 1
    assert expected.training_per_s == 0
    found = run(inference_ms=300.0, duration_s=60.0)
    assert len(found.training_ms) <= 6
    assert found.waiting > 100


def test_mean_power_lies_between_those_of_both_kinds_of_work():
    expected = expect(*(np.array(value) for value in (40.0, 10_000.0, 50.0, 20_000.0, 4)), 20.0)
    assert expected.power_mw == pytest.approx(12_500.0)
