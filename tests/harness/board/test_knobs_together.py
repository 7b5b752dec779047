"""All the knobs of a board together: put back from any sequence, and after a kill between any two changes."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import CpuFrequency
from harness.board.emc import Emc
from harness.board.fan import Fan
from harness.board.governor import Governor
from harness.board.gpu import GpuFrequency
from harness.board.jetson_clocks import JetsonClocks
from harness.board.lock import locked
from harness.board.saved_state import left_behind, preserved, restore
from tests.harness.board.kernel_trees import CPU, EMC, LEVELS_KHZ, cpus, emc, gpu, kernel, policy
from tests.harness.board.killed import die_before_change, in_a_child

DEVICE = "orin-agx"

JETSON_CLOCKS = """#!/bin/sh
# Holds the clocks of the tree as NVIDIA's script does on a board: see kernel_trees for the files.
cd {root}
cpu=sys/devices/system/cpu
policies="$cpu/cpufreq/policy0 $cpu/cpufreq/policy2"
gpu=sys/class/devfreq/17000000.ga10b
emc=sys/kernel/debug/bpmp/debug/clk/emc
idle=$cpu/cpu0/cpuidle/state1/disable
kept="$cpu/cpufreq/policy0/scaling_min_freq $cpu/cpufreq/policy2/scaling_min_freq
$gpu/min_freq $emc/mrq_rate_locked $idle"
case "$1" in
--show)
    read deep < $idle
    for policy in $policies; do
        read lowest < $policy/scaling_min_freq
        read highest < $policy/scaling_max_freq
        echo "cpu${{policy##*policy}}: Online=1 MinFreq=$lowest MaxFreq=$highest IdleStates: c7=$deep"
    done
    read lowest < $gpu/min_freq
    read highest < $gpu/max_freq
    read locked < $emc/mrq_rate_locked
    echo "GPU MinFreq=$lowest MaxFreq=$highest CurrentFreq=1"
    echo "EMC MinFreq=1 MaxFreq=2 CurrentFreq=3 FreqOverride=$locked";;
--store)
    for file in $kept; do read value < $file; echo "$file:$value" >> $2; done;;
--restore)
    while IFS=: read file value; do echo $value > $file; done < $2;;
