"""A board that is not this machine: its modes are planned from its file, its cases are refused with the way out."""

from __future__ import annotations

import pytest

from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.devices.registry import known_devices, open_device
from harness.devices.replay import PREFIX as REPLAY

CASE = Case("orin-agx", "lenet-mnist", "maxn", 0, "ssd", 16)


@pytest.fixture
def orin():
    return open_device("orin-agx", Configuration())


def test_every_board_can_be_named_as_a_device():
    assert known_devices()[0] == "host"
    assert "thor" in known_devices()
    for name in known_devices():
        if name.startswith((REPLAY, "nvidia-gpu", "raspberry-pi")):
            continue  # names a file; is named after what is there
        assert open_device(name, Configuration()).name == name


def test_modes_are_those_of_the_boards_file(orin):
    assert orin.power_modes("maxn") == [("maxn", PowerMode(12, 2_201_600, 1_300_500, 3_199_000))]
    assert orin.power_modes("mode_30w") == [("MODE_30W", PowerMode(8, 1_728_000, 612_000, 3_199_000))]
    assert len(orin.power_modes("sample:50")) == 50
    assert len(orin.power_mode_space()) == 18_096


def test_a_mode_that_the_board_does_not_have_is_refused_with_those_it_has(orin):
    with pytest.raises(UnknownNameError, match="known: maxn, MODE_15W"):
        orin.power_modes("MODE_40W")
    with pytest.raises(InvalidValueError, match="allowed: "):
        orin.power_modes("13c")


def test_a_board_of_which_no_clocks_are_known_takes_any_name():
    thor = open_device("thor", Configuration())
    assert [name for name, _ in thor.power_modes("120W")] == ["120W"]
    with pytest.raises(CannotRunError, match="not known off-board"):
        thor.power_mode_space()


def test_whatever_needs_the_board_is_refused_with_the_way_out(orin):
    for ask in (
        lambda: orin.check(CASE),
        lambda: orin.apply(PowerMode(1, 1, 1, 1)),
        lambda: orin.conditions(CASE),
        lambda: orin.session().__enter__(),
    ):
        with pytest.raises(CannotRunError, match=r"orin-agx is not this machine.*run on the board"):
            ask()
