"""Power that no supply gives: every reader drops the sample, says why, and makes no total of it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from harness.board import jtop, nvml, pmic, power_rails, rapl, socket_meter, source
from harness.board.power_rails import TOTAL, choose_total
from harness.board.sampler import Sampler
from harness.board.source import POWER_TOTAL, SOURCES, Reading, Source, SourceSpec, open_source
from harness.board.tegrastats import parse_line, parse_log
from harness.board.thermal import refuse_heat
from harness.core.boards import BOARDS, known_variants, load_board
from harness.core.errors import InvalidValueError
from tests.harness.board.test_jtop import FakeClient, FakeService, rail
from tests.harness.board.test_pmic import READINGS, Pi
from tests.harness.board.test_power_rails import hwmon_chip, iio_chip
from tests.harness.board.test_rapl import RANGE_UJ, two_sockets, zone
from tests.messages import says

FAKE_NVML = Path(__file__).resolve().parents[2] / "boards" / "fake_nvml"
BEYOND = 99999999999999999999  # what a driver without its chip was seen to show


def read_twice(source, change):
    source.read(0.0)
    change()
    return source.read(1.0)


# -- each reader of power ----------------------------------------------------------------------------------------------


def of_hwmon(tree, monkeypatch):
    tree.write(hwmon_chip("1-0040", [("VDD_IN", 5000, 1000), ("VDD_SOC", 5000, 100)]))
    opened = open_source(SourceSpec("ina"), tree.root)
    path = "sys/bus/i2c/devices/1-0040/hwmon/hwmon3/curr1_input"
    return read_twice(opened, lambda: tree.write({path: BEYOND})), "power_vdd_in_mw"


def of_iio(tree, monkeypatch):
    tree.write(iio_chip("6-0040", [("POM_5V_IN", 5000), ("POM_5V_GPU", 100)]))
    opened = open_source(SourceSpec("ina"), tree.root)
    path = "sys/bus/i2c/devices/6-0040/iio:device0/in_power0_input"
    return read_twice(opened, lambda: tree.write({path: BEYOND})), "power_pom_5v_in_mw"


def of_rapl(tree, monkeypatch):
    tree.write(two_sockets())
    opened = open_source(SourceSpec("rapl"), tree.root)
    return read_twice(opened, lambda: tree.write(two_sockets(joules=5_000))), "power_package_0_mw"


def of_nvml(tree, monkeypatch):
    monkeypatch.setenv("FAKE_NVML", str(tree.path.parent / "nvml.json"))
    monkeypatch.syspath_prepend(str(FAKE_NVML))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    gpu = {"name": "NVIDIA A40", "uuid": "GPU-1", "limits": [100_000, 300_000], "limit": 300_000, "milliwatt": 700_000}

    def counts(energy_mj):
        Path(os.environ["FAKE_NVML"]).write_text(json.dumps({"gpus": [{**gpu, "energy_mj": energy_mj}]}))

    counts(1_000_000)
    nvml.find_gpus.cache_clear()
    try:
        opened = open_source(SourceSpec("nvml"), tree.root)
        return read_twice(opened, lambda: counts(1_700_000)), "power_gpu_mw"
    finally:
        nvml.find_gpus.cache_clear()
        sys.modules.pop("pynvml", None)


def of_pmic(tree, monkeypatch):
    pi = Pi(tree.path)
    opened = open_source(SourceSpec("pmic"), tree.root)
    return read_twice(opened, lambda: pi.says(READINGS.replace("2.00000000A", f"{BEYOND}.0A"))), "power_vdd_core_mw"


def of_jtop(tree, monkeypatch):
    service = FakeService()
    service.data["power"] = {"rail": {"VDD_IN": rail(BEYOND)}, "tot": {"power": BEYOND, "name": "VDD_IN"}}
    opened = jtop.JtopSource(lambda: FakeClient(service), boot_clock=lambda: service.uptime_s)
    opened._newest = jtop.sample_of(FakeClient(service))
    reading = opened.read(0.0)
    opened.close()
    return Reading({**reading.values}, reading.failed), "jtop_power_vdd_in_mw"


READERS = {"ina": [of_hwmon, of_iio], "rapl": [of_rapl], "nvml": [of_nvml], "pmic": [of_pmic], "jtop": [of_jtop]}


@pytest.mark.parametrize("read", [read for readers in READERS.values() for read in readers])
def test_every_reader_drops_what_no_supply_gives_and_makes_no_total_of_it(tree, monkeypatch, read):
    tree.path.mkdir()
    reading, channel = read(tree, monkeypatch)
    total = f"jtop_{TOTAL}" if channel.startswith("jtop_") else TOTAL
    assert channel not in reading.values
    assert "its supply gives at most" in reading.failed[channel]
    assert total not in reading.values
    assert "its supply gives at most" in reading.failed[total] or "gave no value" in reading.failed[total]


def test_the_readers_above_are_all_that_read_power():
    """A new source of power joins them: whatever names the total in its module."""
    folder = Path(source.__file__).parent
    name_total = {name for name, where in SOURCES.items() if "TOTAL" in (folder / f"{where.module}.py").read_text()}
    assert name_total == set(READERS)


def test_every_board_has_a_bound_above_its_peak_and_its_input():
    for name in BOARDS:
        for variant in known_variants(name):
            board = load_board(name, variant)
            assert board.most_mw >= 2 * max(board.peak_power_mw, board.input_limit_mw) > 0


def test_a_packages_source_is_held_to_it_too(tree, monkeypatch):
    reading = Reading({"power_total_mw": 5.0, "power_arm_mw": 2e11, "temperature_c": float("nan"), "other": 1.0}, {})
    monkeypatch.setattr(source, "_opener", lambda name: lambda root: Source({}, lambda now_s: reading))
    values, failed = open_source(SourceSpec("package:source"), tree.root).read(0.0)
    assert values == {"other": 1.0}
    assert "its supply gives at most" in failed["power_arm_mw"]
    assert failed["temperature_c"] == "it reads nan"
    assert "power_arm_mw" in failed[POWER_TOTAL]


def test_a_dropped_sample_is_counted_in_the_record(tree):
    path = "sys/bus/i2c/devices/1-0040/hwmon/hwmon3/curr1_input"
    tree.write(hwmon_chip("1-0040", [("VDD_IN", 5000, 1000)]))
    tree.write({path: BEYOND})
    sampler = Sampler([SourceSpec("ina", {"most_mw": 45_000.0})], 0.05, root=tree.root)
    with sampler:
        tree.write({path: 1000})
        before = sampler.samples
        while sampler.samples < before + 2 and sampler.is_running:
            pass
    telemetry = sampler.stop()
    assert set(telemetry.series[TOTAL].values) == {5000.0}
    assert "W, and its supply gives at most 45 W" in telemetry.missing["power_vdd_in_mw"]
    assert " samples, the first" in telemetry.missing[TOTAL]


# -- other units -------------------------------------------------------------------------------------------------------

BEYOND_OF_UNIT = {"c": (-273, 2_147_483), "khz": (-1, 4.3e12), "share": (-0.5, 99), "bytes": (-4096, 1e19)}


def test_every_bounded_unit_has_values_on_both_sides_here():
    assert set(BEYOND_OF_UNIT) == set(source.POSSIBLE)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_source_drops_what_no_sensor_of_a_unit_has(tree, monkeypatch, name):
    """Also with the prefix of another program, as jtop's."""
    possible = {f"{prefix}a_{unit}": 1.0 for unit in BEYOND_OF_UNIT for prefix in ("", "jtop_")}
    module = importlib.import_module(f"harness.board.{SOURCES[name].module}")
    for side in (0, 1):
        beyond = {unit: sides[side] for unit, sides in BEYOND_OF_UNIT.items()}
        values = {channel.replace("a_", "b_"): beyond[channel.rpartition("_")[2]] for channel in possible}
        reading = Reading({**values, **possible, "b_word": "N/A"}, {})
        opened = Source({}, lambda now_s, found=reading: found)
        monkeypatch.setattr(module, "open_source", lambda root, opened=opened: opened)
        found = open_source(SourceSpec(name), tree.root).read(0.0)
        assert found.values == possible
        assert set(found.failed) == {*values, "b_word"}


