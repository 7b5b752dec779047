"""Figures for monitoring: valid by two parsers, in base units, and the newest of each case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import HarnessError
from harness.openmetrics import FIGURES, Metric, formatted, in_base_unit, openmetrics
from harness.store.results import ResultsStore
from jetwatt.cli import main
from tests.harness.board.kernel_trees import cpus, policy
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

PERIOD_S = 0.05


def parsed(text):
    """The values by name and labels, after both parsers have taken the text."""
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser

    families = list(openmetrics_parser.text_string_to_metric_families(text))
    assert {family.type for family in families} <= {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    older = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    assert [(one.name, one.labels, one.value) for one in older] == [
        (one.name, one.labels, one.value) for one in samples
    ]
    return samples


@pytest.fixture
def results(tmp_path):
    """A results file: two profiles of a case under two versions of torch, and one of another case, disturbed."""
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        for torch, time_ms, day in (("2.8.0", 40.0, 1), ("2.9.0", 50.0, 2)):
            profile = make_profile([time_ms] * 400, 12_500.0, conditions={"torch": torch})
            store.add(profile, ENVIRONMENT, "run", f"2031-01-0{day}T00:00:00+00:00")
        disturbed = {"case": {"workers": 4}, "flags": ["disturbed: by another"]}
        store.add(make_profile(**disturbed), ENVIRONMENT, "run")
    return path


def test_the_newest_profile_of_each_case_is_there_in_base_units(results):
    samples = parsed(openmetrics(results, sensors=False))
    by_name = {sample.name: sample for sample in samples}
    assert len(by_name) == len(samples)  # one case: neither the older one nor the disturbed one
    assert by_name["jetwatt_minibatch_time_seconds"].value == 0.05
    assert by_name["jetwatt_power_watts"].value == 12.5
    assert by_name["jetwatt_profile_created_seconds"].value == 1_925_078_400
    assert all(sample.labels["provenance"] == "measured" for sample in samples)
    every = parsed(openmetrics(results, sensors=False, include_flagged=True))
    assert {sample.labels["workers"] for sample in every} == {"0", "4"}


def test_power_limits_of_a_gpu_are_metrics_of_their_own_and_other_boards_have_none(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for limit_mw in (100_000, 150_000, None):
            store.add(make_profile([40.0] * 400, conditions={"gpu_power_limit_mw": limit_mw}), ENVIRONMENT, "run")
    samples = parsed(openmetrics(tmp_path / "r.sqlite", sensors=False))
    limits = [sample.labels["power_limit_mw"] for sample in samples if sample.name == "jetwatt_minibatch_time_seconds"]
    assert sorted(limits) == ["", "100000", "150000"]


def test_sensors_show_what_the_kernel_has_and_what_is_missing(tree):
    tree.write(
        {**cpus(4), **policy(0, "0 1 2 3"), "sys/class/thermal/thermal_zone0/type": "soc",
         "sys/class/thermal/thermal_zone0/temp": 61_500}
    )  # fmt: skip
    samples = parsed(openmetrics(device="host", root=tree.path, seconds=PERIOD_S))
    values = {
        (sample.name, sample.labels.get("sensor") or sample.labels["capability"]): sample.value for sample in samples
    }
    assert values["jetwatt_sensor_celsius", "temperature_soc"] == 61.5
    assert values["jetwatt_capability_available", "measure temperatures"] == 1
    assert values["jetwatt_capability_available", "measure power"] == 0
    assert {sample.labels["device"] for sample in samples} == {"host"}


def test_a_simulated_board_has_no_sensors():
    names = {sample.name for sample in parsed(openmetrics(device="sim:orin-agx", seconds=PERIOD_S))}
    assert names <= {"jetwatt_capability_available"}


@given(st.text(), st.floats(allow_nan=False), st.text(st.characters(blacklist_characters='"')))
def test_any_label_value_and_help_are_read_back(label, value, text):
    metric = Metric("power_watts", "watts", text, {(("workload", label),): value})
    [sample] = parsed(formatted([metric]))
    assert (sample.labels, sample.value) == ({"workload": label}, value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("minibatch_time_ms", ("minibatch_time", "seconds", 0.001)),
        ("cpu0_khz", ("cpu0", "hertz", 1000)),
        ("energy_mwh", ("energy", "joules", 3.6)),
        ("energy_per_sample_mws", ("energy_per_sample", "joules", 0.001)),
        ("disk_read_bytes_per_s", ("disk_read_bytes", "per_second", 1)),
        ("throttled", ("throttled", "", 1)),
    ],
)
def test_a_name_in_our_units_becomes_one_in_base_units(name, expected):
    base, unit, convert = in_base_unit(name)
    assert (base, unit) == expected[:2]
    assert convert(1.0) == pytest.approx(expected[2])


def test_every_figure_has_a_metric_of_its_own_name():
    names = ["_".join(filter(None, in_base_unit(figure)[:2])) for figure in FIGURES]
    assert len(set(names)) == len(names)
    assert not any(name.endswith(("_total", "_count", "_sum", "_bucket", "_info")) for name in names)


def test_the_command_writes_the_same_and_refuses_to_write_nothing(results, tmp_path, capsys):
    target = tmp_path / "jetwatt.prom"
    assert main(["export", "--results", str(results), "--openmetrics", str(target), "--no-sensors"]) == 0
    text = target.read_text()
    assert text == openmetrics(results, sensors=False)
    assert f"{target}: {len(parsed(text))} values" in capsys.readouterr().out
    with pytest.raises(HarnessError, match="there is nothing to write"):
        openmetrics(sensors=False)
    with pytest.raises(HarnessError, match="seconds is 0"):
        openmetrics(seconds=0)


def test_verdicts_of_requirements_are_metrics_and_an_inconclusive_one_is_neither_kept_nor_broken(results, tmp_path):
    file = tmp_path / "requirements.toml"
    limits = "p95_ms = 80\npower_w = 5\ntemperature_c = 85\n"
    file.write_text(f"[[require]]\n{limits}[[require]]\nworkers = 3\npower_w = 5\n")
    samples = parsed(openmetrics(results, sensors=False, require=file))
    values = {name: {} for name in ("jetwatt_requirement_kept", "jetwatt_requirement_broken")}
    for sample in samples:
        if sample.name in values:
            values[sample.name][sample.labels["figure"]] = sample.value
    assert values["jetwatt_requirement_kept"] == {"p95_ms": 1.0, "power_w": 0.0, "temperature_c": 0.0}
    assert values["jetwatt_requirement_broken"] == {"p95_ms": 0.0, "power_w": 1.0, "temperature_c": 0.0}
    with pytest.raises(HarnessError, match="without results"):
        openmetrics(require=file)
    assert (
        main(["export", "--results", str(results), "--openmetrics", "m.prom", "--no-sensors", "--period-ms", "33"]) == 2
    )
    assert main(["export", "--results", str(results), "--out", str(tmp_path / "c.csv"), "--require", str(file)]) == 2


def test_a_case_that_breaks_its_limit_is_not_hidden_by_another_of_the_same_name(tmp_path):
    """Two power limits that were set from outside are two cases, which the name of a case does not tell apart."""
    results, file = tmp_path / "r.sqlite", tmp_path / "requirements.toml"
    file.write_text("[[require]]\npower_w = 10\n")
    with ResultsStore(results) as store:
        for power_mw, limit_mw in ((20_000, 300_000), (5_000, 100_000)):
            profile = make_profile(power_mw=power_mw, conditions={"gpu_power_limit_mw": limit_mw})
            store.add(profile, ENVIRONMENT, "run")
    samples = {sample.name: sample.value for sample in parsed(openmetrics(results, sensors=False, require=file))}
    assert samples["jetwatt_requirement_kept"] == 0
    assert samples["jetwatt_requirement_broken"] == 1