"")
    for policy in $policies; do
        read online < $cpu/cpu${{policy##*policy}}/online
        [ $online = 1 ] || continue
        read value < $policy/scaling_max_freq; echo $value > $policy/scaling_min_freq
    done
    echo 1 > $idle
    read value < $gpu/max_freq; echo $value > $gpu/min_freq
    echo 1 > $emc/mrq_rate_locked
    read value < $emc/max_rate; echo $value > $emc/rate;;
esac"""


def build(tree, offline=(), lock=1):
    tree.write(
        {
            **cpus(4, offline=offline),
            **policy(0, "0 1"),
            **policy(2, "2 3", limits=(729600, 1497600), governor="userspace"),
            **emc(lock=lock),
            f"{CPU}/cpu0/cpuidle/state1/disable": 0,
            "sys/class/hwmon/hwmon3/name": "pwmfan",
            "sys/class/hwmon/hwmon3/pwm1": 77,
            "usr/bin/jetson_clocks": JETSON_CLOCKS.format(root=tree.root),
        }
    )
    (tree.path / "usr/bin/jetson_clocks").chmod(0o755)
    gpu(tree)
    return tree


def knobs_of(root):
    """In the order in which a device sets them."""
    return [
        Fan(root),
        CpuOnline(root),
        CpuFrequency(root),
        Governor(root, "cpu"),
        GpuFrequency(root),
        Governor(root, "devfreq"),
        Emc(root),
        JetsonClocks(root),
    ]


def contents(tree):
    """The tree without the leftover of a run that was killed before it held any clock."""
    return {name: text for name, text in tree.contents().items() if not name.startswith("var/lib")}


@pytest.fixture
def places(tmp_path):
    return {"state_dir": tmp_path / "state", "lock_dir": tmp_path / "lock"}


def use_all(root):
    """A run that turns every knob, some twice, up and down."""
    fan, online, cpu, cpu_governor, gpu_clock, gpu_governor, memory, clocks = knobs_of(root)
    fan.set(fan.maximum())
    for cores, khz, gpu_khz, mem_khz in (([0, 1, 2, 3], 2201600, 1300500, 3199000), ([0, 1], 115200, 114750, 665600)):
        online.set(cores)
        cpu.set(cpu.pinned(khz))
        gpu_clock.set(gpu_clock.pinned(gpu_khz))
        memory.set(memory.pinned(mem_khz))
        cpu_governor.set({policy.name: "performance" for policy in cpu.online_policies()})
    gpu_governor.set(dict.fromkeys(gpu_governor.read(), "userspace"))
    clocks.set(clocks.off())


@contextlib.contextmanager
def a_run(root, places):
    saved = preserved(knobs_of(root), DEVICE, root=root, state_dir=places["state_dir"])
    with locked(DEVICE, lock_dir=places["lock_dir"]), saved:
        yield


@pytest.mark.parametrize("offline", [(), (2, 3)])
def test_a_run_leaves_no_trace(tree, places, monkeypatch, offline):
    build(tree, offline)
    before = contents(tree)
    with kernel(monkeypatch) as written, a_run(tree.root, places):
        use_all(tree.root)
        assert contents(tree) != before
    assert contents(tree) == before
    assert len(written) > 30


def test_a_memory_clock_that_was_free_is_free_again(tree, places, monkeypatch):
    build(tree, lock=0)
    before = contents(tree)
    with kernel(monkeypatch), a_run(tree.root, places):
        use_all(tree.root)
    after = contents(tree)
    assert before.pop(f"{EMC}/rate") != after.pop(f"{EMC}/rate")  # nothing moves it in a tree
    assert after == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("offline", [(), (2, 3)])
def test_restore_survives_a_kill_between_any_two_changes_of_any_knob(tree, places, monkeypatch, offline):
    build(tree, offline)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # what a killed process has written stays without it
    before = contents(tree)
    names = [knob.name for knob in knobs_of(tree.root)]
    kills = 0
    with kernel(monkeypatch):
        while True:
            kills += 1

            def work(number=kills):
                die_before_change(number)
                with a_run(tree.root, places):
                    use_all(tree.root)

            status = in_a_child(work)
            killed = os.WIFSIGNALED(status)
            assert killed or os.WEXITSTATUS(status) == 0
            for device in left_behind(places["state_dir"]):
                assert restore(device, **places) == names
            assert contents(tree) == before, f"killed before change {kills}"
            if not killed:
                break
    assert kills > 60


ONLINE, GOVERNOR, PINNED = 1, 3, (2, 4, 6)
"""Places in `knobs_of`."""

changes = st.one_of(
    st.tuples(st.just(ONLINE), st.sets(st.integers(1, 3)).map(lambda some: [0, *sorted(some)])),
    st.tuples(st.just(GOVERNOR), st.sampled_from(("performance", "schedutil", "userspace"))),
    st.tuples(st.just(PINNED[0]), st.sampled_from(LEVELS_KHZ)),
    st.tuples(st.just(PINNED[1]), st.sampled_from((114750, 306000, 1300500))),
    st.tuples(st.just(PINNED[2]), st.sampled_from((204000, 665600, 3199000))),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, max_size=8))
def test_no_write_of_any_sequence_is_refused_and_all_comes_back(tmp_path_factory, tree_in, monkeypatch, sequence):
    folder = tmp_path_factory.mktemp("sequence")
    tree = build(tree_in(folder / "root"))
    before = contents(tree)
    knobs = knobs_of(tree.root)
    with kernel(monkeypatch), preserved(knobs, DEVICE, root=tree.root, state_dir=folder / "state"):
        for index, target in sequence:
            knob = knobs[index]
            if index in PINNED:
                knob.set(knob.pinned(target))
            elif index == GOVERNOR:
                knob.set({"policy0": target})
            else:
                knob.set(target)
    assert contents(tree) == before
