"""Power that a socket meter recorded: one format, and what is wrong with a file is said with its line."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import socket_meter
from harness.board.socket_meter import SocketMeter, parse_power_log, read_power_log
from harness.core.errors import HarnessError, InvalidValueError


def test_watts_and_milliwatts_are_the_same_samples():
    series = parse_power_log(["time_s,power_w", "0,11.5", "20,12"])
    assert (series.times_s, series.values) == ((0, 20), (11_500, 12_000))
    assert parse_power_log(["power_mw,time_s,volt", "11500,0,230", "12000,20,231"]) == series


def test_a_file_says_its_rhythm_and_what_it_is_of(tmp_path):
    path = tmp_path / "meter.csv"
    with pytest.raises(InvalidValueError, match=r"meter\.csv cannot be read"):
        read_power_log(path)
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


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_every_sample_comes_back(values_mw):
    lines = ["time_s,power_mw", *(f"{second},{value!r}" for second, value in enumerate(values_mw))]
    assert parse_power_log(lines).values == tuple(values_mw)


NOW_S = 1_800_000_000.0
"""Of this machine's clock, when a case has ended."""


def metered(tmp_path, monkeypatch, times_s, power="11.5", ends="\n"):
    """What a meter tells of the last 10 s, whose file has samples so many seconds before now."""
    monkeypatch.setattr(socket_meter, "LONGEST_WAIT_S", 0.05)
    rows = [f"{NOW_S + at_s},{power}" for at_s in times_s]
    path = tmp_path / "meter.csv"
    path.write_text("\n".join(["time_s,power_w", *rows]) + ends)
    now_s, meter = time.monotonic(), SocketMeter(path, lambda: NOW_S)
    return now_s, meter.during(now_s - 10, now_s)


def test_a_meters_samples_come_at_the_times_of_telemetry(tmp_path, monkeypatch):
    now_s, series = metered(tmp_path, monkeypatch, range(-100, 1))
    assert series.values == (11_500,) * 13  # two before the case began
    assert series.times_s[-1] == pytest.approx(now_s, abs=1)
    assert series.times_s[0] == pytest.approx(now_s - 12, abs=1)


def test_a_line_that_is_still_being_written_is_not_read(tmp_path, monkeypatch):
    _, series = metered(tmp_path, monkeypatch, range(-100, 1), ends="\n1800000001,1")
    assert set(series.values) == {11_500}


@pytest.mark.parametrize(
    ("times_s", "words"),
    [
        (range(-3700, -3500), "it ends 35[0-9.]+ s before the case: it has stopped, or its clock is slow"),
        (range(3500, 3700), "its clock is 3[67][0-9.]+ s ahead"),
        (range(-5, 1), "it begins [45][0-9.]+ s after the case did"),
        ([-20, -10, -15, -1, 0], "does not come after"),
    ],
    ids=["slow", "ahead", "begins-late", "set-back"],
)
def test_a_meter_that_does_not_tell_of_the_case_is_not_believed(tmp_path, monkeypatch, times_s, words):
    with pytest.raises(HarnessError, match=words):
        metered(tmp_path, monkeypatch, times_s)


@pytest.mark.parametrize("times", ["0,1\n20,1\n", "1800000000000,1\n1800000001000,1\n"], ids=["since-start", "ms"])
def test_times_that_are_not_seconds_since_1970_are_refused_before_anything_runs(tmp_path, times):
    (tmp_path / "m.csv").write_text(f"time_s,power_w\n{times}")
    with pytest.raises(InvalidValueError, match="seconds since 1970"):
        SocketMeter(tmp_path / "m.csv")


def test_a_meter_that_writes_late_is_waited_for(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("time_s,power_w\n" + "".join(f"{time.time() - 10 + tenth / 10},5\n" for tenth in range(90)))
    meter, now_s = SocketMeter(path), time.monotonic()

    def write():
        time.sleep(0.3)
        with path.open("a") as file:
            file.write("".join(f"{time.time() - 1 + tenth / 10},5\n" for tenth in range(11)))

    writer = threading.Thread(target=write)
    writer.start()
    assert meter.during(now_s - 5, now_s).times_s[-1] >= now_s
    writer.join()


def test_a_pipe_in_place_of_a_meters_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "m.csv")
    with pytest.raises(InvalidValueError, match="is not a regular file"):
        SocketMeter(tmp_path / "m.csv")
