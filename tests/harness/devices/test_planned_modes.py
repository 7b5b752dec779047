"""A case carries its power mode: a text is resolved where the case is made, and no device parses a name again."""

from __future__ import annotations

import pytest
from boards.tree import build_board

from harness.core.campaigns import Sweep, expand
from harness.core.cases import CONCURRENT, Case, CaseSettings, parts_of
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import InvalidValueError
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.devices.registry import open_device
from harness.measure.idle import idle_cases
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
@pytest.mark.exhaustive
def test_a_device_uses_the_mode_that_a_case_carries_and_parses_no_name(tmp_path, monkeypatch, kind):
    device = OPENED[kind](tmp_path)
    (name, mode), *_ = device.power_modes("all", "yolov8n-coco")
    named = named_mode(device, name, "yolov8n-coco")
    assert (named.name, named.mode) == (name, mode)

    def refuse(*_):
        raise AssertionError("the name of a mode was parsed again")

    monkeypatch.setattr(device, "power_modes", refuse, raising=False)
    case = Case(device.name, "yolov8n-coco", named, None if kind == "replay" else 4, "ssd", 16)
    assert device.conditions(case)["power_mode"] == mode._asdict()
    assert device.conditions(case)["power_mode_name"] == name


def test_a_preset_by_name_is_the_boards_own_spelling_of_it(tmp_path):
    device = jetson(tmp_path)
    named = named_mode(device, "mode_30w")
    assert (named.name, named.mode) == device.power_modes("MODE_30W")[0]
    assert named.name == str(named) == "MODE_30W"


def test_a_text_of_several_modes_names_no_mode_of_a_case(tmp_path):
    with pytest.raises(InvalidValueError, match=r"'sample:2' .*2 modes"):
        named_mode(open_device("sim:orin-agx", Configuration()), "sample:2")


def test_inference_with_a_mode_of_its_own_carries_it_from_the_plan_on():
    board, mix = "sim:orin-agx", "resnet18-cifar10+lenet-mnist-bs4@20-in-2c"
    device = open_device(board, Configuration())
    parsed = []

    def resolve(name, workload, text):
        parsed.append((workload, text))
        return device.power_modes(text, workload)

    axes = {"device": (board,), "workload": (mix,), "power_mode": ("maxn",), "workers": (4, 0), "storage": ("ssd",)}
    settings = CaseSettings(minibatches=None, duration_s=30.0, switching_ms=50.0)
    cases = expand([Sweep({**axes, "batch_size": (16,)}, settings, CONCURRENT)], resolve)
    assert sorted(parsed) == [("lenet-mnist", "2c"), (mix, "maxn")]
    assert [case.id for case in cases] == [f"{board}-{mix}-maxn-w{workers}-ssd-bs16-concurrent" for workers in (4, 0)]
    training, inference = parts_of(cases[0])
    assert training.power_mode.mode.cpu_cores == 12
    assert inference.power_mode.mode == device.power_modes("2c")[0][1]
    conditions = device.conditions(cases[0])
    assert conditions["inference"]["power_mode"] == inference.power_mode.mode._asdict()
    idle, *_ = idle_cases(cases, 60.0, {})
    assert (idle.id, idle.inference_mode) == (f"{board}-idle-maxn", None)
    several = {**axes, "workload": (mix.replace("2c", "a..b"),), "batch_size": (16,)}
    with pytest.raises(InvalidValueError, match="means 2 modes"):
        expand([Sweep(several, settings, CONCURRENT)], lambda *_: 2 * device.power_modes("maxn"))
