"""The first hour in docs/jetson.md: it lists the lines of the acceptance test, and its commands are there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
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


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.one_python
@pytest.mark.long
def test_the_rehearsal_ends_as_the_page_says(tmp_path):
    """The power cut is the signal of Ctrl-backslash. Lines that judge times may fail, because machines are shared."""
    pytest.importorskip("torch")
    board, log = str(tmp_path / "board"), tmp_path / "log"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(command, until=None):
        words = [sys.executable, *shlex.split(command)[1:]]
        words[3] = board
        # A job that a script started in the background inherits that this signal is ignored.
        with open(log, "w") as out, subprocess.Popen(
            words, cwd=PROJECT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL),
        ) as process:  # fmt: skip
            while until and process.poll() is None and until not in log.read_text():
                time.sleep(0.1)
            if until and process.poll() is None:
                os.killpg(process.pid, signal.SIGQUIT)
            return process.wait(timeout=300)

    doctor, accept, reboot, accept_again = [command for command in COMMANDS if "tests.boards" in command]
    assert run(doctor) == 0, log.read_text()
    assert run(accept, until="PULL THE PLUG NOW") == -signal.SIGQUIT, log.read_text()
    assert run(reboot) == 0, log.read_text()
    run(accept_again)
    verdicts = {
        line: verdict for verdict, line in re.findall(r"^(\w+)  +\d+\. ([\w ]+)$", log.read_text(), re.MULTILINE)
    }
    assert list(verdicts) == list(CHECKS), log.read_text()
    untimed = ("identity", "rights", "modes", "restoring", "record")
    assert [verdicts[line] for line in untimed] == ["PASS"] * len(untimed), log.read_text()
