"""A Raspberry Pi 5 that is a tree of files with an executable `vcgencmd`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError
from harness.core.power_modes import PowerMode
from harness.devices.raspberry_pi import is_raspberry_pi
from harness.devices.registry import local_board, open_device

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
FILES = {
    "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/device-tree/serial-number": "1234567890abcdef\0",
    "proc/cpuinfo": "processor\t: 0\n",
    "proc/meminfo": "MemTotal:        8245632 kB\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "61000\n",
    f"{POLICY}/related_cpus": "0 1 2 3\n",
    f"{POLICY}/affected_cpus": "0 1 2 3\n",
    f"{POLICY}/cpuinfo_min_freq": "1500000\n",
    f"{POLICY}/cpuinfo_max_freq": "2400000\n",
    f"{POLICY}/scaling_min_freq": "1500000\n",
    f"{POLICY}/scaling_max_freq": "2400000\n",
    f"{POLICY}/scaling_cur_freq": "2400000\n",
    f"{POLICY}/cpuinfo_cur_freq": "1500000\n",
    f"{POLICY}/scaling_available_frequencies": "1500000 1600000 2400000\n",
    "usr/bin/vcgencmd": "#!/bin/sh\ncase $1 in\n"
    "get_throttled) echo throttled=0x0;;\n"
    '*) printf "VDD_CORE_A current(7)=2.0A\\nVDD_CORE_V volt(15)=0.8V\\n";;\nesac\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(4):
        FILES.setdefault(f"sys/devices/system/cpu/cpu{number}/online", "1\n")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "usr/bin/vcgencmd").chmod(0o755)
    return tmp_path


@pytest.fixture
def pi(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JETWATT_LOCK_DIR", str(tree))
    monkeypatch.setenv("XDG_STATE_HOME", str(tree))
    return open_device("raspberry-pi-5", Configuration(), tree)


def test_it_is_known_by_its_device_tree_and_is_the_default_there(tree: Path, pi) -> None:
    assert local_board(Configuration(), tree).name == pi.name == "raspberry-pi-5"
    assert pi.identity().model.startswith("Raspberry Pi 5")
    assert pi.board_instance is not None
    (tree / "proc/device-tree/compatible").write_text("raspberrypi,4-model-b\0brcm,bcm2711\0")
    assert not is_raspberry_pi(tree)


def test_elsewhere_the_way_out_is_said() -> None:
    with pytest.raises(CannotRunError, match="raspberry-pi-5 is not this machine") as refused:
        open_device("raspberry-pi-5", Configuration()).check(Case("raspberry-pi-5", "lenet-mnist", "maxn", 0, "sd", 16))
    assert "--device sim:raspberry-pi-5" in refused.value.hint


def test_its_modes_are_cores_and_clocks_and_its_power_is_that_of_the_rails(pi) -> None:
    assert pi.power_mode_space().greatest == PowerMode(4, 2_400_000, 0, 0)
    with pi.session():
        assert pi.apply(PowerMode(2, 1_500_000, 0, 0)).cpu_khz == 1_500_000
    found = {one.name: one for one in pi.capabilities()}
    assert found["measure power"].available
    assert "VDD_CORE" in found["measure power"].detail
    assert found["measure temperatures"].available


def test_its_clock_limits_are_put_back(tree: Path, pi) -> None:
    with pi.session():
        pi.apply(PowerMode(4, 1_500_000, 0, 0))
        assert (tree / POLICY / "scaling_max_freq").read_text().strip() == "1500000"
    assert (tree / POLICY / "scaling_max_freq").read_text().strip() == "2400000"


@pytest.mark.parametrize(("workload", "batch_size", "fits"), [("bert-squad", 16, False), ("bert-squad", 4, True),
                                                              ("lenet-mnist", 64, True)])  # fmt: skip
def test_what_its_memory_cannot_hold_is_refused_before_it_begins(
    tree: Path, pi, workload: str, batch_size: int, fits: bool
) -> None:
    case = Case(pi.name, workload, "maxn", 0, "ssd", batch_size)
    if fits:
        pi.check(case)
        return
    with pytest.raises(CannotRunError, match="does not fit into 8 GiB"):
        pi.check(case)
    (tree / "proc/meminfo").write_text("MemTotal:       16245632 kB\n")  # there is one of 16 GiB
    pi.check(case)
