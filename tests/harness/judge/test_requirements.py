"""Requirements: what a file may say, which cases it selects, and each verdict where the right answer is known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
import pandas as pd
import pytest

import jetwatt
from harness.__main__ import main
from harness.core.errors import HarnessError, InvalidValueError, UnknownNameError
from harness.core.profiles import Profile, Series
from harness.judge.requirement_verdicts import case_of_profile, check, exit_code, judge_case
from harness.judge.requirements import read_requirements, requirement_from
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

STEADY = [100.0] * 400
WITH_ENERGY = {"energy_per_sample_mws": 5.0, "power_peak_mw": 9500.0, "memory_peak_bytes": 500 * 2**20}


def profile_of(times_ms: Sequence[float] = STEADY, temperatures_c: Sequence[float] = (), **changes: Any) -> Profile:
    """A profile of a board, whose noise between runs is small; it has all figures that requirements limit."""
    case = {"device": "orin-agx", **changes.pop("case", {})}
    profile = make_profile(times_ms, case=case, **changes)
    series = dict(profile.telemetry.series)
    if temperatures_c:
        series["temperature_tj_c"] = Series(tuple(map(float, range(len(temperatures_c)))), tuple(temperatures_c))
    telemetry = dataclasses.replace(profile.telemetry, series=series)
    return dataclasses.replace(profile, telemetry=telemetry, aggregates={**profile.aggregates, **WITH_ENERGY})


def verdicts_on(profile: Profile, **keys: Any) -> Dict[str, Any]:
    """The verdicts on a profile by a mark's keys, by figure."""
    verdicts = judge_case(case_of_profile(profile), [requirement_from(keys, "mark")])
    return {verdict.figure: verdict for verdict in verdicts}


def status_on(profile: Profile, **keys: Any) -> str:
    [verdict] = verdicts_on(profile, **keys).values()
    return verdict.status


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "requirements.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def results(tmp_path: Path) -> Any:
    """A function that stores profiles, each of a run of its own, and returns the file."""

    def store_profiles(*profiles: Profile, environment: Dict[str, Any] = ENVIRONMENT) -> Path:
        with ResultsStore(tmp_path / "r.sqlite") as store:
            for number, profile in enumerate(profiles):
                store.add(profile, environment, f"run{number}")
        return tmp_path / "r.sqlite"

    return store_profiles


@pytest.mark.parametrize(
    ("keys", "error", "part"),
    [
        ({"p99_mss": 20}, UnknownNameError, "did you mean p99_ms?"),
        ({"devices": "orin-*", "p99_ms": 20}, UnknownNameError, "did you mean device?"),
        ({"miss_ratio": {"periods_ms": 33, "most": 0.1}}, UnknownNameError, "did you mean period_ms?"),
        ({"p99_ms": "20 s"}, InvalidValueError, "expected a number"),
        ({"p99_ms": 20_000}, InvalidValueError, "expected 0.1 to 10000 ms"),
        ({"p99_ms": 0.02}, InvalidValueError, "expected 0.1 to 10000 ms"),
        ({"power_w": 25_000}, InvalidValueError, "is it in mW"),
        ({"power_w": -5}, InvalidValueError, "is it in mW"),
        ({"memory_mib": 2e9}, InvalidValueError, "bytes"),
        ({"temperature_c": 358}, InvalidValueError, "kelvin"),
        ({"miss_ratio": {"period_ms": 33, "most": 1}}, InvalidValueError, "expected 1e-05 to 0.5"),
        ({"miss_ratio": {"period_ms": 33, "most": 0}}, InvalidValueError, "expected 1e-05 to 0.5"),
        ({"task": "trainig", "p99_ms": 20}, UnknownNameError, "did you mean training?"),
        ({"miss_ratio": {"period_ms": 33_000, "most": 0.1}}, InvalidValueError, "period_ms"),
        ({"p99_ms": float("nan")}, InvalidValueError, "expected 0.1"),
        ({"workload": "lenet-mnist"}, InvalidValueError, "limits no figure"),
    ],
)
def test_an_unknown_key_and_a_limit_in_another_unit_are_refused(keys, error, part):
    with pytest.raises(error) as refused:
        requirement_from(keys, "mark")
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "has no requirement"),
        ("[[require]\n", "not a readable TOML file"),
        ("[[requires]]\np99_ms = 20\n", "did you mean require?"),
        ("[[require]]\np99_ms = 20\n[[require]]\npower_w = 25000\n", "power_w of require[1]"),
        ("[require]\np99_ms = 20\n", "expected a list"),
    ],
    ids=["empty", "no-toml", "other-table", "wrong-unit", "one-table"],
)
def test_a_file_that_says_nothing_certain_is_refused_with_its_place(file, text, part):
    with pytest.raises(HarnessError) as refused:
        read_requirements(file(text))
    assert part in str(refused.value)
    assert "requirements.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("axes", "is_met"),
    [
        ({}, True),
        ({"device": "orin-*"}, True),
        ({"device": "orin-agx"}, True),
        ({"device": "xavier-*"}, False),
        ({"workload": "lenet*", "workers": 0, "batch_size": "16", "cache": "warm"}, True),
        ({"workers": 4}, False),
        ({"task": "training", "power_mode": "maxn", "storage": "ssd"}, True),
        ({"task": "inference"}, False),
    ],
    ids=str,
)
def test_axes_select_cases_by_patterns(axes, is_met):
    assert bool(verdicts_on(profile_of(), power_w=10, **axes)) == is_met


