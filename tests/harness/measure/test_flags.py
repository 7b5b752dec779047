"""Flags: each is raised by what it is for, and by nothing else."""

from __future__ import annotations

import dataclasses
import re

import pytest

from harness.core.cases import Case, Settings
from harness.core.profiles import CLEAN, FIRST, Minibatch, Profile, Series, Telemetry
from harness.measure.flags import find_flags
from harness.store.conditions import is_disqualified

CASE = Case("host", "lenet-mnist", "maxn", 0, "ssd", 10)
CONDITIONS = {
    "cache_residency_before": 1.0,
    "data_samples": 1000,
    "last_loss": 0.5,
    "storage_medium": {"kind": "ssd", "transport": "nvme"},
    "storage_is_default_place": True,
    "data_in_memory": False,
    "power_source": None,
    "accelerator": "cpu",
}
FIGURES = {
    "minibatch_time_ms": 100.0,
    "minibatch_time_q1_ms": 98.0,
    "minibatch_time_q3_ms": 103.0,
    "power_settled_s": 2.0,
}
MINIBATCHES = [
    Minibatch(0, index, CLEAN if index else FIRST, 10.0 + index, 100.0, 900.0, 1000.0) for index in range(11)
]


def flags(case=CASE, telemetry=None, minibatches=MINIBATCHES, figures=None, **conditions):
    profile = Profile(
        case=case,
        provenance="measured",
        conditions={**CONDITIONS, **conditions},
        minibatches=minibatches,
        telemetry=telemetry or sampled("cpu_other_cores", [0.02] * 10),
        aggregates={**FIGURES, **(figures or {})},
        flags=[],
        started_at="2026-01-01T00:00:00+00:00",
    )
    found = find_flags(profile)
    return {flag.partition(":")[0]: flag for flag in found}


def sampled(channel, values, start_s=11.0, **record):
    quiet = Series((11.0,), (0.02,))
    times = tuple(start_s + index for index in range(len(values)))
    return Telemetry(1.0, series={"cpu_other_cores": quiet, channel: Series(times, tuple(values))}, **record)


def with_cache(state):
    return dataclasses.replace(CASE, settings=Settings(cache=state))


def test_a_quiet_profile_has_none():
    quiet = sampled("cpu_other_cores", [0.02] * 10)
    assert flags(telemetry=quiet) == {}


@pytest.mark.parametrize(
    ("channel", "words"), [("cpu_other_cores", "other processes"), ("cpu_steal_cores", "the hypervisor")]
)
def test_a_busy_neighbour_is_named_with_how_busy_it_was(channel, words):
    flag = flags(telemetry=sampled(channel, [0.5] * 10))["disturbed"]
    assert words in flag
    assert "0.50 cores" in flag


def test_a_neighbour_before_the_clean_minibatches_does_not_count():
    assert flags(telemetry=sampled("cpu_other_cores", [2.0, 0.0, 0.0, 0.0], start_s=10.5)) == {}


def test_one_tick_of_accounting_in_a_short_profile_is_no_disturbance():
    short = [Minibatch(0, index, CLEAN, 10.0 + index / 100, 1.0, 9.0, 10.0) for index in range(5)]  # 50 ms in all
    after = sampled("cpu_other_cores", [0.3], start_s=10.06)
    assert flags(minibatches=short, telemetry=after) == {}
    assert "disturbed" in flags(minibatches=short, telemetry=sampled("cpu_other_cores", [1.0], start_s=10.06))


def test_wide_spread_is_named():
    assert "noisy" in flags(figures={"minibatch_time_q3_ms": 125.0})
    assert "noisy" not in flags(figures={"minibatch_time_q3_ms": 110.0})


def test_lost_samples_and_a_dead_sampler_are_named():
    assert "3 telemetry samples" in flags(telemetry=sampled("cpu_other_cores", [0.0], lost_samples=3))["lost-samples"]
    assert "telemetry-lost" in flags(telemetry=sampled("cpu_other_cores", [0.0], died_at_s=12.0))


