"""What goes wrong on a board in the middle of a run: an error that names it, or a gap in the record; never a guess."""

from __future__ import annotations

import errno

import pytest

from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board
from harness.board import power_rails
from harness.core.configuration import Configuration
from harness.core.errors import ControlError
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return build_board(tmp_path / "root", "orin-nano", "r36.4")


@pytest.mark.parametrize(
    "pattern", ["*/scaling_max_freq", "*/devfreq/*/max_freq", "*/cpu3/online", "*/nvpmodel_clk_cap/emc"]
)
def test_einval_in_the_middle_of_a_mode_is_an_error_and_everything_is_put_back(tree, pattern):
    device, before = JetsonDevice(read_board(tree.path), Configuration(), tree.path), tree.controls()
    kernel = Kernel(tree.root)
    with intercepted(kernel), tools_in_process(tree.root), device.session():
        kernel.refuse(pattern, errno.EINVAL)
        with pytest.raises(ControlError, match=r"Invalid argument|did not take|reads back"):
            device.apply(device.power_mode_space().at(0))
        assert errno.EINVAL in [refusal.number for refusal in kernel.refusals]
        kernel.heal()
    assert tree.controls() == before


@pytest.mark.parametrize("fault", ["vanishes", "reads garbage"])
def test_a_sensor_that_fails_is_missing_with_its_reason_until_it_is_back(tree, fault):
    kernel, source = Kernel(tree.root), power_rails.open_source(tree.root)
    file = str(next(tree.path.glob("sys/bus/i2c/devices/1-0040/hwmon/hwmon*/curr2_input")))
    kernel.vanish(file) if fault == "vanishes" else kernel.garble(file, "??")
    values, failed = source.read(0.0)
    assert "power_vdd_cpu_gpu_cv_mw" in failed
    assert "power_vdd_cpu_gpu_cv_mw" not in values
    assert values["power_vdd_in_mw"] > 0
    kernel.heal()
    assert source.read(1.0).failed == {}
