"""Whole runs on emulated boards: clocks left free, heat, a full disk, a jtop service that dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from boards.emulator import Emulator
from boards.jtop_service import jtop_or_skip
from boards.kernel import Kernel
from boards.tree import build_board

from tests.harness.board_suite import finish, profiles, run, start, wait_for_profile

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from harness.store.conditions import comparable_conditions
from tests.messages import says

pytestmark = pytest.mark.training

FREE_AND_STATIC = """
[[sweep]]
[sweep.settings]
clocks = "dvfs"
[[sweep]]
"""


def test_a_hot_board_ends_the_run_and_is_put_back_and_what_was_recorded_stays(tmp_path):
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    kernel, before = Kernel(tree.root), tree.controls()
    kernel.throttle()
    process = start(tree, tmp_path, "--batch-size", "8,16,32,64")
    wait_for_profile(tmp_path, process)
    zones = tree.path.glob("sys/class/thermal/thermal_zone*")
    gpu = next(zone for zone in zones if (zone / "type").read_text().lower().startswith("gpu"))
    kernel.garble(str(gpu / "temp"), "101600")
    done = finish(process)
    assert done.returncode != 0
    assert re.search(r"temperature_gpu_thermal_c is 101\.6, .*101\.5", done.stdout)
    assert "1 failed" in done.stdout
    recorded = profiles(tmp_path)
    assert 1 <= len(recorded) < 4
    kernel.heal()
    kernel.stop_throttling()
    assert tree.controls() == before
    # The same run was throttled from its start: that is flagged, with when and how long, and dropped nothing.
    [flag] = [flag for flag in recorded[0].flags if flag.startswith("throttled: ")]
    start_s, end_s = map(float, re.search(r"throttled from (-?[\d.]+) s to ([\d.]+) s by \w+", flag).groups())
    assert start_s <= 0 < end_s
    assert any(flag.startswith("not-static: ") and "gpu_khz" in flag for flag in recorded[0].flags)


@pytest.mark.exhaustive
def test_dvfs_is_a_condition_of_a_board_case(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    Kernel(tree.root).set_load(gpu=0.3)
    (tmp_path / "both.toml").write_text(FREE_AND_STATIC)
    before = tree.controls()
    done = run(tree, tmp_path, "--campaign", "both.toml", "--power-mode", "8c-1728-612-3199")
    assert done.returncode == 0, done.stdout + done.stderr
    free, static = profiles(tmp_path)
    assert free.case.id == f"{static.case.id}-dvfs"
    assert (free.conditions["dvfs"], static.conditions["dvfs"]) == ("on", "off")
    assert free.conditions["power_mode"] == static.conditions["power_mode"]
    keys = [comparable_conditions(profile.conditions, profile.case) for profile in (free, static)]
    assert (keys[0]["clocks"], keys[0]["dvfs"]) == ("dvfs", "on")
    assert "clocks" not in keys[1]
    # The residency of each clock is in the record: far below the mode's clock where it may move (M15).
    assert free.conditions["clock_use"]["gpu_khz"]["residency"].keys().isdisjoint({"1"})
    assert static.conditions["clock_use"]["gpu_khz"]["residency"] == {"1": 1.0}
    assert free.aggregates["power_mw"] < static.aggregates["power_mw"]
    assert not [flag for profile in (free, static) for flag in profile.flags if flag.startswith("not-static")]
    assert tree.controls() == before


def run_with_fault(folder, board, fault, *options):
    """Run cases with a plugin that makes the fault, on a board that has to be put back after it."""
    tree = build_board(folder / "root", board, "r36.4")
    (folder / "fault.py").write_text(fault)
    before = tree.controls()
    done = run(tree, folder, "-p", "fault", *options)
    assert tree.controls() == before
    return done


SPENT = """
from harness.measure.time_budget import TimeBudget
TimeBudget.refuse_if_spent = lambda self: None  # the search has begun before the time is spent
"""


@pytest.mark.exhaustive
def test_a_search_is_left_out_where_the_time_budget_is_spent_on_the_way(tmp_path):
    done = run_with_fault(tmp_path, "orin-agx", SPENT, "test_mode_search.py", "--time-budget", "1s", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the work on emulated-orin-agx-lenet-mnist-maxn-w0-ssd-bs16" in done.stdout
    assert says(" ".join(done.stdout.split()), "left out", "time budget", "emulated-orin-agx-lenet-mnist")
    assert profiles(tmp_path) == []


STARVED = """
from harness.board.sampler import Sampler
newest = Sampler.newest

