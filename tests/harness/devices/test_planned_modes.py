"""A planned case carries its power mode, and devices use it; a case made by hand has a name that is looked up."""

from __future__ import annotations

import dataclasses

import pytest
from boards.tree import build_board

from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.power_modes import NamedMode
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.devices.registry import open_device
from tests.harness.devices.corpora import row, write


def jetson(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    return JetsonDevice(read_board(tree.path), Configuration(), tree.path)


def replayed(tmp_path):
    return open_device(f"replay:{write(tmp_path / 'agx.csv', [row()])}", Configuration())


OPENED = {
    "host": lambda _: open_device("host", Configuration()),
    "simulated": lambda _: open_device("sim:orin-agx", Configuration()),
    "jetson": jetson,
    "replay": replayed,
}


@pytest.mark.parametrize("kind", OPENED)
def test_a_planned_mode_is_used_as_it_is_and_a_name_alone_means_the_same(tmp_path, monkeypatch, kind):
    device = OPENED[kind](tmp_path)
    (name, mode), *_ = device.power_modes("all", "yolov8n-coco")
    by_hand = Case(device.name, "yolov8n-coco", name, None if kind == "replay" else 4, "ssd", 16)
    by_name = device.conditions(by_hand)
    assert by_name["power_mode"] == mode._asdict()

    def refuse(*_):
        raise AssertionError("the text of a resolved mode was parsed again")

    monkeypatch.setattr(device, "power_modes", refuse, raising=False)
    assert device.conditions(by_hand.in_mode(NamedMode(name, mode))) == by_name
    with pytest.raises(AssertionError, match="parsed again"):
        device.conditions(by_hand)


def test_a_preset_by_name_is_the_boards_own_spelling_of_it(tmp_path):
    device = jetson(tmp_path)
    case = Case(device.name, "lenet-mnist", "mode_30w", 0, "ssd", 16)
    named = named_mode(case, device)
    assert named == next(pair for pair in device.power_modes("MODE_30W"))
    assert named.name == "MODE_30W"
    assert named_mode(dataclasses.replace(case.in_mode(named), workload="bert-squad"), device) is named
