"""`python -m harness nvpmodel-conf`: any conf is shown, and one is made for any power mode, on the board and off it."""

from __future__ import annotations

import json

import pytest
from boards.tree import build_board

from harness.__main__ import main
from harness.board.nvpmodel_conf import parse, read_conf
from harness.board.nvpmodel_modes import masks, to_power_mode
from harness.core.boards import load_board
from harness.core.errors import InvalidValueError
from harness.core.notes import NoteWarning
from harness.core.power_modes import PowerMode
from harness.devices.nvpmodel_making import nvpmodel_modes, on_board_conf
from tests.harness.board.nvpmodel_board import Board
from tests.harness.board.nvpmodel_samples import ORIN_AGX, ORIN_NANO
from tests.messages import says

ASKED = PowerMode(8, 1728000, 612000, 3199000)


@pytest.fixture
def command(capsys):
    """Runs the command; returns its exit code, what it printed and what it noted."""

    def run(*arguments):
        code = main(["nvpmodel-conf", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def conf_file(tmp_path):
    def write(text):
        path = tmp_path / "nvpmodel.conf"
        path.write_bytes(text.encode())
        return path

    return write


def test_doubts_go_to_standard_error_with_file_and_line(command, conf_file):
    path = conf_file("< POWER_MODEL ID=0 NAME=A > tail\n")
    code, out, notes = command("--parse", path, "--json")
    assert code == 0
    assert json.loads(out)[0]["name"] == "A"
    assert says(notes, f"{path}, line 1", "'tail'")
    assert says(notes, path, "< PM_CONFIG DEFAULT=n >", "missing")
    with pytest.warns(NoteWarning) as warned:
        parsed = nvpmodel_modes(path)
    assert "".join(f"note: {note.message}\n" for note in warned) == notes
    assert tuple(str(note.message) for note in warned) == parsed.notes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nonsense\n", "line 1: 'nonsense' is not understood; expected: a section"),
        ("< POWER_MODEL ID=0 NAME=A >\nGPU MAX_FREQ fast\n", "power mode A: 'GPU MAX_FREQ fast' is not understood"),
    ],
)
def test_what_is_no_conf_is_an_error_with_the_file_and_what_was_expected(command, conf_file, text, expected):
    path = conf_file(text)
    code, out, error = command("--parse", path, "--json")
    assert (code, out) == (2, "")
    assert str(path) in error
    assert expected in error


def test_the_mode_whose_masks_are_copied_can_be_chosen(command):
    _, out, _ = command("--board", "orin-agx", "--power-mode", "MODE_15W", "--booted-mode", "MODE_30W", "--alone")
    conf = parse(out).conf
    assert [model.name for model in conf.models] == ["CUSTOM"]
    assert masks(conf.model("CUSTOM")) == {"TPC_PG_MASK": "240"}
    assert to_power_mode(conf, conf.model("CUSTOM")) == load_board("orin-agx").modes_by_name()["MODE_15W"]


def test_a_mode_is_added_to_a_conf_that_is_given(command, conf_file, tmp_path):
    base, made = conf_file(ORIN_NANO), tmp_path / "made" / "custom.conf"
    code, out, notes = command("--base", base, "--power-mode", "5c-115.2-306-x", "--name", "SLOW", "--out", made)
    assert (code, out) == (0, f"wrote {made}\n")
    assert says(notes, "note", "power-gating masks", "25W")
    conf = read_conf(made).conf
    assert to_power_mode(conf, conf.model("SLOW")) == (5, 115200, 306000, 3199000)
    assert conf.models[:-1] == parse(ORIN_NANO).conf.models


def test_on_the_board_its_own_conf_and_the_mode_in_effect_are_taken(command, tmp_path):
    board = Board(tmp_path / "board")
    board.status("pmode:0001")
    _, out, notes = command("--root", board.path, "--power-mode", "8c-1728-612-3199")
    conf = parse(out).conf
    assert to_power_mode(conf, conf.model("CUSTOM")) == ASKED
    assert masks(conf.model("CUSTOM")) == {"FBP_PG_MASK": "0", "TPC_PG_MASK": "248"}
    assert "MODE_15W" in notes


def test_a_mode_that_a_run_left_in_effect_is_not_taken_for_the_booted_one(command, tmp_path):
    board = Board(tmp_path / "board")
    knob = board.knob()
    knob.set(knob.custom(ASKED, "MAXN"))
    code, _, error = command("--root", board.path, "--power-mode", "8c-1728-612-3199")
    assert code == 2
    assert says(error, "CUSTOM_8_1728000_612000_3199000", "name the mode")


def test_a_file_without_a_default_needs_the_booted_mode(command, conf_file):
    base = conf_file(ORIN_AGX.replace("< PM_CONFIG DEFAULT=2 >", "< PM_CONFIG DEFAULT=9 >"))
    code, _, error = command("--base", base, "--power-mode", "8c")
    assert code == 2
    assert says(error, "no default mode", "--booted-mode")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--power-mode", "8c"], "etc/nvpmodel.conf; give --board to make a conf off-board, or --base"),
        (["--board", "orin-agx", "--power-mode", "a..n"], "unknown"),
        (["--board", "orin-agx", "--power-mode", "all"], "power mode 'all' means 18096 modes; name one mode"),
        (["--board", "orin-agx", "--power-mode", "maxn", "--name", "MAXN"], "has a mode MAXN already"),
        (["--power-mode", "8c", "--variant", "32gb"], "--variant selects a module of a board"),
    ],
)
def test_what_cannot_be_made_says_why_and_the_way_out(command, tmp_path, arguments, expected):
    code, out, error = command("--root", tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert expected in error


@pytest.mark.parametrize("arguments", [[], ["--parse", "a", "--power-mode", "8c"], ["--board", "nano", "--base", "a"]])
def test_options_that_exclude_each_other_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["nvpmodel-conf", *arguments])
    assert stopped.value.code == 2
    assert "nvpmodel-conf: error" in capsys.readouterr().err


def test_no_mode_is_added_to_the_conf_of_another_board(command, tmp_path):
    tree = build_board(tmp_path / "root", "orin-nx", "r36.4")
    theirs = build_board(tmp_path / "theirs", "orin-agx", "r36.4")
    place, file = tree.path / "etc/nvpmodel.conf", (theirs.path / "etc/nvpmodel.conf").resolve()
    made = ("--power-mode", "4c-729.6-612-2133", "--root", tree.path)
    assert command(*made, "--booted-mode", "MAXN")[0] == 0
    own = place.resolve().read_bytes()
    place.unlink()
    place.write_bytes(file.read_bytes())
    code, out, error = command(*made, "--booted-mode", "MAXN")
    assert (code, out) == (2, "")
    assert "not this board's" in error
    assert "Orin NX" in error
    with pytest.raises(InvalidValueError, match="not this board's"):
        on_board_conf(tree.path, ASKED)
    place.write_bytes(own)
    assert command(*made, "--booted-mode", "MAXN")[0] == 0
