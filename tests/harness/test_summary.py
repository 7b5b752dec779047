"""The summary: what was measured in few words; nothing missing is shown as zero, nothing simulated as measured."""

from __future__ import annotations

import dataclasses
import json

import pytest

from harness.core.cases import Case
from harness.core.metrics import AGGREGATES
from harness.core.profiles import Profile, Telemetry
from harness.summary import describe_result, extra_info, format_summary

FIGURES = {
    "minibatch_time_ms": 123.456,
    "minibatch_time_q1_ms": 120.0,
    "minibatch_time_q3_ms": 130.0,
    "fetch_stall_ms": 1.25,
    "compute_ms": 121.0,
    "e2e_s": 4.96,
    "samples_per_s": 129.0,
}
PROFILE = Profile(
    case=Case("host", "lenet-mnist", "maxn", 0, "ssd", 16),
    provenance="measured",
    conditions={
        "power_mode": {"cpu_cores": 2, "cpu_khz": 0, "gpu_khz": 0, "mem_khz": 0},
        "power_definition": "no power sensor: none here",
        "data_source": "written",
        "data_samples": 1024,
        "accelerator": "cpu",
        "torch": "2.15.0",
    },
    minibatches=[],
    telemetry=Telemetry(1.0),
    aggregates={**dict.fromkeys(AGGREGATES), **FIGURES},
    flags=["noisy: the interquartile range is 30% of the median"],
    started_at="2026-01-01T00:00:00+00:00",
)
SENSED = dataclasses.replace(
    PROFILE, aggregates={**PROFILE.aggregates, "power_mw": 30_500.0, "power_mean_mw": 30_250.0, "energy_mwh": 41.7}
)


def test_a_case_without_a_power_sensor_says_so():
    text = format_summary([PROFILE])
    cells = ["host-lenet-mnist-maxn-w0-ssd-bs16", "123", "120-130", "1.25", "121", "4.96", "129"]
    assert text.splitlines()[2].split() == [*cells, *["no", "power", "sensor", "-", "noisy"]]
    assert "no power sensor: none here" in text.splitlines()
    assert "noisy: the interquartile range is 30% of the median" in text


def test_power_and_energy_are_in_watt_and_watt_hours():
    row = format_summary([SENSED]).splitlines()[2]
    assert "30.2" in row
    assert "0.0417" in row
    assert "30.5 W" in describe_result(SENSED)
    assert "W," not in describe_result(PROFILE)


@pytest.mark.parametrize("provenance", ["simulated", "replayed"])
def test_what_was_not_measured_is_marked_in_its_row(provenance):
    other = dataclasses.replace(PROFILE, provenance=provenance)
    assert f"host-lenet-mnist-maxn-w0-ssd-bs16 ({provenance})" in format_summary([PROFILE, other])


def test_a_flag_of_many_cases_is_explained_once():
    text = format_summary([PROFILE, PROFILE, PROFILE])
    assert text.count("the interquartile range") == 1
    assert "(and 2 more)" in text


def test_pytest_benchmark_gets_plain_values_and_no_placeholder_for_what_is_missing():
    info = extra_info(PROFILE)
    assert json.loads(json.dumps(info)) == info
    assert "power_mw" not in info
    assert info["minibatch_time_ms"] == 123.456
    assert info["cpu_cores"] == 2
    assert None not in info.values()
