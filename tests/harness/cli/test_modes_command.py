"""`python -m harness modes`: counts, samples, orders and formats, for planning without a board."""

from __future__ import annotations

import csv
import io

import pytest

from harness.__main__ import main
from harness.core.boards import load_board
from harness.core.mode_texts import read_power_modes
from harness.core.power_modes import PowerMode
from tests.messages import says


@pytest.fixture
def modes(capsys):
    """Runs `modes` and returns what it printed on standard output and standard error."""

    def run(*arguments, code=0):
        assert main(["modes", *map(str, arguments)]) == code
        return capsys.readouterr()

    return run


def test_a_sample_in_safe_order_never_raises_a_clock_within_a_pass(modes):
    printed = modes("--board", "orin-agx", "--sample", 50, "--seed", 1, "--order", "safe", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert list(rows[0])[:5] == ["cpu_cores", "cpu_khz", "gpu_khz", "mem_khz", "pass"]
    drawn = [PowerMode(*(int(row[name]) for name in PowerMode._fields)) for row in rows]
    assert set(drawn) == set(load_board("orin-agx").power_mode_space().sample(50, 1))
    for before, after in zip(rows, rows[1:]):
        if before["pass"] == after["pass"]:
            assert int(after["cpu_khz"]) <= int(before["cpu_khz"])
            assert int(after["gpu_khz"]) <= int(before["gpu_khz"])
    assert f"{rows[-1]['pass']} passes" in printed.err
    assert "reboot" in printed.err


def test_names_of_each_pass_are_set_apart_by_an_empty_line(modes):
    sample = ("--board", "orin-agx", "--sample", 50, "--seed", 1)
    ordered = (*sample, "--order", "safe")
    passes = {}
    for row in csv.DictReader(io.StringIO(modes(*ordered, "--format", "csv").out)):
        passes.setdefault(row["pass"], []).append(row["name"])
    assert len(passes) > 1
    printed = modes(*ordered)
    assert [block.split() for block in printed.out.split("\n\n")] == list(passes.values())
    assert says(printed.err, f"{len(passes)} passes", "empty line")
    assert "\n\n" not in modes(*sample).out


def test_a_file_that_is_written_can_be_given_back(modes, tmp_path):
    path = tmp_path / "plan.csv"
    arguments = ("--board", "orin-nano", "--grid", "paper", "--sample", 30, "--format", "csv", "--out", path)
    assert f"wrote {path}" in modes(*arguments).out
    written = [mode for _, mode in read_power_modes(path)]
    names = modes("--board", "orin-nano", "--power-mode", path).out.split()
    assert names == [mode.name for mode in written]
    assert len(names) == 30
    assert set(written) <= set(load_board("orin-nano").power_mode_space().paper_grid())


def test_what_is_not_known_of_a_boards_clocks_is_said_beside_the_modes(modes):
    printed = modes("--board", "xavier-nx", "--count")
    assert printed.out == "4500\n"
    assert "off-board lists mem_khz may lack clocks" in printed.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--board", "orin-agx", "--variant", "1gb"], "available: 64gb, devkit-32gb, igx, industrial, 32gb"),
        (["--board", "thor"], "not known off-board"),
        (["--board", "orin-agx", "--power-mode", "MODE_40W"], "MODE_50W"),
        (["--board", "orin-agx", "--power-mode", "maxn", "--sample", "5"], "--power-mode was given with"),
        (["--board", "orin-agx", "--sample", "18097"], "draw 1 to 18096 from"),
        (["--board", "orin-agx", "--power-mode", "none.csv"], "none.csv"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(modes, arguments, named):
    printed = modes(*arguments, code=2)
    assert printed.out == ""
    assert named in printed.err
