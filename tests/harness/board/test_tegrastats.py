"""tegrastats as telemetry: a running one is never waited for; a log has its times and total, or says why not."""

from __future__ import annotations

import sys
import time

import pytest

from harness.board import tegrastats
from harness.board.power_rails import TOTAL
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec
from harness.board.tegrastats import channel_values, parse_log
from harness.board.tegrastats_format import parse_line
from harness.core.errors import InvalidValueError, SourceUnavailableError
from harness.core.profiles import Series

LIVE_TOTAL = "tegrastats_power_total_mw"
LINE = "RAM 100/7620MB GR3D_FREQ 99%@[1015] VDD_IN {power}mW/1mW VDD_SOC 7mW/7mW"


@pytest.fixture
def fake(tmp_path):
    """Writes an executable that runs `body`; gives its path."""

    def write(body):
        path = tmp_path / "tegrastats"
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


def read_until(source, wanted, now_s=0.0):
    """The first reading that `wanted` is true of; failures count too."""
    for _ in range(2000):
        try:
            reading = source.read(now_s)
        except (SourceUnavailableError, ValueError) as error:
            reading = error
        if wanted(reading):
            return reading
        time.sleep(0.005)
    raise AssertionError("no such reading came")


def failed_with(error):
    return lambda reading: isinstance(reading, error)


def has_values(reading):
    return not isinstance(reading, Exception) and bool(reading.values)


def test_a_line_is_given_once(fake):
    body = f"print({LINE.format(power=5000)!r}, flush=True); time.sleep(60)"
    source = tegrastats.open_source("/", executable=fake(body))
    values, failed = read_until(source, has_values)
    assert values == {
        "tegrastats_memory_used_bytes": 100 * 2**20,
        "tegrastats_gpu_load_share": 0.99,
        "tegrastats_gpu_khz": 1015000,
        "tegrastats_power_vdd_in_mw": 5000,
        "tegrastats_power_vdd_soc_mw": 7,
        LIVE_TOTAL: 5000,
    }
    assert failed == {}
    assert source.read(1.0) == ({}, {})


def test_of_several_lines_the_last_counts_and_half_a_line_waits(fake):
    whole = "".join(LINE.format(power=power) + "\n" for power in (1, 2))
    body = (
        f"sys.stdout.write({whole + LINE.format(power=3)!r}); sys.stdout.flush()\n"
        "time.sleep(0.1); print(flush=True); time.sleep(60)"
    )
    source = tegrastats.open_source("/", executable=fake(body))
    assert [read_until(source, has_values).values[LIVE_TOTAL] for _ in range(2)] == [2, 3]


def test_the_interval_reaches_it_in_milliseconds(fake):
    body = "option, value = sys.argv[1:]\nassert option == '--interval'\nprint(f'VDD_IN {value}mW/0mW', flush=True)"
    source = tegrastats.open_source("/", executable=fake(body), interval_s=0.07)
    assert read_until(source, has_values).values[LIVE_TOTAL] == 70


def test_a_tegrastats_that_ends_fails_and_says_its_status(fake):
    source = tegrastats.open_source("/", executable=fake(f"print({LINE.format(power=9)!r}); sys.exit(3)"))
    read_until(source, has_values)
    assert "ended with status 3" in str(read_until(source, failed_with(SourceUnavailableError)))


def test_what_it_complains_of_is_the_reason(fake):
    source = tegrastats.open_source("/", executable=fake("sys.exit('tegrastats: not permitted')"))
    assert "tegrastats: not permitted" in str(read_until(source, failed_with(ValueError)))


def test_silence_fails_and_words_later_are_heard(fake):
    source = tegrastats.open_source("/", executable=fake("time.sleep(60)"), interval_s=1.0)
    assert source.read(100.0) == ({}, {})
    assert source.read(103.0) == ({}, {})
    with pytest.raises(SourceUnavailableError, match=r"printed nothing for 3\.5 s"):
        source.read(103.5)


def test_a_rail_of_the_definition_that_is_not_printed_fails_the_total(fake):
    body = f"print({LINE.format(power=5000)!r}, flush=True); time.sleep(60)"
    source = tegrastats.open_source("/", executable=fake(body), total=["VDD_IN", "SYS3V3"], remark="as the board says")
    values, failed = read_until(source, has_values)
    assert LIVE_TOTAL not in values
    assert "SYS3V3" in failed[LIVE_TOTAL]
    assert source.notes[LIVE_TOTAL] == "sum of the rails VDD_IN, SYS3V3. as the board says"


def test_it_ends_with_its_source(fake):
    source = tegrastats.open_source("/", executable=fake("time.sleep(60)"))
    process = source._process
    assert process.poll() is None
    del source
    assert process.poll() is not None


def test_a_machine_without_it_says_so(tree):
    with pytest.raises(SourceUnavailableError, match=r"usr/bin/tegrastats.*comes with"):
        tegrastats.open_source(tree.root)


def test_an_interval_below_its_unit_is_refused(fake):
    with pytest.raises(InvalidValueError, match=r"0\.001 s"):
        tegrastats.open_source("/", executable=fake(""), interval_s=0.0001)


def test_the_sampler_reads_it_beside_others(fake, tree):
    body = f"while True:\n    print({LINE.format(power=5000)!r}, flush=True)\n    time.sleep(0.02)"
    sampler = Sampler([SourceSpec("tegrastats", {"executable": fake(body), "interval_s": 0.02})], 0.02, root=tree.root)
    with sampler:
        deadline_s = time.monotonic() + 20
        while sampler.series(LIVE_TOTAL) is None and time.monotonic() < deadline_s:
            sampler.poll()
            time.sleep(0.02)
    assert set(sampler.stop().series[LIVE_TOTAL].values) == {5000}


# -- a recorded log --------------------------------------------------------------------------------------------------

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
