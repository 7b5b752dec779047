"""The summary: what was measured in few words; nothing missing is shown as zero, nothing simulated as measured."""

from __future__ import annotations

import dataclasses
import json

from harness.summary import describe_result, extra_info, format_summary
from tests.harness.store.profile_examples import make_profile

NOISY = "noisy: the interquartile range is 30% of the median"
BLIND = {"power_definition": "no power sensor: none here"}
PROFILE = make_profile([120.0, 123.456, 130.0] * 10, None, conditions=BLIND, flags=[NOISY])


def test_what_was_not_measured_is_marked_a_missing_sensor_told_and_a_flag_explained_once():
    others = [dataclasses.replace(PROFILE, provenance=provenance) for provenance in ("simulated", "replayed")]
    text = format_summary([PROFILE, *others])
    cells = "123 120-130 130 130 130 12.3 98.8 12.3 3.73 129 no power sensor - noisy"
    marks = ("", " (simulated)", " (replayed)")
    found = [" ".join(line.split()) for line in text.splitlines()[2:5]]
    assert found == [f"host-lenet-mnist-maxn-w0-ssd-bs16{mark} {cells}" for mark in marks]
    assert text.splitlines()[-2:] == [BLIND["power_definition"], f"{NOISY} (and 2 more)"]


def test_power_and_energy_are_in_watt_and_watt_hours():
    sensed = make_profile([100.0] * 400, 30_250.0)
    assert format_summary([sensed]).splitlines()[2].split()[-2:] == ["30.2", "0.336"]
    assert describe_result(sensed).endswith("160 samples/s, 30.2 W")
    skewed = dataclasses.replace(sensed, aggregates={**sensed.aggregates, "power_mean_mw": 31_000.0})
    assert format_summary([skewed]).splitlines()[2].split()[-2] == "31"
    assert describe_result(skewed).endswith(" 31 W")
    assert "W" not in describe_result(PROFILE)


def test_a_case_between_two_samples_of_the_sensor_is_not_said_to_have_none():
    sensed = make_profile([1.0] * 12, None, conditions={"power_definition": "sum of the domains package-0"})
    short = dataclasses.replace(sensed, aggregates={**sensed.aggregates, "power_samples": 0.0})
    assert "too short" in format_summary([short]).splitlines()[2]
    assert "no power sensor" in format_summary([dataclasses.replace(short, conditions=PROFILE.conditions)])


def test_peak_memory_is_a_column_of_the_full_table_where_it_was_measured():
    measured = dataclasses.replace(PROFILE, aggregates={**PROFILE.aggregates, "memory_peak_bytes": 812.4 * 2**20})
    header, _, first, second, *legend = format_summary([measured, PROFILE]).splitlines()
    assert header.split()[-3:] == ["memory", "MiB", "flags"]
    assert (first.split()[-2:], second.split()[-2:]) == (["812", "noisy"], ["-", "noisy"])
    assert any(line.startswith("memory: the peak where the network ran") for line in legend)
    for text in (format_summary([PROFILE]), format_summary([measured], in_full=False)):
        assert "memory" not in text


def test_the_tail_of_the_times_is_in_the_full_table_only_and_missing_of_a_replayed_profile():
    slow = make_profile([100.0] * 97 + [150.0, 200.0, 400.0], None, conditions=BLIND)
    bare = dict.fromkeys(name for name in slow.aggregates if name.startswith("minibatch_time_p"))
    replayed = dataclasses.replace(slow, aggregates={**slow.aggregates, **bare, "minibatch_time_max_ms": None})
    header, _, first, second, *legend = format_summary([slow, replayed]).splitlines()
    assert "IQR ms  p95 ms  p99 ms  max ms  stall ms" in header
    assert (first.split()[3:6], second.split()[3:6]) == (["100", "202", "400"], ["-", "-", "-"])
    assert any(line.startswith("p95, p99: ") for line in legend)
    assert "p95" not in format_summary([slow], in_full=False)
    assert "p95" not in format_summary([replayed])


def test_stall_compute_and_overhead_add_up_to_a_minibatch_where_the_overhead_is_large():
    cold = {**PROFILE.aggregates, "minibatch_time_ms": 270.0, "fetch_stall_ms": 150.0, "compute_ms": 77.0}
    slow = dataclasses.replace(PROFILE, aggregates={**cold, "overhead_ms": 43.0})
    calm = dataclasses.replace(PROFILE, aggregates={**cold, "overhead_ms": 2.0})
    header, _, first, second, *legend = format_summary([slow, calm]).splitlines()
    assert "compute ms  overhead ms  E2E s" in header
    assert (first.split()[6:9], second.split()[6:9]) == (["150", "77", "43"], ["150", "77", "2"])
    assert any(line.startswith("overhead: minibatch - stall - compute") for line in legend)
    assert "overhead" not in format_summary([calm])


def test_pytest_benchmark_gets_plain_values_and_no_placeholder_for_what_is_missing():
    info = extra_info(PROFILE)
    assert json.loads(json.dumps(info)) == info
    assert "power_mw" not in info
    assert info["minibatch_time_ms"] == 123.456
    assert info["cpu_cores"] == 2
    assert None not in info.values()
