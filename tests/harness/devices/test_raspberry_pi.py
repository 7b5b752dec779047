"""A Raspberry Pi 5 that is a tree of files with an executable `vcgencmd`."""

from __future__ import annotations

import pytest

from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError
from harness.core.power_modes import PowerMode
from harness.devices.raspberry_pi import is_raspberry_pi
from harness.devices.registry import local_board, open_device
from tests.harness.board.kernel_trees import cpus, policy
from tests.named_modes import mode_on

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
FILES = {
    "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/device-tree/serial-number": "1234567890abcdef\0",
    "proc/cpuinfo": "processor\t: 0",
    "proc/meminfo": "MemTotal:        8245632 kB",
    "sys/devices/system/cpu/online": "0-3",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": 61000,
    **cpus(4),
    **policy(0, "0 1 2 3", levels=(1500000, 1600000, 2400000)),
    "usr/bin/vcgencmd": "#!/bin/sh\ncase $1 in\n"
    "get_throttled) echo throttled=0x0;;\n"
    '*) printf "VDD_CORE_A current(7)=2.0A\\nVDD_CORE_V volt(15)=0.8V\\n";;\nesac\n',
}


@pytest.fixture
def pi(tree, monkeypatch, tmp_path):
    tree.write(FILES)
    (tree.path / "usr/bin/vcgencmd").chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return open_device("raspberry-pi-5", Configuration(), tree.path)


def test_it_is_known_by_its_device_tree_and_is_the_default_there(tree, pi) -> None:
    assert local_board(Configuration(), tree.path).name == pi.name == "raspberry-pi-5"
    assert pi.identity().model.startswith("Raspberry Pi 5")
    assert pi.board_instance is not None
    (tree.path / "proc/device-tree/compatible").write_text("raspberrypi,4-model-b\0brcm,bcm2711\0")
    assert not is_raspberry_pi(tree.path)


def test_elsewhere_the_way_out_is_said() -> None:
    with pytest.raises(CannotRunError, match="raspberry-pi-5 is not this machine") as refused:
        open_device("raspberry-pi-5", Configuration()).check(
            Case("raspberry-pi-5", "lenet-mnist", mode_on("raspberry-pi-5"), 0, "sd", 16)
        )
    assert "device='sim:raspberry-pi-5'" in refused.value.hint


def test_its_modes_are_cores_and_clocks_and_its_power_is_that_of_the_rails(tree, pi) -> None:
    assert pi.power_mode_space().greatest == PowerMode(4, 2_400_000, 0, 0)
    before = tree.contents()
    with pi.session():
        assert pi.apply(PowerMode(2, 1_500_000, 0, 0)).cpu_khz == 1_500_000
        assert (tree.path / POLICY / "scaling_max_freq").read_text().strip() == "1500000"
    assert tree.contents() == before
    found = {one.name: one for one in pi.capabilities()}
    assert found["measure power"].available
    assert "VDD_CORE" in found["measure power"].detail
    assert found["measure temperatures"].available


@pytest.mark.parametrize(("workload", "batch_size", "fits"), [("bert-squad", 16, False), ("bert-squad", 4, True),
                                                              ("lenet-mnist", 64, True)])  # fmt: skip
def test_what_its_memory_cannot_hold_is_refused_before_it_begins(
    tree, pi, workload: str, batch_size: int, fits: bool
) -> None:
    case = Case(pi.name, workload, named_mode(pi, "maxn"), 0, "ssd", batch_size)
    if fits:
        pi.check(case)
        return
    with pytest.raises(CannotRunError, match="does not fit into 8 GiB"):
        pi.check(case)
    (tree.path / "proc/meminfo").write_text("MemTotal:       16245632 kB\n")  # there is one of 16 GiB
    pi.check(case)
