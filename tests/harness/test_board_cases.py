"""Whole cases on emulated boards: modes set in order and read back, sensors recorded, the tree as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from boards.kernel import Kernel
from boards.tree import TESTS, build_board

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from harness.results.store import ResultsStore

pytestmark = pytest.mark.training

PROJECT = TESTS.parent
INERT = ("target_pwm", "pwm1", "clk_update_rate")  # readings, or without effect while an override is off

RUNNER = """
import sys
import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel

with intercepted(Kernel(sys.argv[1])):
    sys.exit(pytest.main(sys.argv[2:]))
"""


def controls(tree):
    return {name: text for name, text in tree.controls().items() if not name.endswith(INERT)}


def run(tree, folder, *arguments):
    """`pytest benchmarks --device-root TREE` with the tree's kernel taking the writes."""
    command = [sys.executable, "-c", RUNNER, tree.root, "-c", PROJECT / "pytest.ini", "--rootdir", PROJECT,
               "-p", "no:cacheprovider", PROJECT / "benchmarks", "--device-root", tree.root, "--results", "r.sqlite",
               "--workload", "lenet-mnist", "--workers", "0", "--minibatches", "5", "--interval", "0.1",
               *arguments]  # fmt: skip
    paths = os.pathsep.join([str(PROJECT), str(TESTS)])
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )


def profiles(folder):
    with ResultsStore(folder / "r.sqlite", read_only=True) as store:
        return list(store.profiles())


@pytest.mark.parametrize(
    ("board", "l4t", "modes"),
    [
        ("orin-agx", "r36.4", "maxn,8c-1728-612-3199,2c-729.6-306-665.6"),
        ("xavier-agx", "r32.7", "maxn,c"),
        ("orin-nano", "r35.4", "maxn,3c-1113.6-408-2133"),
        ("nano", "r32.7", "maxn,2c-921.6-614.4-1600"),
    ],
)
def test_real_training_under_emulated_modes(tmp_path, board, l4t, modes):
    tree = build_board(tmp_path / "root", board, l4t)
    before = controls(tree)
    done = run(tree, tmp_path, "-k", board.split("-")[0], "--power-mode", modes)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = profiles(tmp_path)
    assert [profile.case.power_mode for profile in measured] == modes.split(",")
    for profile in measured:
        assert profile.provenance == "simulated"
        assert profile.conditions["emulated"] is True
        assert profile.conditions["dvfs"] == "off"
        assert profile.flags[0].startswith("emulated: ")
        mode, series = profile.conditions["power_mode"], profile.telemetry.series
        assert set(series["cpu0_khz"].values) == {mode["cpu_khz"]}
        assert set(series["gpu_khz"].values) == {mode["gpu_khz"]}
        assert set(series["emc_khz"].values) == {mode["mem_khz"]}
        assert min(series["power_total_mw"].values) > 0
        assert profile.aggregates["minibatch_time_ms"] > 0
    greatest, *lower = [profile.aggregates["power_mw"] for profile in measured]
    assert all(power_mw < greatest for power_mw in lower)
    assert controls(tree) == before
    assert f"emulated-{board}-lenet-mnist-maxn-w0-ssd-bs16 (simulated)" in done.stdout


def test_a_sensor_that_vanishes_or_reads_garbage_is_missing_and_the_run_goes_on(tmp_path):
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    kernel = Kernel(tree.root)
    rail, other = sorted(tree.path.glob("sys/bus/i2c/devices/1-0040/hwmon/hwmon*/in[12]_input"))
    kernel.garble(str(rail), "garbage")
    kernel.vanish(str(other))
    done = run(tree, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [profile] = profiles(tmp_path)
    assert "garbage" in profile.telemetry.missing["power_vdd_in_mw"]
    assert "power_vdd_cpu_gpu_cv_mw" in profile.telemetry.missing
    assert profile.aggregates["power_mw"] is None
    assert "power_vdd_soc_mw" in profile.telemetry.series
