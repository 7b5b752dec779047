"""Lines of tegrastats: every release's fields are read, and what a line does not say is None and never 0."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.tegrastats import TegrastatsLine, UnitLoad, parse_line

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
EVERY_LINE = [NANO_R32, XAVIER_R32, ORIN_R35, ORIN_R36, THOR_R38, THOR_R39]


def test_nano_on_r32():
    line = parse_line(NANO_R32)
    assert line == TegrastatsLine(
        ram_used_bytes=1200 * MIB,
        ram_total_bytes=3956 * MIB,
        swap_used_bytes=12 * MIB,
        swap_total_bytes=1978 * MIB,
        swap_cached_bytes=1 * MIB,
        iram_used_bytes=0,
        iram_total_bytes=252 * 1024,
        cpu=(UnitLoad(0.07, (1479000,)), None, UnitLoad(0.2, (1479000,)), None),
        emc=UnitLoad(0.04, (1600000,)),
        gpu=UnitLoad(0.6, (921000,)),
        engines={"APE": UnitLoad(None, (25000,))},
        temperatures_c={"PLL": 31.5, "CPU": 33, "PMIC": 100, "GPU": 30, "AO": 38.5, "thermal": 31.75},
        rails_mw={"POM_5V_IN": 4310, "POM_5V_GPU": 1200, "POM_5V_CPU": 810},
    )


def test_rails_and_sensors_may_have_the_same_names():
    line = parse_line(XAVIER_R32)
    assert line.rails_mw == {"GPU": 1545, "CPU": 772, "SOC": 1854, "CV": 0, "VDDRQ": 463, "SYS5V": 2680}
    assert line.temperatures_c["GPU"] == 31
    assert len(line.cpu) == 8
    assert line.engines == {"VIC": UnitLoad(None, (115000,)), "APE": UnitLoad(None, (150000,))}
    assert line.swap_total_bytes is None


def test_orin_on_r35_has_a_date_and_sensors_that_are_off():
    line = parse_line(ORIN_R35)
    assert line.at == datetime.datetime(2025, 11, 30, 23, 59, 58)
    assert line.temperatures_c == {"CV0": None, "CPU": 44.562, "Tboard": 32, "tj": 44.343}
    assert line.rails_mw == {"VDD_GPU_SOC": 2340, "VDD_CPU_CV": 390, "VIN_SYS_5V0": 4025, "VDDQ_VDD2_1V8AO": 301}
    assert line.gpu == UnitLoad(0.0, (0, 0))


def test_orin_on_r36_tells_engines_that_are_off():
    line = parse_line(ORIN_R36)
    off = dict.fromkeys(["NVDEC", "NVJPG1", "OFA", "NVDLA0", "PVA0"])
    assert line.engines == {
        **off,
        "NVENC": UnitLoad(0.79, (166000,)),
        "VIC": UnitLoad(0.36, (115000,)),
        "APE": UnitLoad(None, (200000,)),
    }
    assert line.gpu == UnitLoad(0.99, (1015000,))


def test_thor_tells_clocks_without_a_load():
    line = parse_line(THOR_R38)
    assert line.gpu == UnitLoad(None, (314000, 314000, 314000))
    assert line.engines["NVENC0"] == UnitLoad(None, (314000,))
    assert line.engines["VIC"] is None
    assert line.rails_mw["VIN"] == 19780


def test_thor_on_r39_shares_one_clock_and_adds_peaks():
    line = parse_line(THOR_R39)
    assert line.cpu == (UnitLoad(0.9, (2601000,)), UnitLoad(0.75, (2601000,)), None)
    assert line.emc == UnitLoad(None, (4266000,))
    assert line.temperatures_c == {"cpu": 58.25}
    assert line.rails_mw == {"VDD_GPU": 37939, "VIN": 124486}


@pytest.mark.parametrize("text", EVERY_LINE)
def test_nothing_of_a_known_line_is_left_over(text):
    assert parse_line(text).unknown == []


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("GR3D_FREQ 35%", UnitLoad(0.35)),
        ("GR3D_FREQ 0%@76", UnitLoad(0.0, (76000,))),
        ("GR3D_FREQ 14%@[407,407]", UnitLoad(0.14, (407000, 407000))),
        ("GR3D_FREQ 14%@[407, 407]", UnitLoad(0.14, (407000, 407000))),
        ("GR3D_FREQ @[314,314,314]", UnitLoad(None, (314000,) * 3)),
        ("GR3D 5%@114", UnitLoad(0.05, (114000,))),
        ("GR3D_FREQ off", None),
        ("EMC_FREQ 3%@1600", None),
    ],
)
def test_every_way_to_write_the_gpu(text, load):
    assert parse_line(text).gpu == load


@pytest.mark.parametrize(
    ("text", "load"),
    [("EMC_FREQ 0%", None), ("EMC_FREQ 8%", UnitLoad(0.08)), ("EMC_FREQ 0%@204", UnitLoad(0.0, (204000,)))],
)
def test_the_memory_controller_that_only_root_may_see_is_not_idle(text, load):
    assert parse_line(text).emc == load


def test_temperatures_without_an_at_sign():
    assert parse_line("thermal 38.5C CPU -1C").temperatures_c == {"thermal": 38.5, "CPU": -1}


def test_what_is_not_known_is_kept_aside_and_costs_nothing_else():
    line = parse_line(f"FUTURE_THING {{7}} {ORIN_R36} trailer")
    assert line.unknown == ["FUTURE_THING", "{7}", "trailer"]
    assert line.rails_mw == parse_line(ORIN_R36).rails_mw


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
    """But for a number that was cut in two: it is read as the number that is left."""
    cut = data.draw(st.sampled_from([place for place, letter in enumerate(text) if letter == " "]))
    whole, part = parse_line(text), parse_line(text[:cut])
    assert part.rails_mw.items() <= whole.rails_mw.items()
    assert part.engines.items() <= whole.engines.items()
    assert part.temperatures_c.items() <= whole.temperatures_c.items()
    for field in ("at", "ram_used_bytes", "swap_used_bytes", "gpu", "emc"):
        assert getattr(part, field) in (None, getattr(whole, field))


LOADS = st.one_of(
    st.none(),
    st.builds(
        UnitLoad,
        st.one_of(st.none(), st.integers(0, 100).map(lambda percent: percent / 100)),
        st.lists(st.integers(0, 3000).map(lambda mhz: mhz * 1000), min_size=1, max_size=3).map(tuple),
    ),
)


def written(load):
    if load is None:
        return "off"
    clocks = ",".join(str(khz // 1000) for khz in load.khz)
    share = "" if load.share is None else f"{round(load.share * 100)}%"
    return f"{share}@[{clocks}]" if len(load.khz) != 1 else f"{share}@{clocks}"


@given(
    gpu=LOADS,
    engines=st.dictionaries(st.from_regex(r"NV(ENC|DEC|JPG)[0-9]?", fullmatch=True), LOADS),
    rails=st.dictionaries(st.from_regex(r"V(DD|IN)_[A-Z0-9]{1,8}", fullmatch=True), st.integers(0, 200_000)),
    sensors=st.dictionaries(st.from_regex(r"[a-zA-Z]{2,6}[0-9]?", fullmatch=True), st.integers(-255_000, 200_000)),
    unit=st.sampled_from(["mW", ""]),
)
def test_what_was_written_is_read_back(gpu, engines, rails, sensors, unit):
    words = [f"GR3D_FREQ {written(gpu)}"]
    words += [f"{name}_FREQ {written(load)}" for name, load in engines.items()]
    words += [f"{name}@{millidegree / 1000:g}C" for name, millidegree in sensors.items()]
    words += [f"{name} {power}{unit}/{power + 7}{unit}" for name, power in rails.items()]
    line = parse_line(" ".join(words))
    assert line.unknown == []
    assert line.gpu == gpu
    assert line.engines == engines
    assert line.rails_mw == rails
    assert line.temperatures_c == pytest.approx({name: value / 1000 for name, value in sensors.items()}, rel=1e-5)
