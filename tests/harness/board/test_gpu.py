"""GPU clock limits: found by the device tree's name, never read where that hangs, minimum never above maximum."""

from __future__ import annotations

import builtins
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import gpu as gpu_module
from harness.board.cpu_clocks import write_order
from harness.board.gpu import MAXIMUM, MINIMUM, GpuFrequency, find_gpus
from harness.board.privileged import KINDS, nodes
from harness.core.errors import ControlError, InvalidValueError
from tests.harness.board.kernel_trees import DEVFREQ, GPU_LEVELS_HZ, gpu


@pytest.mark.parametrize(
    ("name", "of_node"),
    [
        ("57000000.gpu", "gpu"),
        ("17000000.gp10b", "gp10b"),
        ("17000000.gv11b", "gv11b"),
        ("17000000.ga10b", "ga10b"),
        ("17000000.gpu", "gpu"),
        ("anything", "gpu"),
        ("0000:01:00.0", "gb10b"),
    ],
)
def test_a_gpu_is_found_by_what_the_device_tree_calls_it(tree, name, of_node):
    """By one rule: the same for the knob, for the helper, and for what reads the clock."""
    gpu(tree, name, of_node)
    gpu(tree, "15340000.vic", "vic", place="vic")
    gpu(tree, "bwmgr", "bwmgr", place="bwmgr")
    assert [found.name for found in find_gpus(tree.root)] == [name]
    assert list(nodes(KINDS["devfreq-max"], tree.root)) == [name]
    assert list(gpu_module.open_source(tree.root).notes.values()) == [f"{tree.root}/{DEVFREQ}/{name}/cur_freq"]
    assert GpuFrequency(tree.root).read() == {name: [306000000, 1300500000]}


@pytest.fixture
def board(tree):
    gpu(tree)
    return tree


NAME = "17000000.ga10b"


def test_pinning_holds_the_gpu_at_one_clock_and_restore_undoes_it(board):
    knob = GpuFrequency(board.root)
    before, contents = knob.read(), board.contents()
    for khz in (1300500, 114750, 306000):
        knob.set(knob.pinned(khz))
        assert knob.read() == {NAME: [khz * 1000] * 2}
    knob.restore(before)
    assert board.contents() == contents


def test_a_clock_that_is_not_in_the_table_is_refused_with_those_that_are(board):
    with pytest.raises(InvalidValueError, match="does not run at 612000 kHz; allowed: 114750, 306000, 1300500"):
        GpuFrequency(board.root).pinned(612_000)


def test_without_a_table_reading_back_decides(board, monkeypatch):
    (board.path / DEVFREQ / NAME / "available_frequencies").unlink()
    knob = GpuFrequency(board.root)
    plain_write = gpu_module.write

    def round_down(path, value, hint=None):
        plain_write(path, max(level for level in GPU_LEVELS_HZ if level <= value))

    monkeypatch.setattr(gpu_module, "write", round_down)
    with pytest.raises(ControlError, match=r"was set to .*\[612000000, 612000000\].* back .*\[306000000, 306000000\]"):
        knob.set(knob.pinned(612_000))


limits = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)


@given(limits, limits)
def test_the_minimum_is_never_above_the_maximum_on_the_way(now, target):
    at = dict(zip((MINIMUM, MAXIMUM), now))
    for limit, value in write_order(now, target, MINIMUM, MAXIMUM):
        at[limit] = value
        assert at[MINIMUM] <= at[MAXIMUM]
    assert list(at.values()) == target


@pytest.fixture
def thor(tree):
    for name in ("gpu-gpc-0", "gpu-nvd-0", "bwmgr"):
        gpu(tree, name, "gpu" if name != "bwmgr" else "bwmgr", place=name)
    return tree


def test_clocks_of_thor_are_never_opened(thor, monkeypatch):
    opened = []

    def watch(real):
        def open_and_note(path, *arguments, **kwargs):
            opened.append(os.path.basename(str(path)))
            return real(path, *arguments, **kwargs)

        return open_and_note

    monkeypatch.setattr(builtins, "open", watch(builtins.open))
    monkeypatch.setattr(os, "open", watch(os.open))
    knob = GpuFrequency(thor.root)
    capability = knob.available()
    assert not capability.available
    assert "clock limits of gpu-gpc-0, gpu-nvd-0 may hang the kernel; set its governor" in (
        f"{capability.detail}; {capability.hint}"
    )
    assert knob.read() == {}
    assert not {"min_freq", "max_freq", "cur_freq", "available_frequencies"} & set(opened)
    assert "name" in opened


def test_without_a_gpu_it_says_that_one_may_appear(tree):
    capability = GpuFrequency(tree.root).available()
    assert not capability.available
    assert "shows no GPU" in capability.detail
    assert "once it is powered" in capability.hint


def test_it_is_available_where_its_limits_may_be_written(board):
    capability = GpuFrequency(board.root).available()
    assert capability.available
    assert NAME in capability.detail


def test_without_the_right_to_write_the_grant_is_named(plain_user):
    directory = plain_user / DEVFREQ / "57000000.gpu"
    (directory / "device/of_node").mkdir(parents=True)
    for name, content in (("min_freq", 1), ("max_freq", 2), ("device/of_node/name", "gpu")):
        (directory / name).write_text(f"{content}\n")
    (directory / "max_freq").chmod(0o444)
    knob = GpuFrequency(str(plain_user))
    assert f"sudo chown $USER {directory / 'max_freq'}" in knob.available().hint
    with pytest.raises(ControlError, match=r"max_freq was refused: Permission denied; .*chown"):
        knob.set(knob.pinned(5))
