"""Names of storage and settings of a case: what they mean, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import INFERENCE, Case, Settings, StorageName, concurrent_case, parse_storage, parts_of
from harness.core.errors import InvalidValueError
from harness.core.power_modes import NamedMode, PowerMode


@pytest.mark.parametrize(("name", "limit"), [("ssd", None), ("ssd@20", 20_000_000), ("sd@0.05", 50_000)])
def test_megabytes_are_of_a_million_bytes(name, limit):
    assert parse_storage(name) == StorageName(name.partition("@")[0], limit)


@pytest.mark.parametrize("name", ["ssd@", "ssd@0", "ssd@-1", "ssd@fast", "ssd@20@5", "ssd@1e3", "ssd@020", "ssd@.5"])
def test_other_names_are_refused_with_the_form_that_is_right(name):
    with pytest.raises(InvalidValueError, match=rf"storage '{name}' is not of the form MEDIUM@MB_PER_S; write ssd@20"):
        parse_storage(name)
    with pytest.raises(InvalidValueError, match=r"storage '@5' has no medium; write the medium before the @: ssd@5"):
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
        Settings(**wrong)


def test_name_and_values_of_a_power_mode_are_replaced_together():
    low, high = NamedMode("2c", PowerMode(2, 5, 0, 0)), NamedMode("maxn", PowerMode(4, 9, 0, 0))
    case = Case("host", "lenet-mnist", "maxn", 0, "ssd", 16).in_mode(high)
    assert (case.in_mode(low).power_mode, case.in_mode(low).resolved_mode) == ("2c", low)
    with pytest.raises(InvalidValueError, match="in power mode 2c carries the values of maxn; replace power_mode and"):
        dataclasses.replace(case, power_mode="2c")


def test_the_parts_of_a_concurrent_case_have_its_mode_unless_inference_has_its_own():
    low, high = NamedMode("2c", PowerMode(2, 5, 0, 0)), NamedMode("maxn", PowerMode(4, 9, 0, 0))
    training = Case("host", "lenet-mnist", "maxn", 0, "ssd", 16).in_mode(high)
    serving = dataclasses.replace(training, task=INFERENCE)
    parts = parts_of(concurrent_case(training, serving, 20.0, 30.0))
    assert [part.resolved_mode for part in parts] == [high, high]
    parts = parts_of(concurrent_case(training, serving.in_mode(low), 20.0, 30.0))
    assert [(part.power_mode, part.resolved_mode) for part in parts] == [("maxn", high), ("2c", None)]
