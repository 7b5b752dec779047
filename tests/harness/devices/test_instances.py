"""Which one of several boards: told by a serial number, a machine id or a name; another one than meant is refused."""

from __future__ import annotations

import pytest

from harness.core.cases import Case
from harness.core.configuration import Configuration, load_configuration
from harness.core.environment import board_instance
from harness.core.errors import CannotRunError, InvalidValueError
from harness.devices.registry import open_device

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
    device = open_device("host", Configuration(), machine)
    told = device.conditions(Case("host", "lenet-mnist", "maxn", 0, "ssd", 16))
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
    with pytest.raises(CannotRunError, match=f"this host {'is instance orin4' if own else 'does not tell'}.*orin3"):
        open_device("host@orin3", Configuration(board_instance=own), tmp_path)


def test_modes_of_an_absent_board_are_planned_whichever_it_is():
    assert open_device("orin-agx@orin3", Configuration()).name == "orin-agx"
