"""Which device a name opens: one that is not this machine plans its modes, another board than meant is refused."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.cases import Case
from harness.core.configuration import Configuration, load_configuration
from harness.core.environment import board_instance
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.devices.registry import known_devices, open_device
from harness.devices.replay import PREFIX as REPLAY
from tests.named_modes import mode_on

CASE = Case("orin-agx", "lenet-mnist", mode_on("orin-agx"), 0, "ssd", 16)


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
    assert open_device("orin-agx@orin3", Configuration()).power_modes("maxn") == orin.power_modes("maxn")


def test_a_mode_that_the_board_does_not_have_is_refused_with_those_it_has(orin):
    with pytest.raises(UnknownNameError, match="available: maxn, MODE_15W"):
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
        with pytest.raises(CannotRunError, match=r"orin-agx is not this machine.*on the board"):
            ask()


@pytest.mark.parametrize("model", ["AMD EPYC", "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz of a Very Long Name", ""])
def test_the_reason_fits_in_two_lines_whatever_the_cpu_is_called(tmp_path, model):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"model name\t: {model}\n" if model else "CPU implementer\t: 0x41\n")
    board = open_device("orin-agx", Configuration(), tmp_path)
    with pytest.raises(CannotRunError) as refused:
        board.check(CASE)
    assert len(str(refused.value)) <= 155  # of a screen of 100 columns, with the file of the test in front


# -- which one of several boards ---------------------------------------------------------------------------------------

SERIAL, MACHINE_ID = "1423020041234", "3d1219c7c4c5404aaa1f6d2a48adfda4"


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc/device-tree/serial-number").write_bytes(SERIAL.encode() + b"\0")
    (tmp_path / "etc/machine-id").write_text(MACHINE_ID + "\n")
    return tmp_path


def test_a_serial_number_tells_a_board_and_a_machine_id_where_it_has_none(machine):
    by_serial = board_instance(machine)
    (machine / "proc/device-tree/serial-number").write_bytes(b"0000000000000\0")
    by_machine = board_instance(machine)
    (machine / "etc/machine-id").write_text("uninitialized\n")
    assert board_instance(machine) is None
    assert by_serial != by_machine
    for told, number in ((by_serial, SERIAL), (by_machine, MACHINE_ID)):
        assert len(told) == 12
        assert told not in number


def test_the_instance_is_a_condition_of_what_is_measured(machine):
    told = open_device("host", Configuration(), machine).conditions(dataclasses.replace(CASE, device="host"))
    assert told["board_instance"] == board_instance(machine)


def test_a_name_from_the_file_is_the_instance_and_has_no_blanks(tmp_path, machine):
    file = tmp_path / "jetwatt.toml"
    file.write_text('board_instance = "orin3"\n')
    assert open_device("host@orin3", load_configuration(file), machine).name == "host"
    file.write_text('board_instance = "orin 3\\u001b"\n')
    with pytest.raises(InvalidValueError, match=r"board_instance of .* is 'orin 3\\x1b'"):
        load_configuration(file)


@pytest.mark.parametrize("own", ["orin4", None])
def test_another_board_than_the_one_that_was_named_is_refused(tmp_path, own):
    which = "is instance orin4" if own else "has no instance name"
    with pytest.raises(CannotRunError, match=f"this host {which}.*orin3"):
        open_device("host@orin3", Configuration(board_instance=own), tmp_path)