def test_power_that_never_settled_is_named_only_where_there_is_a_sensor():
    never = {"power_settled_s": None}
    assert "power-unsettled" in flags(telemetry=sampled("power_total_mw", [1.0] * 3), figures=never)
    assert flags(figures=never) == {}


@pytest.mark.parametrize(
    ("state", "share", "kind"),
    [
        ("warm", 1.0, None),
        ("warm", 0.5, "not-warm"),
        ("cold", 0.0, None),
        ("cold", 0.5, "not-cold"),
        ("evicted", 0.5, "not-cold"),
        ("as-is", 0.5, None),
        ("as-is", None, None),
        ("warm", None, "cache-unknown"),
    ],
)
def test_a_cache_that_is_not_as_asked_is_named(state, share, kind):
    assert list(flags(case=with_cache(state), cache_residency_before=share)) == ([kind] if kind else [])


def test_a_small_set_read_again_from_a_cold_cache_is_named():
    assert "2.2 times" in flags(case=with_cache("cold"), data_samples=50, cache_residency_before=0.0)["data-reread"]
    assert flags(data_samples=50) == {}  # a warm set stays warm


@pytest.mark.parametrize(
    ("name", "kind", "is_default", "flag"),
    [
        ("ssd", "ssd", True, None),
        ("ssd", None, True, "storage-unverified"),
        ("ssd", None, False, None),  # somebody said so
        ("ssd", "hdd", True, "storage-mislabelled"),
        ("hdd", "ram", False, "storage-mislabelled"),
        ("scratch", "hdd", False, None),
    ],
)
def test_a_storage_name_that_the_medium_does_not_bear_out_is_named(name, kind, is_default, flag):
    medium = {"kind": kind, "transport": "virtio", "mount_point": "/data"}
    found = flags(
        case=dataclasses.replace(CASE, storage=name), storage_medium=medium, storage_is_default_place=is_default
    )
    assert list(found) == ([flag] if flag else [])
    assert all("/data" in text for text in found.values())


def test_a_medium_whose_reads_were_held_down_is_named_and_is_still_the_medium():
    held_down = dataclasses.replace(CASE, storage="ssd@2.5")
    found = flags(case=held_down, storage_limit_bytes_per_s=2_500_000)
    assert list(found) == ["storage-throttled"]
    assert "held to 2.5 MB/s" in found["storage-throttled"]
    assert not is_disqualified(list(found.values()))
    assert flags(storage_limit_bytes_per_s=None) == {}


def test_a_set_that_is_read_from_memory_is_named():
    assert "in-memory" in flags(data_in_memory=True)


def test_load_of_others_that_could_not_be_measured_is_named():
    assert "disturbance-unknown" in flags(telemetry=Telemetry(1.0))


def test_power_by_rapl_of_a_machine_that_trains_on_a_gpu_is_named():
    power = sampled("power_total_mw", [1.0] * 3)
    assert "RTX" in flags(telemetry=power, power_source="rapl", accelerator="RTX 3090")["power-without-gpu"]
    assert flags(telemetry=power, power_source="rapl") == {}


def test_training_that_diverged_is_named():
    assert "diverged" in flags(last_loss=None)


def test_throttling_is_named_with_when_and_how_long_counted_from_the_first_clean_minibatch():
    state = sampled("throttle_gpu_throttle_alert_state", [0, 0, 1, 1, 0, 0])  # from 13 to 15 s; clean ones from 11 s on
    assert "throttled from 2.0 s to 4.0 s by gpu_throttle_alert" in flags(telemetry=state)["throttled"]
    events = sampled("throttle_oc3_events", [0, 0, 0, 3, 3, 4, 4])
    text = flags(telemetry=events)["throttled"]
    assert re.findall(r"from ([\d.]+) s to ([\d.]+) s by oc3 \((\d) events?\)", text) == [
        ("2.0", "3.0", "3"),
        ("4.0", "5.0", "1"),
    ]


