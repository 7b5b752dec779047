"""Governors: of CPUs, and of GPUs and memory; only ones that there are; put back."""

from __future__ import annotations

import pytest

from harness.board.governor import CPU, DEVFREQ, Governor
from harness.core.errors import ControlError, InvalidValueError
from tests.harness.board.kernel_trees import gpu, policy


@pytest.fixture
def board(tree):
    tree.write({**policy(0, "0 1"), **policy(4, "2 3", governor="userspace")})
    gpu(tree)
    return tree


def test_cpu_governors_are_set_and_put_back(board):
    knob = Governor(board.root, CPU)
    before, contents = knob.read(), board.contents()
    assert before == {"policy0": "schedutil", "policy4": "userspace"}
    knob.set(dict.fromkeys(knob.read(), "performance"))
    assert knob.read() == {"policy0": "performance", "policy4": "performance"}
    knob.restore(before)
    assert board.contents() == contents


def test_gpu_governors_are_set_and_put_back(board):
    knob = Governor(board.root, DEVFREQ)
    before = knob.read()
    knob.set(dict.fromkeys(knob.read(), "userspace"))
    assert knob.read() == {"17000000.ga10b": "userspace"}
    knob.restore(before)
    assert knob.read() == {"17000000.ga10b": "nvhost_podgov"}


def test_thor_has_governors_although_its_clocks_are_not_read(tree):
    for name in ("gpu-gpc-0", "bwmgr"):
        gpu(tree, name, "", place=name)
    gpu(tree, "8188050000.vic", "vic", place="vic")
    assert list(Governor(tree.root, DEVFREQ).read()) == ["bwmgr", "gpu-gpc-0"]


def test_a_governor_that_does_not_take_is_an_error(board, monkeypatch):
    monkeypatch.setattr("harness.board.governor.write", lambda path, value: None)
    knob = Governor(board.root, CPU)
    with pytest.raises(ControlError, match=r"CPU governors was set to .* and reads back"):
        knob.set(dict.fromkeys(knob.read(), "performance"))


def test_a_policy_that_is_not_there_is_named(board):
    with pytest.raises(ControlError, match="there is no policy8 with a governor; found: policy0, policy4"):
        Governor(board.root, CPU).set({"policy8": "performance"})


def test_other_kinds_are_refused(tree):
    with pytest.raises(InvalidValueError, match="no governors of 'fan'; known: cpu, devfreq"):
        Governor(tree.root, "fan")


@pytest.mark.parametrize("of", [CPU, DEVFREQ])
def test_without_any_it_is_not_available(tree, board, tmp_path, of):
    assert not Governor(str(tmp_path / "nothing"), of).available().available
    assert Governor(board.root, of).available().available


def test_cpus_that_are_offline_keep_theirs(board):
    board.write({f"sys/devices/system/cpu/cpu{cpu}/online": int(cpu < 2) for cpu in range(4)})
    knob = Governor(board.root, CPU)
    knob.set({"policy0": "performance"})
    assert knob.read() == {"policy0": "performance", "policy4": "userspace"}
