"""What needs no board works without Linux's files and functions, as on macOS; what measures says that it needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages import says

PROJECT = Path(__file__).resolve().parents[1]

RUN = """\
import os, sys
import pytest
from jetwatt.cli import main

assert not os.path.exists("/proc") and not os.path.isdir("/sys") and not hasattr(os, "sched_getaffinity")
folder = sys.argv[1]


def run(words, *arguments, code=0):
    ended = main([*words.split(), *arguments])
    assert ended == code, f"{words} ended with {ended}"

"""

MEASURE = """
benchmark = ["-q", "-p", "no:cacheprovider", "benchmarks/test_training.py", "--workload", "lenet-mnist"]
assert pytest.main([*benchmark, "--device", "sim:orin-agx", "--results", f"{folder}/r.sqlite"]) == 0
"""

CHOOSE = """
chosen = "--workload resnet18-imagenet --power-budget 10 --profiles 5"
simulated = "--device orin-nano --workload resnet18-imagenet,lstm-wikitext --sample 40"
run(f"corpus simulate {simulated} --out", f"{folder}/c.csv")
run(f"recommend {chosen} --device", f"replay:{folder}/c.csv")
run(f"recommend {chosen} --device sim:orin-nano")
run("fit --target lstm-wikitext --corpus", f"{folder}/c.csv", "--out", f"{folder}/m.jw")
run("export --results", f"{folder}/r.sqlite", "--out", f"{folder}/t.csv")
run("baseline record --results", f"{folder}/r.sqlite", "--baseline", f"{folder}/b.json")
run("compare", f"{folder}/r.sqlite", f"{folder}/r.sqlite")
"""

REPORT = """
run("report --results", f"{folder}/r.sqlite", "--out", f"{folder}/page")
"""

HOST = """
run("doctor", code=2)
assert pytest.main([*benchmark, "--device", "host"]) == 4
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program where there is nothing of Linux; returns what it printed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "JETWATT_"))}
    path = [str(PROJECT / "tests" / "without_linux"), str(PROJECT)]
    variables.update(PYTHONPATH=os.pathsep.join(path), XDG_STATE_HOME=str(tmp_path), OMP_NUM_THREADS="1")

    def run(program):
        done = subprocess.run(
            [sys.executable, "-c", RUN + program, str(tmp_path)],
            cwd=str(PROJECT), env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.exhaustive
def test_a_simulated_board_is_measured_and_this_machine_says_what_it_lacks(run):
    printed = run(MEASURE + HOST)
    assert "2 passed" in printed
    refused = [line for line in printed.splitlines() if says(line, "/proc/self/task", "run on Linux")]
    assert len(refused) == 2


@pytest.mark.exhaustive
def test_what_needs_no_board_works_without_linux(run):
    run(MEASURE + CHOOSE)


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_report_is_drawn_without_linux(run):
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    run(MEASURE + REPORT)
