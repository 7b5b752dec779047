"""Opting in to the plugin: by three ways that are one, beside options of others, and out again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_pytest

PROJECT = Path(__file__).resolve().parents[2]

PLUGIN = 'pytest_plugins = ["jetwatt"]\n'
THEIRS = """
def pytest_addoption(parser):
    parser.addoption("--device", default="cpu")
    parser.addoption("--workers", type=int, default=1)
    parser.addoption("--interval", action="store_true")
"""
BOTH = """
def test_theirs(request):
    names = ("--device", "--workers", "--interval")
    assert [request.config.getoption(name) for name in names] == ["cuda", 3, True]
def test_ours(profile):
    measured = profile().case
    assert (measured.device, measured.workers, measured.batch_size) == ("sim:nano", 2, 8)
"""
GIVEN = ("--device", "cuda", "--workers=3", "--interval", "--jetwatt-device=sim:nano", "--jetwatt-workers", "2",
         "--batch-size", "8", "--results", "r.sqlite")  # fmt: skip


@pytest.fixture
def others(tmp_path):
    """Runs pytest in the folder of others, with some files."""

    def run(files, *arguments):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        done = warm_pytest.run(["--rootdir", ".", "-c", "/dev/null", *arguments], tmp_path, os.environ)
        done.said = done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize(
    ("files", "opted_in"),
    [
        pytest.param({"conftest.py": THEIRS}, ("-p", "jetwatt"), id="their-conftest"),
        pytest.param({"theirs.py": THEIRS}, ("-p", "jetwatt", "-p", "theirs"), id="their-plugin-after-ours"),
        pytest.param({"theirs.py": THEIRS}, ("-p", "theirs", "-p", "jetwatt"), id="their-plugin-before-ours"),
        pytest.param({"conftest.py": f"{PLUGIN}{THEIRS}"}, (), id="one-conftest"),
        pytest.param({"conftest.py": PLUGIN, "of/conftest.py": THEIRS}, ("of", "test_both.py"), id="below"),
    ],
)
@pytest.mark.exhaustive
def test_options_of_others_stay_theirs_and_ours_have_another_name(others, files, opted_in):
    done = others({**files, "test_both.py": BOTH}, *opted_in, *GIVEN)
    assert "2 passed" in done.said, done.said
    assert done.said.count("--device is an option of ") == 1
    assert "write --jetwatt-device." in done.said


def test_a_wrong_value_of_an_option_of_others_says_whose_it_is(others):
    done = others({"conftest.py": THEIRS}, "-p", "jetwatt", "--workers", "0,4")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "conftest.py here; write --jetwatt-workers" in done.stderr
    assert "argument --minibatches: invalid int value" in others({}, "-p", "jetwatt", "--minibatches", "x").stderr


@pytest.mark.exhaustive
def test_a_conftest_that_is_read_late_may_have_our_names_too(others):
    late = {"low/conftest.py": THEIRS, "low/test_low.py": "def test_low(request): request.config.getoption('device')"}
    done = others({**late, "conftest.py": ""}, "-p", "jetwatt", "--workers", "0")
    assert "1 passed" in done.said, done.said


def test_help_has_both_names_and_whose_a_short_one_is(others):
    said = " ".join(others({"conftest.py": THEIRS}, "-p", "jetwatt", "--help").stdout.split())
    assert re.search("--minibatches(=N)?, --jetwatt-minibatches=N clean minibatches", said)  # Python 3.14 says N once
    assert "--jetwatt-device=LIST (--device is an option of " in said
    assert said.count("--device=") == 1


@pytest.mark.exhaustive
def test_opting_out_again_leaves_nothing(others):
    mine = {"test_mine.py": "def test_mine(pytestconfig): assert not pytestconfig.pluginmanager.hasplugin('jetwatt')\n"
                            "def test_fixture(profile): pass"}  # fmt: skip
    said = others(mine, "-p", "jetwatt", "-p", "no:jetwatt").said
    assert "fixture 'profile' not found" in said
    assert "1 passed, 1 error" in said


@pytest.mark.exhaustive
def test_only_words_that_begin_with_dashes_are_options(others):
    files = {"results/test_mine.py": "def test_mine(): pass", "jetwatt.toml": "not a configuration"}
    assert "1 passed" in others(files, "-p", "jetwatt", "results").said
    assert others(files, "-p", "jetwatt", "results", "--results", "r.sqlite").returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.exhaustive
def test_a_test_file_may_opt_in_where_no_option_is_needed(others):
    said = others({"test_mine.py": f"{PLUGIN}def test_mine(profile): pass"}, "--collect-only", "-q").said
    assert "test_mine.py::test_mine[host-" in said


EACH_WAY = """
import sys
assert "numpy" not in sys.modules, "before this file could set how many threads it has"
import jetwatt
pytest_plugins = ["jetwatt"]
def pytest_sessionstart(session):
    plugins = session.config.pluginmanager.list_name_plugin()
    assert [name for name, plugin in plugins if name == "jetwatt" and plugin] == ["jetwatt"]
"""


@pytest.mark.exhaustive
def test_all_ways_at_once_are_one_plugin_that_loads_numpy_late_and_warns_of_nothing(tmp_path):
    (tmp_path / "conftest.py").write_text(EACH_WAY)
    (tmp_path / "test_mine.py").write_text("def test_mine(workers): assert workers == 2")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p jetwatt\nfilterwarnings = error\n")
    words = ["-W", "error", "-p", "jetwatt", "--workers", "2", "--device", "sim:nano"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_benchmarks_run_in_another_folder_are_named_where_they_are(others):
    there = PROJECT / "benchmarks" / "test_training.py"
    done = others({}, "-p", "jetwatt", "benchmarks/test_training.py::test_training")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"pytest {there}::test_training" in done.said
    own = others({"benchmarks/test_training.py": "def test_own(): pass"}, "-p", "jetwatt", "benchmarks")
    assert "1 passed" in own.said
    assert "not found: benchmarks/test_none.py" in others({}, "-p", "jetwatt", "benchmarks/test_none.py").said
