"""Each line of the acceptance test fails where the tree is broken in what the line is about, and passes before."""

from __future__ import annotations

import pytest
from boards.kernel import Kernel

from harness.acceptance.modes import Shown, disagrees
from tests.harness.acceptance.accepted_board import accepted, built, line_of

pytest.importorskip("torch")


@pytest.fixture
def orin(tmp_path):
    return built(tmp_path)


def fails(tree, name, words):
    """A line fails for a reason with these words; that it passes on a whole tree is tested with all lines."""
    line = line_of(accepted(tree, name), name)
    assert line["verdict"] == "FAIL", line
    assert words in "; ".join(line["reasons"])


def test_identity_fails_without_a_release(orin):
    (orin.path / "etc/nv_tegra_release").unlink()
    fails(orin, "identity", "release of L4T is unknown")


def test_rights_fail_where_a_rail_gives_no_value_twice(orin):
    rail = next(orin.path.glob("sys/bus/i2c/devices/1-0040/hwmon/hwmon*/in1_input"))
    Kernel(orin.root).garble(str(rail))
    fails(orin, "rights", "power_vdd_gpu_soc_mw gives no value twice")


def test_modes_fail_where_a_clock_is_not_that_of_the_mode(orin):
    Kernel(orin.root).throttle()
    fails(orin, "modes", "MODE_30W: gpu_khz is 306000, set 612000")


def test_modes_fail_where_the_board_is_not_restored_and_keep_what_they_saw(orin):
    Kernel(orin.root).refuse("*/scaling_max_freq", after=200)
    line = line_of(accepted(orin, "modes"), "modes")
    assert line["verdict"] == "FAIL"
    assert "is not as it was before" in line["reasons"][-1]
    assert "MODE_30W" in line["evidence"]


@pytest.mark.parametrize(
    ("shown", "is_wrong"),
    [
        (Shown("CPU_ONLINE", "CORE_3", "0", "1"), True),
        (Shown("CPU_ONLINE", "CORE_3", "1", "1"), False),
        (Shown("GPU", "MAX_FREQ", "612000000", "624750000"), False),  # rounded
        (Shown("GPU", "MAX_FREQ", "306000000", "612000000"), True),
        (Shown("GPU", "MAX_FREQ", "1300500000", "-1"), False),
        (Shown("GPU", "MIN_FREQ", "612000000", "0"), False),  # raised by jetson_clocks
        (Shown("TPC_POWER_GATING", "TPC_PG_MASK", "0", "240"), True),
        (Shown("GPU_POWER_CONTROL_ENABLE", "GPU_PWR_CNTL_EN", "on", "on"), False),
    ],
)
def test_a_value_of_nvpmodel_disagrees_with_its_conf_beyond_rounding(shown, is_wrong):
    assert disagrees(shown) == is_wrong
