"""DVFS as a condition of boards: free below the mode's clocks, held again after, and put back at the end."""

from __future__ import annotations

import contextlib

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.core.cases import DVFS, STATIC, Case, Settings
from harness.core.configuration import Configuration
from harness.core.power_modes import PowerMode
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.measure import run as measuring
from harness.measure.run import Bench, conditions


@pytest.fixture(autouse=True)
def state_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def device_of(tree):
    return JetsonDevice(read_board(tree.path), Configuration(), tree.path)


def case_of(device, settings):
    return Case(device.name, "lenet-mnist", "maxn", 0, "ssd", 16, settings)


@contextlib.contextmanager
def running(tree, device):
    kernel = Kernel(tree.root)
    with intercepted(kernel), tools_in_process(tree.root), device.session():
        yield kernel


@pytest.mark.parametrize(
    ("board", "l4t"), [("orin-agx", "r35.4"), ("orin-nano", "r36.4"), ("xavier-agx", "r32.7"), ("nano", "r32.7")]
)
def test_clocks_of_a_board_are_free_below_the_mode_and_held_again_and_put_back(tmp_path, board, l4t):
    tree = build_board(tmp_path / "root", board, l4t)
    device, before = device_of(tree), tree.controls()
    space = device.power_mode_space()
    lowest, middle = space.at(0), space.nearest(PowerMode(*(values[len(values) // 2] for values in space.dimensions)))
    with running(tree, device) as kernel:
        for mode in (space.greatest, middle, lowest, space.greatest):
            assert device._apply(mode.name, mode, DVFS) == (mode, [])
            limits = [*device._control._running().values(), *device._control.gpu.read().values()]
            if mode == lowest:  # there is nothing below
                assert all(low == high for low, high in limits)
            else:
                assert all(low < high for low, high in limits)
                assert device._control.dvfs() == "on"
            assert not device._control.memory.read()["locked"]
        kernel.set_load(cpu=0.2, gpu=0.2, mem=0.2)
        shown = {use: kernel.read(f"{node}/cur_freq") for use, node in [("gpu", kernel.state()["places"]["gpu"][0][0])]}
        assert 0 < int(shown["gpu"]) < space.gpu_khz[-1] * 1000
        assert device._apply(middle.name, middle, STATIC) == (middle, [])
        assert device._control.dvfs() == "off"
        assert device._control.memory.read()["locked"]
    assert tree.controls() == before


def test_without_nvpmodel_and_jetson_clocks_clocks_are_freed_and_held_through_sysfs(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r35.4", mode="MAXN")
    for tool in ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks"):
        (tree.path / tool).unlink()
    device, before = device_of(tree), tree.controls()
    mode = PowerMode(5, 1_113_600, 624_750, 2_133_000)
    with running(tree, device):
        assert device._apply(mode.name, mode, DVFS) == (mode, [])
        assert device._control.dvfs() == "on"
        assert device._apply(mode.name, mode, STATIC) == (mode, [])
        assert device._control.dvfs() == "off"
    assert tree.controls() == before


def test_a_mode_of_the_boards_own_keeps_its_caps_with_free_clocks(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-agx", "r35.4")
    device = device_of(tree)
    [(name, mode)] = device.power_modes("mode_30w_all")
    with running(tree, device) as kernel:
        assert device._apply(name, mode, DVFS) == (mode, [])
        assert device._control.dvfs() == "on"
        assert kernel.read("var/lib/nvpmodel/status").endswith("3")


def test_what_a_board_would_record_of_clocks_is_known_before_a_case_is_measured(tmp_path):
    device = device_of(build_board(tmp_path / "root", "orin-nano", "r36.4"))
    free, static = (case_of(device, Settings(clocks=clocks)) for clocks in (DVFS, STATIC))
    assert device.conditions(free)["dvfs"] == "on"
    assert device.conditions(static)["dvfs"] == "off"


def test_the_data_set_of_a_board_case_is_made_ready_once(tmp_path, monkeypatch):
    device = device_of(build_board(tmp_path / "root", "orin-nano", "r36.4"))
    made = []
    monkeypatch.setattr(measuring, "make_ready", lambda case, *_: made.append(case) or Bench(case, None, None, {}))
    for settings in (Settings(), Settings(), Settings(seed=1)):
        for _ in range(2):
            conditions(case_of(device, settings), device, made.append)
    assert [case.settings.seed for case in made] == [0, 1]
