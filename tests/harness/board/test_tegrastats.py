"""tegrastats: every release's fields are read, what a line does not say is None; a log has its times and total."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.power_rails import TOTAL
from harness.board.tegrastats import parse_line, parse_log
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series
from tests.messages import says

MIB = 2**20

NANO_R32 = (
    "RAM 1200/3956MB (lfb 200x4MB) SWAP 12/1978MB (cached 1MB) IRAM 0/252kB(lfb 252kB) CPU [7%@1479,off,20%@1479,off] "
    "EMC_FREQ 4%@1600 GR3D_FREQ 60%@921 APE 25 PLL@31.5C CPU@33C PMIC@100C GPU@30C AO@38.5C thermal@31.75C "
    "POM_5V_IN 4310/4105 POM_5V_GPU 1200/1100 POM_5V_CPU 810/790"
)
XAVIER_R32 = (
    "RAM 5000/31927MB (lfb 100x4MB) CPU [3%@2265,0%@2265,off,off,off,off,off,off] EMC_FREQ 2%@2133 GR3D_FREQ 14%@1377 "
    "VIC_FREQ 115 APE 150 MTS fg 0% bg 2% AO@30.5C GPU@31C Tdiode@33.25C PMIC@100C AUX@30C CPU@32C thermal@31.1C "
    "Tboard@31C GPU 1545/1500 CPU 772/700 SOC 1854/1800 CV 0/0 VDDRQ 463/460 SYS5V 2680/2650"
)
ORIN_R35 = (
    "11-30-2025 23:59:58 RAM 4000/62801MB (lfb 10x4MB) SWAP 0/31400MB (cached 0MB) CPU [1%@729,2%@729] "
    "EMC_FREQ 0%@2133 GR3D_FREQ 0%@[0,0] VIC_FREQ 729 APE 174 CV0@-256C CPU@44.562C Tboard@32C tj@44.343C "
    "VDD_GPU_SOC 2340mW/2300mW VDD_CPU_CV 390mW/390mW VIN_SYS_5V0 4025mW/4000mW NC 0mW/0mW VDDQ_VDD2_1V8AO 301mW/301mW "
    "NC 0mW/0mW"
)
ORIN_R36 = (
    "02-01-2026 08:00:00 RAM 6700/7620MB (lfb 2x4MB) SWAP 300/3810MB (cached 8MB) CPU [38%@1497,2%@729,off] "
    "EMC_FREQ 61%@2133 GR3D_FREQ 99%@[1015] NVENC 79%@166 NVDEC off NVJPG1 off VIC 36%@115 OFA off NVDLA0 off "
    "PVA0_FREQ off APE 200 cpu@48.562C soc2@46.593C gpu@49.625C tj@49.312C VDD_IN 5251mW/8535mW "
    "VDD_CPU_GPU_CV 512mW/1944mW VDD_SOC 2720mW/3659mW"
)
THOR_R38 = (
    "04-21-2026 15:50:52 RAM 105265/125772MB (lfb 34x4MB) CPU [0%@972,8%@972] EMC_FREQ 0%@2750 "
    "GR3D_FREQ @[314,314,314] NVENC0_FREQ @314 NVDEC0_FREQ @314 VIC off OFA_FREQ @315 PVA0_FREQ off APE 300 "
    "cpu@37.343C soc012@37.468C VDD_GPU 1962mW/1962mW VDD_CPU_SOC_MSS 5887mW/5887mW "
    "VIN_SYS_5V0 5635mW/5635mW VIN 19780mW/19780mW"
)
THOR_R39 = (
    "08-08-2026 21:00:39 RAM 8000/125749MB (lfb 31x4MB) CPU [90%,75%,off]@2601 EMC_FREQ @4266 "
    "GR3D_FREQ 87%@[1574,1575,1574] cpu@58.25C/61.75C VDD_GPU 37939mW/8660mW/38000mW VIN 124486mW/36487mW/124490mW"
)
# numbers and form of public lines: an AGX Orin of 32 GB (r35), an Orin Nano (r36) with its columns padded, a Nano (r32)
ORIN_R35_ENGINES = (
    "10-16-2023 10:59:22 RAM 1205/30623MB (lfb 6429x4MB) SWAP 0/15311MB (cached 0MB) CPU [0%@729,0%@730] "
    "EMC_FREQ 0%@204 GR3D_FREQ 0%@114 GR3D2_FREQ 0%@114 NVJPG1 729 VIC_FREQ 729 APE 233 CV0@-256C CPU@43.5C "
    "VDD_GPU_SOC 4788mW/4788mW VDD_CPU_CV 798mW/798mW VIN_SYS_5V0 3842mW/3842mW VDDQ_VDD2_1V8AO 707mW/707mW"
)
ORIN_R36_PADDED = (
    "02-01-2026 08:00:00 RAM  6700/ 7620MB (lfb   2x4MB) SWAP   300/ 3810MB (cached  8MB) "
    "CPU [ 38%@1497,  2%@ 729,  off] EMC_FREQ  61%@2133 GR3D_FREQ  99%@[ 1015] NVENC  79%@ 166 VIC off APE  200 "
    "cpu@ 48.562C tj@ 49.312C VDD_IN  5251mW/ 8535mW VDD_CPU_GPU_CV   512mW/ 1944mW VDD_SOC  2720mW/ 3659mW"
)
NANO_DOUBTFUL = (
    "RAM 2020/3964MB (lfb 19x4MB) SWAP 43/1982MB (cached 1MB) CPU [100%@1479,100%@1479,100%@1479,100%@1479] "
    "EMC_FREQ 0% GR3D_FREQ 99% PLL@41.5C CPU@48C PMIC@100C GPU@63C AO@54.5C thermal@48.25C POM_5V_GPU 8949/8742 "
    "POM_5V_IN 3227/3086 POM_5V_CPU 3148/3134"
)
EVERY_LINE = [
    ORIN_R35_ENGINES, ORIN_R36_PADDED, NANO_DOUBTFUL, NANO_R32, XAVIER_R32, ORIN_R35, ORIN_R36, THOR_R38, THOR_R39,
]  # fmt: skip


CORES = {"cpu0_load_share": 0.07, "cpu0_khz": 1479000, "cpu2_load_share": 0.2, "cpu2_khz": 1479000}


def test_nano_on_r32():
    line = parse_line(NANO_R32)
    assert line.values == {
        "memory_used_bytes": 1200 * MIB,
        "swap_used_bytes": 12 * MIB,
        **CORES,  # two cores are off
        "emc_load_share": 0.04,
        "emc_khz": 1600000,
        "gpu_load_share": 0.6,
        "gpu_khz": 921000,
        "ape_khz": 25000,
        "temperature_pll_c": 31.5,
        "temperature_cpu_c": 33,
        "temperature_pmic_c": 100,
        "temperature_gpu_c": 30,
        "temperature_ao_c": 38.5,
        "temperature_thermal_c": 31.75,
        "power_pom_5v_in_mw": 4310,
        "power_pom_5v_gpu_mw": 1200,
        "power_pom_5v_cpu_mw": 810,
    }
    assert line.rails_mw == {"POM_5V_IN": 4310, "POM_5V_GPU": 1200, "POM_5V_CPU": 810}


@pytest.mark.parametrize(
    ("text", "values", "rails_mw"),
    [
        pytest.param(
            XAVIER_R32,
            {"vic_khz": 115000, "ape_khz": 150000, "temperature_gpu_c": 31},
            {"GPU": 1545, "CPU": 772, "SOC": 1854, "CV": 0, "VDDRQ": 463, "SYS5V": 2680},
            id="rails and sensors may have the same names",
        ),
        pytest.param(
            ORIN_R35,
            {"temperature_cpu_c": 44.562, "temperature_tboard_c": 32, "temperature_tj_c": 44.343,
             "temperature_cv0_c": None, "gpu_load_share": 0.0, "gpu_khz": 0},
            {"VDD_GPU_SOC": 2340, "VDD_CPU_CV": 390, "VIN_SYS_5V0": 4025, "VDDQ_VDD2_1V8AO": 301},
            id="a rail that is not connected, a sensor that is off",
        ),
        pytest.param(
            ORIN_R36,
            {"nvenc_load_share": 0.79, "nvenc_khz": 166000, "vic_load_share": 0.36, "vic_khz": 115000,
             "ape_khz": 200000, "gpu_load_share": 0.99, "gpu_khz": 1015000, "nvdec_khz": None, "ofa_khz": None},
            {"VDD_IN": 5251, "VDD_CPU_GPU_CV": 512, "VDD_SOC": 2720},
            id="engines that are off are left out",
        ),
        pytest.param(
            THOR_R38,
            {"gpu_khz": 314000, "gpu_load_share": None, "nvenc0_khz": 314000, "vic_khz": None},
            {"VDD_GPU": 1962, "VDD_CPU_SOC_MSS": 5887, "VIN_SYS_5V0": 5635, "VIN": 19780},
            id="clocks without a load",
        ),
        pytest.param(
            THOR_R39,
            {"cpu0_load_share": 0.9, "cpu0_khz": 2601000, "cpu1_load_share": 0.75, "cpu1_khz": 2601000,
             "cpu2_khz": None, "emc_khz": 4266000, "emc_load_share": None, "temperature_cpu_c": 58.25},
            {"VDD_GPU": 37939, "VIN": 124486},
            id="one clock is shared, peaks are added",
        ),
    ],
)  # fmt: skip
def test_boards_and_releases_differ(text, values, rails_mw):
    line = parse_line(text)
    assert {channel: line.values.get(channel) for channel in values} == values
    assert line.rails_mw == rails_mw


def test_a_line_has_a_date_and_names_sensors_that_are_off():
    line = parse_line(ORIN_R35)
    assert (line.at, line.off) == (datetime.datetime(2025, 11, 30, 23, 59, 58), ["temperature_cv0_c"])


@pytest.mark.parametrize("form", ["VDD_CPU_CV -398mW/-12mW", "VDD_CPU_CV -398/-12"])
def test_a_log_in_which_an_idle_rail_reads_below_0_has_its_total(form):
    line = ORIN_R35.replace("VDD_CPU_CV 390mW/390mW", form)
    assert parse_line(line).unknown == []
    rails = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    telemetry = parse_log([line], interval_s=1.0, total=rails)
    assert telemetry.series["power_vdd_cpu_cv_mw"].values == (-398,)
    assert telemetry.series[TOTAL].values == (2340 + 4025,)
    assert TOTAL not in telemetry.missing


def test_padded_columns_say_what_plain_ones_say():
    plain, padded = parse_line(ORIN_R36).values, parse_line(ORIN_R36_PADDED).values
    assert padded.items() <= plain.items()
    assert len(padded) > 15


@pytest.mark.parametrize("text", EVERY_LINE)
def test_nothing_of_a_known_line_is_left_over(text):
    assert parse_line(text).unknown == []


@pytest.mark.parametrize(
    ("text", "share", "khz"),
    [
        ("GR3D_FREQ 35%", 0.35, None),
        ("GR3D_FREQ 0%@76", 0.0, 76000),
        ("GR3D_FREQ 14%@[407,408]", 0.14, 408000),
        ("GR3D_FREQ 14%@[407, 407]", 0.14, 407000),
        ("GR3D_FREQ @[314,314,314]", None, 314000),
        ("GR3D 5%@114", 0.05, 114000),
        ("GR3D_FREQ off", None, None),
        ("EMC_FREQ 3%@1600", None, None),
    ],
)
def test_every_way_to_write_the_gpu(text, share, khz):
    values = parse_line(text).values
    assert (values.get("gpu_load_share"), values.get("gpu_khz")) == (share, khz)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("EMC_FREQ 0%", {}),
        ("EMC_FREQ 8%", {"emc_load_share": 0.08}),
        ("EMC_FREQ 0%@204", {"emc_load_share": 0.0, "emc_khz": 204000}),
        ("thermal 38.5C CPU -1C", {"temperature_thermal_c": 38.5, "temperature_cpu_c": -1}),
    ],
)
def test_the_memory_controller_that_only_root_may_see_is_not_idle_and_temperatures_need_no_at_sign(text, values):
    assert parse_line(text).values == values


def test_what_is_not_known_is_kept_aside_and_costs_nothing_else():
    line = parse_line(f"FUTURE_THING {{7}} {ORIN_R36} trailer")
    assert line.unknown == ["FUTURE_THING", "{7}", "trailer"]
    assert line.values == parse_line(ORIN_R36).values


@pytest.mark.parametrize(
    "text",
    ["", "  ", "tegrastats: not found", "part 1/2 of 3", "04-21-2026 15:50:52", "13-45-2026 15:50:52", "CPU [x]"],
)
def test_a_line_of_something_else_is_empty(text):
    assert parse_line(text).is_empty


@given(st.text())
def test_no_text_is_an_error(text):
    parse_line(text)


@given(st.sampled_from(EVERY_LINE), st.data())
def test_a_line_cut_off_anywhere_gives_only_values_that_the_whole_one_has(text, data):
    cut = data.draw(st.sampled_from([place for place, letter in enumerate(text) if letter == " "]))
    whole, part = parse_line(text), parse_line(text[:cut])
    assert part.values.items() <= whole.values.items()
    assert part.rails_mw.items() <= whole.rails_mw.items()
    assert part.at in (None, whole.at)


@given(
    rails=st.dictionaries(st.from_regex(r"V(DD|IN)_[A-Z0-9]{1,8}", fullmatch=True), st.integers(0, 200_000)),
    sensors=st.dictionaries(st.from_regex(r"[a-z]{2,6}[0-9]?", fullmatch=True), st.integers(-255_000, 200_000)),
    engines=st.dictionaries(st.from_regex(r"NV(ENC|DEC|JPG)[0-9]?", fullmatch=True), st.integers(0, 3000)),
    unit=st.sampled_from(["mW", ""]),
)
def test_what_was_written_is_read_back(rails, sensors, engines, unit):
    words = [f"{name}_FREQ @{mhz}" for name, mhz in engines.items()]
    words += [f"{name}@{millidegree / 1000:g}C" for name, millidegree in sensors.items()]
    words += [f"{name} {power}{unit}/{power + 7}{unit}" for name, power in rails.items()]
    line = parse_line(" ".join(words))
    assert line.unknown == []
    assert line.rails_mw == rails
    assert line.values == pytest.approx(
        {
            **{f"{name.lower()}_khz": mhz * 1000 for name, mhz in engines.items()},
            **{f"temperature_{name}_c": value / 1000 for name, value in sensors.items()},
            **{f"power_{name.lower()}_mw": power for name, power in rails.items()},
        },
        rel=1e-5,
    )


# -- a log -----------------------------------------------------------------------------------------------------------


def undated(power_mw):
    return f"RAM 100/3956MB (lfb 1x4MB) CPU [7%@1479,off] GR3D_FREQ 60% POM_5V_IN {power_mw}/4000 POM_5V_GPU 1/1"


def dated(time, power_mw, day=21):
    return f"04-{day}-2026 {time} RAM 100/7620MB GR3D_FREQ 99%@[1015] cv0@-256C VDD_IN {power_mw}mW/4000mW"


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
    with pytest.raises(InvalidValueError, match=r"line 2 .*2026-04-21 08:00:04, .*before"):
        parse_log(lines)
    assert parse_log(lines, interval_s=2).series[TOTAL].times_s == (0, 2)


@pytest.mark.parametrize(
    ("lines", "interval_s", "words"),
    [
        ([undated(1)], None, "line 1 of the log has no date"),
        ([undated(1)], 0, "above 0"),
        ([undated(1)], -1, "above 0"),
        (["time,power", "0,1"], 1, "none of 2 lines"),
    ],
)
def test_a_log_of_something_else_or_with_neither_dates_nor_interval_is_refused(lines, interval_s, words):
    with pytest.raises(InvalidValueError, match=words):
        parse_log(lines, interval_s=interval_s)


def test_lines_of_something_else_keep_their_place_and_are_counted():
    telemetry = parse_log(["# my run", undated(1), "### torn", undated(3)], interval_s=1)
    assert telemetry.series[TOTAL] == Series((0.0, 2.0), (1, 3))
    assert says(telemetry.missing["tegrastats"], "2 of 4 lines", "line 1", "'# my run'")


def test_a_total_needs_all_its_rails_in_every_line():
    short = undated(3000).replace(" POM_5V_GPU 1/1", "")
    telemetry = parse_log([undated(3000), short], interval_s=1, total=["POM_5V_IN", "POM_5V_GPU"])
    assert telemetry.series[TOTAL] == Series((0.0,), (3001,))
    assert says(telemetry.missing[TOTAL], "POM_5V_GPU", "1 of 2 lines")


@pytest.mark.parametrize("definition", [None, ["VIN"]])
def test_of_a_thor_without_vin_no_total_is_made_up(definition):
    telemetry = parse_log([THOR_R38, THOR_R38.replace(" VIN ", " X ")], interval_s=1, total=definition)
    assert len(telemetry.series[TOTAL].values) == 1  # of the line that has it
    without = parse_log([THOR_R38.partition(" VIN ")[0]], interval_s=1, total=definition)
    assert TOTAL not in without.series
    assert says(without.missing[TOTAL], "Thor", "only VIN")


def test_a_sensor_that_is_off_is_missing():
    telemetry = parse_log([dated("08:00:00", 1)])
    assert "temperature_cv0_c" not in telemetry.series
    assert telemetry.missing["temperature_cv0_c"] == "its sensor is off (1 of 1 lines)"
