"""What must agree for two profiles to be compared, and how a difference is told."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

import pytest
from hypothesis import given, settings

from harness.store.conditions import comparable_conditions, differences, key
from tests.harness.store.profile_examples import CONDITIONS, make_profile, plain_dicts

CASE = make_profile().case


def comparable(**changes: Any) -> Dict[str, Any]:
    return comparable_conditions({**CONDITIONS, **changes}, CASE)


OTHER = {
    "device_model": "Another CPU", "device_specification": {"cpus": 4, "memory_gib": 24}, "board_instance": "orin3",
    "power_mode": {"cpu_cores": 1, "cpu_khz": 0, "gpu_khz": 0, "mem_khz": 0}, "accelerator": "NVIDIA H200",
    "torch": "2.14.0", "python": "3.12.1", "threads": 1, "data_source": "real", "data_samples": 60_000,
    "jetpack": "6.2", "l4t": "36.4.0", "cuda": "12.6", "tpc_mask": 252, "gpu_power_limit_mw": 150_000,
    "storage_medium": {**CONDITIONS["storage_medium"], "kind": "hdd"}, "worker_start_method": "spawn",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_another_condition_is_another_key_and_is_named(name: str) -> None:
    before, after = comparable(), comparable(**{name: OTHER[name]})
    assert key(before) != key(after)
    [line] = differences(before, after)
    assert line.startswith(name)
    assert " -> " in line


def test_a_power_limit_that_the_case_sets_is_one_condition() -> None:
    """`compare --by power_limit_w` allows it to differ; what is read back follows."""
    sides = [
        comparable_conditions(
            {**CONDITIONS, "gpu_power_limit_mw": 1000 * watt},
            dataclasses.replace(CASE, settings=dataclasses.replace(CASE.settings, power_limit_w=watt)),
        )
        for watt in (150.0, 300.0)
    ]
    assert differences(*sides) == ["power_limit_w: 150.0 -> 300.0"]


SAME = {
    "python": "3.11.9", "power_mode_name": "15W", "cache_residency_before": 0.5, "cache_residency_after": 1.0,
    "first_loss": 2.0, "last_loss": 1.5, "jetpack": None, "cuda": None, "tpc_mask": None, "gpu_power_limit_mw": None,
    "worker_start_method": "fork",
    "storage_medium": {**CONDITIONS["storage_medium"], "mount_point": "/media/ssd", "free_bytes": 1},
}  # fmt: skip


def test_what_does_not_change_the_work_keeps_the_key() -> None:
    assert key(comparable()) == key(comparable(**SAME))
    assert differences(comparable(), comparable(**SAME)) == []


@pytest.mark.parametrize("field", ["device", "workload", "workers", "storage", "batch_size", "task"])
def test_every_axis_but_the_name_of_the_mode_is_compared(field: str) -> None:
    value = getattr(CASE, field)
    other = dataclasses.replace(CASE, **{field: value + 1 if isinstance(value, int) else "other"})
    assert key(comparable_conditions(CONDITIONS, other)) != key(comparable())


@pytest.mark.parametrize(
    "change",
    [
        *({"minibatches": 41}, {"minibatches": None, "epochs": 2}, {"minibatches": None, "idle_s": 60.0}),
        *({"cache": "cold"}, {"seed": 1}, {"clocks": "dvfs"}),
    ],
)
def test_settings_that_change_the_work_are_compared(change: Dict[str, Any]) -> None:
    other = dataclasses.replace(CASE, settings=dataclasses.replace(CASE.settings, **change))
    lines = differences(comparable(), comparable_conditions(CONDITIONS, other))
    assert {line.split(":")[0] for line in lines} == set(change)


def test_a_difference_names_the_inner_value_what_is_unknown_and_what_is_simulated() -> None:
    assert differences(comparable(), comparable(device_specification={"cpus": 4, "serial": "x"})) == [
        "device_specification.cpus: 2 -> 4",
        "device_specification.memory_gib: 24 -> unknown",
        'device_specification.serial: unknown -> "x"',
    ]
    simulated = comparable_conditions(CONDITIONS, CASE, "simulated")
    assert differences(comparable(), simulated) == ['provenance: "measured" -> "simulated"']


def test_a_key_is_the_same_everywhere() -> None:
    content = {"workload": "lenet-mnist", "batch_size": 16, "nested": {"b": [1, None], "a": 0.5}}
    assert key(content) == "efa3a2004879d5e2"


@settings(max_examples=20)
@given(plain_dicts)
def test_the_order_of_conditions_does_not_matter(conditions: Dict[str, Any]) -> None:
    assert key(conditions) == key(dict(reversed(list(conditions.items()))))
    assert differences(conditions, conditions) == []


@pytest.mark.parametrize("settings", [{"clocks": "static"}, {"max_temperature_c": 80.0}])
def test_static_clocks_and_what_guards_a_run_leave_the_key_as_it_always_was(settings: Dict[str, Any]) -> None:
    assert comparable_conditions(CONDITIONS, make_profile(settings=settings).case) == comparable()