def test_a_simulated_board_is_selected_by_its_type_and_an_idle_state_only_by_its_task():
    simulated = profile_of(case={"device": "sim:orin-agx@2"}, conditions={"board": "orin-agx"})
    assert status_on(simulated, device="orin-agx", power_w=10) == "PASS"
    idle = profile_of(case={"task": "idle"})
    assert not verdicts_on(idle, power_w=10)
    assert status_on(idle, task="idle", power_w=10) == "PASS"


LIMITS: List[Any] = [
    ("p50_ms", 101, 99),
    ("p95_ms", 101, 99),
    ("samples_per_s", 150, 170),
    ("energy_per_sample_mj", 5.5, 4.5),
    ("power_w", 9.5, 8.5),
    ("peak_power_w", 10, 9),
    ("memory_mib", 600, 400),
    ("temperature_c", 61, 59),
]


@pytest.mark.parametrize(("key", "kept", "broken"), LIMITS, ids=[key for key, *_ in LIMITS])
def test_each_figure_passes_within_its_limit_and_fails_beyond(key, kept, broken):
    profile = profile_of(temperatures_c=[60.0] * 40)
    assert status_on(profile, **{key: kept}) == "PASS"
    assert status_on(profile, **{key: broken}) == "FAIL"


NEAR = [
    *(("energy_per_sample_mj", limit) for limit in (4.99, 5.01)),
    *(("power_w", limit) for limit in (8.99, 9.01)),
    *(("samples_per_s", limit) for limit in (159.9, 160.1)),
    *(("memory_mib", limit) for limit in (499, 501)),
]


@pytest.mark.parametrize(("key", "limit"), NEAR)
def test_a_limit_within_the_noise_between_runs_is_inconclusive(key, limit):
    [verdict] = verdicts_on(profile_of(), **{key: limit}).values()
    assert verdict.status == "INCONCLUSIVE"
    assert verdict.low < limit < verdict.high


def test_a_figure_without_a_sensor_is_inconclusive_and_never_zero():
    profile = profile_of(power_mw=None)
    bare = dataclasses.replace(profile, aggregates={**profile.aggregates, "memory_peak_bytes": None})
    verdicts = verdicts_on(bare, power_w=10, memory_mib=100, temperature_c=85)
    assert {verdict.status for verdict in verdicts.values()} == {"INCONCLUSIVE"}
    assert all(verdict.value is None and verdict.notes for verdict in verdicts.values())


def test_too_few_minibatches_are_inconclusive_and_as_many_more_as_stated_decide():
    [few] = verdicts_on(profile_of([100.0] * 40), p99_ms=120).values()
    assert (few.status, few.minibatches) == ("INCONCLUSIVE", 40)
    assert few.high is None  # not bounded
    enough = profile_of([100.0] * (40 + few.missing))
    assert status_on(enough, p99_ms=120) == "PASS"
    assert any(str(few.missing) in note for note in few.notes)


