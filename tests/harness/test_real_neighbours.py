"""Beside pytest-playwright, which has the option and the fixture `device`, and pytest-parallel with `--workers`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages import says

PROJECT = Path(__file__).resolve().parents[2]
PLUGINS = ("pytest-playwright", "pytest-parallel")
INSTALLED_WITHIN_S = 600.0

TESTS = """
def test_ours(jetwatt_profile):
    case = jetwatt_profile().case
    assert (case.device, case.workers) == ("sim:nano", 2)
def test_theirs(device):
    assert device == "Pixel 5"
def test_loop(train):
    assert train(minibatches=10).case.device == "sim:nano"
"""


@pytest.mark.exhaustive
@pytest.mark.one_python
@pytest.mark.long
def test_the_suite_works_beside_plugins_with_its_names(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile"]
    install = [*pip, "--retries", "0", "--target", str(tmp_path / "plugins"), *PLUGINS]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not install {' and '.join(PLUGINS)} within {INSTALLED_WITHIN_S:g} s")
    if done.returncode:
        pytest.skip(f"pip cannot install {' and '.join(PLUGINS)} here: {done.stderr.strip().splitlines()[-1]}")
    (tmp_path / "test_beside.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "plugins"), str(PROJECT)])}
    words = ["-p", "jetwatt", "--device", "Pixel 5", "--jetwatt-device", "sim:nano", "--jetwatt-workers", "2"]
    command = [sys.executable, "-m", "pytest", "test_beside.py", *words, "--results", "r.sqlite"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300).stdout
    assert "3 passed" in said, said
    assert says(said, "--device", "pytest-playwright", "--jetwatt-device")
    assert says(said, "fixture device", "playwright", "jetwatt_device")
