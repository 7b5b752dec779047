"""`--power-mode`: each form stands for its modes, names know no case, what is unknown is told with what is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.mode_texts import format_power_modes, parse_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace

SPACE = PowerModeSpace((1, 2, 3, 4), (500_000, 1_000_000, 1_500_000), (300_000, 600_000), (800_000, 1_600_000))
WIDER = PowerModeSpace(SPACE.cpu_cores, SPACE.cpu_khz, (300_000, 450_000, 600_000), SPACE.mem_khz)
LOW = PowerMode(1, 500_000, 300_000, 800_000)
NAMED = {"a": LOW, "c": LOW._replace(cpu_cores=2), "b": LOW._replace(cpu_cores=3), "MAXN": LOW, "MODE_15W": LOW}


def parse(text, **more):
    return parse_power_modes(text, SPACE, NAMED, **more)


@pytest.mark.parametrize("text", ["maxn", "MAXN", "MaxN"])
def test_maxn_is_the_greatest_mode_whatever_a_list_of_names_says(text):
    assert parse(text) == [("maxn", SPACE.greatest)]


@pytest.mark.parametrize("text", ["MODE_15W", "mode_15w", "Mode_15w"])
def test_a_name_is_found_in_any_case_and_keeps_its_spelling(text):
    assert parse(text) == [("MODE_15W", LOW)]


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


def test_all_and_the_grid_are_the_space_and_its_grid():
    assert parse("all") == [(mode.name, mode) for mode in SPACE]
    assert parse("grid:paper") == [(mode.name, mode) for mode in SPACE.paper_grid()]


def test_a_sample_is_drawn_with_the_seed():
    assert parse("sample:5") == [(mode.name, mode) for mode in SPACE.sample(5, 0)]
    assert parse("sample:5", seed=7) == [(mode.name, mode) for mode in SPACE.sample(5, 7)]


def test_a_file_is_a_list_of_modes(tmp_path):
    path = tmp_path / "few.CSV"
    path.write_text(format_power_modes([(LOW, {}), (SPACE.greatest, {})]))
    assert parse(str(path)) == [(LOW.name, LOW), (SPACE.greatest.name, SPACE.greatest)]


def test_a_mode_in_a_file_that_is_not_allowed_is_named_by_its_line(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text(format_power_modes([(LOW, {}), (LOW._replace(gpu_khz=450_000), {})]))
    with pytest.raises(InvalidValueError, match=r"few\.csv line 3: .*nearest is 1c-500-(300|600)-800"):
        parse(str(path))
    assert len(parse(str(path), allowed=WIDER)) == 2


def test_an_unknown_name_is_told_with_all_that_is_known():
    with pytest.raises(UnknownNameError) as refused:
        parse("turbo")
    for known in ("'turbo'", "maxn, a, c, b, MODE_15W", "CORESc-CPU-GPU-MEM", "sample:COUNT", "grid:paper", "FILE.csv"):
        assert known in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("2c-700-300-800", "cpu_khz=700000"),
        ("9c", "cpu_cores=9"),
        ("2c-", "not of the form"),
        ("sample:", "needs a count"),
        ("sample:-3", "needs a count"),
        ("sample:0", "cannot draw 0"),
        ("sample:49", "cannot draw 49 power modes; this space holds 1 to 48"),
    ],
)
def test_a_mode_or_sample_that_cannot_be_is_refused(text, named):
    with pytest.raises(InvalidValueError) as refused:
        parse(text)
    assert named in str(refused.value)


def test_a_mode_that_is_not_allowed_is_told_with_the_nearest():
    with pytest.raises(InvalidValueError, match="the nearest is 2c-500-300-800"):
        parse("2c-700-300-800")


@pytest.mark.parametrize("text", ["grid:fine", "grid:", "x..y", "", "d", "file.txt"])
def test_other_texts_are_unknown(text):
    with pytest.raises(UnknownNameError, match="known: "):
        parse(text)
