"""jetson_clocks: stored once, held, restored from what this run stored and nothing else."""

from __future__ import annotations

import os
import time

import pytest

from harness.board.jetson_clocks import JetsonClocks, is_held, parse_show
from harness.core.errors import ControlError
from tests.messages import says

SHOW = """SOC family:tegra234  Machine:NVIDIA Jetson AGX Orin Developer Kit
Online CPUs: 0-1
cpu0: Online=1 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=1190400 IdleStates: WFI=1 c7=1
cpu1: Online=1 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=729600 IdleStates: WFI=1 c7=1
cpu2: Online=0 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=729600 IdleStates: WFI=1 c7=1
GPU MinFreq=306000000 MaxFreq=1300500000 CurrentFreq=306000000
Active GPU TPCs: 8
EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=2133000000 FreqOverride=0
DLA0_CORE:   Online=1 MinFreq=0 MaxFreq=1600000000 CurrentFreq=1600000000
FAN Dynamic Speed Control=nvfancontrol hwmon1_pwm1=100
NV Power Mode: MODE_30W
"""

HELD = (
    SHOW.replace("MinFreq=729600", "MinFreq=2201600")
    .replace("MinFreq=306000000", "MinFreq=1300500000")
    .replace("c7=1", "c7=0")
    .replace("FreqOverride=0", "FreqOverride=1")
)

SCRIPT = """#!/bin/sh
cd {root}/run
echo "$@" >> log
if [ -e broken ]; then echo "Error: no"; exit 1; fi
case "$1" in
--show) cat state;;
--store) cat state >> "$2";;
--restore) cat "$2" > state;;
"") cat held > state;;
*) exit 1;;
esac"""


@pytest.fixture
def board(tree):
    tree.write({"run/held": HELD, "run/state": SHOW, "usr/bin/jetson_clocks": SCRIPT.format(root=tree.root)})
    (tree.path / "usr/bin/jetson_clocks").chmod(0o755)
    return tree


def acts(board):
    words = [line.split() for line in (board.path / "run/log").read_text().splitlines()]
    return [line[0] if line else "pin" for line in words if line[:1] != ["--show"]]


def stored(board):
    return board.path / "var/lib/jetwatt/jetson_clocks.conf"


def test_show_is_read_without_what_moves():
    shown = parse_show(SHOW)
    assert list(shown) == ["cpu0", "cpu1", "cpu2", "GPU", "EMC"]
    clocks = {"Online": "1", "Governor": "schedutil", "MinFreq": "729600", "MaxFreq": "2201600"}
    assert shown["cpu0"] == dict(clocks, WFI="1", c7="1")
    assert shown["GPU"] == {"MinFreq": "306000000", "MaxFreq": "1300500000"}
    assert parse_show(SHOW.replace("CurrentFreq=1190400", "CurrentFreq=1")) == shown


def test_clocks_are_held_where_each_has_one_value():
    assert not is_held(parse_show(SHOW))
    assert is_held(parse_show(HELD))
    assert not is_held(parse_show(HELD.replace("MinFreq=1300500000", "MinFreq=0")))
    offline = HELD.replace("cpu2: Online=0 Governor=schedutil MinFreq=2201600", "cpu2: Online=0 MinFreq=1")
    assert is_held(parse_show(offline))


THOR = """cpu0: Online=1 Governor=schedutil MinFreq=2601000 MaxFreq=2601000 CurrentFreq=2601000 IdleStates: WFI=0 c7=0
gpu-gpc-0 MinFreq=1575000000 MaxFreq=1575000000 CurrentFreq=1575000000
gpu-nvd-0 MinFreq=1692000000 MaxFreq=1692000000 CurrentFreq=1692000000
EMC MinFreq=665600000 MaxFreq=4266000000 CurrentFreq=4266000000
"""


@pytest.mark.parametrize("free", ["gpu-gpc-0 MinFreq=1575000000", "gpu-nvd-0 MinFreq=1692000000"])
def test_a_free_gpu_of_a_thor_is_not_held(free):
    assert list(parse_show(THOR)) == ["cpu0", "gpu-gpc-0", "gpu-nvd-0", "EMC"]
    assert is_held(parse_show(THOR))
    assert not is_held(parse_show(THOR.replace(free, free.partition("=")[0] + "=315000000")))


def test_a_show_without_a_gpu_tells_nothing_of_its_clock_and_is_refused(board):
    board.write({"run/state": HELD.replace("GPU MinFreq", "iGPU MinFreq")})
    capability = JetsonClocks(board.root).available()
    assert not capability.available
    assert "--show` names no GPU" in capability.detail