def test_throttling_before_the_clean_minibatches_or_after_them_does_not_count():
    assert flags(telemetry=sampled("throttle_cpu_state", [1, 1, 0], start_s=5.0)) == {}
    assert flags(telemetry=sampled("throttle_cpu_state", [0, 1, 1], start_s=25.0)) == {}


def test_waiting_for_the_cpu_quota_of_a_container_is_named():
    assert "in 7 periods" in flags(cpu_quota_throttled_periods=7)["cpu-quota"]
    assert flags(cpu_quota_throttled_periods=0) == {}


def with_clocks(clocks):
    return dataclasses.replace(CASE, settings=Settings(clocks=clocks))


def test_static_clocks_that_were_not_are_named():
    use = {
        "gpu_khz": {"set_khz": 1_300_500, "samples": 12, "off": 3},
        "cpu0_khz": {"set_khz": 1, "samples": 9, "off": 0},
    }
    assert flags(dvfs="off", clock_use=use)["not-static"] == ("not-static: gpu_khz was not 1300500 in 3 of 12 samples")
    assert flags(dvfs="on")["not-static"] == "not-static: DVFS is on"


def test_clocks_that_may_move_and_clocks_that_nobody_can_hold_are_no_fault():
    use = {"gpu_khz": {"set_khz": 1_300_500, "samples": 12, "off": 12}}
    assert flags(case=with_clocks("dvfs"), dvfs="on", clock_use=use) == {}
    assert flags(clock_use=use) == {}


def test_a_total_that_was_not_believed_is_named():
    doubtful = sampled("cpu_other_cores", [0.02] * 10, missing={"power_total_mw": "rail POM_5V_GPU reads 8949 mW"})
    assert "POM_5V_GPU" in flags(telemetry=doubtful)["power-gaps"]


def test_a_temperature_limit_that_no_sensor_can_keep_is_named():
    hot = dataclasses.replace(CASE, settings=Settings(max_temperature_c=80.0))
    assert "above 80 C" in flags(case=hot, temperature_limits_c={})["temperature-unwatched"]
    assert flags(case=hot, temperature_limits_c={"temperature_cpu_c": 80.0}) == {}


def idle_flags(telemetry, **conditions):
    settings = Settings(minibatches=None, idle_s=10.0)
    profile = Profile(
        case=dataclasses.replace(CASE, workload="idle", task="idle", settings=settings),
        provenance="measured",
        conditions={"logging": "on", "clean_process": True, "dvfs": "off", **conditions},
        minibatches=[],
        telemetry=telemetry,
        aggregates={},
        flags=[],
        started_at="2026-01-01T00:00:00+00:00",
    )
    return [flag.partition(":")[0] for flag in find_flags(profile)]


def test_an_idle_device_that_others_use_or_that_trained_before_is_named():
    busy, quiet = (sampled("cpu_other_cores", [cores] * 10) for cores in (0.5, 0.0))
    assert idle_flags(quiet) == []
    assert idle_flags(busy) == ["disturbed"]
    assert idle_flags(quiet, clean_process=False) == ["not-clean"]
    assert idle_flags(Telemetry(1.0), logging="the power sensor alone, every 1 s") == []


def test_a_sample_above_what_board_or_supply_allow_is_named_with_the_limit():
    limits = [["power_vdd_in_mw", 25_000.0, "the over-current limit of VDD_IN (curr1_crit)"],
              ["power_total_mw", 20_000.0, "what a nano's input may take"]]  # fmt: skip
    rail = sampled("power_vdd_in_mw", [24_000, 26_100, 24_000])
    flag = flags(telemetry=rail, power_limits=limits)["power-peak"]
    assert "power_vdd_in_mw was 26100 in a sample, above 25000, the over-current limit of VDD_IN" in flag
    assert "nano" not in flag
    first = sampled("power_vdd_in_mw", [26_100, 24_000], start_s=10.5)  # in the first minibatch, which does not count
    assert "power-peak" in flags(telemetry=first, power_limits=limits)
    before = sampled("power_vdd_in_mw", [26_100, 24_000], start_s=9.5)
    assert "power-peak" not in flags(telemetry=before, power_limits=limits)
