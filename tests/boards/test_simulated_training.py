"""An emulated board that trains reads as the simulated board does: its clocks go in, its INA readings come out."""

from __future__ import annotations

import numpy as np
import pytest

from boards.kernel import Kernel
from boards.processor_files import CPU
from boards.tree import build_board
from harness.board.power_rails import open_source
from harness.core.power_modes import PowerMode
from harness.simulation.model import Load, simulate
from harness.simulation.parameters import load_board, load_workload

WORKLOAD = "resnet18-imagenet"
MAXN = PowerMode(12, 2_201_600, 1_300_500, 3_199_000)
ROUNDED = 0.005  # sensors show whole mA: at 5 V each rail is up to 2.5 mW off


def tree_of(tmp_path, preset):
    return build_board(tmp_path / "root", "orin-agx", "r36.4", mode=preset)


def read_mw(tree):
    """The module's power as the suite reads it from the tree."""
    return open_source(tree.root, list(tree.spec.rails.total)).read(0.0).values["power_total_mw"]


def simulated_mw(mode, tpc_share=1.0, **how):
    board, workload = load_board("orin-agx"), load_workload(WORKLOAD)
    response = simulate(board, workload, np.array([mode]), Load(**how), tpc_share=tpc_share)
    return pytest.approx(float(response.power_mw[0]), rel=ROUNDED)


@pytest.mark.parametrize(
    ("preset", "tpc_share"),
    [("MAXN", 1.0), ("MODE_15W", 3 / 8), ("MODE_30W", 4 / 8), ("MODE_50W", 1.0)],  # masks 0, 248, 240, 0
)
def test_a_preset_draws_what_the_simulated_board_draws_in_it(tmp_path, preset, tpc_share):
    tree = tree_of(tmp_path, preset)
    mode = tree.spec.preset_mode(next(one for one in tree.spec.presets if one.name == preset))
    Kernel(tree.root).train("orin-agx", WORKLOAD, {"workers": 2, "batch_size": 8})
    assert read_mw(tree) == simulated_mw(mode, tpc_share, workers=2, batch_size=8)


def test_clocks_and_cores_that_are_written_go_into_the_model(tmp_path):
    tree = tree_of(tmp_path, "MAXN")
    kernel = Kernel(tree.root)
    kernel.train("orin-agx", WORKLOAD, {})
    assert read_mw(tree) == simulated_mw(MAXN)
    [node] = kernel.state()["places"]["gpu"][0]
    kernel.write(f"{node}/max_freq", 612_000_000)
    assert read_mw(tree) == simulated_mw(MAXN._replace(gpu_khz=612_000))
    for policy in (0, 4, 8):
        kernel.write(f"{CPU}/cpufreq/policy{policy}/scaling_max_freq", 1_113_600)
    for core in range(4, 12):
        kernel.write(f"{CPU}/cpu{core}/online", 0)
    assert read_mw(tree) == simulated_mw(PowerMode(4, 1_113_600, 612_000, 3_199_000))


def test_it_is_idle_again_once_a_test_says_so(tmp_path):
    tree = tree_of(tmp_path, "MAXN")
    kernel, idle_mw = Kernel(tree.root), read_mw(tree)
    kernel.train("orin-agx", WORKLOAD, {})
    assert read_mw(tree) > 1.2 * idle_mw
    kernel.set_load()
    assert read_mw(tree) == pytest.approx(idle_mw)
