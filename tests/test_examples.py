"""The examples run as they are: six scripts and two notebooks, on shipped tables, simulated boards and this machine."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import jetwatt
from tests.messages import says

pytestmark = pytest.mark.one_python

PROJECT = Path(__file__).resolve().parents[1]
EXAMPLES = PROJECT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a script in an empty folder; returns what it printed. Its exit code has to be `code`."""
    monkeypatch.chdir(tmp_path)

    def run(name, *words, code=None):
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        if code is None:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        else:
            with pytest.raises(SystemExit, match=f"^{code}$"):
                runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_says_what_it_is_and_imports_nothing_of_ours_but_jetwatt(script):
    text = script.read_text(encoding="utf-8")
    code = ast.parse(text)
    assert ast.get_docstring(code)
    assert 10 <= len(text.splitlines()) <= 30
    assert imported(code) & {"jetwatt", "harness", "predictors", "baselines", "tools", "tests"} == {"jetwatt"}


def imported(code):
    names = [alias.name for node in ast.walk(code) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(code) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.filterwarnings("ignore:outside the profiled range")
@pytest.mark.parametrize(
    "words", [("mine.csv", 5), pytest.param((), marks=pytest.mark.exhaustive)], ids=["own-file", "shipped"]
)
def test_a_table_of_ones_own_becomes_a_power_mode(run, tmp_path, words):
    jetwatt.write_corpus(tmp_path / "mine.csv", jetwatt.load_table("loudva-nano"))
    printed = run("own_table_to_mode.py", *words)
    assert says(printed, "on nano, batch size 7", "20 measured profiles")
    assert re.search(r"within 5 W: 4c-\S+, predicted [\d.]+ ms and (4\.\d+|5\.00) W", printed)


@pytest.mark.exhaustive
def test_what_changed_between_two_simulated_runs_is_the_time(run):
    printed = run("compare_results.py", code=1)
    assert re.search(r"minibatch time: slower, times 1\.[5-9]", printed)
    assert says(printed, "no-workers.sqlite", "3 profiles", "resnet18-imagenet on sim:orin-nano")
    again = run("compare_results.py", "no-workers.sqlite", "no-workers.sqlite", code=0)
    assert "slower" not in again


@pytest.mark.exhaustive
def test_a_gpus_power_limit_is_chosen_within_each_budget(run):
    limits = re.findall(r"within (\d+) W: limit (\d+) W, \d+ ms at (\d+) W", run("gpu_power_limit.py"))
    assert [int(budget) for budget, *_ in limits] == [125, 180, 250]
    assert all(int(power) <= int(budget) for budget, _, power in limits)
    assert [int(limit) for _, limit, _ in limits] == sorted(int(limit) for _, limit, _ in limits)


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_mode_within_the_budget_is_recommended_on_a_simulated_board(run, tmp_path):
    printed = run("recommend_within_budget.py")
    assert "simulated" in printed
    [mode] = re.findall(r"recommended: (\S+),", printed)
    assert f"--power-mode {mode}" in printed
    assert mode in (tmp_path / "front.csv").read_text()
    assert len(jetwatt.open_results("search.sqlite").profiles()) == 8


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.parametrize(("script", "profiles"), [("first_profile.py", 1), ("own_network.py", 2)])
@pytest.mark.long
def test_this_machine_is_measured(script, profiles, tmp_path):
    environment = {**os.environ, "JETWATT_LOCK_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], cwd=str(tmp_path), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" measured") == profiles


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_imports_nothing_of_ours_but_jetwatt(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    texts = ["".join(cell["source"]) for cell in code]
    ours = {name for text in texts for name in re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)}
    assert ours & {"jetwatt", "harness", "predictors", "baselines", "tools", "tests"} == {"jetwatt"}


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the notebook packages of the extra `dev` need Python 3.11")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.long
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    content = nbformat.read(notebook, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(content, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in content.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no picture is shown"
    assert any("<table" in output.get("data", {}).get("text/html", "") for output in outputs), "no table is shown"