def newest_of_a_starved_sampler(self, channel, within_s=float("inf")):
    return newest(self, channel) if within_s == float("inf") else None

Sampler.newest = newest_of_a_starved_sampler
Sampler.silence_s = lambda self: 14.2
"""


@pytest.mark.exhaustive
def test_a_starved_sampler_ends_the_run_with_its_silence_and_the_board_is_put_back(tmp_path):
    done = run_with_fault(tmp_path, "orin-nano", STARVED, "--batch-size", "8,16")
    assert done.returncode != 0
    assert says(done.stdout, "no sample", "14 s")
    assert "1 failed" in done.stdout  # the second case does not begin
    assert "[2/2]" not in done.stdout


FULL = """
from harness.store import results
open_to_write = results.open_to_write

def open_full(path):
    connection = open_to_write(path)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    return connection

results.open_to_write = open_full
"""
"""The empty results fit, a profile does not: SQLite says then what it says of a full disk."""


@pytest.mark.exhaustive
def test_a_full_disk_on_a_board_ends_the_run_once_and_the_board_is_put_back(tmp_path):
    done = run_with_fault(tmp_path, "orin-nano", FULL, "--batch-size", "8,16,32")
    assert done.returncode != 0
    assert "1 failed" in done.stdout
    assert "disk is full" in done.stdout
    assert "ms per minibatch," not in done.stdout  # no case is said to be measured that is not stored


def sampled(process):
    """What the sampler of a run has written so far: the file has no name, so it is found among the run's open ones."""
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "telemetry" in os.readlink(str(fd)):
                return fd.read_text()
    return ""


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_run_survives_the_loss_of_jtop_and_says_which_total_of_the_board_it_goes_by(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    (tree.path / "run").mkdir()
    (tree.path / "run/jtop.sock").symlink_to("/run/jtop.sock")
    Kernel(tree.root).set_load(cpu=0.5, gpu=0.5)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(jtop_or_skip(tree.root))
        stack.enter_context(Emulator(tree.root))
        beside = [*service.enter(), "sh", "-c", 'cd "$0" && exec "$@"', tmp_path]
        # A mode of the board's own: the service ends where nvpmodel cannot name the mode in effect by the board's conf.
        process = start(tree, tmp_path, "--power-mode", "MODE_30W", "--minibatches", "100", before=beside)
        while process.poll() is None and "jtop_power_total_mw" not in sampled(process):
            time.sleep(0.02)
        os.killpg(service.process.pid, signal.SIGKILL)
        done = finish(process)
    assert done.returncode == 0, done.stdout + done.stderr
    [profile] = profiles(tmp_path)
    own, jtop = (profile.telemetry.series[name] for name in ("power_total_mw", "jtop_power_total_mw"))
    assert min(jtop.values) > max(own.values)  # jtop counts a rail twice, and the profile goes by the board's sensors
    assert jtop.times_s[-1] < own.times_s[-1]
    assert "samples, the first" in profile.telemetry.missing["jtop"]
    assert profile.conditions["power_source"] == "ina"
    assert "not added: VDDQ_VDD2_1V8AO" in profile.conditions["power_definition"]
    assert min(own.values) <= profile.aggregates["power_mw"] <= max(own.values)