def test_a_temperature_beyond_any_chips_ends_no_run_and_is_counted(tree):
    zone = "sys/class/thermal/thermal_zone0"
    tree.write({f"{zone}/type": "cpu-thermal", f"{zone}/temp": 2**31 - 1})
    with Sampler([SourceSpec("thermal")], 0.05, root=tree.root) as sampler:
        tree.write({f"{zone}/temp": 40_000})
        before = sampler.samples
        while sampler.samples < before + 2 and sampler.is_running:
            pass
        refuse_heat(sampler, {"temperature_cpu_thermal_c": 95.0})
    telemetry = sampler.stop()
    assert set(telemetry.series["temperature_cpu_thermal_c"].values) == {40.0}
    assert "-100 to 200 are possible" in telemetry.missing["temperature_cpu_thermal_c"]


# -- counters ----------------------------------------------------------------------------------------------------------


def one_package(energy_uj, **limits_uw):
    directory = "sys/class/powercap/intel-rapl:0"
    return {**zone("0", "package-0", energy_uj), **{f"{directory}/{name}": value for name, value in limits_uw.items()}}


@pytest.mark.parametrize(
    ("before_uj", "after_uj", "window_s", "words"),
    [
        pytest.param(4_010_000_000, 10_000, 1.0, "was reset: it fell by 4009990000 uJ in 1 s, and a wrap", id="reset"),
        pytest.param(10_000, 20_000, 20_000.0, "20000 s between two readings are too long", id="several wraps"),
        pytest.param(20_000, 10_000, 20_000.0, "may have wrapped more than once", id="several wraps and a fall"),
        pytest.param(10_000, 2_000_010_000, 1.0, "2000 W, and its supply gives at most 1000 W", id="a jump"),
    ],
)
def test_a_counter_that_was_reset_or_wrapped_more_than_once_gives_no_power(tree, before_uj, after_uj, window_s, words):
    tree.write(one_package(before_uj))
    opened = rapl.open_source(tree.root)
    opened.read(0.0)
    tree.write(one_package(after_uj))
    values, failed = opened.read(window_s)
    assert values == {}
    assert words in failed["power_package_0_mw"]
    assert words in failed[TOTAL]
    tree.write(one_package(after_uj + 50_000_000))
    assert opened.read(window_s + 1).values[TOTAL] == 50_000


