"""Temperatures are read in Celsius, and a run ends for heat by trip points or as asked, never by a constant sensor."""

from __future__ import annotations

import pytest

from harness.board import thermal
from harness.board.thermal import MARGIN_C, refuse_heat, temperature_limits_c
from harness.core.errors import OverheatedError, SourceUnavailableError

ZONE = "sys/class/thermal/thermal_zone"


def zone(number, name, millidegrees=45_000, trips=()):
    files = {f"{ZONE}{number}/type": name, f"{ZONE}{number}/temp": millidegrees}
    for place, (kind, trip_c) in enumerate(trips):
        files[f"{ZONE}{number}/trip_point_{place}_type"] = kind
        files[f"{ZONE}{number}/trip_point_{place}_temp"] = round(trip_c * 1000)
    return files


def test_zones_are_named_by_their_type_in_celsius(tree):
    tree.write({**zone(0, "CPU-therm", 45500), **zone(1, "acpitz", 20000), **zone(10, "acpitz", 30000)})
    assert thermal.open_source(tree.root).read(0.0).values == {
        "temperature_cpu_therm_c": 45.5,
        "temperature_acpitz_c": 20.0,
        "temperature_acpitz_2_c": 30.0,
    }


def test_a_sleeping_zone_fails_alone_and_one_below_zero_is_a_temperature(tree):
    tree.write({**zone(0, "cpu", 45500), **zone(1, "gpu", ""), **zone(2, "outside", -256000)})
    values, failed = thermal.open_source(tree.root).read(0.0)
    assert values == {"temperature_cpu_c": 45.5, "temperature_outside_c": -256.0}
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


@pytest.fixture
def board(tree):
    tree.write(zone(0, "cpu-thermal", trips=[("active", 50), ("passive", 99), ("critical", 104.5)]))
    tree.write(zone(1, "gpu-thermal", trips=[("critical", 110), ("critical", 103)]))
    tree.write(zone(2, "PMIC-Die", 100_000, [("critical", 120)]))
    tree.write(zone(3, "Tboard", trips=[("passive", 70)]))
    return tree


class Newest:
    """A sampler, as far as heat goes."""

    def __init__(self, **celsius):
        self._celsius = celsius

    def poll(self):
        return 0

    def newest(self, channel):
        return self._celsius.get(channel)


def test_a_run_ends_a_little_below_the_lowest_critical_trip_point_of_each_sensor(board):
    assert temperature_limits_c(board.root) == {
        "temperature_cpu_thermal_c": 104.5 - MARGIN_C,
        "temperature_gpu_thermal_c": 103 - MARGIN_C,
    }


def test_a_limit_that_is_set_holds_for_every_sensor_that_follows_the_heat(board):
    limits_c = temperature_limits_c(board.root, most_c=80.0)
    names = ("cpu_thermal", "gpu_thermal", "tboard")
    assert limits_c == {f"temperature_{name}_c": 80.0 for name in names}


def test_a_trip_point_that_is_switched_off_or_unreadable_is_none(tree):
    tree.write(zone(0, "a", trips=[("critical", 0)]))
    tree.write({**zone(1, "b", trips=[("critical", 90)]), f"{ZONE}1/trip_point_0_temp": "invalid"})
    assert temperature_limits_c(tree.root) == {}


def test_without_sensors_there_is_nothing_to_watch(tree):
    assert temperature_limits_c(tree.root, 80.0) == {}


def test_a_sensor_above_its_limit_ends_the_run_and_is_named():
    limits_c = {"temperature_cpu_c": 80.0, "temperature_gpu_c": 90.0}
    refuse_heat(Newest(temperature_cpu_c=80.0, temperature_gpu_c=85.0, temperature_pmic_c=100.0), limits_c)
    refuse_heat(Newest(), limits_c)
    with pytest.raises(OverheatedError, match=r"temperature_gpu_c is 90\.5.*above 90"):
        refuse_heat(Newest(temperature_cpu_c=70.0, temperature_gpu_c=90.5), limits_c)
