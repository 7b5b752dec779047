"""Power that a socket meter recorded: one format, and what is wrong with a file is said with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.power_log import parse_power_log, read_power_log
from harness.core.errors import InvalidValueError


def test_watts_and_milliwatts_are_the_same_samples():
    series = parse_power_log(["time_s,power_w", "0,11.5", "20,12"])
    assert (series.times_s, series.values) == ((0, 20), (11_500, 12_000))
    assert parse_power_log(["power_mw,time_s,volt", "11500,0,230", "12000,20,231"]) == series


def test_a_file_says_its_rhythm_and_what_it_is_of(tmp_path):
    path = tmp_path / "meter.csv"
    path.write_bytes(b"\xef\xbb\xbftime_s,power_w\r\n0,5\r\n20,5\r\n\r\n40,6\r\n")  # as spreadsheets write it
    telemetry = read_power_log(path)
    assert telemetry.interval_s == telemetry.real_interval_s == 20
    assert telemetry.series["power_total_mw"].values == (5000, 5000, 6000)
    assert "at its plug" in telemetry.notes["power_total_mw"]
    assert "meter.csv" in telemetry.notes["power_total_mw"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "its columns are none"),
        (["time_s,watts", "0,1"], "its columns are time_s, watts"),
        (["time_s,power_w,power_mw", "0,1,1"], "its columns are"),
        (["time_s,power_w", "0,1", "1,x"], "line 3: power_w is 'x', not a number"),
        (["time_s,power_w", "0,1", "1"], "line 3: power_w is ''"),
        (["time_s,power_w", "0,1", "1,nan"], "line 3: power_w is 'nan'"),
        (["time_s,power_w", "0,1", "1,-2"], "line 3: power_w is -2, below 0"),
        (["time_s,power_w", "0,1", "0,2"], "line 3: 0 s does not come after 0 s"),
        (["time_s,power_w", "0,1"], "it holds 1 samples"),
    ],
)
def test_a_file_that_is_no_record_says_why(lines, words):
    with pytest.raises(InvalidValueError, match=words):
        parse_power_log(lines)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match=r"nothing\.csv cannot be read"):
        read_power_log(tmp_path / "nothing.csv")


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_every_sample_comes_back(values_mw):
    lines = ["time_s,power_mw", *(f"{second},{value!r}" for second, value in enumerate(values_mw))]
    assert parse_power_log(lines).values == tuple(values_mw)
