"""A simulated board runs cases in virtual time, and its profiles are like a board's in all but their provenance."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from harness.core.cases import DVFS, IDLE, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.metrics import AGGREGATES, end_s
from harness.core.power_modes import PowerMode
from harness.core.profiles import CLEAN, FIRST, SETTLING
from harness.devices.registry import known_devices, open_device
from harness.devices.simulated import SimulatedDevice
from harness.measure.flags import find_flags
from harness.simulation.parameters import SIMULATED_BOARDS
from harness.store.conditions import comparable_conditions, key
from tests.harness.devices.simulated_cases import case_of, profile_of
from tests.named_modes import mode_on


def phases(profile):
    return [minibatch.phase for minibatch in profile.minibatches]


def median_ms(profile):
    return profile.aggregates["minibatch_time_ms"]


def test_every_simulated_board_can_be_opened_by_its_name_and_another_is_refused_with_what_is_known():
    for board in SIMULATED_BOARDS:
        assert f"sim:{board}" in known_devices()
        device = open_device(f"sim:{board}", Configuration())
        assert (device.name, device.provenance) == (f"sim:{board}", "simulated")
        assert device.identity().specification["board"] == board
    with pytest.raises(UnknownNameError, match=r"'thor' .*available: .*orin-agx"):
        SimulatedDevice("thor")
    with pytest.raises(InvalidValueError, match="instance 'x' is not a number"):
        SimulatedDevice("orin-agx@x")


def test_a_profile_has_a_slow_first_minibatch_settling_ones_and_as_many_clean_ones_as_asked_for():
    profile = profile_of(batch_size=128, minibatches=40)
    assert profile.provenance == "simulated"
    assert phases(profile)[0] == FIRST
    assert phases(profile).count(FIRST) == 1
    assert SETTLING in phases(profile)
    assert phases(profile).count(CLEAN) == 40
    assert phases(profile) == sorted(phases(profile), key=[FIRST, SETTLING, CLEAN].index)
    assert profile.minibatches[0].e2e_ms > 3 * median_ms(profile)


def test_the_parts_of_a_minibatch_add_up_and_the_next_begins_where_it_ended():
    profile = profile_of(minibatches=40)
    assert profile.flags == []
    assert profile.started_at.startswith("2000-01-01T00:00:00")  # where nobody measured
    assert median_ms(profile) > median_ms(profile_of(task="inference"))
    for minibatch, following in zip(profile.minibatches, profile.minibatches[1:]):
        assert minibatch.stall_ms > 0
        assert minibatch.e2e_ms > minibatch.stall_ms + minibatch.compute_ms
        assert following.start_s == pytest.approx(end_s(minibatch))


def test_power_needs_two_to_three_seconds_to_settle():
    power = profile_of(minibatches=40, interval_s=0.1).telemetry.series["power_total_mw"]
    final = statistics.median(power.values[-30:])
    off = [time for time, value in zip(power.times_s, power.values) if abs(value / final - 1) > 0.08]
    assert 1.0 < max(off) < 3.5
    assert power.values[0] < 0.7 * final


def test_a_fast_case_runs_on_until_power_was_sampled_three_times():
    profile = profile_of(workload="lenet-mnist", minibatches=40)
    assert profile.aggregates["power_samples"] >= 3
    assert phases(profile).count(CLEAN) > 40


def test_the_same_seed_gives_the_same_profile_whatever_ran_before():
    alone = profile_of(minibatches=10)
    device = SimulatedDevice("orin-agx")
    device.profile(case_of(workload="lenet-mnist"))
    after = device.profile(case_of(minibatches=10))
    assert dataclasses.replace(after, started_at=alone.started_at) == alone
    assert after.started_at > alone.started_at  # virtual time has passed
    assert profile_of(minibatches=10, seed=1).minibatches != alone.minibatches


def test_all_channels_are_sampled_at_the_interval_and_rails_add_up():
    telemetry = profile_of(epochs=2, interval_s=0.5).telemetry
    series = telemetry.series
    assert telemetry.real_interval_s == pytest.approx(0.5, rel=0.02)
    rails = [series[f"power_{name}_mw"].values for name in ("base", "cpu", "gpu", "memory")]
    assert series["power_total_mw"].values == pytest.approx([sum(parts) for parts in zip(*rails)])
    for channel in ("cpu0_khz", "gpu_khz", "emc_khz", "temperature_tj_c", "cpu_own_cores", "gpu_load_share",
                    "memory_used_bytes", "disk_read_bytes_per_s", "data_cached_share"):  # fmt: skip
        assert len(series[channel].values) == len(rails[0])
    assert series["gpu_khz"].values[0] == 1_300_500


def test_a_cold_epoch_reads_the_disk_and_later_ones_find_the_data_in_memory():
    profile = profile_of(epochs=3, cache="cold", storage="hdd", workers=0, data_scale=0.1)
    figures = profile.aggregates
    assert figures["epoch0_stall_s"] > 2 * figures["epoch_stall_s"]
    assert profile.conditions["cache_residency_by_epoch"] == [0.0, 1.0, 1.0]
    read = profile.telemetry.series["disk_read_bytes_per_s"]
    boundary = next(minibatch.start_s for minibatch in profile.minibatches if minibatch.epoch == 1)
    assert {value > 0 for time, value in zip(*read) if 1 < time < boundary - 1} == {True}
    assert {value for time, value in zip(*read) if time > boundary} == {0.0}
    assert figures["disk_read_bytes"] == 0
    assert set(AGGREGATES) == set(figures)
    held = profile.telemetry.series["data_cached_share"].values
    assert (list(held), held[0], held[-1]) == (sorted(held), 0.0, 1.0)


@pytest.mark.parametrize("cache", ["cold", "evicted", "as-is"])
def test_a_board_that_was_just_switched_on_holds_nothing(cache):
    assert profile_of(cache=cache).conditions["cache_residency_before"] == 0.0


def test_a_dropped_cache_makes_every_epoch_cold():
    dropped = profile_of(epochs=3, cache="drop-each-epoch", storage="hdd", workers=0, data_scale=0.02)
    assert dropped.conditions["cache_residency_by_epoch"] == [0.0, 0.0, 0.0]
    assert dropped.aggregates["epoch_stall_s"] == pytest.approx(dropped.aggregates["epoch0_stall_s"], rel=0.1)
    first = next(minibatch for minibatch in dropped.minibatches if minibatch.epoch == 1)
    before = [minibatch for minibatch in dropped.minibatches if minibatch.epoch == 0][-1]
    assert first.start_s > end_s(before) + 0.1  # dropping takes time that no epoch is charged for


def test_data_larger_than_the_page_cache_stays_partly_on_the_disk_and_is_flagged():
    profile = profile_of("orin-nano", epochs=2, cache="warm", storage="hdd", workers=1, data_scale=2)
    assert 0 < profile.conditions["cache_residency_before"] < 0.9
    assert profile.aggregates["disk_read_bytes"] > 0
    assert any(flag.startswith("not-warm") for flag in profile.flags)


def test_a_preset_has_fewer_clusters_than_its_clocks_alone():
    device = SimulatedDevice("orin-agx")
    [(_, mode)] = device.power_modes("MODE_15W")
    preset, in_full = profile_of(mode="MODE_15W"), profile_of(mode=mode.name)
    assert preset.conditions["power_mode"] == in_full.conditions["power_mode"]
    assert (preset.conditions["tpc_mask"], in_full.conditions["tpc_mask"]) == (248, 0)
    assert median_ms(preset) > 1.5 * median_ms(in_full)
    assert preset.aggregates["power_mw"] < in_full.aggregates["power_mw"]


def test_instances_are_told_apart():
    one, other = (profile_of(board, minibatches=10) for board in ("orin-agx@1", "orin-agx@2"))
    keys = {key(comparable_conditions(profile.conditions, profile.case, "simulated")) for profile in (one, other)}
    assert len(keys) == 2
    assert median_ms(one) != median_ms(other)


def test_free_clocks_show_in_telemetry_and_conditions():
    free = profile_of(workload="lenet-mnist", clocks=DVFS)
    assert free.conditions["dvfs"] == "on"
    assert free.telemetry.series["gpu_khz"].values[0] < 1_300_500
    assert "not-static" not in " ".join(free.flags)


@pytest.mark.parametrize(
    ("board", "how", "words"),
    [
        ("orin-agx", {"storage": "tape"}, "has no storage 'tape'; available: ssd, sd, hdd, emmc"),
        ("orin-agx", {"storage": "ssd@20"}, "has no storage 'ssd@20'; available: ssd, sd, hdd, emmc"),
        ("nano", {"workload": "resnet18-cifar10", "storage": "sd"}, "does not fit into the 4 GiB"),
        (
            "xavier-nx",
            {"workload": "resnet18-cifar10"},
            "at any batch size does not fit into the 8 GiB of sim:xavier-nx: the papers ran out",
        ),
        ("raspberry-pi-5", {"workload": "bert-squad"}, "bert-squad with batches of 16 does not fit into the 8 GiB"),
        ("orin-agx", {"batch_size": 2048}, "too few batches of 2048"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(board, how, words):
    with pytest.raises(CannotRunError, match=words):
        profile_of(board, **how)


def test_a_mode_that_the_board_lacks_is_refused():
    device = SimulatedDevice("orin-agx")
    greatest = device.power_mode_space().greatest
    assert device.apply(greatest) == greatest
    with pytest.raises(InvalidValueError, match="gpu_khz=1"):
        device.apply(PowerMode(12, 2_201_600, 1, 3_199_000))
    with pytest.raises(UnknownNameError, match="available: maxn"):
        device.power_modes("turbo")


def test_what_is_compared_with_a_simulated_figure_names_its_parameters():
    conditions = SimulatedDevice("orin-agx").conditions(case_of())
    other = SimulatedDevice("orin-agx").conditions(case_of(workload="lenet-mnist"))
    assert conditions["device_specification"]["parameters"] != other["device_specification"]["parameters"]
    assert conditions["data_source"] == "virtual"
    assert conditions["torch"] is None


@pytest.mark.parametrize(("workload", "clocks"), [("idle", "static"), ("idle-quiet", "static"), ("idle-quiet", DVFS)])
def test_an_idle_board_draws_less_than_a_training_one(workload, clocks):
    settings = CaseSettings(minibatches=None, idle_s=60.0, cache="as-is", clocks=clocks)
    case = Case("sim:orin-agx", workload, mode_on("sim:orin-agx"), 0, "ssd", 1, settings, IDLE)
    profile = SimulatedDevice("orin-agx").profile(case)
    assert profile.minibatches == []
    assert 0 < profile.aggregates["power_mw"] < profile_of().aggregates["power_mw"]
    assert profile.flags == []


def test_waiting_for_the_network_is_not_simulated():
    settings = CaseSettings(minibatches=None, idle_s=60.0)
    case = Case("sim:orin-agx", "idle-wol", mode_on("sim:orin-agx"), 0, "ssd", 1, settings, IDLE)
    with pytest.raises(CannotRunError, match="'idle-wol' is not simulated"):
        SimulatedDevice("orin-agx").profile(case)


@pytest.mark.parametrize(
    ("board", "greatest", "parts", "shown", "hidden"),
    [
        ("rtx-3090", "16c-5200-1695-9751", ("gpu", "cpu"), {"gpu_khz", "gpu_mem_khz", "gpu_load_share"}, {"emc_khz"}),
        ("v100", "32c-3400-1380-877", ("gpu",), {"gpu_khz", "gpu_mem_khz", "gpu_power_capped_share"}, {"emc_khz"}),
        ("raspberry-pi-5", "4c-2400-x-x", ("3v3_sys", "ddr_vdd2", "vdd_core"), set(), {"gpu_khz", "gpu_load_share"}),
    ],
)
def test_a_machine_of_another_kind_has_modes_and_channels_as_the_real_one(board, greatest, parts, shown, hidden):
    device = open_device(f"sim:{board}", Configuration())
    assert device.power_mode_space().greatest.name == greatest
    profile = profile_of(board, minibatches=20)
    series = profile.telemetry.series
    powers = {name for name in series if name.startswith("power_")} - {"power_total_mw"}
    assert powers == {f"power_{part}_mw" for part in parts}
    total = [sum(values) for values in zip(*(series[name].values for name in powers))]
    assert series["power_total_mw"].values == pytest.approx(total)
    assert shown <= set(series)
    assert not hidden & set(series)
    assert all(part in profile.conditions["power_definition"].lower() for part in parts)


def limited(limit_w, board="v100", **changes):
    settings = CaseSettings(minibatches=20, power_limit_w=limit_w)
    return dataclasses.replace(case_of(f"sim:{board}", workload="bert-squad", **changes), settings=settings)


@pytest.mark.parametrize(("board", "least_w", "most_w"), [("v100", 100, 250), ("a40", 100, 300)])
def test_a_simulated_gpu_is_slower_under_a_lower_limit_and_draws_no_more_than_that(board, least_w, most_w):
    device = open_device(f"sim:{board}", Configuration())
    assert (device.settable_limits_mw[0], device.settable_limits_mw[-1]) == (1000 * least_w, 1000 * most_w)
    assert any(each.detail == f"{least_w} to {most_w} W, simulated" for each in device.capabilities())
    free, low, most = (device.profile(limited(limit_w, board)) for limit_w in (None, 150.0, float(most_w)))
    assert free.conditions["gpu_power_limit_mw"] == 1000 * most_w
    assert low.conditions["gpu_power_limit_mw"] == 150_000
    assert median_ms(free) == pytest.approx(median_ms(most), rel=0.03)  # apart from the noise of a run
    assert 1.1 < median_ms(low) / median_ms(free) < 2.5
    assert 120_000 < low.aggregates["power_mw"] < 156_000 < free.aggregates["power_mw"]
    khz = low.telemetry.series["gpu_khz"].values
    assert max(khz) < 0.95 * device.power_mode_space().greatest.gpu_khz
    assert set(low.telemetry.series["gpu_power_capped_share"].values) == {1.0}
    assert not any("not-static" in flag for flag in find_flags(low))
    for limit_w in (least_w - 1.0, most_w + 1.0):
        with pytest.raises(CannotRunError, match=f"allowed: {least_w} to {most_w} W"):
            device.check(limited(limit_w, board))


def test_a_limit_leaves_a_clock_alone_that_is_locked_below_what_it_allows():
    low = mode_on("sim:v100", "32c-3400-600-877")
    device = open_device("sim:v100", Configuration())
    free, under_limit = (
        device.profile(dataclasses.replace(limited(limit_w), power_mode=low)) for limit_w in (None, 175.0)
    )
    assert median_ms(under_limit) == pytest.approx(median_ms(free), rel=0.03)
    assert set(under_limit.telemetry.series["gpu_power_capped_share"].values) == {0.0}


def test_a_raspberry_pi_trains_on_its_cpu_and_takes_smaller_batches_of_what_it_refuses():
    device = open_device("sim:raspberry-pi-5", Configuration())
    one, all_cores = (profile_of("raspberry-pi-5", mode=f"{cores}c-2400-x-x", minibatches=5) for cores in (1, 4))
    assert median_ms(one) > 3 * median_ms(all_cores)
    assert all_cores.conditions["accelerator"] == "cpu (simulated)"
    device.check(case_of("sim:raspberry-pi-5", workload="bert-squad", batch_size=8))