def test_a_miss_ratio_is_judged_by_its_runs_of_misses():
    """One in fifty misses its deadline, allowed is one in twenty: enough if they are scattered, not in long runs."""
    scattered = ([100.0] * 49 + [200.0]) * 20
    together = [100.0] * 490 + [200.0] * 20 + [100.0] * 490
    allowed = {"period_ms": 150, "most": 0.05}
    assert status_on(profile_of(scattered), miss_ratio=allowed) == "PASS"
    assert status_on(profile_of(together), miss_ratio=allowed) == "INCONCLUSIVE"
    assert status_on(profile_of(scattered), miss_ratio={"period_ms": 150, "most": 0.005}) == "FAIL"


def test_a_temperature_that_still_rises_passes_only_where_it_may_go_on_rising():
    """Up to 59.5 C, 5 C of it in its last quarter."""
    rising = profile_of(temperatures_c=[40.0 + 0.5 * tick for tick in range(40)])
    [verdict] = verdicts_on(rising, temperature_c=62).values()
    assert (verdict.status, verdict.value, verdict.high) == ("INCONCLUSIVE", 59.5, 64.5)
    assert status_on(rising, temperature_c=65) == "PASS"
    assert status_on(rising, temperature_c=59) == "FAIL"
    assert status_on(profile_of(temperatures_c=[50.0] * 4), temperature_c=65) == "INCONCLUSIVE"


def test_the_hottest_sensor_counts_and_a_constant_one_does_not():
    profile = profile_of(temperatures_c=[50.0] * 40)
    series = {
        **profile.telemetry.series,
        "temperature_cpu_c": Series(tuple(map(float, range(40))), (70.0,) * 40),
        "temperature_pmic_die_c": Series(tuple(map(float, range(40))), (100.0,) * 40),
    }
    both = dataclasses.replace(profile, telemetry=dataclasses.replace(profile.telemetry, series=series))
    [verdict] = verdicts_on(both, temperature_c=85).values()
    assert (verdict.status, verdict.value) == ("PASS", 70.0)


@pytest.mark.parametrize("limit", [8.0, 10.0])
def test_a_disturbed_profile_decides_nothing(limit):
    disturbed = profile_of(flags=["noisy: by half", "disturbed: other processes used a core"])
    [verdict] = verdicts_on(disturbed, power_w=limit).values()
    assert verdict.status == "INCONCLUSIVE"
    assert "flagged disturbed" in verdict.notes[0]
    assert "noisy" not in verdict.notes[0]
    assert status_on(profile_of(flags=["noisy: by half"]), power_w=10) == "PASS"


FILE = """
[[require]]
workload = "lenet-mnist"
p95_ms = 120
power_w = 8
[[require]]
workload = "yolov8n-*"
power_w = 8
"""


def test_a_stored_file_is_judged_as_its_profiles_are_and_what_no_case_met_is_listed(results, file):
    stored = results(profile_of())
    with ResultsStore(stored, read_only=True) as store:
        verdicts = check(store, read_requirements(file(FILE)))
    assert [(verdict.figure, verdict.status) for verdict in verdicts] == [
        ("p95_ms", "PASS"),
        ("power_w", "FAIL"),
        ("", "NO CASE"),
    ]
    own = verdicts_on(profile_of(), p95_ms=120, power_w=8)
    for verdict in verdicts[:2]:
        assert verdict.low == pytest.approx(own[verdict.figure].low)
        assert verdict.high == pytest.approx(own[verdict.figure].high)


def test_runs_of_a_case_are_pooled_whatever_their_seed_and_length(results, file):
    noise = np.random.default_rng(3)
    runs = [profile_of(list(noise.normal(100, 1, 100)), settings={"seed": seed}) for seed in range(4)]
    stored = results(*runs, profile_of(list(noise.normal(100, 1, 60))))
    frame = jetwatt.check_requirements(stored, file("[[require]]\np95_ms = 120\n"))
    assert frame[["status", "runs", "minibatches"]].to_numpy().tolist() == [["PASS", 5, 460]]
    newest = jetwatt.check_requirements(stored, file("[[require]]\np95_ms = 120\n"), last=1)
    assert newest[["status", "runs", "minibatches"]].to_numpy().tolist() == [["INCONCLUSIVE", 1, 60]]