def test_the_fan_is_neither_stored_nor_restored_and_its_file_does_not_stay(board, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    script = board.path / "usr/bin/jetson_clocks"
    stores = 'cat state >> "$2"; f="$HOME/.jetsonclocks_fan.txt"; echo inactive > "$f"; echo "$f:inactive" >> "$2"'
    script.write_text(script.read_text().replace('cat state >> "$2"', stores))
    knob = JetsonClocks(board.root)
    knob.set(knob.off())
    assert stored(board).read_text() == SHOW + "\n"
    assert [path.name for path in stored(board).parent.iterdir()] == ["jetson_clocks.conf"]


def test_dvfs_goes_off_and_all_comes_back(board):
    knob = JetsonClocks(board.root)
    before = knob.read()
    assert before["dvfs"] == "on"
    knob.set({"dvfs": "on"})
    assert acts(board) == []
    knob.set(knob.off())
    assert knob.read()["dvfs"] == "off"
    knob.restore(before)
    assert (board.path / "run/state").read_text() == SHOW + "\n"
    assert stored(board).exists()  # another knob may move the clocks again
    knob.forget(before)
    assert not stored(board).exists()
    assert acts(board) == ["--store", "pin", "--restore"]


def test_it_stores_once_in_a_run_whatever_happens_between(board):
    knob = JetsonClocks(board.root)
    before = knob.read()
    for _ in range(2):
        knob.set(knob.off())
        board.write({"run/state": SHOW.replace("729600", "115200")})  # nvpmodel sets another mode
    knob.set(knob.off())
    knob.set({"dvfs": "on"})
    knob.set(knob.off())
    knob.restore(before)
    assert acts(board).count("--store") == 1
    assert parse_show((board.path / "run/state").read_text()) == before["shown"]


@pytest.mark.parametrize(("name", "is_kept"), [("jetson_clocks.conf", True), ("jetson_clocks.conf.part", False)])
def test_what_nobody_stored_in_this_run_is_not_removed_but_half_a_file_that_a_kill_left(board, name, is_kept):
    file = stored(board).with_name(name)
    file.parent.mkdir(parents=True)
    file.write_text("cpu0: Online=1 MinFreq=1 MaxFreq=2\n")
    knob = JetsonClocks(board.root)
    before = knob.read()
    knob.restore(before)
    assert acts(board) == []
    knob.forget(before)
    assert file.exists() == is_kept


def test_what_a_run_since_the_boot_left_is_never_overwritten(board):
    leftover = stored(board)
    leftover.parent.mkdir(parents=True)
    leftover.write_text("cpu0: Online=1 MinFreq=1 MaxFreq=2\n")
    board.write({"proc/uptime": "1000.00 4000.00"})
    knob = JetsonClocks(board.root)
    before = knob.read()
    with pytest.raises(ControlError, match="another user") as refused:
        knob.set(knob.off())
    assert says(refused.value.hint, "user", "`jetwatt restore`")
    knob.restore(before)
    knob.forget(before)
    assert acts(board) == []
    assert leftover.read_text() == "cpu0: Online=1 MinFreq=1 MaxFreq=2\n"


def test_what_looks_older_than_the_boot_is_kept_where_clocks_are_held(board):
    """The time of a board without a battery may be set after the run, by days."""
    leftover = stored(board)
    leftover.parent.mkdir(parents=True)
    leftover.write_text("cpu0: Online=1 MinFreq=1 MaxFreq=2\n")
    os.utime(leftover, (0, 0))
    board.write({"proc/uptime": "400.00 1600.00", "run/state": HELD})
    knob = JetsonClocks(board.root)
    with pytest.raises(ControlError, match="a run that was killed, of another user"):
        knob.set(knob.off())
    assert leftover.exists()


def test_what_a_run_before_the_boot_left_is_neither_restored_nor_added_to(board):
    leftover = stored(board)
    leftover.parent.mkdir(parents=True)
    leftover.write_text("cpu0: Online=1 MinFreq=1 MaxFreq=2\n")
    os.utime(leftover, (time.time() - 500, time.time() - 500))
    board.write({"proc/uptime": "400.00 1600.00"})
    knob = JetsonClocks(board.root)
    before = knob.read()
    board.write({"run/state": SHOW.replace("729600", "115200")})  # another knob's doing
    with pytest.raises(ControlError, match="were not restored: cpu0 was"):
        knob.restore(before)
    assert acts(board) == []
    board.write({"run/state": SHOW})
    knob.set(knob.off())
    knob.restore(before)
    assert parse_show((board.path / "run/state").read_text()) == before["shown"]


def test_clocks_that_were_held_before_are_held_again(board):
    board.write({"run/state": HELD})
    knob = JetsonClocks(board.root)
    before = knob.read()
    with pytest.raises(ControlError, match="DVFS was off before this run"):
        knob.set({"dvfs": "on"})
    board.write({"run/state": SHOW})  # nvpmodel sets a mode, which frees them
    knob.restore(before)
    assert knob.read()["shown"] == before["shown"]
    knob.set({"dvfs": "off"})


def test_clocks_that_do_not_hold_are_an_error(board):
    board.write({"run/held": SHOW})
    knob = JetsonClocks(board.root)
    with pytest.raises(ControlError, match=r"DVFS .*is on: cpu0 .*729600 to 2201600, "):
        knob.set(knob.off())


def test_it_says_whether_it_is_available_and_what_it_says_on_failing_is_in_the_error(board, tmp_path):
    knob = JetsonClocks(board.root)
    assert knob.available().detail.endswith("DVFS is on")
    assert "there is no" in JetsonClocks(str(tmp_path / "nothing")).available().detail
    board.write({"run/state": "Online CPUs: 0"})
    with pytest.raises(ControlError, match="names no CPU"):
        knob.read()
    board.write({"run/broken": ""})
    with pytest.raises(ControlError, match=r"jetson_clocks --show` failed: Error: no"):
        knob.read()
    assert not knob.available().available
