"""Importing: good rows come through as they were, bad ones are named with their lines and refused."""

from __future__ import annotations

import dataclasses
import gzip

import pytest

from harness.__main__ import main
from harness.core.cases import Case
from harness.core.corpus import CORPUS_COLUMNS, read_corpus, rows_of, write_corpus
from harness.core.device import named_mode
from harness.core.power_modes import PowerMode
from harness.devices.simulated import SimulatedDevice
from harness.measure.run import run as measure
from harness.simulation.corpus import simulate_corpus
from harness.store.results import ResultsStore
from tests.messages import says

REFUSED = 2
MODES = [PowerMode(cores, cpu, gpu, 3_199_000) for cores in (4, 12) for cpu in (1_113_600, 2_201_600)
         for gpu in (420_750, 1_300_500)]  # fmt: skip


def good_rows():
    return simulate_corpus("orin-agx", "resnet18-imagenet", MODES)


def lines_of(rows):
    return [",".join(CORPUS_COLUMNS)] + [",".join(str(row[name]) for name in CORPUS_COLUMNS) for row in rows]


def spoil(tmp_path, number, column, value):
    """A corpus whose line `number` has another cell in one column."""
    lines = lines_of(good_rows())
    cells = lines[number - 1].split(",")
    place = CORPUS_COLUMNS.index(column)
    cells[place] = str(value(float(cells[place])) if callable(value) else value)
    lines[number - 1] = ",".join(cells)
    path = tmp_path / "in.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments):
    return main(["import", *map(str, arguments)])


