"""How many files of the project a reader enters who follows one call: a ceiling that falls.

It rises only with what a call newly has to do (a case heeds signals that end its run, a fit chooses among profiles and
says what it left out), or where one file becomes several that are about one thing each: settings, profiles, forecasts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

PROJECT = Path(__file__).resolve().parents[1]

COUNTING = """
import json, sys
from pathlib import Path

PROJECT, entered, calls = {project!r} + "/", set(), dict()
FUNCTION = 1  # of a code object's flags: modules and the bodies of classes do not have it

def enter(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & FUNCTION and code.co_filename.startswith(PROJECT):
        file = code.co_filename[len(PROJECT):]
        if not file.startswith((".venv", "tests/")):
            entered.add(file)
            calls[code.co_name] = calls.get(code.co_name, 0) + 1
"""

BEST = """
import pandas as pd
import jetwatt
from harness.core.boards import load_board
from harness.simulation.corpus import simulate_corpus

modes = load_board("orin-agx").power_mode_space().sample(40)
frame = pd.DataFrame(simulate_corpus("orin-agx", "resnet18-imagenet", modes))
frame.to_csv("corpus.csv", index=False)
for counted in (False, True):  # what is imported and read once does not count
    sys.setprofile(enter if counted else None)
    jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=20).best(power_w=30)
sys.setprofile(None)
"""

RECOMMENDED = """
import jetwatt

for counted in (False, True):
    sys.setprofile(enter if counted else None)
    jetwatt.recommend("sim:orin-agx", workload="resnet18-imagenet", power_w=30)
sys.setprofile(None)
"""

CASE = """
import pytest

class Walk:
    def pytest_runtest_protocol(self, item, nextitem):
        sys.setprofile(enter)

    def pytest_runtest_logfinish(self, nodeid, location):
        sys.setprofile(None)

where = ["--device", "sim:orin-agx", "--workload", "resnet18-imagenet", "--workers", "4", "--results", "r.sqlite"]
assert pytest.main([PROJECT + "benchmarks/test_training.py::test_training", *where, "-q"], plugins=[Walk()]) == 0
"""


def walk(script, folder):
    """The files that a script enters, and how often each function is called."""
    told = "Path('o.json').write_text(json.dumps([sorted(entered), calls]))"
    text = f"{COUNTING.format(project=str(PROJECT))}{script}\n{told}"
    done = subprocess.run([sys.executable, "-c", text], cwd=str(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "o.json").read_text())


def test_the_best_mode_is_some_files_away_and_only_modes_that_are_shown_get_a_name(tmp_path):
    files, calls = walk(BEST.replace("CORPUS", "frame"), tmp_path)
    assert "predictors/models/physical_gp/posterior.py" in files
    assert len(files) <= 17, files
    assert calls["name"] <= 3


def test_the_best_mode_of_a_file_is_as_near_but_for_reading_it(tmp_path):
    files, _ = walk(BEST.replace("CORPUS", "'corpus.csv'"), tmp_path)
    assert "harness/core/files.py" in files
    assert len(files) <= 19, files


def test_a_recommendation_is_some_files_away(tmp_path):
    files, _ = walk(RECOMMENDED, tmp_path)
    assert "predictors/strategies/closed_loop.py" in files
    assert len(files) <= 40, files


def test_a_simulated_case_is_some_files_away(tmp_path):
    files, _ = walk(CASE, tmp_path)
    assert "harness/simulation/virtual_run.py" in files
    assert len(files) <= 33, files
