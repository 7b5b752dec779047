"""The suite collects the same tests in every process, so that processes can share them, and their ids are short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_pytest

TESTS = Path(__file__).resolve().parent
LONGEST = 100

PATCHED_CLOCK = """
import os, time
shift_s, now_s, now_ns = float(os.environ["SHIFT_S"]), time.time, time.time_ns
time.time = lambda: now_s() + shift_s
time.time_ns = lambda: now_ns() + int(shift_s * 1e9)
"""


def test_names_and_ids_are_short_printable_ascii(request):
    """Those of the tests that this run has collected: all of them where it is a run of the whole suite."""
    for item in request.session.items:
        name, _, parameters = item.nodeid.partition("::")[2].partition("[")
        assert len(name) < LONGEST, f"{item.nodeid}: a name of {len(name)} characters, at most {LONGEST - 1}"
        assert len(parameters) <= LONGEST, f"{item.nodeid}: an id of {len(parameters)} characters, at most {LONGEST}"
        assert re.fullmatch(r"[ -~]+", item.nodeid), f"{item.nodeid!r}: not printable ASCII"


def collect(folder: Path, **environment: str) -> subprocess.Popen:
    """Start a process that lists the ids of the suite."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "patched_clock.py").write_text(PATCHED_CLOCK)
    command = [sys.executable, "-m", "pytest", str(TESTS), "--collect-only", "-q", "-p", "patched_clock"]
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    changes = {"PYTHONPATH": paths, "TMPDIR": str(folder / "tmp"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    environment = {**os.environ, **changes, **environment}
    with (folder / "ids").open("w") as output:
        return subprocess.Popen(command, cwd=TESTS.parent, env=environment, stdout=output, stderr=subprocess.STDOUT)


@pytest.mark.exhaustive
@pytest.mark.long
def test_processes_with_other_clocks_hash_seeds_and_folders_collect_the_same(tmp_path):
    folders = [tmp_path / "now", tmp_path / "later"]
    processes = [
        collect(folders[0], PYTHONHASHSEED="1", SHIFT_S="0"),
        collect(folders[1], PYTHONHASHSEED="2", SHIFT_S="40000000"),
    ]
    codes = [process.wait() for process in processes]
    outputs = [(folder / "ids").read_text() for folder in folders]
    assert codes == [0, 0], "\n".join(output[-2000:] for output in outputs)
    now, later = ([line for line in output.splitlines() if "::" in line] for output in outputs)
    assert [pair for pair in zip(now, later) if pair[0] != pair[1]] == []
    assert len(now) == len(later) > 1000


@pytest.mark.exhaustive
def test_a_pytest_that_a_test_starts_keeps_away_from_the_folders_of_other_runs(tmp_path, tmp_path_factory):
    (tmp_path / "test_folder.py").write_text("def test_it(tmp_path): open('folder', 'w').write(str(tmp_path))")
    done = warm_pytest.run([tmp_path / "test_folder.py"], tmp_path, os.environ)
    assert done.returncode == 0, done.stdout
    assert tmp_path_factory.getbasetemp() in Path((tmp_path / "folder").read_text()).parents
