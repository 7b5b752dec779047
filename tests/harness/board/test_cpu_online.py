"""CPUs on- and offline: CPU 0 stays, up before down, and one that does not come back is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.board import cpu
from harness.board.cpu import CpuOnline, kept_online
from harness.core.errors import ControlError
from tests.harness.board.kernel_trees import CPU, cpus


@pytest.fixture
def board(tree):
    tree.write({**cpus(12, offline=(10, 11)), f"{CPU}/cpufreq/boost": 1, f"{CPU}/cpuidle/current_driver": "x"})
    return tree


def test_the_online_cpus_are_read_in_the_order_of_their_numbers(board):
    knob = CpuOnline(board.root)
    assert knob.cpus() == list(range(12))
    assert knob.read() == list(range(10))


def test_cpus_go_and_come_back(board):
    knob = CpuOnline(board.root)
    before, contents = knob.read(), board.contents()
    knob.set([0, 1, 11])
    assert knob.read() == [0, 1, 11]
    assert (board.path / CPU / "cpu2/online").read_text() == "0\n"
    knob.restore(before)
    assert board.contents() == contents


def test_cpus_come_up_before_others_go(board, monkeypatch):
    order = []
    monkeypatch.setattr(cpu.CpuOnline, "_turn", lambda self, cpu, state: order.append((cpu, state)))
    CpuOnline(board.root).apply([0, *range(3, 9), 10, 11])
    assert order == [(10, 1), (11, 1), (9, 0), (2, 0), (1, 0)]


@pytest.mark.parametrize("cpus", [[], [1, 2], [0, 12]])
def test_cpu_0_stays_and_others_must_be_there(board, cpus):
    before = board.contents()
    with pytest.raises(ControlError, match=r"cannot be the ones online; CPUs \[0\] always are"):
        CpuOnline(board.root).set(cpus)
    assert board.contents() == before


def test_a_cpu_without_a_switch_is_online(tree):
    tree.write({f"{CPU}/cpu0/topology/x": 0, f"{CPU}/cpu1/topology/x": 0, f"{CPU}/cpu2/online": 0})
    assert CpuOnline(tree.root).read() == [0, 1]


def test_a_cpu_that_does_not_come_back_is_named(board, monkeypatch):
    monkeypatch.setattr(cpu, "write", lambda path, value: None)
    with pytest.raises(ControlError, match="CPU 10 was turned on and did not come back"):
        CpuOnline(board.root).set(list(range(12)))


def test_a_cpu_that_does_not_go_is_named(board, monkeypatch):
    monkeypatch.setattr(cpu, "write", lambda path, value: None)
    with pytest.raises(ControlError, match="CPU 9 was turned off and did not go"):
        CpuOnline(board.root).set([0])


def test_it_is_available_where_there_are_switches(board, tree, tmp_path):
    capability = CpuOnline(board.root).available()
    assert capability.available
    assert capability.detail == "10 of 12 CPUs are online"
    assert not CpuOnline(str(tmp_path / "nothing")).available().available


def test_without_the_right_to_write_the_grant_is_named(plain_user):
    switch = plain_user / CPU / "cpu1/online"
    switch.parent.mkdir(parents=True)
    switch.write_text("1\n")
    switch.chmod(0o444)
    capability = CpuOnline(str(plain_user)).available()
    assert not capability.available
    assert f"sudo chown $USER {switch}" in capability.hint


def test_a_cpu_is_kept_online_for_a_block_and_goes_again(board):
    knob = CpuOnline(board.root)
    before = knob.read()
    for number in (11, 3):
        with kept_online(board.root, number):
            assert number in knob.read()
        assert knob.read() == before


sets = st.sets(st.integers(1, 5)).map(lambda some: [0, *sorted(some)])


@settings(max_examples=30)
@given(sets, st.lists(sets, max_size=4))
def test_restore_undoes_any_sequence(before, sequence):
    with tempfile.TemporaryDirectory() as root:
        for name, content in cpus(6, offline=set(range(6)) - set(before)).items():
            path = Path(root, name)
            path.parent.mkdir(parents=True)
            path.write_text(f"{content}\n")
        knob = CpuOnline(root)
        for setting in sequence:
            knob.set(setting)
            assert knob.read() == setting
        knob.restore(before)
        assert knob.read() == before
