"""Power that a socket meter recorded: one format, and what is wrong with a file is said with its line."""

from __future__ import annotations

import os
import threading
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import socket_meter
from harness.board.socket_meter import SocketMeter, parse_power_log, read_power_log
from harness.core.errors import HarnessError, InvalidValueError


def test_watts_and_milliwatts_are_the_same_samples():
    samples = parse_power_log(["time_s,power_w", "0,11.5", "20,12"])
    assert samples.series == ((0, 20), (11_500, 12_000))
    assert parse_power_log(["power_mw,time_s,volt", "11500,0,230", "12000,20,231"]) == samples
    assert samples.missing == ""


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
        (["time_s,power_w", "0,1", "0,2"], "line 3: its time, 0 s, is not in order"),
        (["time_s,power_w", "0,1", "x", "y", "3,1"], r"line 3: time_s is 'x'.* \(2 of 4 lines are wrong\)"),
        (["time_s,power_w", "0,1"], "it holds 1 samples"),
    ],
)
def test_a_file_that_is_no_record_says_why(lines, words):
    with pytest.raises(InvalidValueError, match=words):
        parse_power_log(lines)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_every_sample_comes_back(values_mw):
    lines = ["time_s,power_mw", *(f"{second},{value!r}" for second, value in enumerate(values_mw))]
    samples = parse_power_log(lines)
    assert samples.series.values == tuple(values_mw)
    assert samples.dropped == ()


GARBLED = {
    "cut": "1800000003",
    "not-a-number": "1800000003,1l.5",
    "negative": "1800000003,-11.5",
    "nul": "\0\0\0\0",
    "quotation-mark": '"1800000003,11.5',
    "two-lines-in-one": "18000000031800000003,11.5",
    "set-back": "1700000003,11.5",
    "header": "time_s,power_w",
    "without-end": "1" * 200_000,
}


@pytest.mark.parametrize("line", GARBLED.values(), ids=GARBLED)
@pytest.mark.parametrize("place", [2, 5, 8])
def test_a_garbled_line_loses_its_sample_alone(line, place):
    lines = [f"{1_800_000_000 + second},{second}" for second in range(10)]
    lines[place] = line
    samples = parse_power_log(["time_s,power_w", *lines])
    others = [second for second in range(10) if second != place]
    assert samples.series.values == tuple(1000.0 * second for second in others)
    ((time_s, why),) = samples.dropped
    assert time_s == 1_800_000_000 + place - 1
    assert f"line {place + 2}: " in why
    assert samples.missing == f"{why} (1 of 10 samples)"


def test_bytes_that_are_no_text_lose_their_line_alone(tmp_path):
    path = tmp_path / "meter.csv"
    path.write_bytes(b"time_s,power_w\n0,5\n20,\xff\xfe\n40,6\n60,6\n")
    telemetry = read_power_log(path)
    assert telemetry.series["power_total_mw"].values == (5000, 6000, 6000)
    assert "line 3: power_w is" in telemetry.missing["power_total_mw"]
    assert "(1 of 4 samples)" in telemetry.missing["power_total_mw"]


@given(st.lists(st.integers(0, 20), max_size=12))
def test_the_most_samples_whose_times_ascend_are_kept(times_s):
    def ascending(kept):
        return all(earlier < later for earlier, later in zip(kept, kept[1:]))

    most = max(len(kept) for size in range(len(times_s) + 1) for kept in combinations(times_s, size) if ascending(kept))
    try:
        samples = parse_power_log(["time_s,power_w", *(f"{time_s},1" for time_s in times_s)])
    except InvalidValueError:
        assert most < 2 or 2 * most <= len(times_s)
        return
    assert ascending(samples.series.times_s)
    assert len(samples.series.times_s) == most
    assert len(samples.dropped) == len(times_s) - most


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
    now_s, samples = metered(tmp_path, monkeypatch, range(-100, 1))
    series = samples.series
    assert series.values == (11_500,) * 13  # two before the case began
    assert series.times_s[-1] == pytest.approx(now_s, abs=1)
    assert series.times_s[0] == pytest.approx(now_s - 12, abs=1)


def test_a_line_that_is_still_being_written_is_not_read(tmp_path, monkeypatch):
    _, samples = metered(tmp_path, monkeypatch, range(-100, 1), ends="\n1800000001,1")
    assert set(samples.series.values) == {11_500}
    assert samples.dropped == ()


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("\n18000000011800000002,11.5\n", "its last line, 1.80000000118e+19 s, is still to come"),
        ("\n1800000001,x\n", "line 103: power_w is 'x', not a number"),
        ("\n1800000001,9e9\n", "its supply gives at most"),
    ],
    ids=["two-lines-in-one", "not-a-number", "impossible"],
)
def test_a_wrong_last_line_loses_its_sample_and_not_the_case(tmp_path, monkeypatch, ends, why):
    _, samples = metered(tmp_path, monkeypatch, range(-100, 1), ends=ends)
    assert set(samples.series.values) == {11_500}
    assert why in samples.missing
    assert "(1 of 14 samples)" in samples.missing


def test_a_wrong_line_counts_in_the_cases_near_it_alone(tmp_path, monkeypatch):
    path = tmp_path / "meter.csv"
    rows = [f"{NOW_S + at_s},11.5" for at_s in range(-100, 1)]
    rows[50] = "x"
    path.write_text("\n".join(["time_s,power_w", *rows]) + "\n")
    now_s, meter = time.monotonic(), SocketMeter(path, lambda: NOW_S)
    assert meter.during(now_s - 10, now_s).missing == ""
    assert "line 52: " in meter.during(now_s - 60, now_s).missing


@pytest.mark.parametrize(
    ("times_s", "words"),
    [
        (range(-3700, -3500), "it ends 35[0-9.]+ s before the case: it has stopped, or its clock is slow"),
        (range(3500, 3700), "its clock is 3[67][0-9.]+ s ahead"),
        (range(-5, 1), "it begins [45][0-9.]+ s after the case did"),
        ([-1, -2, -3, -4, 0], "is not in order"),
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
    assert meter.during(now_s - 5, now_s).series.times_s[-1] >= now_s
    writer.join()


def test_a_pipe_in_place_of_a_meters_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "m.csv")
    with pytest.raises(InvalidValueError, match="is not a regular file"):
        SocketMeter(tmp_path / "m.csv")
