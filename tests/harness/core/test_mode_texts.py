"""What `--power-mode` may say, and lists of power modes in files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError, StoreError, UnknownNameError
from harness.core.mode_texts import format_power_modes, parse_power_modes, read_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace

SPACE = PowerModeSpace((1, 2, 3, 4), (500_000, 1_000_000, 1_500_000), (300_000, 600_000), (800_000, 1_600_000))
WIDER = PowerModeSpace(SPACE.cpu_cores, SPACE.cpu_khz, (300_000, 450_000, 600_000), SPACE.mem_khz)
LOW = PowerMode(1, 500_000, 300_000, 800_000)
NAMED = {"a": LOW, "c": LOW._replace(cpu_cores=2), "b": LOW._replace(cpu_cores=3), "MAXN": LOW, "MODE_15W": LOW}


def parse(text, **more):
    return parse_power_modes(text, SPACE, NAMED, **more)


def test_a_name_is_found_in_any_case_and_maxn_is_the_greatest_mode_whatever_a_list_of_names_says():
    assert parse("maxn") == parse("MaxN") == [("maxn", SPACE.greatest)]
    assert parse("MODE_15W") == parse("mode_15w") == [("MODE_15W", LOW)]


def test_names_of_one_letter_may_be_given_as_a_range():
    assert [name for name, _ in parse("a..n")] == ["a", "b", "c"]
    assert parse("b..B") == parse("b")


@given(st.sampled_from(list(SPACE)))
def test_a_mode_in_full_is_itself(mode):
    assert parse(mode.name) == [(mode.name, mode)]


def test_what_a_mode_leaves_out_is_the_greatest():
    assert parse("2c") == [("2c", SPACE.greatest._replace(cpu_cores=2))]
    assert parse("2c-500-x-x") == [("2c-500-x-x", PowerMode(2, 500_000, 600_000, 1_600_000))]


def test_a_mode_in_full_may_be_what_another_release_allows_but_is_not_drawn():
    assert parse("1c-500-450-800", allowed=WIDER) == [("1c-500-450-800", LOW._replace(gpu_khz=450_000))]
    assert all(mode in SPACE for _, mode in parse("all", allowed=WIDER))


def test_all_the_grid_and_a_sample_are_parts_of_the_space():
    assert parse("all") == [(mode.name, mode) for mode in SPACE]
    assert parse("grid:paper") == [(mode.name, mode) for mode in SPACE.paper_grid()]
    assert parse("sample:5") == [(mode.name, mode) for mode in SPACE.sample(5, 0)]
    assert parse("sample:5", seed=7) == [(mode.name, mode) for mode in SPACE.sample(5, 7)]


def test_a_mode_in_a_file_that_is_not_allowed_is_named_by_its_line(tmp_path):
    path, other = tmp_path / "few.CSV", LOW._replace(gpu_khz=450_000)
    path.write_text(format_power_modes([(LOW, {}), (other, {})]))
    with pytest.raises(InvalidValueError, match=r"few\.CSV line 3.* 1c-500-(300|600)-800"):
        parse(str(path))
    assert parse(str(path), allowed=WIDER) == [(LOW.name, LOW), (other.name, other)]


def test_an_unknown_name_is_told_with_all_that_is_known():
    with pytest.raises(UnknownNameError) as refused:
        parse("turbo")
    for known in ("'turbo'", "maxn, a, c, b, MODE_15W", "CORESc-CPU-GPU-MEM", "sample:COUNT", "grid:paper", "FILE.csv"):
        assert known in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("2c-700-300-800", "cpu_khz=700000 of power mode 2c-700-300-800 is not allowed here"),
        ("2c-700-300-800", "the nearest is 2c-500-300-800"),
        ("9c", "cpu_cores=9"),
        ("2c-", "not of the form"),
        ("sample:-3", "needs a count"),
        ("sample:49", "cannot draw 49 power modes; draw 1 to 48 from this space"),
    ],
)
def test_a_mode_or_sample_that_cannot_be_is_refused(text, named):
    with pytest.raises(InvalidValueError) as refused:
        parse(text)
    assert named in str(refused.value)


@pytest.mark.parametrize("text", ["grid:fine", "x..y", "", "file.txt"])
def test_other_texts_are_unknown(text):
    with pytest.raises(UnknownNameError, match="available: "):
        parse(text)


HEADER = "cpu_cores,cpu_khz,gpu_khz,mem_khz\n"
power_modes = st.builds(PowerMode, st.integers(1, 16), *[st.integers(0, 5_000_000)] * 3)


@given(modes=st.lists(power_modes, min_size=1, unique=True))
def test_what_is_written_reads_back(modes, tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "modes.csv"
    path.write_text(format_power_modes([(mode, {"pass": 1, "name": mode.name}) for mode in modes], ("pass", "name")))
    assert [mode for _, mode in read_power_modes(path)] == modes


def test_columns_may_stand_in_any_order_among_others_and_a_mode_comes_once_with_its_first_line(tmp_path):
    path = tmp_path / "modes.csv"
    path.write_text("device,mem_khz,gpu_khz,cpu_khz,cpu_cores\na,3,2,1,4\n\na,6,5,4,7\na,3,2,1,4\n")
    assert read_power_modes(path) == [(2, PowerMode(4, 1, 2, 3)), (4, PowerMode(7, 4, 5, 6))]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cpu_cores,cpu_khz,mem_khz\n4,1,3\n", "line 1 has no column gpu_khz"),
        (HEADER, "holds no power mode"),
        (HEADER + "4,1,2,3\n4,1,2\n", "line 3: 3 cells, expected 4"),
        (HEADER + "4,1,2.5,3\n", "line 2: gpu_khz is '2.5'"),
        (HEADER + "4,1,-2,3\n", "line 2: gpu_khz is '-2'"),
        (HEADER + "0,1,2,3\n", "line 2: cpu_cores is 0"),
        (HEADER + '4,1,2,"3\n', "is not CSV"),
    ],
)
def test_a_list_that_is_wrong_or_not_there_is_refused_with_the_line(tmp_path, text, named):
    path = tmp_path / "modes.csv"
    with pytest.raises(StoreError, match=r"modes\.csv"):
        read_power_modes(path)
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=r"modes\.csv") as refused:
        read_power_modes(path)
    assert named in str(refused.value)