@pytest.mark.parametrize(
    ("limits_uw", "most_mw"),
    [
        ({}, rapl.MOST_DOMAIN_MW),
        ({"constraint_0_max_power_uw": 125_000_000, "constraint_1_power_limit_uw": 253_000_000}, 506_000),
        ({"constraint_0_max_power_uw": 0, "constraint_0_power_limit_uw": 4_095_875_000}, rapl.MOST_DOMAIN_MW),
        ({"constraint_0_max_power_uw": "", "constraint_0_time_window_uw": 9}, rapl.MOST_DOMAIN_MW),
    ],
    ids=["none", "of-the-socket", "without-a-limit", "garbage"],
)
def test_the_bound_of_a_package_is_twice_its_limits(tree, limits_uw, most_mw):
    tree.write(one_package(0, **limits_uw))
    assert [domain.most_mw for domain in rapl.find_domains(tree.root)] == [most_mw]


def test_a_wrap_is_still_a_wrap_after_a_minute(tree):
    tree.write(one_package(RANGE_UJ - 1_000_000))
    opened = rapl.open_source(tree.root)
    opened.read(0.0)
    tree.write(one_package(5_999_000_000))
    assert opened.read(60.0).values[TOTAL] == 100_000


# -- two of one name ---------------------------------------------------------------------------------------------------


def test_of_two_rails_with_one_label_none_becomes_the_total(tree):
    tree.write(hwmon_chip("1-0040", [("VDD_IN", 5000, 3000)]))
    tree.write(hwmon_chip("1-0045", [("VDD_IN", 5000, 1000)], "hwmon/hwmon5"))
    values, failed = power_rails.open_source(tree.root, total=["VDD_IN"]).read(0.0)
    assert values == {"power_vdd_in_mw": 15_000, "power_vdd_in_2_mw": 5_000}
    assert says(failed[TOTAL], "several rails", "VDD_IN")
    assert choose_total(["VDD_IN", "VDD_SOC", "VDD_SOC 2"]).why_none == ""


