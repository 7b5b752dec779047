"""Where a run ends for heat: by trip points or as asked, never by a sensor that always shows the same."""

from __future__ import annotations

import pytest

from harness.board.thermal import MARGIN_C, refuse_heat, temperature_limits_c
from harness.core.errors import OverheatedError

ZONE = "sys/class/thermal/thermal_zone"


def zone(number, name, trips=(), celsius=45):
    files = {f"{ZONE}{number}/type": name, f"{ZONE}{number}/temp": celsius * 1000}
    for place, (kind, trip_c) in enumerate(trips):
        files[f"{ZONE}{number}/trip_point_{place}_type"] = kind
        files[f"{ZONE}{number}/trip_point_{place}_temp"] = round(trip_c * 1000)
    return files


@pytest.fixture
def board(tree):
    tree.write(zone(0, "cpu-thermal", [("active", 50), ("passive", 99), ("critical", 104.5)]))
    tree.write(zone(1, "gpu-thermal", [("critical", 110), ("critical", 103)]))
    tree.write(zone(2, "PMIC-Die", [("critical", 120)], celsius=100))
    tree.write(zone(3, "Tboard", [("passive", 70)]))
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
    tree.write(zone(0, "a", [("critical", 0)]))
    tree.write({**zone(1, "b", [("critical", 90)]), f"{ZONE}1/trip_point_0_temp": "invalid"})
    assert temperature_limits_c(tree.root) == {}


def test_without_sensors_there_is_nothing_to_watch(tree):
    assert temperature_limits_c(tree.root, 80.0) == {}


def test_a_sensor_above_its_limit_ends_the_run_and_is_named():
    limits_c = {"temperature_cpu_c": 80.0, "temperature_gpu_c": 90.0}
    refuse_heat(Newest(temperature_cpu_c=80.0, temperature_gpu_c=85.0, temperature_pmic_c=100.0), limits_c)
    refuse_heat(Newest(), limits_c)
    with pytest.raises(OverheatedError, match=r"temperature_gpu_c is 90\.5.*above 90"):
        refuse_heat(Newest(temperature_cpu_c=70.0, temperature_gpu_c=90.5), limits_c)
