"""Training with inference in between: the case that stands for both, and what comes out of it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import (
    CONCURRENT,
    INFERENCE,
    INTERLEAVED,
    PROCESSES,
    STREAMS,
    TRAINING,
    WAYS,
    Case,
    Mix,
    concurrent_case,
    parts_of,
)
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.interleaving import Interleaved
from harness.core.metrics import POWER_CHANNEL, summarise_concurrent
from harness.core.profiles import CLEAN, Minibatch, Series
from harness.devices.registry import open_device
from harness.judge.case_frame import frame_of_profiles, pooled
from harness.judge.claims import judge
from harness.judge.verdict import CONFIRMED, CONTRADICTED
from harness.measure.concurrent import Stretch, overlap
from harness.measure.run import check, run
from tests.named_modes import mode_on
from tools.simulated_campaign import papers_claims

BOARD = "sim:orin-agx"
TRAIN = Case(BOARD, "resnet18-cifar10", mode_on(BOARD), 4, "ssd", 16)
SERVE = Case(BOARD, "lenet-mnist", mode_on(BOARD), 0, "ssd", 4, task=INFERENCE)


@given(
    st.sampled_from(["lenet-mnist", "bert-squad"]),
    st.sampled_from(["lenet-mnist", "yolov8n-coco"]),
    st.integers(1, 512),
    st.integers(1, 5000),
    st.sampled_from([*((way, "") for way in WAYS), (INTERLEAVED, "2c"), (INTERLEAVED, "12c-2201.6-1300.5-3199")]),
)
@pytest.mark.exhaustive
def test_a_mix_has_a_name_that_says_all_of_it(training, inference, batch_size, tenths, how):
    mix = Mix(training, inference, batch_size, tenths / 10, *how)
    assert Mix.parse(mix.name) == mix


def test_cases_by_turns_have_the_ids_that_they_always_had_and_come_apart_into_what_they_were_made_of():
    name = "sim:orin-agx-resnet18-cifar10+lenet-mnist-bs4@20{}-maxn-w4-ssd-bs16-concurrent"
    assert concurrent_case(TRAIN, SERVE, 20.0, 30.0).id == name.format("")
    assert concurrent_case(TRAIN, SERVE, 20.0, 30.0, PROCESSES).id == name.format("-processes")
    in_own_mode = concurrent_case(TRAIN, SERVE.in_mode(mode_on(BOARD, "mode_15w")), 20.0, 30.0)
    assert in_own_mode.id == name.format("-in-MODE_15W")
    assert (in_own_mode.task, in_own_mode.settings.duration_s) == (CONCURRENT, 30.0)
    assert [(part.task, part.workload, part.batch_size, part.power_mode.name) for part in parts_of(in_own_mode)] == [
        (TRAINING, "resnet18-cifar10", 16, "maxn"),
        (INFERENCE, "lenet-mnist", 4, "MODE_15W"),
    ]
    with pytest.raises(InvalidValueError, match="cannot run as"):
        concurrent_case(TRAIN, SERVE.in_mode(mode_on(BOARD, "mode_15w")), 20.0, 30.0, STREAMS)


@pytest.mark.parametrize("text", ["lenet-mnist", "a+b-bs0@1", "a+b-bs1@0", "a+b-bs1", "+b-bs1@1"])
def test_what_is_no_mix_is_refused_with_the_form(text):
    with pytest.raises(InvalidValueError) as refused:
        Mix.parse(text)
    assert "TRAINING+INFERENCE" in refused.value.what


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
    assert many.aggregates["training_slowdown"] > few.aggregates["training_slowdown"] > 1
    for profile in (few, many):
        assert profile.aggregates["speedup"] == pytest.approx(1.0, rel=0.05)
        assert profile.aggregates["latency_alone_p99_ms"] < profile.aggregates["latency_p99_ms"]
        assert profile.aggregates["energy_per_request_mws"] < profile.aggregates["energy_per_request_alone_mws"]
        assert profile.aggregates["latency_p95_ms"] >= profile.aggregates["latency_median_ms"] > 0
        assert profile.aggregates["power_mw"] > 0
        assert profile.minibatches


def test_a_simulated_board_changes_between_two_modes_and_pays_for_each_change():
    device = open_device(BOARD, Configuration())
    low, fast = TRAIN.in_mode(mode_on(BOARD, "2c")), SERVE
    own = run_concurrent(device, low, fast, 20.0, 60.0, INTERLEAVED, 50.0)
    both_low = run_concurrent(device, low, fast.in_mode(low.power_mode), 20.0, 60.0, INTERLEAVED, 50.0)
    assert own.conditions["power_mode"]["cpu_cores"] == 2
    assert own.conditions["inference"]["power_mode"]["cpu_cores"] == 12
    assert own.aggregates["switching_ms"] == pytest.approx(50.0)
    assert both_low.aggregates["switching_ms"] is None
    assert "power_mode" not in both_low.conditions["inference"]
    figures, in_low = own.aggregates, both_low.aggregates
    assert figures["inference_time_ms"] < 0.9 * in_low["inference_time_ms"]
    # Batches of 4 at 20 requests/s: 5 a second, each with a change there and back.
    left_share = 1 - 5 * (2 * 50.0 + figures["inference_time_ms"]) / 1000
    assert figures["training_samples_per_s"] == pytest.approx(left_share * figures["training_alone_per_s"], rel=0.03)
    assert figures["latency_median_ms"] > figures["latency_alone_median_ms"] + 50.0
    assert figures["power_mw"] < in_low["power_mw"]  # nothing runs while the mode changes


def test_a_simulated_board_wants_to_know_what_a_change_of_mode_costs():
    case = concurrent_case(TRAIN.in_mode(mode_on(BOARD, "2c")), SERVE, 20.0, 5.0)
    with pytest.raises(CannotRunError, match="nowhere published") as refused:
        check(case, open_device(BOARD, Configuration()))
    assert "switching_ms=" in refused.value.hint


@pytest.mark.parametrize(("speedup", "verdict"), [(1.0, CONFIRMED), (0.7, CONTRADICTED)])
def test_both_at_once_are_judged_by_what_one_after_the_other_takes(speedup, verdict):
    profile = run_concurrent(open_device(BOARD, Configuration()), TRAIN, SERVE, 20.0, 20.0)
    profile = dataclasses.replace(profile, aggregates={**profile.aggregates, "speedup": speedup})
    claims = [one for one in papers_claims() if one.name == "both_take_no_longer_than_one_after_the_other"]
    (found,) = judge(pooled(frame_of_profiles([dataclasses.replace(profile, provenance="measured")])), claims)
    assert found.verdict == verdict
    assert judge(pooled(frame_of_profiles([profile])), claims) == []  # it cannot fail on a simulated board


def test_requests_that_cannot_be_served_in_time_are_flagged():
    profile = run_concurrent(
        open_device(BOARD, Configuration()), TRAIN, Case(BOARD, "bert-squad", mode_on(BOARD), 0, "ssd", 1), 8.0, 20.0
    )
    assert not any(flag.startswith("overloaded") for flag in profile.flags)
    with pytest.raises(CannotRunError, match="no training minibatch completed within"):
        summarise_concurrent(Interleaved(1.0, (), (5.0,), (9.0,), 40, ()), {}, 16)


def test_without_a_sensor_there_is_no_power_and_not_a_zero():
    found = Interleaved(10.0, (100.0,) * 50, (20.0,) * 10, (30.0,) * 40, 0, ())
    figures = summarise_concurrent(found, {}, 16, (found, found), 160)
    assert figures["energy_per_request_mws"] is None
    assert figures["power_mw"] is None
    assert figures["training_samples_per_s"] == 80.0
    assert figures["inference_per_s"] == 4.0
    power = {POWER_CHANNEL: Series((1.0, 2.0), (5.0, 7.0))}
    assert summarise_concurrent(found, power, 16)["power_mean_mw"] == 6.0


def test_both_are_held_against_each_alone():
    """10 s each: 100 minibatches of 16 alone, 60 together; batches of 4 take 20 ms alone and 50 ms together."""
    training = Interleaved(10.0, (100.0,) * 100, (), (), 0, (), 0.0)
    serving = Interleaved(10.0, (), (20.0,) * 50, tuple(range(200)), 0, (), 10.0)
    both = Interleaved(10.0, (166.0,) * 60, (50.0,) * 50, tuple(range(0, 400, 2)), 0, (), 20.0)
    power = Series(tuple(range(31)), (0.0, *[5000.0] * 10, *[2000.0] * 10, *[6000.0] * 10))
    figures = summarise_concurrent(both, {POWER_CHANNEL: power}, 16, (training, serving), epoch_samples=1600)
    assert figures["training_alone_per_s"] == 160.0
    assert figures["training_slowdown"] == pytest.approx(1 / 0.6)
    assert figures["inference_slowdown"] == 2.5
    assert figures["speedup"] == pytest.approx((6.0 + 1.0) / 10)
    assert [figures[f"latency_{which}_ms"] for which in ("median", "p95", "p99")] == pytest.approx([199, 378.1, 394.02])
    assert figures["latency_alone_p99_ms"] == pytest.approx(197.01)
    assert figures["energy_per_epoch_alone_mwh"] == pytest.approx(50_000 / 3600)
    assert figures["energy_per_epoch_mwh"] == pytest.approx(60_000 / 960 * 1600 / 3600)
    assert figures["energy_per_request_mws"] == pytest.approx((60_000 - 0.6 * 50_000) / 200)
    assert figures["energy_per_request_alone_mws"] == pytest.approx(100.0)


def minibatch(start_s, ms):
    return Minibatch(0, 0, CLEAN, start_s, 0.0, ms, ms)


def test_of_two_that_overlap_only_what_both_saw_counts():
    """Training goes on for 4 s from 100.0, inference of 2 at 2 per s from 100.5 ends at 103.2, its last batch late."""
    trained = [minibatch(100.0 + place, 1000.0) for place in range(4)]
    served = [minibatch(start_s, 200.0) for start_s in (101.5, 102.5, 103.0)]
    training = Stretch(Interleaved(4.0, (1000.0,) * 4, (), (), 0, (), 100.0), trained, [])
    latencies = (700.0, 200.0, 710.0, 210.0, 720.0, 220.0)
    serving = Stretch(Interleaved(2.7, (), (200.0,) * 3, latencies, 0, (), 100.5), [], served)
    found = overlap(training, serving, Mix("a", "b", 2, 2.0)).result
    assert (found.began_s, found.end_s) == (101.0, 103.0)
    assert found.training_per_s(8) == 8.0
    assert found.latency_ms == latencies[:4]
    assert found.waiting == 1


@pytest.mark.parametrize(
    ("training", "changes", "words"),
    [
        ({}, {"way": PROCESSES}, "nowhere published"),
        ({}, {"way": STREAMS}, "nowhere published"),
        ({"storage": "tape"}, {}, "no storage"),  # a part that it cannot run
    ],
)
def test_a_simulated_board_refuses_what_it_cannot_run_or_nobody_has_measured_there(training, changes, words):
    case = concurrent_case(dataclasses.replace(TRAIN, **training), SERVE, 20.0, 5.0)
    case = dataclasses.replace(case, workload=Mix.parse(case.workload)._replace(**changes).name)
    with pytest.raises(CannotRunError, match=words):
        check(case, open_device(BOARD, Configuration()))
