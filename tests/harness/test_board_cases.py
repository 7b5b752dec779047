"""Whole cases on emulated boards: modes set in order and read back, sensors recorded, the tree as it was."""

from __future__ import annotations

import pytest
from boards.kernel import Kernel
from boards.tree import build_board

from tests.harness.board_suite import profiles, run

pytest.importorskip("torch")
pytest.importorskip("sklearn")

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("board", "l4t", "modes"),
    [
        ("orin-agx", "r36.4", "maxn,8c-1728-612-3199,2c-729.6-306-665.6"),
        pytest.param("nano", "r32.7", "maxn,2c-921.6-614.4-1600", marks=pytest.mark.exhaustive),
    ],
)
def test_real_training_under_emulated_modes(tmp_path, board, l4t, modes):
    tree = build_board(tmp_path / "root", board, l4t)
    before = tree.controls()
    done = run(tree, tmp_path, "-k", board.split("-")[0], "--power-mode", modes)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = profiles(tmp_path)
    assert [profile.case.power_mode.name for profile in measured] == modes.split(",")
    for profile in measured:
        assert profile.provenance == "simulated"
        assert profile.conditions["emulated"] is True
        assert profile.conditions["dvfs"] == "off"
        assert profile.flags[0].startswith("emulated: ")
        mode, series = profile.conditions["power_mode"], profile.telemetry.series
        assert set(series["cpu0_khz"].values) == {mode["cpu_khz"]}
        assert set(series["gpu_khz"].values) == {mode["gpu_khz"]}
        assert set(series["emc_khz"].values) == {mode["mem_khz"]}
        assert all(use["off"] == 0 for use in profile.conditions["clock_use"].values())
        assert not [flag for flag in profile.flags if flag.startswith("not-static")]
        assert min(series["power_total_mw"].values) > 0
        assert profile.aggregates["minibatch_time_ms"] > 0
    greatest, *lower = [profile.aggregates["power_mw"] for profile in measured]
    assert all(power_mw < greatest for power_mw in lower)
    assert tree.controls() == before
    medium = "sd" if board == "nano" else "ssd"  # which a Nano does not have
    assert f"emulated-{board}-lenet-mnist-maxn-w0-{medium}-bs16 (simulated)" in done.stdout


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
    assert "no power sensor: " in profile.conditions["power_definition"]
    assert "VDD_IN" in profile.conditions["power_definition"]
    assert "power_vdd_soc_mw" in profile.telemetry.series
