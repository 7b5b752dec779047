"""The GPU: found by the device tree's name, never read where that hangs, and what only root may see is not absent."""

from __future__ import annotations

import os

import pytest

from harness.board import bounded_process, kernel_file
from harness.board import gpu as gpu_module
from harness.board.bounded_process import Finished
from harness.board.emc import Emc
from harness.board.governor import Governor
from harness.board.gpu import GpuFrequency, computing, find_gpus
from harness.board.jetson_clocks import JetsonClocks
from harness.board.privileged import KINDS, nodes
from harness.core.errors import ControlError, InvalidValueError
from tests.harness.board.kernel_trees import DEVFREQ, GPU_LEVELS_HZ, gpu

NAME = "17000000.ga10b"
BPMP = "sys/kernel/debug/bpmp/debug/clk/emc/rate"


@pytest.fixture
def board(tree):
    gpu(tree)
    return tree


@pytest.mark.parametrize(
    ("name", "of_node"),
    [
        ("57000000.gpu", "gpu"),
        ("17000000.gv11b", "gv11b"),
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
    assert list(nodes(KINDS["devfreq-max"], tree.root)) == sorted([name, "bwmgr"])
    assert list(gpu_module.open_source(tree.root).notes.values()) == [f"{tree.root}/{DEVFREQ}/{name}/cur_freq"]
    assert GpuFrequency(tree.root).read() == {name: [306000000, 1300500000]}


def test_a_clock_that_is_not_in_the_table_is_refused_with_those_that_are(board):
    with pytest.raises(InvalidValueError, match=r"612000 kHz.*allowed: 114750, 306000, 1300500"):
        GpuFrequency(board.root).pinned(612_000)


def test_without_a_table_reading_back_decides(board, monkeypatch):
    (board.path / DEVFREQ / NAME / "available_frequencies").unlink()
    knob = GpuFrequency(board.root)
    plain_write = kernel_file.write

    def round_down(path, value, hint=None):
        plain_write(path, max(level for level in GPU_LEVELS_HZ if level <= value))

    monkeypatch.setattr(kernel_file, "write", round_down)
    with pytest.raises(ControlError, match=r"was set to .*\[612000000, 612000000\].* back .*\[306000000, 306000000\]"):
        knob.set(knob.pinned(612_000))


# -- Thor --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def thor(tree):
    for name in ("gpu-gpc-0", "gpu-nvd-0", "bwmgr"):
        gpu(tree, name, "gpu" if name != "bwmgr" else "", place=name)
    gpu(tree, "8188050000.vic", "vic", place="vic")
    tree.write({f"{DEVFREQ}/{name}/cur_freq": 1_300_500_000 for name in ("gpu-gpc-0", "gpu-nvd-0", "bwmgr")})
    return tree


CLOCKS_OF_THOR = {"gpu_khz": 1_300_500, "gpu1_khz": 1_300_500, "emc_khz": 1_300_500}


def test_clocks_of_thor_are_read_by_a_process_of_their_own(thor, monkeypatch):
    """Reading one was reported to hang for ever: this process never does."""
    opened = []

    def open_and_note(path, *arguments, **kwargs):
        opened.append(os.path.basename(str(path)))
        return real(path, *arguments, **kwargs)

    real = os.open
    monkeypatch.setattr(os, "open", open_and_note)
    assert gpu_module.open_source(thor.root).read(0.0).values == CLOCKS_OF_THOR
    assert GpuFrequency(thor.root, holds_thor=True).read().keys() == {"gpu-gpc-0", "gpu-nvd-0"}
    assert not {"min_freq", "max_freq", "cur_freq", "available_frequencies"} & set(opened)


def test_a_clock_that_hangs_is_missing_by_itself_and_read_once(thor, monkeypatch):
    clock = thor.path / DEVFREQ / "gpu-gpc-0/cur_freq"
    clock.unlink()
    os.mkfifo(str(clock))  # whoever opens it waits for a writer
    monkeypatch.setattr(kernel_file, "HANG_S", 0.05)
    source = gpu_module.open_source(thor.root)
    values, failed = source.read(0.0)
    assert values == {name: khz for name, khz in CLOCKS_OF_THOR.items() if name != "gpu_khz"}
    assert "did not end within 0.05 s" in failed["gpu_khz"]
    assert "not read again" in failed["gpu_khz"]
    monkeypatch.setattr(bounded_process, "run_bounded", lambda *command, **limits: Finished(0, "1000"))
    values, failed = source.read(1.0)
    assert "not read again" in failed["gpu_khz"]
    assert values["gpu1_khz"] == 1


def test_clocks_of_thor_are_held_where_that_is_asked_for_and_put_back_without(thor):
    knob = GpuFrequency(thor.root)
    assert knob.read() == {}
    assert list(Governor(thor.root, "devfreq").read()) == ["bwmgr", "gpu-gpc-0", "gpu-nvd-0"]
    for refused in (knob.available(), Emc(thor.root).available(), JetsonClocks(thor.root).available()):
        assert not refused.available
    assert "gpu-gpc-0 are read, and not held" in knob.available().detail
    assert "hold_thor_clocks = true" in knob.available().hint
    asked = GpuFrequency(thor.root, holds_thor=True)
    before = asked.read()
    asked.set(asked.pinned(306_000))
    assert asked.limits() == {"gpu-gpc-0": [306_000_000, 306_000_000]}
    assert asked.read()["gpu-nvd-0"] == before["gpu-nvd-0"]  # media: kept apart, and put back
    knob.restore(before)  # by `jetwatt restore`, which knows nothing of options
    assert asked.read() == before


def test_of_several_gpus_those_with_the_first_ones_table_are_the_gpu(tree):
    for name in ("gpu-gpc-0", "gpu-gpc-1", "gpu-nvd-0"):
        gpu(tree, name, "gpu", place=name)
    gpu(tree, "0000:09:00.0", "gb10b", place="other")
    own = {f"{DEVFREQ}/0000:09:00.0/available_frequencies": "1000 2000"}
    tree.write({f"{DEVFREQ}/{name}/cur_freq": 306_000_000 for name in ("gpu-gpc-0", "gpu-gpc-1", "gpu-nvd-0")})
    assert [one.name for one in computing(find_gpus(tree.root))] == ["0000:09:00.0", "gpu-gpc-0", "gpu-gpc-1"]
    tree.write({f"{DEVFREQ}/gpu-gpc-1/available_frequencies": "5000", f"{DEVFREQ}/0000:09:00.0/cur_freq": 7_000_000})
    assert [one.name for one in computing(find_gpus(tree.root))] == ["0000:09:00.0", "gpu-gpc-0"]
    tree.write(own)
    assert [one.name for one in computing(find_gpus(tree.root))] == ["0000:09:00.0"]
    assert GpuFrequency(tree.root, holds_thor=True).read().keys() == {
        "0000:09:00.0", "gpu-gpc-0", "gpu-gpc-1", "gpu-nvd-0"
    }  # fmt: skip
    assert gpu_module.open_source(tree.root).read(0.0).values["gpu_khz"] == 7_000


# -- clock and load ----------------------------------------------------------------------------------------------------


def sensors(node, name, load=735):
    directory = f"{DEVFREQ}/{node}"
    files = {f"{directory}/cur_freq": 1_300_500_000, f"{directory}/device/of_node/name": f"{name}\0"}
    return files if load is None else {**files, f"{directory}/device/load": load}


@pytest.mark.parametrize(
    "emc",
    [
        "sys/kernel/debug/tegra_bwmgr/emc_rate",
        "sys/kernel/debug/clk/override.emc/clk_rate",
        BPMP,
        f"{DEVFREQ}/bwmgr/cur_freq",  # L4T r39
    ],
)
def test_the_memorys_clock_is_found_in_every_release(tree, emc):
    tree.write({**sensors("17000000.gpu", "gpu"), **sensors("15340000.vic", "vic"), emc: 2_133_000_000})
    assert gpu_module.open_source(tree.root).read(0.0) == (
        {"gpu_khz": 1_300_500, "gpu_load_share": 0.735, "emc_khz": 2_133_000},
        {},
    )


def test_what_is_not_there_is_named_at_every_reading(tree):
    tree.write(sensors(NAME, "ga10b", load=None))
    values, failed = gpu_module.open_source(tree.root).read(0.0)
    assert values == {"gpu_khz": 1_300_500}
    assert "device/load does not exist" in failed["gpu_load_share"]
    assert set(failed) == {"gpu_load_share", "emc_khz"}


@pytest.mark.parametrize("broken", ["", "asleep"])
def test_a_gpu_that_is_asleep_fails_alone_and_wakes_up(tree, broken):
    tree.write({**sensors(NAME, "ga10b"), BPMP: 204_000_000})
    source = gpu_module.open_source(tree.root)
    tree.write({f"{DEVFREQ}/{NAME}/device/load": broken})
    values, failed = source.read(0.0)
    assert values == {"gpu_khz": 1_300_500, "emc_khz": 204_000}
    assert list(failed) == ["gpu_load_share"]
    tree.write({f"{DEVFREQ}/{NAME}/device/load": 10})
    assert source.read(1.0).values["gpu_load_share"] == 0.01


def test_memory_clock_behind_roots_door_says_so(tree_in, plain_user):
    tree = tree_in(plain_user)
    tree.write({**sensors(NAME, "ga10b", load=0), BPMP: 1})
    debug, rate = plain_user / "sys/kernel/debug", plain_user / BPMP
    debug.chmod(0)
    values, failed = gpu_module.open_source(tree.root).read(0.0)
    assert values == {"gpu_khz": 1_300_500, "gpu_load_share": 0.0}
    assert failed == {"emc_khz": f"{debug} is for root only; jtop reports the clock to every user"}
    debug.chmod(0o755)
    rate.chmod(0)
    assert "emc/rate is for root only" in gpu_module.open_source(tree.root).read(0.0).failed["emc_khz"]
