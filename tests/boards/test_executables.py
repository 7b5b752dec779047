"""The tools in a tree: they print what the real ones print, and do to the tree what those do to a board."""

from __future__ import annotations

import re

import pytest

from boards.kernel import Kernel
from boards.processor_files import CPU
from boards.tree import boot, build_board
from harness.board.bounded_process import run_bounded
from harness.board.nvpmodel import asks_for_reboot, parse_query

pytestmark = pytest.mark.one_python


def call(tree, name, *arguments, answer="n\n"):
    folder = "usr/sbin" if name == "nvpmodel" else "usr/bin"
    return run_bounded([f"{tree.root}/{folder}/{name}", *arguments], timeout_s=30, answer=answer)


@pytest.mark.exhaustive
def test_a_mode_is_set_and_named(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-agx", "r32.7")
    kernel = Kernel(tree.root)
    done = call(tree, "nvpmodel", "-m", "3")
    assert (done.status, done.output) == (0, "")
    answer = call(tree, "nvpmodel", "-q").output
    assert answer == "NV Fan Mode:quiet\nNV Power Mode: MODE_30W_ALL\n3\n"
    assert kernel.read(f"{CPU}/online") == "0-7"
    assert kernel.read(f"{CPU}/cpu6/cpufreq/scaling_max_freq") == "1190400"
    assert kernel.read(f"{tree.layout.gpu_devfreq}/max_freq") == "905250000"
    assert kernel.read("sys/kernel/nvpmodel_emc_cap/emc_iso_cap") == "1600000000"


@pytest.mark.exhaustive
def test_other_masks_take_a_reboot_that_is_asked_for(orin):
    before = orin.controls()
    done = call(orin, "nvpmodel", "-m", "0")
    assert asks_for_reboot(done.output)
    assert done.output.startswith("NVPM WARN: Golden image context is already created\n")
    assert done.status != 0
    assert orin.controls() == before
    assert call(orin, "nvpmodel", "-m", "0", answer="YES\n").status == 0
    assert Kernel(orin.root).state()["reboot_wanted"] == "MAXN"
    boot(orin.root)
    assert parse_query(call(orin, "nvpmodel", "-q").output) == ("MAXN", 0)
    assert Kernel(orin.root).read(f"{orin.layout.gpu_device}/tpc_pg_mask") == "0"


@pytest.mark.exhaustive
def test_cores_that_are_off_keep_their_idle_states_which_are_held_and_restored(tmp_path):
    """As `--show` lists them: `cpu8:  Online=0 ... IdleStates: WFI=1 c7=1`."""
    tree, file = build_board(tmp_path / "root", "orin-agx", "r36.4"), tmp_path / "stored"
    kernel, before = Kernel(tree.root), tree.controls()
    off = kernel.read(f"{CPU}/offline")
    assert off == "8-11"

    def shown() -> str:
        return next(line for line in call(tree, "jetson_clocks", "--show").output.splitlines() if line[:4] == "cpu8")

    assert "Online=0" in shown()
    assert "WFI=1 c7=1" in shown()
    call(tree, "jetson_clocks", "--store", str(file))
    kernel.write(f"{CPU}/cpu8/online", 1)
    call(tree, "jetson_clocks")
    assert "WFI=0 c7=0" in shown()
    call(tree, "jetson_clocks", "--restore", str(file))
    assert kernel.read(f"{CPU}/offline") == off
    idle_states = {name: text for name, text in tree.controls().items() if "/cpuidle/" in name}
    assert len(idle_states) == 24
    assert idle_states.items() <= before.items()


@pytest.mark.exhaustive
def test_restore_brings_back_what_was_stored_but_no_maximum(orin, tmp_path):
    kernel, file = Kernel(orin.root), tmp_path / "stored"
    before = orin.controls()
    assert call(orin, "jetson_clocks", "--store", str(file)).status == 0
    assert not re.search(r"scaling_max_freq|/max_freq|emc/rate", file.read_text())
    maximum = f"{CPU}/cpufreq/policy0/scaling_max_freq"
    kernel.write(maximum, 1036800)
    call(orin, "jetson_clocks")
    assert call(orin, "jetson_clocks", "--restore", str(file)).status == 0
    changed = {name for name, text in orin.controls().items() if before[name] != text}
    assert changed == {maximum}