def test_only_the_runs_with_the_newest_software_count(results, file):
    results(profile_of([300.0] * 400))
    updated = {**ENVIRONMENT, "packages": {"torch": "2.16.0"}}
    stored = results(profile_of(conditions={"torch": "2.16.0"}), environment=updated)
    frame = jetwatt.check_requirements(stored, file("[[require]]\np95_ms = 120\n"))
    assert frame["status"].tolist() == ["PASS"]
    assert frame["runs"].tolist() == [1]


def test_versions_that_only_the_conditions_tell_apart_are_not_pooled_either(results, file):
    """A rehearsed slowdown stands in a profile's conditions, not in its environment."""
    results(profile_of([300.0] * 400, conditions={"torch": "2.16.0+slowdown"}))
    stored = results(profile_of(conditions={"torch": "2.16.0"}))
    frame = jetwatt.check_requirements(stored, file("[[require]]\np95_ms = 120\n"))
    assert frame[["status", "runs"]].to_numpy().tolist() == [["PASS", 1]]
    slower = results(profile_of([300.0] * 400, conditions={"torch": "2.16.0+slowdown"}))
    frame = jetwatt.check_requirements(slower, file("[[require]]\np95_ms = 120\n"))
    assert frame[["status", "runs"]].to_numpy().tolist() == [["FAIL", 2]]


def test_temperatures_are_read_from_the_file_and_flagged_profiles_left_out(results, file):
    stored = results(profile_of(temperatures_c=[50.0] * 40), profile_of(flags=["throttled: by heat"]))
    path = file("[[require]]\ntemperature_c = 85\n")
    assert jetwatt.check_requirements(stored, path)[["status", "runs"]].to_numpy().tolist() == [["PASS", 1]]
    both = jetwatt.check_requirements(stored, path, include_flagged=True)
    assert both["runs"].tolist() == [2]


def test_a_case_whose_profiles_are_all_flagged_is_inconclusive(results, file):
    stored = results(profile_of(flags=["throttled: by heat"]))
    frame = jetwatt.check_requirements(stored, file("[[require]]\npower_w = 5\n"))
    assert frame["status"].tolist() == ["INCONCLUSIVE"]
    assert "left out" in frame["notes"][0]
    assert pd.isna(frame["value"][0])


CODES: List[Any] = [
    ("power_w = 10", (), 0),
    ("power_w = 8", (), 1),
    ("power_w = 9", (), 2),  # nothing was decided
    ("power_w = 10\np99_ms = 120", (), 0),
    ("power_w = 10\np99_ms = 120", ("--strict",), 2),
    ("power_w = 10\n[[require]]\nworkers = 3\npower_w = 8", (), 0),
    ("power_w = 10\n[[require]]\nworkers = 3\npower_w = 8", ("--strict",), 2),
    ("workers = 3\npower_w = 8", (), 2),
    ("power_w = 10000", (), 2),
]


@pytest.mark.parametrize(("text", "options", "code"), CODES, ids=str)
def test_the_command_ends_with_the_codes_of_a_baseline(results, file, capsys, text, options, code):
    stored = results(profile_of())
    assert main(["check", str(file(f"[[require]]\n{text}\n")), str(stored), *options]) == code
    assert capsys.readouterr().out or code == 2


def test_json_and_markdown_have_every_verdict(results, file, tmp_path, capsys):
    stored, path = results(profile_of()), file(FILE)
    written = tmp_path / "check.json"
    assert main(["check", str(path), str(stored), "--markdown", "--write-json", str(written)]) == 1
    markdown = capsys.readouterr().out
    assert "| FAIL" in markdown
    assert "NO CASE" in markdown
    document = json.loads(written.read_text())
    assert document["counts"] == {"FAIL": 1, "NO CASE": 1, "PASS": 1}
    assert [verdict["status"] for verdict in document["verdicts"]] == ["PASS", "FAIL", "NO CASE"]


def test_nothing_but_inconclusive_verdicts_is_no_pass():
    verdicts = list(verdicts_on(profile_of([100.0] * 20), p99_ms=120).values())
    assert exit_code(verdicts) == 2
    assert exit_code([]) == 2
