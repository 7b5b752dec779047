"""Names of storage and settings of a case: what they mean, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import (
    CONCURRENT,
    INFERENCE,
    Case,
    CaseSettings,
    StorageName,
    case_duration_s,
    concurrent_case,
    parse_storage,
    parts_of,
    workers_and_storage,
)
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.power_modes import NamedMode, PowerMode


@pytest.mark.parametrize(("name", "limit"), [("ssd", None), ("ssd@20", 20_000_000), ("sd@0.05", 50_000)])
def test_megabytes_are_of_a_million_bytes(name, limit):
    assert parse_storage(name) == StorageName(name.partition("@")[0], limit)


@pytest.mark.parametrize("name", ["ssd@", "ssd@0", "ssd@-1", "ssd@fast", "ssd@20@5", "ssd@1e3", "ssd@020", "ssd@.5"])
def test_other_names_are_refused_with_the_form_that_is_right(name):
    with pytest.raises(InvalidValueError, match=f"'{name}' .*MEDIUM@MB_PER_S.*ssd@20"):
        parse_storage(name)
    with pytest.raises(InvalidValueError, match=r"'@5' .*no medium.*ssd@5"):
        parse_storage("@5")


@given(st.integers(1, 10**7))
def test_a_limit_that_is_a_number_of_kilobytes_has_one_name(kilobytes):
    digits = f"{kilobytes / 1000:.3f}".rstrip("0").rstrip(".")
    assert parse_storage(f"ssd@{digits}").limit_bytes_per_s == kilobytes * 1000
    with pytest.raises(InvalidValueError):
        parse_storage(f"ssd@{digits}{'0' if '.' in digits else '.0'}")


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"data_scale": 0}, {"data_scale": float("nan")}, {"minibatches": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidValueError, match=f"{next(iter(wrong))} must be"):
        CaseSettings(**wrong)


@pytest.mark.parametrize(
    ("task", "setting", "other"), [("idle", "idle_s", "duration_s"), ("concurrent", "duration_s", "idle_s")]
)
def test_a_task_lasts_for_the_duration_of_its_own_setting(task, setting, other):
    def case(name):
        workload = "lenet-mnist+lenet-mnist-b4-r5-interleaved" if task == "concurrent" else "lenet-mnist"
        return Case("host", workload, HIGH, 0, "ssd", 16, CaseSettings(minibatches=None, **{name: 30.0}), task)

    assert case_duration_s(case(setting)) == 30.0
    with pytest.raises(InvalidValueError, match=f"task {task} .*duration.*{setting}=60"):
        case_duration_s(case(other))


@pytest.mark.parametrize(("lacking", "words"), [("workers", "no number of workers"), ("storage", "no storage")])
def test_a_case_of_a_corpus_without_a_column_cannot_be_measured(lacking, words):
    case = Case("host", "lenet-mnist", HIGH, 4, "ssd", 16)
    assert workers_and_storage(case) == (4, "ssd")
    with pytest.raises(CannotRunError, match=words):
        workers_and_storage(dataclasses.replace(case, **{lacking: None}))


LOW, HIGH = NamedMode("2c", PowerMode(2, 5, 0, 0)), NamedMode("maxn", PowerMode(4, 9, 0, 0))


def test_a_case_is_in_a_mode_by_its_name_and_carries_its_values():
    case = Case("host", "lenet-mnist", HIGH, 0, "ssd", 16)
    assert case.in_mode(LOW).id == "host-lenet-mnist-2c-w0-ssd-bs16"
    assert case.in_mode(LOW).power_mode.mode == PowerMode(2, 5, 0, 0)
    assert case.in_mode(LOW) != case
    assert case.in_mode(NamedMode("maxn", PowerMode(3, 9, 0, 0))) == case  # after an update of the board


def test_the_parts_of_a_concurrent_case_have_its_mode_unless_inference_has_its_own():
    training = Case("host", "lenet-mnist", HIGH, 0, "ssd", 16)
    serving = dataclasses.replace(training, task=INFERENCE)
    parts = parts_of(concurrent_case(training, serving, 20.0, 30.0))
    assert [part.power_mode.mode for part in parts] == [HIGH.mode, HIGH.mode]
    both = concurrent_case(training, serving.in_mode(LOW), 20.0, 30.0)
    assert both.id == "host-lenet-mnist+lenet-mnist-bs16@20-in-2c-maxn-w0-ssd-bs16-concurrent"
    parts = parts_of(both)
    assert [(part.power_mode.name, part.power_mode.mode) for part in parts] == [("maxn", HIGH.mode), ("2c", LOW.mode)]


@pytest.mark.parametrize(("of_inference", "workload"), [(None, "-in-2c"), (LOW, ""), (HIGH, "-in-2c")])
def test_a_concurrent_case_carries_the_mode_of_inference_that_its_workload_names(of_inference, workload):
    settings = CaseSettings(minibatches=None, duration_s=30.0)
    mix = f"lenet-mnist+lenet-mnist-bs4@20{workload}"
    with pytest.raises(InvalidValueError, match=r"power mode (None|2c|maxn)"):
        Case("host", mix, HIGH, 0, "ssd", 16, settings, CONCURRENT, of_inference)
