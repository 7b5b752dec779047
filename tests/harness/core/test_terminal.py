"""Tables, progress and countdowns."""

from __future__ import annotations

import io

import pytest

from harness.core.terminal import (
    MOST_RULE,
    PLAIN_INTERVAL_S,
    Countdown,
    Progress,
    available_hint,
    counted,
    format_duration,
    format_table,
    wrap,
)


@pytest.mark.parametrize(
    ("rows", "markdown", "table"),
    [
        ([["a", "1.5"], ["longer", "12.25"]], False, "case       ms\n------  -----\na         1.5\nlonger  12.25"),
        ([], False, "case  ms\n----  --"),
        ([["a", "1.5"]], True, "| case |  ms |\n| ---- | --: |\n| a    | 1.5 |"),
        ([["<b>", "< 1"]], True, "| case   |  ms |\n| ------ | --: |\n| &lt;b> | < 1 |"),
    ],
)
def test_columns_line_up_and_numbers_stand_right(rows, markdown, table):
    assert format_table(["case", ">ms"], rows, markdown) == table


def test_the_rule_below_a_long_last_column_does_not_wrap_in_a_terminal():
    _, rule, row = format_table(["what", "status"], [["thermal", "zone, " * 40]]).splitlines()
    assert rule == "-------  " + "-" * MOST_RULE
    assert len(row) > 200  # cells are kept whole


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_text_too_wide_for_the_screen_goes_on_in_its_own_column():
    rows = [["yes", "memory", "one two three four five six seven"], ["no", "power", "-"]]
    assert format_table(["", "what", "status"], rows, width=34).splitlines() == [
        "     what    status",
        "---  ------  ---------------------",
        "yes  memory  one two three four",
        "             five six seven",
        "no   power   -",
    ]


def test_a_column_beside_wide_ones_is_wrapped_and_stays_readable():
    lines = format_table(["what", "status"], [["x" * 120, "one two three four five six"]], width=100).splitlines()
    assert [line[122:] for line in lines[2:]] == ["one two three four", "five six"]


def test_a_command_is_not_broken_by_a_line():
    text = "  with a CPU of Intel try `sudo modprobe intel_rapl_msr`; elsewhere nothing helps"
    assert wrap(text, "    ", 30).splitlines() == [
        "  with a CPU of Intel try",
        "    `sudo modprobe intel_rapl_msr`;",
        "    elsewhere nothing helps",
    ]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("orin", "did you mean orin-agx, orin-nano or orin-nx? "),
        ("Orin AGX", "did you mean orin-agx? "),
        ("AGX-Orin", "did you mean orin-agx? "),
        ("sim:orin", "did you mean sim:orin-agx? "),
        ("15W", "did you mean MODE_15W? "),
        ("orin-agz", "did you mean orin-agx? "),
        ("15", ""),
        ("", ""),
        ("w", ""),
    ],
)
def test_an_unknown_word_suggests_those_that_have_its_parts(word, meant):
    names = ["host", "orin-agx", "orin-nano", "orin-nx", "sim:orin-agx", "sim:orin-nano", "MODE_15W", "MODE_50W"]
    assert available_hint(word, names) == f"{meant}available: {', '.join(names)}"


def test_one_thing_is_no_plural():
    assert [counted(number, "profile") for number in (0, 1, 2)] == ["0 profiles", "1 profile", "2 profiles"]


def test_a_plain_stream_gets_a_line_now_and_then():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, clock)
    for second in range(25):
        clock.now = float(second)
        progress.update(f"at {second}")
    assert stream.getvalue() == f"at 0\nat {PLAIN_INTERVAL_S:.0f}\nat {2 * PLAIN_INTERVAL_S:.0f}\n"


def test_a_terminal_gets_one_line_that_is_rewritten_and_taken_back():
    stream, clock = io.StringIO(), Clock()
    stream.isatty = lambda: True
    progress = Progress(stream, clock)
    progress.update("a long line")
    clock.now = 1.0
    progress.update("short")
    progress.line("done")
    assert stream.getvalue() == "\ra long line\rshort      \r           \rdone\n"


def test_the_text_of_a_result_is_written_only_for_a_reader():
    texts = []
    Progress(io.StringIO(), show=texts.append).result(lambda: "the front")
    Progress(io.StringIO()).result(lambda: pytest.fail("nobody reads it"))
    assert texts == ["the front"]


def test_the_time_left_follows_from_the_time_taken_and_pieces_that_were_dropped_take_none():
    clock = Clock()
    countdown = Countdown(4, clock)
    assert countdown.start_one() == "[1/4]"
    clock.now = 30.0
    countdown.finish_one()
    assert countdown.start_one() == "[2/4, 1 min 30 s left]"
    assert countdown.start_one() == "[3/4, 1 min 0 s left]"


def test_larger_pieces_take_longer_and_no_more_than_a_limit_is_left():
    clock = Clock()
    countdown = Countdown(3, clock, total_weight=9.0, most_s=lambda: 100.0 - clock.now)
    countdown.start_one(1.0)
    clock.now = 10.0
    countdown.finish_one()
    assert countdown.left() == "1 min 20 s left"
    countdown.start_one(2.0)
    clock.now = 60.0
    countdown.finish_one()
    assert countdown.left() == "40 s left"
    clock.now = 101.0
    assert countdown.start_one(6.0) == "[3/3, 0 s left]"
    countdown.finish_one()
    assert countdown.left() == ""
    assert countdown.start_one() == "[4/3]"
    countdown.finish_one()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_read_as_people_say_them(seconds, words):
    assert format_duration(seconds) == words
