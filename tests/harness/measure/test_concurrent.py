"""Training with inference in between: the case that stands for both, and what comes out of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import CONCURRENT, INFERENCE, TRAINING, Case, Mix, Settings, concurrent_case, parts_of
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.interleaving import Interleaved
from harness.core.metrics import summarise_concurrent
from harness.core.profiles import Series
from harness.devices.registry import open_device
from harness.measure.run import check, run

BOARD = "sim:orin-agx"
TRAIN = Case(BOARD, "resnet18-cifar10", "maxn", 4, "ssd", 16)
SERVE = Case(BOARD, "lenet-mnist", "maxn", 0, "ssd", 4, task=INFERENCE)


@given(
    st.sampled_from(["lenet-mnist", "bert-squad"]),
    st.sampled_from(["lenet-mnist", "yolov8n-coco"]),
    st.integers(1, 512),
    st.integers(1, 5000),
)
def test_a_mix_has_a_name_that_says_all_of_it(training, inference, batch_size, tenths):
    mix = Mix(training, inference, batch_size, tenths / 10)
    assert Mix.parse(mix.name) == mix


@pytest.mark.parametrize("text", ["lenet-mnist", "a+b-bs0@1", "a+b-bs1@0", "a+b-bs1", "+b-bs1@1"])
def test_what_is_no_mix_is_refused_with_the_form(text):
    with pytest.raises(InvalidValueError) as refused:
        Mix.parse(text)
    assert "TRAINING+INFERENCE" in refused.value.hint


def test_a_concurrent_case_comes_apart_into_what_it_was_made_of():
    case = concurrent_case(TRAIN, SERVE, 20.0, 30.0)
    assert case.task == CONCURRENT
    assert case.settings.duration_s == 30.0
    training, inference = parts_of(case)
    assert (training.task, training.workload, training.batch_size) == (TRAINING, "resnet18-cifar10", 16)
    assert (inference.task, inference.workload, inference.batch_size) == (INFERENCE, "lenet-mnist", 4)


def run_concurrent(device, *what):
    case = concurrent_case(*what)
    check(case, device)
    return run(case, device)


def test_a_simulated_board_trains_less_the_more_it_serves():
    device = open_device(BOARD, Configuration())
    few, many = (run_concurrent(device, TRAIN, SERVE, rate, 60.0) for rate in (5.0, 100.0))
    assert few.provenance == "simulated"
    assert many.aggregates["training_samples_per_s"] < few.aggregates["training_samples_per_s"]
    assert many.aggregates["inference_per_s"] == pytest.approx(100.0, rel=0.05)
    for profile in (few, many):
        assert profile.aggregates["latency_p95_ms"] >= profile.aggregates["latency_median_ms"] > 0
        assert profile.aggregates["power_mw"] > 0
        assert profile.minibatches


def test_requests_that_cannot_be_served_in_time_are_flagged():
    profile = run_concurrent(
        open_device(BOARD, Configuration()), TRAIN, Case(BOARD, "bert-squad", "maxn", 0, "ssd", 1), 8.0, 20.0
    )
    assert not any(flag.startswith("overloaded") for flag in profile.flags)
    with pytest.raises(CannotRunError, match="no time to train"):
        summarise_concurrent(Interleaved(1.0, (), (5.0,), (9.0,), 40, ()), None, 16, 0.0, 1.0)


def test_a_board_refuses_a_mix_of_which_it_cannot_run_a_part():
    with pytest.raises(CannotRunError, match="no storage"):
        run_concurrent(
            open_device(BOARD, Configuration()), Case(BOARD, "lenet-mnist", "maxn", 4, "tape", 16), SERVE, 5.0, 10.0
        )


def test_without_a_sensor_there_is_no_power_and_not_a_zero():
    found = Interleaved(10.0, (100.0,) * 50, (20.0,) * 10, (30.0,) * 40, 0, ())
    figures = summarise_concurrent(found, None, 16, 0.0, 10.0)
    assert figures["power_mw"] is None
    assert figures["training_samples_per_s"] == 80.0
    assert figures["inference_per_s"] == 4.0
    assert summarise_concurrent(found, Series((1.0, 2.0), (5.0, 7.0)), 16, 0.0, 10.0)["power_mean_mw"] == 6.0


def test_a_case_goes_on_for_a_duration_or_a_number_of_minibatches_not_both():
    with pytest.raises(InvalidValueError):
        Settings(minibatches=5, duration_s=3.0)
