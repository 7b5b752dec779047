"""The first hour in docs/jetson.md: it lists the lines of the acceptance test, and its commands are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from boards.layouts import PAIRS

from harness.acceptance.runner import CHECKS
from jetwatt.cli import main as jetwatt

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs" / "jetson.md").read_text(encoding="utf-8")
HOUR = PAGE.partition("## The first hour")[2].partition("\n## ")[0]
COMMANDS = [line.partition("  #")[0].strip() for block in re.findall(r"```sh\n(.*?)```", HOUR, re.DOTALL)
            for line in block.splitlines()]  # fmt: skip


def test_the_table_has_each_line_in_its_order():
    rows = re.findall(r"^\| \d+\. ([\w ]+) \|", HOUR, re.MULTILINE)
    assert rows == list(CHECKS)


def test_the_page_begins_with_it():
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[0] == "The first hour"


@pytest.mark.parametrize("command", [command for command in COMMANDS if "jetwatt" in command])
def test_a_command_has_options_that_exist(command, capsys):
    words = shlex.split(command)
    words = words[words.index("jetwatt") + 1 :]
    with pytest.raises(SystemExit) as ended:
        jetwatt([*words, "--help"])
    assert ended.value.code == 0
    options = re.findall(r"--[\w-]+", capsys.readouterr().out)
    assert {word for word in words if word.startswith("--")} <= set(options)


def test_the_rehearsal_names_a_board_of_the_emulator():
    rehearsals = [shlex.split(command) for command in COMMANDS if "tests.boards" in command]
    assert len(rehearsals) == 4
    assert {words[4] for words in rehearsals} <= {"/".join(pair) for pair in PAIRS}
