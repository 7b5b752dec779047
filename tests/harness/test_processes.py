"""`pytest -n 2`: simulated boards are shared out and summarised once, and what is measured is refused."""

from __future__ import annotations

import os

import pytest

from tests import warm_pytest
from tests.messages import says

pytest.importorskip("xdist")

TESTS = """
import pytest
from jetwatt import claim
@pytest.mark.parametrize("workers", [0, 2])
def test_loop(profile, workers): assert profile().case.workers == workers
@claim("a note")
def test_claim(ratio): assert ratio("time", workers=(0, 2)) < 1
def test_other(): pass
"""


@pytest.mark.exhaustive
def test_two_processes_share_simulated_boards_and_measure_nothing_real(tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    words = ["-p", "jetwatt", "-n", "2", "--rootdir", ".", "-c", "/dev/null", "--results", "r.sqlite", "-rsfE"]
    environment = {**os.environ, "COLUMNS": "200"}
    both = warm_pytest.run([*words, "--device", "sim:nano,host", "--workload", "lenet-mnist"], tmp_path, environment)
    assert "3 passed, 2 skipped, 1 error" in both.stdout, both.stdout
    refused = [line for line in both.stdout.splitlines() if says(line, "host", "one process", "omit -n")]
    assert len(refused) == 2
    for case in (
        "sim:nano-lenet-mnist-maxn-w0-sd-bs16 (simulated)",
        "sim:nano-lenet-mnist-maxn-w2-sd-bs16 (simulated)",
    ):
        assert both.stdout.count(case) == 1
    assert "then judge: pytest --judge r.sqlite" in both.stdout
    assert "INTERNALERROR" not in both.stdout
