"""CPU clock limits of clusters of which some sleep: they are woken to be put back, and are never missed."""

from __future__ import annotations

import errno
import os

import pytest

from harness.board import kernel_file
from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import MAXIMUM, MINIMUM, ClusterLimits, CpuFrequency
from harness.core.errors import ControlError
from tests.harness.board.kernel_trees import CPU, cpus, kernel, policy

SET = [1497600, 1497600]
"""As a run leaves a cluster."""


@pytest.fixture
def board(tree):
    """Two clusters, the second of which sleeps."""
    tree.write({**cpus(4, offline=(2, 3)), **policy(0, "0 1"), **policy(2, "2 3")})
    return tree


def limits(tree, number):
    directory = tree.path / CPU / f"cpufreq/policy{number}"
    return [int((directory / name).read_text()) for name in (MINIMUM, MAXIMUM)]


def test_a_sleeping_cluster_is_woken_for_the_write_and_sleeps_again(board, monkeypatch):
    knob = ClusterLimits(board.root)
    before, contents = knob.read(), board.contents()
    board.write({f"{CPU}/cpufreq/policy2/{name}": SET[0] for name in (MINIMUM, MAXIMUM)})
    with kernel(monkeypatch) as written:
        knob.restore(before)
    assert board.contents() == contents
    assert [os.path.relpath(path, board.root) for path, _ in written][::3] == [f"{CPU}/cpu2/online"] * 2


def test_a_cluster_that_stands_right_is_not_woken(board, monkeypatch):
    knob = ClusterLimits(board.root)
    with kernel(monkeypatch) as written:
        knob.restore(knob.read())
    assert written == []


def test_a_cluster_goes_back_to_sleep_also_where_the_write_is_refused(board, monkeypatch):
    knob = ClusterLimits(board.root)
    with kernel(monkeypatch), pytest.raises(ControlError, match="Invalid argument"):
        knob.apply({"policy0": [2201600, 115200], "policy2": SET})
    assert CpuOnline(board.root).read() == [0, 1]


def test_a_cluster_that_some_kernels_remove_while_it_sleeps_is_left_alone(board, monkeypatch):
    knob = ClusterLimits(board.root)
    with kernel(monkeypatch) as written:
        knob.apply({"policy4": SET, "policy0": SET})
    assert limits(board, 0) == SET
    assert len(written) == 2


@pytest.fixture
def tells_nothing_of_sleepers(monkeypatch):
    """Linux 5.19 on: whatever is read of a policy without an online CPU is EBUSY."""
    plain = kernel_file.read_text

    def read_text(path):
        switch = os.path.join(os.path.dirname(path), "../../cpu2/online")
        if "policy2/" in path and plain(switch) == "0":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        return plain(path)

    monkeypatch.setattr(kernel_file, "read_text", read_text)


def test_limits_that_a_kernel_does_not_tell_are_left_out_and_no_error(board, monkeypatch, tells_nothing_of_sleepers):
    for knob in (CpuFrequency(board.root), ClusterLimits(board.root)):
        assert knob.read() == {"policy0": [115200, 2201600]}
        assert knob.available().available
        assert knob._limits("policy2") is None


@pytest.mark.parametrize("kind", [CpuFrequency, ClusterLimits])
def test_what_was_saved_of_a_cluster_that_sleeps_now_is_put_back(board, monkeypatch, tells_nothing_of_sleepers, kind):
    knob = kind(board.root)
    with kernel(monkeypatch):
        knob.apply({"policy2": SET})
    assert limits(board, 2) == SET
    assert CpuOnline(board.root).read() == [0, 1]
