"""Temperatures are read in Celsius, and a run ends for heat by trip points or as asked, never by a constant sensor."""

from __future__ import annotations

import errno
import os

import pytest

from harness.board import thermal
from harness.board.thermal import MARGIN_C, refuse_heat, temperature_limits_c
from harness.core.cases import NO_LIMIT_C
from harness.core.errors import CannotRunError, OverheatedError, UnwatchedError

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


@pytest.fixture
def powered_off(monkeypatch):
    """Files whose reads give EAGAIN, as those of a zone whose part of the chip has no power (Orin, L4T r36)."""
    off, reads = set(), {name: getattr(os, name) for name in ("read", "pread")}

    def refusing(name):
        def read(fd, *rest):
            if os.readlink(f"/proc/self/fd/{fd}") in off:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return reads[name](fd, *rest)

        return read

    for name in reads:
        monkeypatch.setattr(os, name, refusing(name))
    return lambda *paths: off.update(os.path.realpath(path) for path in paths)


def test_a_zone_that_cannot_be_read_fails_alone_and_ice_is_a_temperature(tree, powered_off):
    tree.write({**zone(0, "cpu", 45500), **zone(1, "gpu", ""), **zone(2, "outside", -12_000)})
    # L4T r36 and r35, of a part of the chip that has no power; and a driver that refuses all
    tree.write({**zone(3, "cv0-thermal"), **zone(4, "CV1-therm", -256_000), **zone(5, "cv2-thermal")})
    powered_off(tree.path / f"{ZONE}3/temp", tree.path / f"{ZONE}5/temp", tree.path / f"{ZONE}5/type")
    values, failed = thermal.open_source(tree.root).read(0.0)
    assert values == {"temperature_cpu_c": 45.5, "temperature_outside_c": -12.0}
    names = ("gpu", "cv0_thermal", "cv1_therm", "thermal_zone5")
    assert set(failed) == {f"temperature_{name}_c" for name in names}
    assert "temporarily unavailable" in failed["temperature_cv0_thermal_c"]
    assert "no power" in failed["temperature_cv1_therm_c"]


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


@pytest.fixture
def board(tree):
    tree.write(zone(0, "cpu-thermal", trips=[("active", 50), ("passive", 99), ("critical", 104.5)]))
    tree.write(zone(1, "gpu-thermal", trips=[("critical", 110), ("critical", 103)]))
    tree.write(zone(2, "PMIC-Die", 100_000, [("critical", 120)]))
    tree.write(zone(3, "Tboard", trips=[("passive", 70)]))
    return tree


class Newest:
    """A sampler, as far as heat goes."""

    interval_s, missing = 1.0, {"thermal": "is broken"}

    def __init__(self, is_silent=False, is_running=True, samples=9, sampler_silence_s=0.5, **celsius):
        self._celsius, self._is_silent = celsius, is_silent
        self.is_running, self.samples, self._sampler_silence_s = is_running, samples, sampler_silence_s

    def poll(self):
        return 0

    def silence_s(self):
        return self._sampler_silence_s

    def newest(self, channel, within_s=None):
        return None if self._is_silent and within_s is not None else self._celsius.get(channel)


def test_a_run_ends_a_little_below_the_lowest_critical_trip_point_of_each_sensor(board):
    assert temperature_limits_c(board.root) == {
        "temperature_cpu_thermal_c": 104.5 - MARGIN_C,
        "temperature_gpu_thermal_c": 103 - MARGIN_C,
    }


def test_a_limit_that_is_set_holds_for_every_sensor_that_follows_the_heat(board):
    limits_c = temperature_limits_c(board.root, most_c=80.0)
    names = ("cpu_thermal", "gpu_thermal", "tboard")
    assert limits_c == {f"temperature_{name}_c": 80.0 for name in names}


def test_a_trip_point_that_is_switched_off_or_unreadable_is_none(tree, powered_off):
    tree.write(zone(0, "a", trips=[("critical", 0)]))
    tree.write({**zone(1, "b", trips=[("critical", 90)]), f"{ZONE}1/trip_point_0_temp": "invalid"})
    tree.write({**zone(2, "c", trips=[("critical", 90)]), **zone(3, "d", trips=[("critical", 95)])})
    powered_off(tree.path / f"{ZONE}2/trip_point_0_temp")
    assert temperature_limits_c(tree.root) == {"temperature_d_c": 92.0}


@pytest.mark.parametrize(("files", "most_c"), [({}, 80.0), (zone(0, "a", trips=[("passive", 90)]), None)])
def test_where_there_is_nothing_to_watch_no_run_starts_unless_that_was_asked_for(tree, files, most_c):
    tree.write(files)
    with pytest.raises(CannotRunError, match="--no-temperature-limit"):
        temperature_limits_c(tree.root, most_c)
    assert temperature_limits_c(tree.root, NO_LIMIT_C) == {}


def test_a_sensor_above_its_limit_ends_the_run_and_is_named():
    limits_c = {"temperature_cpu_c": 80.0, "temperature_gpu_c": 90.0}
    refuse_heat(Newest(temperature_cpu_c=80.0, temperature_gpu_c=85.0, temperature_pmic_c=100.0), limits_c)
    refuse_heat(Newest(temperature_cpu_c=80.0), limits_c)  # one zone that is silent is not the end
    with pytest.raises(OverheatedError, match=r"temperature_gpu_c is 90\.5.*above 90"):
        refuse_heat(Newest(temperature_cpu_c=70.0, temperature_gpu_c=90.5), limits_c)


def test_a_run_that_nobody_watches_does_not_start_and_one_that_is_watched_no_more_ends():
    limits_c = {"temperature_cpu_c": 80.0}
    refuse_heat(Newest(), {})
    with pytest.raises(CannotRunError, match=r"temperature_cpu_c.*is broken.*--no-temperature-limit"):
        refuse_heat(Newest(), limits_c)
    with pytest.raises(UnwatchedError, match=r"no sensor .*10 s.*broken.*ended"):
        refuse_heat(Newest(is_silent=True, temperature_cpu_c=70.0), limits_c)


@pytest.mark.parametrize(
    ("sampler", "kind", "words"),
    [
        (
            Newest(is_silent=True, sampler_silence_s=14.2, temperature_cpu_c=70.0),
            UnwatchedError,
            r"sampler gave no sample for 14 s; the load was ended, .*overloaded.*end other programs.*resume=True",
        ),
        (
            Newest(is_silent=True, samples=0, sampler_silence_s=10.1),
            CannotRunError,
            r"no temperature can be watched: the telemetry sampler gave no sample in 10 s.*end other programs",
        ),
        (
            Newest(is_silent=True, is_running=False, sampler_silence_s=14.2, temperature_cpu_c=70.0),
            UnwatchedError,
            r"no sensor .* for 10 s, of temperature_cpu_c: is broken; the load was ended.*jetwatt doctor.*resume=True",
        ),
        (
            Newest(is_silent=True, sampler_silence_s=14.2, temperature_cpu_c=80.5),
            OverheatedError,
            r"temperature_cpu_c is 80\.5, and the run ends above 80; let it cool down",
        ),
    ],
    ids=["starved", "starved from the start", "died", "hot before it was starved"],
)
def test_a_starved_sampler_ends_the_load_in_words_of_its_own_and_heat_keeps_its_words(sampler, kind, words):
    with pytest.raises(kind, match=words) as raised:
        refuse_heat(sampler, {"temperature_cpu_c": 80.0})
    assert ("cool" in str(raised.value)) == (kind is OverheatedError)
