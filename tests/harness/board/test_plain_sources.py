"""Memory, clocks and temperatures: what is there is read in the suite's units, what is not is said."""

from __future__ import annotations

import pytest

from harness.board import cpufreq_sensor as cpufreq
from harness.board import memory, thermal
from harness.core.errors import SourceUnavailableError

KIB = 1024
MEMINFO = """\
MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    600 kB
Buffers:          50 kB
Cached:          500 kB
SwapTotal:       200 kB
SwapFree:        150 kB
Shmem:            30 kB
HugePages_Total:   0"""


def test_memory_is_in_bytes(tree):
    tree.write({"proc/meminfo": MEMINFO})
    assert memory.open_source(tree.root).read(0.0).values == {
        "memory_used_bytes": 400 * KIB,
        "memory_available_bytes": 600 * KIB,
        "page_cache_bytes": 520 * KIB,
        "swap_used_bytes": 50 * KIB,
    }


def test_a_field_that_the_kernel_lacks_costs_its_channels_only(tree):
    tree.write({"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB"})
    values, failed = memory.open_source(tree.root).read(0.0)
    assert set(values) == {"memory_used_bytes", "memory_available_bytes"}
    assert failed["swap_used_bytes"].endswith("has no SwapTotal, SwapFree")


def test_without_proc_there_is_no_memory(tree):
    with pytest.raises(SourceUnavailableError, match="meminfo does not exist"):
        memory.open_source(tree.root)


def policy(number, cpus, khz):
    directory = f"sys/devices/system/cpu/cpufreq/policy{number}"
    return {f"{directory}/related_cpus": cpus, f"{directory}/scaling_cur_freq": khz}


def test_clocks_are_named_for_the_first_cpu_of_their_policy(tree):
    tree.write({**policy(0, "0 1 2 3", 729600), **policy(8, "8 9", 2201600), **policy(10, "10", 115200)})
    source = cpufreq.open_source(tree.root)
    assert source.read(0.0).values == {"cpu0_khz": 729600, "cpu8_khz": 2201600, "cpu10_khz": 115200}
    assert source.notes["cpu0_khz"] == "scaling_cur_freq of CPUs 0 1 2 3"


def test_a_policy_that_goes_offline_or_says_nothing_fails_alone(tree):
    tree.write({**policy(0, "0", 729600), **policy(4, "4", 729600), **policy(8, "8", 729600)})
    source = cpufreq.open_source(tree.root)
    (tree.path / "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq").unlink()
    tree.write(policy(8, "8", "<unknown>"))
    values, failed = source.read(0.0)
    assert values == {"cpu0_khz": 729600}
    assert set(failed) == {"cpu4_khz", "cpu8_khz"}
    assert "<unknown>" in failed["cpu8_khz"]


def test_without_cpufreq_the_reason_is_given(tree):
    with pytest.raises(SourceUnavailableError, match="no cpufreq policy"):
        cpufreq.open_source(tree.root)


def zone(number, kind, millidegrees):
    directory = f"sys/class/thermal/thermal_zone{number}"
    return {f"{directory}/type": kind, f"{directory}/temp": millidegrees}


def test_zones_are_named_by_their_type_in_celsius(tree):
    tree.write({**zone(0, "CPU-therm", 45500), **zone(1, "acpitz", 20000), **zone(10, "acpitz", 30000)})
    assert thermal.open_source(tree.root).read(0.0).values == {
        "temperature_cpu_therm_c": 45.5,
        "temperature_acpitz_c": 20.0,
        "temperature_acpitz_2_c": 30.0,
    }


def test_a_zone_below_zero_is_a_temperature(tree):
    tree.write(zone(0, "outside", -256000))
    assert thermal.open_source(tree.root).read(0.0).values == {"temperature_outside_c": -256.0}


def test_a_sleeping_zone_fails_alone(tree):
    tree.write({**zone(0, "cpu", 45500), **zone(1, "gpu", "")})
    values, failed = thermal.open_source(tree.root).read(0.0)
    assert values == {"temperature_cpu_c": 45.5}
    assert set(failed) == {"temperature_gpu_c"}


def test_hwmon_stands_in_where_there_are_no_zones(tree):
    chip = "sys/class/hwmon/hwmon2"
    tree.write(
        {
            f"{chip}/name": "k10temp",
            f"{chip}/temp1_input": 61250,
            f"{chip}/temp1_label": "Tctl",
            f"{chip}/temp3_input": 50000,
        }
    )
    assert thermal.open_source(tree.root).read(0.0).values == {
        "temperature_k10temp_tctl_c": 61.25,
        "temperature_k10temp_temp3_c": 50.0,
    }


def test_numbers_given_to_equal_names_never_hide_a_sensor(tree):
    tree.write({**zone(0, "a", 1000), **zone(1, "a 2", 2000), **zone(2, "A", 3000), **zone(3, "a", 4000)})
    assert sorted(thermal.open_source(tree.root).read(0.0).values.values()) == [1, 2, 3, 4]


def test_without_any_sensor_the_reason_is_given(tree):
    with pytest.raises(SourceUnavailableError, match="no thermal zone"):
        thermal.open_source(tree.root)
