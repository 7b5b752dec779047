"""`python -m harness`: commands explain themselves, errors come without a traceback, no torch is needed."""

from __future__ import annotations

import json

import pytest

from harness.__main__ import COMMANDS, main
from harness.board.saved_state import preserved
from harness.cli.doctor import format_findings


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_each_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert command in capsys.readouterr().out


def test_an_error_is_one_line_that_names_the_way_out(tmp_path, capsys):
    assert main(["export", "--results", str(tmp_path / "none.sqlite"), "--out", str(tmp_path / "c.csv")]) == 2
    error = capsys.readouterr().err
    assert "none.sqlite" in error
    assert "Traceback" not in error


def test_doctor_says_what_works_what_does_not_and_what_it_takes(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("host: ")
    for topic in ("training", "measure power", "set the core count", "drop the page cache", "Storage found here"):
        assert topic in text


def test_doctor_gives_the_same_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["device"] == "host"
    assert findings["power_modes"]["count"] >= 1
    assert "measure power" in format_findings(findings)


def test_doctor_refuses_an_unknown_device(capsys):
    assert main(["doctor", "--device", "nonsense"]) == 2
    assert "known: host" in capsys.readouterr().err


def test_restore_has_nothing_to_do_after_a_run_that_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with preserved([], "host"):
        pass
    assert main(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out
