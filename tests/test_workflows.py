"""The workflows are valid and safe, and every step that runs something runs here, on a simulated board."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import pytest

from jetwatt.cli import main as jetwatt
from tests import warm_pytest
from tests.messages import says
from tests.programs import write_python_program
from tools.night import main as night

PROJECT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
ACTION = PROJECT / "action.yml"
PINNED = re.compile(r"(actions/[a-z-]+|pypa/gh-action-pypi-publish)@[0-9a-f]{40}|\./")
RELEASE_RIGHTS = {"build": {"contents": "read", "id-token": "write", "attestations": "write"},
                  "publish": {"id-token": "write"},
                  "docs": {"pages": "write", "id-token": "write"}}  # fmt: skip


def read(path: Path) -> Dict[str, Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(path)


def steps(path: Path) -> List[Dict[str, Any]]:
    """The steps of all jobs of a workflow, or of an action."""
    jobs = read(path).get("jobs") or {"": read(path)["runs"]}
    return [step for job in jobs.values() for step in job["steps"]]


def named(stem: str) -> Path:
    [path] = [path for path in WORKFLOWS if path.stem == stem]
    return path


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its `${{ ... }}` replaced, each of which must be among the values."""
    return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda match: values[match[1]], text)


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_a_workflow_has_the_form_that_github_asks_for_and_takes_no_more_than_it_needs(path):
    from check_jsonschema import main

    schema = "vendor.github-actions" if path == ACTION else "vendor.github-workflows"
    with pytest.raises(SystemExit) as ended:
        main(["--builtin-schema", schema, str(path)], standalone_mode=True)
    assert ended.value.code == 0
    if path != ACTION:
        rights = {name: job["permissions"] for name, job in read(path)["jobs"].items() if "permissions" in job}
        assert read(path)["permissions"] == {"contents": "read"}
        assert rights == (RELEASE_RIGHTS if path.stem == "release" else {})
    for step in steps(path):
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert not re.search(r"\$\{\{ *(github|inputs|vars|steps)", step.get("run", "")), (
            "a text from outside is no code"
        )


def test_boards_run_what_is_on_main_one_job_at_a_time():
    workflow = read(named("nightly"))
    assert set(workflow["on"]) == {"schedule", "workflow_dispatch"}
    for job in workflow["jobs"].values():
        assert "self-hosted" in job["runs-on"]
        assert "!github.event.repository.fork" in job["if"]
        assert job["concurrency"]["cancel-in-progress"] is False
        assert "matrix" in job["concurrency"]["group"]
    others = [job for path in WORKFLOWS if path.stem != "nightly" for job in read(path)["jobs"].values()]
    assert not any("self-hosted" in job["runs-on"] for job in others)


def started(words: List[str]) -> int:
    """What `python -m MODULE ARGUMENT...` does, in the root of the project."""
    module, arguments = words[1], words[2:]
    os.chdir(PROJECT)
    if module == "pytest":
        return int(pytest.main(arguments))
    if module == "tools.night":
        return night(arguments)
    return jetwatt(arguments)


class Interpreter:
    """Stands for the one on the board, which has everything loaded already: a program that asks here for each start."""

    def __init__(self, folder: Path, socket_path: Path) -> None:
        self.folder, self.socket_path, self.asked = folder, socket_path, []
        self.program = folder / "python"
        self.answers = {
            "doctor": lambda words: (0, "host: nothing amiss\n", "")
        }  # it looks for torch, which takes long
        ask = (
            "import json, os, socket, sys\n"
            f"with socket.socket(socket.AF_UNIX) as line:\n    line.connect({str(socket_path)!r})\n"
            "    line.sendall(json.dumps([sys.argv[1:], dict(os.environ)]).encode() + b'\\n')\n"
            "    code, out, err = json.load(line.makefile())\n"
            "sys.stdout.write(out), sys.stderr.write(err), sys.exit(code)\n"
        )
        write_python_program(self.program, ask, "-I", "-S")

    def serve(self) -> None:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(self.socket_path))
            door.listen()
            while True:
                line, _ = door.accept()
                with line:
                    words, environment = json.loads(line.makefile().readline())
                    if not words:
                        return
                    self.asked.append(words)
                    line.sendall(json.dumps(self.answer(words, environment)).encode())

    def answer(self, words: List[str], environment: Dict[str, str]) -> Sequence[Any]:
        for name, answer in self.answers.items():
            if name in words[:4]:
                return answer(words)
        done = warm_pytest.run(words, self.folder, environment, main=started)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def interpreter(tmp_path):
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short, and the test's folder may be long
        one = Interpreter(tmp_path, Path(folder, "socket"))
        thread = threading.Thread(target=one.serve)
        thread.start()
        while not one.socket_path.exists():
            time.sleep(0.01)
        yield one
        subprocess.run([str(one.program)], capture_output=True, check=False)  # the end
        thread.join()


