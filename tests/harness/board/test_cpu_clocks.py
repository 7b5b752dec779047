"""CPU clocks and governors: sleeping clusters are woken to be put back, and a policy that fails fails alone."""

from __future__ import annotations

import errno
import os

import pytest

from harness.board import cpu_clocks, kernel_file
from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import MAXIMUM, MINIMUM, CpuFrequency
from harness.board.governor import Governor
from harness.core.errors import ControlError, InvalidValueError
from tests.harness.board.kernel_trees import CPU, cpus, kernel, policy

POLICY = f"{CPU}/cpufreq/policy"
SET = [1497600, 1497600]
"""As a run leaves a cluster."""


def running(number, cpus, khz):
    return {f"{POLICY}{number}/related_cpus": cpus, f"{POLICY}{number}/scaling_cur_freq": khz}


@pytest.fixture
def board(tree):
    """Two clusters; the second is slower."""
    tree.write({**policy(0, "0 1"), **policy(2, "2 3", levels=(204000, 729600, 1113600))})
    return tree


def test_pinning_gives_each_policy_the_clock_or_its_nearest(board):
    knob = CpuFrequency(board.root)
    knob.set(knob.pinned(2201600))
    assert knob.read() == {"policy0": [2201600, 2201600], "policy2": [1113600, 1113600]}
    knob.set(knob.pinned(204000))
    assert knob.read() == {"policy0": [115200, 115200], "policy2": [204000, 204000]}


def test_what_is_not_there_is_an_error_that_says_what_is(board):
    with pytest.raises(InvalidValueError, match=r"1000000 kHz.*policy2: 204000, 729600, 1113600"):
        CpuFrequency(board.root).pinned(1_000_000)
    with pytest.raises(ControlError, match=r"policy8 .*available: policy0, policy2"):
        Governor(board.root, "cpu").set({"policy8": "performance"})
    with pytest.raises(InvalidValueError, match=r"'fan'.*available: cpu, devfreq"):
        Governor(board.root, "fan")
    (board.path / f"{POLICY}2/related_cpus").unlink()
    for use in (CpuFrequency(board.root).usable, lambda: CpuFrequency(board.root).pinned(729_600)):
        with pytest.raises(ControlError, match=r"policy2/related_cpus .*No such file"):
            use()


def test_without_a_list_any_clock_in_the_range_is_possible(tree):
    files = policy(0, "0", levels=(800_000, 4_000_000))
    del files[f"{POLICY}0/scaling_available_frequencies"]
    tree.write(files)
    knob = CpuFrequency(tree.root)
    assert knob.policies()[0].levels_khz == ()
    assert knob.pinned(1_234_567) == {"policy0": [1_234_567, 1_234_567]}
    with pytest.raises(InvalidValueError, match="800000 to 4000000"):
        knob.pinned(5_000_000)


def test_policies_are_ordered_by_cpu_not_by_text(tree):
    tree.write({**policy(10, "10 11"), **policy(2, "2 3")})
    assert [each.name for each in CpuFrequency(tree.root).policies()] == ["policy2", "policy10"]


# -- clusters that sleep -----------------------------------------------------------------------------------------------


@pytest.fixture
def sleeping(tree):
    """Two clusters, the second of which sleeps."""
    tree.write({**cpus(4, offline=(2, 3)), **policy(0, "0 1"), **policy(2, "2 3", governor="userspace")})
    return tree


def limits(tree, number):
    return [int((tree.path / f"{POLICY}{number}/{name}").read_text()) for name in (MINIMUM, MAXIMUM)]


def test_a_sleeping_cluster_is_not_pinned(sleeping, monkeypatch):
    knob = CpuFrequency(sleeping.root)
    with kernel(monkeypatch):
        knob.set(knob.pinned(729600))
    assert knob.read() == {"policy0": [729600, 729600], "policy2": [115200, 2201600]}


def test_a_sleeping_cluster_is_woken_for_the_write_and_sleeps_again(sleeping, monkeypatch):
    knob = CpuFrequency(sleeping.root)
    before, contents = knob.read(), sleeping.contents()
    sleeping.write({f"{POLICY}2/{name}": SET[0] for name in (MINIMUM, MAXIMUM)})
    with kernel(monkeypatch) as written:
        knob.restore(before)
    assert sleeping.contents() == contents
    assert [os.path.relpath(path, sleeping.root) for path, _ in written][::3] == [f"{CPU}/cpu2/online"] * 2


