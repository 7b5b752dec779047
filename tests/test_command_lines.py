"""The three programs: every command explains itself, errors are one line, and `--help` of a program loads nothing."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

import jetwatt
from harness.__main__ import COMMANDS as HARNESS
from harness.__main__ import main as harness
from harness.cli.command_line import CRASHED, GROUPS, REFUSED, options_by_argument
from harness.cli.options import output_file, output_folder
from harness.core.errors import in_options
from jetwatt.cli import COMMANDS as ALL
from jetwatt.cli import main as all_commands
from predictors.__main__ import COMMANDS as PREDICTORS
from predictors.__main__ import main as predictors
from tests.another_user import give_away

PROGRAMS = {"jetwatt": (all_commands, ALL), "harness": (harness, HARNESS), "predictors": (predictors, PREDICTORS)}


def help_of(main, words, capsys):
    with pytest.raises(SystemExit) as done:
        main([*words, "--help"])
    assert done.value.code == 0
    return capsys.readouterr().out


def parsers(command):
    """A command's own parser, by the empty name, and those of its subcommands, as its module declares them."""
    parser = argparse.ArgumentParser()
    __import__(command.module)
    sys.modules[command.module].add_arguments(parser)
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {"": parser, **{name: one for action in actions for name, one in action.choices.items()}}


@pytest.mark.parametrize(
    ("program", "command"),
    [
        pytest.param(name, command, id=f"{name}-{command.name}")
        for name, (_, commands) in PROGRAMS.items()
        for command in commands
    ],
)
def test_every_command_and_subcommand_explains_itself(program, command, capsys):
    main = PROGRAMS[program][0]
    text = help_of(main, [command.name], capsys)
    assert f"{program} {command.name}" in text
    for name in list(parsers(command))[1:]:
        text += help_of(main, [command.name, name], capsys)
        assert f"{command.name} {name}" in text
    if program == "jetwatt":
        assert "python -m" not in text