def test_rows_with_different_mistakes_are_named_each_and_rows_with_the_same_by_their_next_lines(tmp_path, capsys):
    rows = good_rows() * 3
    mistakes = {0: "nan", 1: "inf", 3: "-3", 4: "1e400", 5: "-4", 6: "-7", **dict.fromkeys(range(7, 14), "nan")}
    for place, time_ms in mistakes.items():
        rows[place] = {**rows[place], "minibatch_time_ms": time_ms}
    source = tmp_path / "in.csv"
    source.write_text("\n".join(lines_of(rows)) + "\n")
    run(source, "--out", tmp_path / "out.csv")
    listed = [line.partition(" in.csv ")[2] or line for line in capsys.readouterr().err.splitlines()]
    start = ["minibatch_time_ms is", ", expected a number above 0 "]
    for line, value, alike in (
        (2, "nan", "(8 of 24 rows are like this, next line 9, 10, 11, 12, 13, ...)"),
        (3, "inf", "(2 of 24 rows are like this, next line 6)"),
        (5, "-3.0", "(3 of 24 rows are like this, next line 7, 8)"),
    ):
        assert any(f"line {line}: {start[0]} {value}{start[1]}{alike}" in said for said in listed), listed


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("17,182", "is '17,182', expected a number above 0; without the comma, which separates thousands or is a"),
        ("1,234,567", "is '1,234,567', expected a number above 0; without the comma"),
        ("17,18", "is '17,18', expected a decimal point instead of the comma"),
        ("0,182", "is '0,182', expected a decimal point instead of the comma"),
    ],
)
def test_a_comma_that_may_separate_thousands_is_not_taken_for_a_decimal_one(tmp_path, capsys, cell, words):
    spoiled = spoil(tmp_path, 4, "minibatch_time_ms", f'"{cell}"')
    run(spoiled, "--out", tmp_path / "out.csv")
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_good_corpus_comes_through_as_it_is(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    source, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_corpus(source, good_rows())
    assert run(source, "--out", out) == 0
    assert rows_of(read_corpus(out)) == rows_of(read_corpus(source))


@pytest.mark.parametrize(("device", "meant"), [("Jetson AGX Orin", "orin-agx"), ("orin_agx", "orin-agx"), ("orin", "")])
def test_a_device_named_almost_like_a_board_becomes_that_board_and_is_pointed_out(tmp_path, capsys, device, meant):
    source = tmp_path / "in.csv"
    source.write_text("\n".join(lines_of([{**row, "device": device} for row in good_rows()])) + "\n")
    assert run(source, "--out", tmp_path / "out.csv") == 0
    note = f"note: device {device!r} is {meant}\n"
    assert capsys.readouterr().out.endswith(note if meant else ": 8 rows\n")
    assert set(read_corpus(tmp_path / "out.csv")["device"]) == {meant or device}


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("minibatch_time_ms", "nan", "minibatch_time_ms is nan, expected a number above 0"),
        ("cpu_khz", "2201601", "cpu_khz is 2201601, which orin-agx does not have; the nearest is 2201600"),
        ("mem_khz", "lots", "mem_khz is 'lots', expected a whole number"),
        ("minibatch_time_ms", lambda ms: ms * 1e3, "that looks like us, about"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_nothing_is_written(tmp_path, capsys, column, value, words):
    out = tmp_path / "out.csv"
    assert run(spoil(tmp_path, 4, column, value), "--out", out) == REFUSED
    said = capsys.readouterr().err
    [line] = [line for line in said.splitlines() if "in.csv line 4: " in line]
    assert words in line
    assert says(said, f"1 of {len(MODES)}", "nothing was written")
    assert not out.exists()


def test_of_an_unknown_device_a_row_is_held_against_its_neighbours(tmp_path, capsys):
    rows = [{**row, "device": "my-board"} for row in good_rows()]
    rows[3]["minibatch_time_ms"] *= 1e3
    write_corpus(tmp_path / "in.csv", rows)
    assert run(tmp_path / "in.csv", "--out", tmp_path / "out.csv") == REFUSED
    said = capsys.readouterr().err
    assert "line 5: minibatch_time_ms" in said
    assert said.count("that looks like") == 1


@pytest.mark.parametrize("options", [(), ("--skip-bad",)])
def test_where_every_row_is_bad_leaving_them_out_is_not_proposed(tmp_path, capsys, options):
    lines = [line.replace("training", "sleeping") for line in lines_of(good_rows())]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    assert run(tmp_path / "in.csv", "--out", tmp_path / "out.csv", *options) == REFUSED
    said = capsys.readouterr().err
    assert says(said, "every row", "nothing was written")
    assert "--skip-bad" not in said


def test_rows_that_differ_in_the_last_digit_of_a_seed_or_in_a_text_are_other_cases(tmp_path):
    header, line = lines_of(good_rows())[:2]
    seeds = [f"{line},{20260131 + place},1e5" for place in range(4)]
    keys = [f"{line},1,{key}" for key in ("1e5", "10e4", "100000", "ab1")]
    (tmp_path / "in.csv").write_text("\n".join([f"{header},seed,key", *seeds, *keys]) + "\n")
    assert run(tmp_path / "in.csv", "--out", tmp_path / "out.csv") == 0
    assert len(read_corpus(tmp_path / "out.csv")) == 8


def test_every_bad_row_is_reported_and_skipping_leaves_out_and_counts(tmp_path, capsys):
    lines = lines_of(good_rows())
    lines[2] = lines[2].replace("training", "sleeping")
    lines[4] = ",".join(lines[4].split(",")[:-1])
    slower = {**good_rows()[0], "minibatch_time_ms": good_rows()[0]["minibatch_time_ms"] * 1.3}
    lines.append(lines_of([slower])[1])
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.csv"
    assert run(tmp_path / "in.csv", "--out", out, "--skip-bad") == 0
    said = capsys.readouterr()
    assert "line 3: task is 'sleeping'" in said.err
    assert "line 5: 10 cells, expected 11" in said.err
    assert says(said.err, f"line {len(lines)}", f"{tmp_path / 'in.csv'} line 2")
    assert said.out.splitlines() == [f"{out}: {len(MODES) - 2} rows", "left out: 3 bad rows"]
    assert len(read_corpus(out)) == len(MODES) - 2


def test_rows_that_repeat_a_case_are_imported_with_a_note_as_their_medians_count(tmp_path, capsys):
    first, *others = good_rows()
    again = {**first, "minibatch_time_ms": first["minibatch_time_ms"] * 1.1}
    source = tmp_path / "in.csv"
    write_corpus(source, [first, *others, again, others[0]])
    assert run(source, "--out", tmp_path / "out.csv") == 0
    said = capsys.readouterr().out
    assert says(said, f"{source} line {len(MODES) + 2}", f"{source} line 2", "medians")
    assert "left out: 1 row" in said
    assert len(read_corpus(tmp_path / "out.csv")) == len(MODES) + 1


@pytest.mark.exhaustive
def test_profiles_that_were_disturbed_are_left_out_and_counted_unless_they_are_asked_for(tmp_path, capsys):
    device = SimulatedDevice("orin-agx")
    right = measure(Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16), device)
    wrong = dataclasses.replace(right, aggregates={**right.aggregates, "power_mw": 9_999.0}, flags=["disturbed: a"])
    results, out = tmp_path / "r.sqlite", tmp_path / "out.csv"
    with ResultsStore(results) as store:
        store.add(wrong, {}, "run")
    assert run(results, "--out", out) == REFUSED
    said = "left out: 1 profile flagged disturbed or throttled (--include-flagged keeps them)"
    assert said in capsys.readouterr().err
    with ResultsStore(results) as store:
        store.add(right, {}, "run")
        store.add(wrong, {}, "run")
    assert run(results, "--out", out) == 0
    assert said.replace("1 profile", "2 profiles") in capsys.readouterr().out
    assert read_corpus(out)["power_mw"].tolist() == [right.aggregates["power_mw"]]
    assert run(results, "--include-flagged", "--out", out) == 0
    assert "left out" not in capsys.readouterr().out
    assert read_corpus(out)["power_mw"].tolist() == [9_999.0]


def log_line(second, power_mw):
    return f"01-31-2026 12:00:{second:02d} RAM 1/7620MB GR3D_FREQ 99%@[1015] VDD_IN {power_mw}mW/4000mW"


def record_log(tmp_path, times, header="start_s,minibatch_time_ms"):
    """A log whose power settles after 3 s, and minibatch times; returns the options that name them."""
    powers = [5000, 9000, 11500, *[12000] * 27]
    (tmp_path / "log").write_text("\n".join(log_line(second, mw) for second, mw in enumerate(powers)) + "\n")
    (tmp_path / "times.csv").write_text("\n".join([header, *times]) + "\n")
    return ["--tegrastats", tmp_path / "log", "--minibatch-times", tmp_path / "times.csv", "--device", "xavier-nx",
            "--workload", "resnet18-imagenet", "--power-mode", "maxn", "--batch-size", "16"]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "header", "words"),
    [
        (["1,2"], "when,how_long", "line 1: the columns are when, how_long; expected: a header with start_s"),
        (["0.5,250", "0.75,-1"], "start_s,minibatch_time_ms", "times.csv line 3: minibatch_time_ms is '-1'"),
        (["0.5,250", "0.4,250"], "start_s,minibatch_time_ms", "times.csv line 3: it starts before"),
        (["noon,250"], "start_at,minibatch_time_ms", "start_at is 'noon', no date and time"),
        (["250"], "minibatch_time_ms,start_at", "times.csv line 2: start_at is '', no date and time"),
        (
            ["2026-01-31T12:00:00+01:00,250"],
            "start_at,minibatch_time_ms",
            "has an offset, and the lines of the log have",
        ),
        ([], "start_s,minibatch_time_ms", "holds no minibatch"),
        (["0.5,250"], "start_s,minibatch_time_ms", "no minibatch is left"),
        ([f"{100 + n},250" for n in range(9)], "start_s,minibatch_time_ms", "no power sample falls into"),
    ],
)
def test_times_that_are_none_are_refused(tmp_path, capsys, times, header, words):
    assert run(*record_log(tmp_path, times, header), "--out", tmp_path / "out.csv") == REFUSED
    assert words in capsys.readouterr().err


