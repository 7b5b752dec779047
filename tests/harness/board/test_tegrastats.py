"""A tegrastats log as telemetry: it has its times and total, or says why not."""

from __future__ import annotations

import pytest

from harness.board.power_rails import TOTAL
from harness.board.tegrastats import channel_values, parse_line, parse_log
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series

MIB = 2**20


def undated(power_mw):
    return f"RAM 100/3956MB (lfb 1x4MB) CPU [7%@1479,off] GR3D_FREQ 60% POM_5V_IN {power_mw}/4000 POM_5V_GPU 100/100"


def dated(time, power_mw, day=21):
    return f"04-{day}-2026 {time} RAM 100/7620MB GR3D_FREQ 99%@[1015] cv0@-256C VDD_IN {power_mw}mW/4000mW"


def test_channels_are_named_like_those_of_the_boards_own_sensors():
    line = parse_line(
        "RAM 100/7620MB SWAP 3/3810MB (cached 0MB) CPU [38%@1497,off] EMC_FREQ 61%@2133 GR3D_FREQ 99%@[1015,1020] "
        "NVENC 79%@166 NVDEC off cpu@48.5C cv0@-256C VDD_IN 5251mW/8535mW"
    )
    assert channel_values(line) == {
        "memory_used_bytes": 100 * MIB,
        "swap_used_bytes": 3 * MIB,
        "cpu0_load_share": 0.38,
        "cpu0_khz": 1497000,
        "emc_load_share": 0.61,
        "emc_khz": 2133000,
        "gpu_load_share": 0.99,
        "gpu_khz": 1020000,
        "nvenc_load_share": 0.79,
        "nvenc_khz": 166000,
        "temperature_cpu_c": 48.5,
        "power_vdd_in_mw": 5251,
    }


def test_a_log_without_dates_goes_by_the_given_interval():
    telemetry = parse_log([undated(4000), "\n", undated(4400), undated(4200)], interval_s=0.5)
    assert telemetry.series[TOTAL] == Series((0.0, 0.5, 1.0), (4000, 4400, 4200))
    assert telemetry.series["gpu_load_share"].values == (0.6, 0.6, 0.6)
    assert (telemetry.interval_s, telemetry.real_interval_s, telemetry.lost_samples) == (0.5, 0.5, 0)
    assert telemetry.notes[TOTAL] == "rail POM_5V_IN; not added: POM_5V_GPU"
    assert telemetry.missing == {}


def test_a_log_with_dates_goes_by_them_and_counts_the_lines_it_lacks():
    telemetry = parse_log([dated("23:59:58", 4000), dated("23:59:59", 4000), dated("00:00:03", 5000, day=22)])
    assert telemetry.series[TOTAL] == Series((0.0, 1.0, 5.0), (4000, 4000, 5000))
    assert telemetry.interval_s == 2.5
    even = parse_log([dated(f"08:00:{second:02d}", 1) for second in (0, 1, 2, 3, 7, 8)])
    assert (even.interval_s, even.lost_samples) == (1.0, 3)


def test_lines_of_one_second_are_spread_over_it():
    telemetry = parse_log([dated(f"08:00:0{second}", 1) for second in (0, 0, 1, 1, 1, 2)])
    assert telemetry.series[TOTAL].times_s == pytest.approx((0, 0.5, 1, 4 / 3, 5 / 3, 2))
    assert telemetry.lost_samples == 0


def test_dates_that_go_back_are_refused_unless_an_interval_is_given():
    lines = [dated("08:00:05", 1), dated("08:00:04", 1)]
    with pytest.raises(InvalidValueError, match="line 2 of the log, 2026-04-21 08:00:04, lies before"):
        parse_log(lines)
    assert parse_log(lines, interval_s=2).series[TOTAL].times_s == (0, 2)


def test_a_log_with_neither_dates_nor_interval_is_refused():
    with pytest.raises(InvalidValueError, match="line 1 of the log has no date"):
        parse_log([undated(1)])


@pytest.mark.parametrize("interval_s", [0, -1])
def test_an_interval_that_is_none_is_refused(interval_s):
    with pytest.raises(InvalidValueError, match="above 0"):
        parse_log([undated(1)], interval_s=interval_s)


def test_a_log_of_something_else_is_refused():
    with pytest.raises(InvalidValueError, match="none of 2 lines"):
        parse_log(["time,power", "0,1"], interval_s=1)


def test_lines_of_something_else_keep_their_place_and_are_counted():
    telemetry = parse_log(["# my run", undated(1), "### torn", undated(3)], interval_s=1)
    assert telemetry.series[TOTAL] == Series((0.0, 2.0), (1, 3))
    assert telemetry.missing["tegrastats"] == "2 of 4 lines say nothing that is known, line 1 the first: '# my run'"


def test_a_total_needs_all_its_rails_in_every_line():
    short = undated(3000).replace(" POM_5V_GPU 100/100", "")
    telemetry = parse_log([undated(3000), short], interval_s=1, total=["POM_5V_IN", "POM_5V_GPU"])
    assert telemetry.series[TOTAL] == Series((0.0,), (3100,))
    assert telemetry.missing[TOTAL] == "its rail POM_5V_GPU gave no value (1 of 2 lines)"


def test_without_an_input_rail_and_a_definition_there_is_no_total():
    telemetry = parse_log(["RAM 1/2MB GPU 5/5 CPU 6/6"], interval_s=1)
    assert TOTAL not in telemetry.series
    assert "none of the rails GPU, CPU is an input" in telemetry.missing[TOTAL]
    assert telemetry.series["power_gpu_mw"].values == (5,)


def test_a_sensor_that_is_off_is_missing():
    telemetry = parse_log([dated("08:00:00", 1)])
    assert "temperature_cv0_c" not in telemetry.series
    assert telemetry.missing["temperature_cv0_c"] == "its sensor is off (1 of 1 lines)"
