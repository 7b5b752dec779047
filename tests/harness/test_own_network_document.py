"""`docs/own_network.md` as written: its module and its test, in an empty folder."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

from harness.store.results import ResultsStore
from tests import warm_pytest

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENT = (PROJECT / "docs" / "own_network.md").read_text(encoding="utf-8")


@pytest.fixture
def run_pytest(tmp_path):
    """A function that runs the document's test beside its module, with options."""
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT, re.DOTALL):
        (tmp_path / name).write_text(code)

    def run(*options):
        words = ["-p", "jetwatt", "test_mine.py", "--workload", "my_model:WORKLOAD", "--results", "r.sqlite"]
        return warm_pytest.run([*words, *options], tmp_path, os.environ)

    return run


@pytest.mark.training
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--device", "sim:orin-agx"), id="simulated"),
        pytest.param(("--batch-size", "1", "--minibatches", "1"), id="trained", marks=pytest.mark.exhaustive),
    ],
)
def test_the_example_is_measured_as_written(run_pytest, tmp_path, options):
    pytest.importorskip("torchvision")
    done = run_pytest(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        profiles = list(store.profiles())
    assert {(profile.case.workload, profile.case.workers) for profile in profiles} == {("my-net", 0), ("my-net", 2)}
    assert {profile.conditions["parameters"] for profile in profiles} == {1_235_496}
    assert {profile.conditions["storage_medium"]["kind"] for profile in profiles} == {"in-memory"}


def test_every_argument_is_explained():
    from harness.workloads import Workload

    # From Python 3.13 on the compiler has removed the indentation already.
    arguments = inspect.cleandoc(Workload.__doc__ or "").partition("Args:\n")[2]
    explained = set(re.findall(r"^ {4}(\w+): ", arguments, re.MULTILINE))
    assert explained == set(Workload.__dataclass_fields__) - {"published"}