def test_of_two_domains_with_one_name_none_is_hidden_and_none_becomes_the_total(tree):
    tree.write({**one_package(0), **zone("1", "package-0", 0)})
    opened = rapl.open_source(tree.root)
    opened.read(0.0)
    tree.write({**one_package(5_000_000), **zone("1", "package-0", 7_000_000)})
    values, failed = opened.read(1.0)
    assert values == {"power_package_0_mw": 5_000, "power_package_0_2_mw": 7_000}
    assert "two domains are named package-0" in failed[TOTAL]


def test_a_converter_that_is_listed_twice_is_not_chosen_from(tmp_path):
    pi = Pi(tmp_path)
    opened = pmic.open_source(str(tmp_path))
    pi.says(READINGS + "  VDD_CORE_A current(7)=9.00000000A\n")
    values, failed = opened.read(0.0)
    assert TOTAL not in values
    assert "lists VDD_CORE twice" in failed[TOTAL]


LINE = "RAM 1/3956MB GR3D_FREQ 0%@76 VDD_IN 4000/4000 VDD_SOC 100/100 cpu@40C"


def test_a_line_with_a_rail_twice_gives_neither(tmp_path):
    double = LINE.replace(" cpu@", " VDD_IN 15000/15000 cpu@")
    telemetry = parse_log([LINE, double, LINE], interval_s=1)
    assert telemetry.series["power_vdd_in_mw"].times_s == telemetry.series[TOTAL].times_s == (0, 2)
    assert set(telemetry.series[TOTAL].values) == {4000.0}
    assert telemetry.missing["power_vdd_in_mw"] == "it is in a line twice (1 of 3 lines)"
    assert TOTAL in telemetry.missing
    assert telemetry.series["power_vdd_soc_mw"].times_s == (0, 1, 2)
    with_none = parse_log([double], interval_s=1)
    assert TOTAL not in with_none.series


def test_two_lines_in_one_give_nothing_that_both_have():
    line = parse_line(f"{LINE} {LINE} VIC_FREQ 729")
    assert set(line.values) == {"vic_khz"}


# -- logs --------------------------------------------------------------------------------------------------------------


def test_a_line_of_a_log_that_no_supply_gives_is_dropped_and_counted():
    telemetry = parse_log([LINE, LINE.replace("4000/", "9999999/"), LINE], interval_s=1)
    assert set(telemetry.series[TOTAL].values) == {4000.0}
    assert says(telemetry.missing["power_vdd_in_mw"], "1e+04 W", "at most 500 W", "1 of 3 lines")
    with pytest.raises(InvalidValueError, match="of 2 of 3 lines cannot be"):
        parse_log([LINE, *[LINE.replace("4000/", "9999999/")] * 2], interval_s=1)


def test_a_line_of_a_log_with_what_no_sensor_has_loses_it_alone():
    wrong = LINE.replace("cpu@40C", "cpu@999C").replace("GR3D_FREQ 0%@76", "GR3D_FREQ 700%@76")
    telemetry = parse_log([LINE, wrong, LINE], interval_s=1)
    assert telemetry.series["temperature_cpu_c"].times_s == (0, 2)
    assert telemetry.series["gpu_load_share"].times_s == (0, 2)
    assert telemetry.series["gpu_khz"].times_s == telemetry.series[TOTAL].times_s == (0, 1, 2)
    assert says(telemetry.missing["temperature_cpu_c"], "999", "-100 to 200", "1 of 3 lines")


def test_a_sample_of_a_socket_meter_that_no_plug_gives_is_dropped_and_counted(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time_s,power_w\n0,12\n1,99999999\n2,11\n")
    telemetry = socket_meter.read_power_log(path)
    assert telemetry.series[TOTAL].values == (12_000, 11_000)
    assert "(1 of 3 samples)" in telemetry.missing[TOTAL]
    path.write_text("time_s,power_w\n0,12\n1,99999999\n")
    with pytest.raises(InvalidValueError, match="check the unit"):
        socket_meter.read_power_log(path)