@pytest.fixture
def job(tmp_path, monkeypatch, interpreter):
    """A function that runs action.yml as a job of nightly.yml does, in an environment that is installed already."""
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text(f'#!/bin/sh\nmkdir -p "${{2#VENV=}}/bin"\ncp "{interpreter.program}" "${{2#VENV=}}/bin/python"\n')
    make.chmod(0o755)
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{make.parent}{os.pathsep}{os.environ['PATH']}")

    def run(name: str, arguments: str, accept: str = "false", **matrix: str) -> subprocess.CompletedProcess:
        *before, own = read(named("nightly"))["jobs"][name]["steps"]
        assert own["uses"] == "./"
        assert not any("run" in step for step in before)
        values = {"vars.NIGHTLY_ARGUMENTS": arguments, "inputs.accept || 'false'": accept}
        values.update({f"matrix.{key.replace('_', '.')}": value for key, value in matrix.items()})
        given = {key: filled(value, values) for key, value in own["with"].items()}
        inputs = {key: given.pop(key, declared.get("default")) for key, declared in read(ACTION)["inputs"].items()}
        assert given == {}
        [step] = [step for step in steps(ACTION) if "run" in step]
        variables = {key: filled(value, {f"inputs.{name}": text for name, text in inputs.items()})
                     for key, value in step["env"].items()}  # fmt: skip
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=tmp_path, env={**os.environ, **variables, "GITHUB_ACTION_PATH": str(PROJECT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


QUICK = "--repetitions 1 --gates none --no-pages -- -k lenet-mnist-maxn-w0-ssd-bs16] --workload lenet-mnist"


@pytest.mark.exhaustive
def test_nights_of_a_board_are_green_until_it_is_slower(job, tmp_path):
    """The first red night: nothing but a slowdown of 5 % that is injected in the place of a new torch."""
    green = job("board", QUICK.replace("--gates none ", ""), on_board="sim:orin-agx", on_jetpack="6")
    assert green.returncode == 0, green.stdout + green.stderr
    assert re.search(r"^checks: .*, gates [1-9]\d* passed", green.stdout, re.MULTILINE)
    red = job("board", f"--slowdown 5% {QUICK}", on_board="sim:orin-agx", on_jetpack="6")
    assert red.returncode == 1, red.stdout + red.stderr
    first, _, changed, *_ = red.stdout.splitlines()[-5:]
    assert re.match(r"RED by .*compare \(worse\).*: sim:orin-agx: minibatch time: slower \(\+4\.\d %", first)
    assert says(changed, "torch: unknown -> ", "5 % slower (--slowdown)")
    assert "commit" in changed
    folders = [line.partition("=")[2] for line in (tmp_path / "GITHUB_OUTPUT").read_text().splitlines()]
    assert [(Path(folder) / "verdict").read_text() for folder in folders] == ["green\n", "red\n"]
    assert folders[0].startswith(str(tmp_path / "jetwatt-nights" / "sim:orin-agx-jp6"))
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert [line.split()[1] for line in summary.splitlines() if line.startswith("# ")] == ["GREEN:", "RED"]
    for name in ("junit-1.xml", "benchmark.json", "compare.json", "history.txt"):
        assert (Path(folders[1]) / name).stat().st_size, name
    benchmarks = json.loads((Path(folders[1]) / "benchmark.json").read_text())["benchmarks"]
    assert len({one["fullname"] for one in benchmarks}) == len(benchmarks)
    for one in benchmarks:  # what github-action-benchmark reads of `tool: pytest`
        assert all(one["stats"][name] > 0 for name in ("ops", "mean", "stddev", "rounds"))
        assert one["extra_info"]["provenance"] == "simulated"


@pytest.mark.exhaustive
def test_a_pool_of_a_fleet_measures_the_night(job, interpreter, tmp_path):
    """A stand-in for the fleet: what is submitted runs here, and collecting brings its file."""
    results = tmp_path / "collected.sqlite"

    def fleet(words: List[str]) -> Sequence[Any]:
        if words[3] == "submit":
            suite = ["-m", "pytest", "benchmarks", "--device", "sim:orin-agx", "--results", str(results)]
            return interpreter.answer([*suite, *words[words.index("--") + 1 :]], dict(os.environ))
        if words[3] == "collect":
            shutil.copy(results, words[5])
        return 0, "orin1 idle\n", ""

    interpreter.answers["fleet"] = fleet
    done = job("fleet", f"--device sim:orin-agx {QUICK}", pool="orin-agx-jp6")
    assert done.returncode == 0, done.stdout + done.stderr
    [submitted] = [words for words in interpreter.asked if "submit" in words]
    assert submitted[2:10] == ["fleet", "submit", "--campaign", "paper", "--pool", "orin-agx-jp6", "--wait", "--"]
    assert "GREEN: orin-agx-jp6" in done.stdout