@pytest.mark.exhaustive
def test_no_command_and_no_public_name_needs_pytest():
    script = (
        "import importlib, sys; sys.modules.update(pytest=None, _pytest=None, pytest_benchmark=None)\n"
        "import jetwatt; from jetwatt.cli import COMMANDS\n"
        "[importlib.import_module(command.module) for command in COMMANDS]\n"
        "[getattr(jetwatt, name) for name in jetwatt.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_places_to_write_are_refused_before_any_work_where_they_cannot_be_written(command):
    written = {"--out", "--json", "--plot", "--plots", "--write-conf"}
    for parser in parsers(command).values():
        for action in parser._actions:
            if written & set(action.option_strings) and action.nargs != 0:
                assert action.type in (output_file, output_folder), action.option_strings


def test_a_place_to_write_behind_a_link_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "folder").symlink_to("/")
    tmp_path.chmod(0o1777)
    give_away(tmp_path / "folder", monkeypatch)
    for place in (output_file, output_folder):
        with pytest.raises(jetwatt.HarnessError, match="link of another user"):
            place(str(tmp_path / "folder" / "new"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_lists_all_its_commands_and_tells_its_version(program, capsys):
    main, commands = PROGRAMS[program]
    text = help_of(main, [], capsys)
    for command in commands:
        assert f" {command.name} " in text.replace("\n", " ")
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"jetwatt {jetwatt.__version__}\n"


def test_jetwatt_has_the_commands_of_both_programs_each_once_and_in_a_group(capsys):
    assert {command.name for command in ALL} == {command.name for command in (*HARNESS, *PREDICTORS)}
    assert len({command.name for command in ALL}) == len(ALL)
    assert {command.group for command in ALL} == set(GROUPS)
    text = help_of(all_commands, [], capsys)
    assert [line.partition(":")[0] for line in text.splitlines() if line.partition(":")[0] in GROUPS] == list(GROUPS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_of_a_program_loads_no_command_and_nothing_heavy(program):
    script = (
        "import runpy, sys\n"
        f"sys.argv = [{program!r}, '--help']\n"
        f"try: runpy.run_module({program!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "pandas", "scipy", "torch", "sqlite3", "pytest", "multiprocessing"}
    commands = {command.module for command in PROGRAMS[program][1]}
    assert not loaded & commands


@pytest.mark.parametrize("program", ["jetwatt", "harness", "predictors"])
def test_a_program_runs_as_a_module_and_refuses_an_unknown_command(program):
    done = subprocess.run([sys.executable, "-m", program, "nonsense"], capture_output=True, text=True)
    assert done.returncode == REFUSED
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_crash_has_an_exit_code_of_its_own():
    program = "from harness.cli.command_line import run_as_program; run_as_program(lambda: 1 / 0)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, "ZeroDivisionError" in ended.stderr) == (CRASHED, True)


@pytest.mark.skipif(sys.platform != "linux", reason="writes to /dev/full")
@pytest.mark.parametrize(
    ("words", "unbuffered", "redirected"),
    [
        pytest.param(["--board", "orin-agx", "--count"], "", False, id="output"),
        pytest.param(["--board", "orin-agx", "--count"], "1", False, id="unbuffered-output"),
        pytest.param(["--board", "orin-agx", "--count"], "", True, id="output-and-messages"),
        pytest.param(["--help"], "", False, id="help"),
    ],
)
def test_a_full_disk_is_named(words, unbuffered, redirected):
    command = [sys.executable, "-m", "jetwatt", "modes", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        stderr = full if redirected else subprocess.PIPE
        ended = subprocess.run(command, stdout=full, stderr=stderr, text=True, check=False, env=environment)
    assert ended.returncode == CRASHED
    if not redirected:
        assert ended.stderr == "error: No space left on device: make room on the disk\n"


def test_an_error_is_one_line_that_names_program_command_and_hint(tmp_path, capsys):
    arguments = ["export", "--results", str(tmp_path / "none.sqlite"), "--out", str(tmp_path / "c.csv")]
    for main, name in ((all_commands, "jetwatt"), (harness, "python -m harness")):
        assert main(arguments) == REFUSED
        error = capsys.readouterr().err
        assert error.startswith(f"{name} export: ")
        assert "none.sqlite" in error
        assert "Traceback" not in error


def test_what_tools_do_says_that_it_needs_a_clone(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tools"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tools", None)
    assert all_commands(["simulation", "validate"]) == REFUSED
    assert "needs a clone of the project" in capsys.readouterr().err


def test_every_public_name_can_be_had_and_another_is_refused_with_those_that_are():
    assert all(getattr(jetwatt, name) is not None for name in jetwatt.__all__)
    assert set(jetwatt.__all__) <= set(dir(jetwatt))
    with pytest.raises(AttributeError, match="PowerMode"):
        jetwatt.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        pytest.param("recomend", "jetwatt: error: there is no command recomend; did you mean recommend?", id="command"),
        pytest.param("tune-it", "jetwatt: error: there is no command tune-it", id="no-command"),
        pytest.param("recommend --worklod x", "; did you mean --workload instead of --worklod?", id="required"),
        pytest.param("report --rsults=x", "--rsults=x; did you mean --results instead of --rsults?", id="value"),
        pytest.param("results merge a --uot b", "did you mean --out instead of --uot?", id="subcommand"),
        pytest.param("report --colour x", "jetwatt report: error: unrecognized arguments: --colour x", id="none-near"),
        pytest.param("fit --predictor powertrian", "; did you mean powertrain?", id="choice"),
        pytest.param("recommend --strategy closed-lop", "; did you mean closed-loop?", id="strategy"),
        pytest.param("fit --predictor magic", ")", id="no-choice-near"),
        pytest.param("recommend --workload x --work y", "could match --workload, --workers", id="abbreviated"),
    ],
)  # fmt: skip
def test_the_command_or_option_that_was_meant_is_named(words, ending, capsys):
    with pytest.raises(SystemExit) as done:
        all_commands(words.split())
    assert done.value.code == REFUSED
    assert capsys.readouterr().err.rstrip("\n").endswith(ending)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        pytest.param("recommend --device sim:orin-agx --workload resnet18-cifar", "resnet18-cifar10", id="workload"),
        pytest.param("recommend --device sim:orin-agx --workload yolov8n", "yolov8n-coco", id="beginning"),
        pytest.param("doctor --device sim:orin-agxx", "sim:orin-agx", id="simulated"),
        pytest.param("doctor --device orin-agxx", "orin-agx", id="device"),
        pytest.param("modes --board sim:nano", "nano", id="board-with-sim"),
        pytest.param("modes --board xavier-agxx", "xavier-agx", id="board"),
        pytest.param("modes --board orin-agx --variant industrail", "industrial", id="variant"),
        pytest.param("modes --board orin-agx --power-mode MODE_50V", "MODE_50W", id="power-mode"),
        pytest.param(
            "corpus simulate --device orin-agxx --workload lenet-mnist --all --out x.csv", "orin-agx", id="corpus"
        ),
        pytest.param("evaluate --corpus zeus-v100 --target resnet5-imagenet", "resnet50-imagenet", id="target"),
        pytest.param(
            "evaluate --corpus zeus-v100 --target resnet50-imagenet --predictors ridgee", "ridge", id="predictor"
        ),
        pytest.param(
            "strategies evaluate --corpus zeus-v100 --budgets 100:200:50 --strategies close-loop",
            "closed-loop",
            id="strategy",
        ),
    ],
)
def test_the_name_that_was_meant_is_named(words, meant, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert all_commands(words.split()) == REFUSED
    assert f"; did you mean {meant}? available: " in capsys.readouterr().err


OPTIONS = {"power_w": "--power-budget", "profiles": "--profiles", "risk": "--risk", "resume": "--resume"}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("power_w is -5, expected a number above 0", "--power-budget is -5, expected a number above 0"),
        ("too few; allow more profiles= or a greater risk=", "too few; allow more --profiles or a greater --risk"),
        ("risk=0.1 was given; omit it: device='host'", "--risk 0.1 was given; omit it: device='host'"),
        ("give resume=True", "give --resume"),
        ("no column: --set risk=0.1 or --set 'profiles=15'", "no column: --set risk=0.1 or --set 'profiles=15'"),
        ("risk is not what it was", "risk is not what it was"),
        ("the power of 15 profiles is at risk", "the power of 15 profiles is at risk"),
        ("no mode: power_w is met by none", "no mode: power_w is met by none"),
    ],
)
def test_an_error_of_a_call_names_the_options_of_its_command(error, shown):
    assert in_options(error, OPTIONS) == shown


def test_arguments_of_actions_have_options_too():
    options = options_by_argument(parsers(next(command for command in ALL if command.name == "strategies"))[""])
    assert options["latencies_ms"] == "--latency-limits"