def test_a_cluster_that_stands_right_is_not_woken(sleeping, monkeypatch):
    knob = CpuFrequency(sleeping.root)
    with kernel(monkeypatch) as written:
        knob.restore(knob.read())
    assert written == []


def test_a_cluster_goes_back_to_sleep_also_where_the_write_is_refused(sleeping, monkeypatch):
    knob = CpuFrequency(sleeping.root)
    with kernel(monkeypatch), pytest.raises(ControlError, match="Invalid argument"):
        knob.apply({"policy0": [2201600, 115200], "policy2": SET})
    assert CpuOnline(sleeping.root).read() == [0, 1]


def test_a_cluster_that_some_kernels_remove_while_it_sleeps_is_left_alone(sleeping, monkeypatch):
    knob = CpuFrequency(sleeping.root)
    with kernel(monkeypatch) as written:
        knob.apply({"policy4": SET, "policy0": SET})
    assert limits(sleeping, 0) == SET
    assert len(written) == 2


def test_limits_that_a_kernel_does_not_tell_are_left_out_and_put_back_all_the_same(sleeping, monkeypatch):
    """Linux 5.19 on: whatever is read of a policy without an online CPU is EBUSY."""
    plain = kernel_file.read_text

    def read_text(path):
        if "policy2/" in path and plain(os.path.join(sleeping.root, CPU, "cpu2/online")) == "0":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        return plain(path)

    monkeypatch.setattr(kernel_file, "read_text", read_text)
    knob = CpuFrequency(sleeping.root)
    assert [each.name for each in knob.policies()] == ["policy0"]
    assert knob.read() == {"policy0": [115200, 2201600]}
    assert knob.available().available
    with kernel(monkeypatch):
        knob.apply({"policy2": SET})
    assert limits(sleeping, 2) == SET
    assert CpuOnline(sleeping.root).read() == [0, 1]


# -- governors ---------------------------------------------------------------------------------------------------------


def test_governors_are_set_and_put_back_those_of_sleeping_clusters_too(sleeping, monkeypatch):
    knob = Governor(sleeping.root, "cpu")
    before, contents = knob.read(), sleeping.contents()
    assert before == {"policy0": "schedutil", "policy2": "userspace"}
    with kernel(monkeypatch):
        knob.set({"policy0": "performance"})
        assert knob.read() == {"policy0": "performance", "policy2": "userspace"}
        knob.set({"policy2": "performance"})
        knob.restore(before)
    assert sleeping.contents() == contents


# -- what they run at --------------------------------------------------------------------------------------------------


def test_a_policy_that_goes_offline_or_says_nothing_fails_alone(tree):
    tree.write({**running(0, "0 1 2 3", 729600), **running(4, "4", 115200), **running(8, "8 9", 729600)})
    source = cpu_clocks.open_source(tree.root)
    assert source.read(0.0).values == {"cpu0_khz": 729600, "cpu4_khz": 115200, "cpu8_khz": 729600}
    assert source.notes["cpu0_khz"] == "scaling_cur_freq of CPUs 0 1 2 3"
    (tree.path / f"{POLICY}4/scaling_cur_freq").unlink()
    tree.write(running(8, "8 9", "<unknown>"))
    values, failed = source.read(0.0)
    assert values == {"cpu0_khz": 729600}
    assert set(failed) == {"cpu4_khz", "cpu8_khz"}
    assert "<unknown>" in failed["cpu8_khz"]


def test_a_chip_that_is_held_down_shows_in_what_is_measured_alone_and_that_is_read_seldom(tree):
    """Numbers of a Thor on L4T r38.4 after an over-current event: 2601 MHz asked for and shown, 649 MHz real."""
    tree.write({**running(0, "0 1", 2601000), f"{POLICY}0/cpuinfo_cur_freq": 649000, **running(2, "2", 2601000)})
    source = cpu_clocks.open_source(tree.root, measured=True)
    assert source.notes["cpu0_khz"].startswith("scaling_cur_freq")
    assert source.notes["cpu0_measured_khz"].startswith("cpuinfo_cur_freq of CPUs 0 1")
    values, failed = source.read(100.0)
    assert values == {"cpu0_khz": 2601000, "cpu0_measured_khz": 649000, "cpu2_khz": 2601000}
    assert "cpuinfo_cur_freq" in failed["cpu2_measured_khz"]
    assert set(source.read(101.0).values) == {"cpu0_khz", "cpu2_khz"}
    assert "cpu0_measured_khz" in source.read(100.0 + cpu_clocks.MEASURED_EVERY_S).values
    assert "cpu0_measured_khz" not in cpu_clocks.open_source(tree.root).read(0.0).values
