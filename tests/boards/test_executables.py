"""The tools in a tree: they print what the real ones print, and do to the tree what those do to a board."""

from __future__ import annotations

import io
import re

import pytest

from boards.jetson_clocks_executable import JetsonClocks
from boards.kernel import Kernel
from boards.layouts import PAIRS
from boards.nvpmodel_executable import Nvpmodel
from boards.processor_files import CPU
from boards.tree import boot, build_board
from harness.board.bounded_process import run_bounded
from harness.board.nvpmodel import asks_for_reboot, parse_listing, parse_query

pytestmark = pytest.mark.exhaustive


def call(tree, name, *arguments, answer="n\n"):
    folder = "usr/sbin" if name == "nvpmodel" else "usr/bin"
    return run_bounded([f"{tree.root}/{folder}/{name}", *arguments], timeout_s=30, answer=answer)


# -- nvpmodel ---------------------------------------------------------------------------------------------------------


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


def test_every_mode_can_follow_every_other(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-nx", "r35.4")
    kernel, said = Kernel(tree.root), io.StringIO()
    online = {}
    for preset in (*tree.spec.presets, *reversed(tree.spec.presets)):
        assert Nvpmodel(kernel, said).run(["-m", str(preset.id)]) == 0
        seen = [kernel.read(f"{CPU}/online"), kernel.read(f"{CPU}/cpu0/cpufreq/scaling_max_freq")]
        assert online.setdefault(preset.name, seen) == seen
    assert said.getvalue() == ""


def test_the_listing_has_modes_masks_and_the_default(orin):
    listing = call(orin, "nvpmodel", "-p", "--verbose").output
    assert parse_listing(listing) == [(preset.id, preset.name) for preset in orin.spec.presets]
    assert "TPC_POWER_GATING TPC_PG_MASK 248" in listing
    assert "PM_CONFIG: DEFAULT=MODE_30W(2)" in listing


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


# -- jetson_clocks ----------------------------------------------------------------------------------------------------


def test_clocks_are_pinned_to_the_mode_s_maxima(orin):
    assert call(orin, "jetson_clocks").status == 0
    kernel = Kernel(orin.root)
    assert kernel.read(f"{CPU}/cpu0/cpufreq/scaling_min_freq") == "1728000"
    assert kernel.read(f"{CPU}/cpu0/cpufreq/scaling_cur_freq") == "1728000"
    assert kernel.read(f"{CPU}/cpu0/cpuidle/state1/disable") == "1"
    assert kernel.read(f"{orin.layout.gpu_device}/railgate_enable") == "0"
    assert kernel.read(f"{orin.layout.gpu_devfreq}/cur_freq") == "612000000"
    assert kernel.read("sys/kernel/debug/bpmp/debug/clk/emc/rate") == "3199000000"
    shown = call(orin, "jetson_clocks", "--show").output
    assert "GPU MinFreq=612000000 MaxFreq=612000000 CurrentFreq=612000000\n" in shown
    assert "EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=3199000000 FreqOverride=1\n" in shown
    assert "Active GPU TPCs: 4\n" in shown


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


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_tools_of_every_board_answer(tmp_path, pair):
    tree = build_board(tmp_path / "root", *pair)
    assert parse_query(call(tree, "nvpmodel", "-q").output)[0] == tree.spec.default_preset
    before = tree.controls()
    stored, said = str(tmp_path / "stored"), io.StringIO()
    for arguments in (["--store", stored], [], ["--restore", stored]):
        assert JetsonClocks(Kernel(tree.root), said).run(arguments) == 0
    assert said.getvalue() == ""
    left = {name for name, text in tree.controls().items() if before[name] != text}
    # Not stored: the memory's rate where it is a file of its own, Thor's governors.
    assert all(name.endswith(("clk_update_rate", "/governor")) for name in left)