def test_minibatches_may_have_dates_and_a_log_needs_to_be_told_what_it_is_of_and_its_unit(tmp_path, capsys):
    dated = [f"2026-01-31 12:00:{0.5 + 0.25 * number:06.3f},250" for number in range(100)]
    options, out = record_log(tmp_path, dated, "start_at,minibatch_time_ms"), ("--out", tmp_path / "out.csv")
    assert run(*options, *out) == 0
    kept = [*CORPUS_COLUMNS, "workers", "storage", "clean_minibatches", "e2e_s", "samples_per_s", "power_mean_mw",
            "energy_mwh", "power_definition"]  # fmt: skip
    assert sorted(read_corpus(tmp_path / "out.csv")) == sorted(kept)
    (tmp_path / "log").write_text((tmp_path / "log").read_text().replace("12000mW", "12000000mW"))
    for given, words in (
        (options[:4], "also needs --device, --workload, --power-mode, --batch-size"),
        ((), "nothing to import"),
        (options, "that looks like uW"),
    ):
        assert run(*given, *out) == REFUSED
        assert words in capsys.readouterr().err


def test_logs_may_be_gzipped(tmp_path, capsys):
    options = record_log(tmp_path, [f"{0.5 + 0.25 * number},250" for number in range(100)])
    assert run(*options, "--out", tmp_path / "plain.csv") == 0
    for name in ("log", "times.csv"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert run(*options, "--out", tmp_path / "packed.csv") == 0
    assert (tmp_path / "packed.csv").read_text() == (tmp_path / "plain.csv").read_text()
    (tmp_path / "log").write_bytes((tmp_path / "log").read_bytes()[:40])
    assert run(*options, "--out", tmp_path / "packed.csv") == REFUSED
    assert "gzip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "mode", "khz"),
    [
        ("thor", "14c-2601-1575-4266", [14, 2_601_000, 1_575_000, 4_266_000]),
        ("tx1", "4c-1734-998.4-1600", [4, 1_734_000, 998_400, 1_600_000]),
    ],
)
def test_a_mode_in_full_needs_no_list_of_clocks(tmp_path, capsys, device, mode, khz):
    options = record_log(tmp_path, [f"{0.5 + 0.25 * number},250" for number in range(100)])
    options[options.index("xavier-nx")] = device
    if device == "thor":
        (tmp_path / "log").write_text((tmp_path / "log").read_text().replace("VDD_IN", "VIN"))
    options[options.index("maxn")] = mode
    assert run(*options, "--out", tmp_path / "out.csv") == 0, capsys.readouterr().err
    table = read_corpus(tmp_path / "out.csv")
    assert [int(table[column].iloc[0]) for column in ("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz")] == khz
    for refused, words in (
        ("maxn", "not known off-board"),
        (f"99{mode[2:] if device == 'thor' else mode[1:]}", "1 to"),
    ):
        options[options.index(mode)] = refused
        assert run(*options, "--out", tmp_path / "out.csv") == REFUSED
        assert words in capsys.readouterr().err
        options[options.index(refused)] = mode


def test_samples_that_the_boards_supply_cannot_give_are_left_out_and_said(tmp_path, capsys):
    options = record_log(tmp_path, [f"{0.5 + 0.25 * number},250" for number in range(100)])
    lines = (tmp_path / "log").read_text().splitlines()
    lines[12] = lines[12].replace("12000mW", "99999999mW")
    (tmp_path / "log").write_text("\n".join(lines))
    assert run(*options, "--out", tmp_path / "out.csv") == 0
    assert "left out of power_total_mw: " in capsys.readouterr().out
    assert read_corpus(tmp_path / "out.csv")["power_mw"].iloc[0] == 12_000
