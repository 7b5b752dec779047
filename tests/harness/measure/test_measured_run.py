"""Whole runs as a user starts them: real training, stored, resumed, killed, carried by pytest-benchmark."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from harness.board.lock import locked
from harness.store.results import ResultsStore

pytestmark = pytest.mark.training

SHOWN = "ms per minibatch"
SMALL = ("--workload", "lenet-mnist", "--minibatches", "5", "--results", "r.sqlite", "--interval", "0.1")


def profiles(folder):
    with ResultsStore(folder / "r.sqlite", read_only=True) as store:
        return list(store.profiles())


def forget_flags(folder):
    """As if nothing had disturbed the runs: what disturbs them here is not in the hands of a test."""
    with ResultsStore(folder / "r.sqlite") as store:
        stored = list(zip(store.records(), store.profiles()))
    (folder / "r.sqlite").unlink()
    with ResultsStore(folder / "r.sqlite") as store:
        for record, profile in stored:
            store.add(dataclasses.replace(profile, flags=[]), record.environment, record.run_id)


CUT_OFF = """
import socket
def refuse(*args, **kwargs):
    raise RuntimeError('the network was touched')
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
"""


def test_a_case_is_trained_measured_and_stored_with_its_conditions_and_without_the_network(run_suite, tmp_path):
    (tmp_path / "cutoff.py").write_text(CUT_OFF)
    done = run_suite(*SMALL, "--workers", "0", "-p", "cutoff")
    [profile] = profiles(tmp_path)
    assert profile.provenance == "measured"
    assert [minibatch.phase for minibatch in profile.minibatches] == ["first"] + ["clean"] * 5
    assert all(minibatch.stall_ms > 0 and minibatch.compute_ms > 0 for minibatch in profile.minibatches)
    assert profile.aggregates["minibatch_time_ms"] > 0
    assert profile.conditions["data_source"].startswith("packaged")
    assert profile.conditions["cache_residency_before"] == pytest.approx(1.0, abs=0.05)
    assert (
        profile.conditions["power_mode"]["cpu_cores"] == profile.conditions["threads"] == len(os.sched_getaffinity(0))
    )
    assert profile.conditions["torch"]
    assert profile.telemetry.series["cpu_own_cores"].values
    assert "host-lenet-mnist-maxn-w0-ssd-bs16" in done.stdout
    assert "samples/s" in done.stdout
    if "power_total_mw" not in profile.telemetry.series:  # this machine has no power sensor: that is said, and is no 0
        assert profile.aggregates["power_mw"] is profile.aggregates["energy_mwh"] is None
        assert "no power sensor" in done.stdout
        assert profile.telemetry.missing["rapl"]


def test_a_power_mode_binds_training_and_its_workers_to_its_cores(run_suite, tmp_path):
    run_suite(*SMALL, "--workers", "1", "--power-mode", "1c", "--minibatches", "60")
    [profile] = profiles(tmp_path)
    assert profile.conditions["power_mode"]["cpu_cores"] == 1
    used = profile.telemetry.series["cpu_own_cores"].values
    assert 0 < sum(used) / len(used) < 1.3  # accounting in ticks overshoots a little


def test_epochs_are_run_whole_and_epoch_zero_is_apart(run_suite, tmp_path):
    run_suite("--workload", "lenet-mnist", "--workers", "0", "--epochs", "2", "--data-scale", "0.002",
              "--cache", "evicted", "--results", "r.sqlite")  # fmt: skip
    [profile] = profiles(tmp_path)
    per_epoch = profile.conditions["data_samples"] // 16
    assert [minibatch.epoch for minibatch in profile.minibatches] == [0] * per_epoch + [1] * per_epoch
    assert profile.aggregates["epoch0_time_s"] > 0
    assert profile.aggregates["epoch_time_s"] > 0
    before, after = profile.conditions["cache_residency_by_epoch"]
    assert after > 0.5
    is_in_memory = profile.conditions["storage_medium"]["filesystem"] == "tmpfs"  # nothing can be evicted from it
    assert is_in_memory or before < 0.5


def test_a_run_adds_to_the_results_without_resume_and_with_it_under_other_conditions(run_suite, tmp_path):
    for known, changes in enumerate(([], [], ["--seed", "1", "--resume"])):
        done = run_suite(*SMALL, "--workers", "0", "--device", "sim:orin-agx", *changes)
        assert "1 passed" in done.stdout
        assert len(profiles(tmp_path)) == known + 1


@pytest.mark.exhaustive
def test_pytest_benchmark_carries_the_same_figures(run_suite, tmp_path):
    run_suite(*SMALL, "--workers", "0,1", "--benchmark-json", "b.json", "--benchmark-save", "one")
    stored = profiles(tmp_path)
    content = json.loads((tmp_path / "b.json").read_text())
    for benchmark, profile in zip(content["benchmarks"], stored):
        assert benchmark["params"]["workers"] == profile.case.workers
        assert benchmark["stats"]["rounds"] == 5
        assert benchmark["stats"]["median"] * 1000 == pytest.approx(profile.minibatch_time_ms)
        assert benchmark["extra_info"]["compute_ms"] == pytest.approx(profile.aggregates["compute_ms"], rel=1e-4)
        assert benchmark["extra_info"]["provenance"] == "measured"
        assert all(isinstance(value, (str, int, float, bool, list)) for value in benchmark["extra_info"].values())
    hundred_cases_bytes = len(json.dumps(content["benchmarks"], indent=4)) / 2 * 100
    assert hundred_cases_bytes < 2e6
    compared = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "--group-by", "param:workers"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "host-lenet-mnist-maxn-w1-ssd-bs16" in compared.stdout


NEVER_ENOUGH_POWER_SAMPLES = """
from harness.measure import recording
class Patient(recording.PowerWatch):
    asked = 0
    def is_enough(self):
        self.asked += 1
        return self.asked > 20
recording.PowerWatch = Patient
"""


@pytest.mark.parametrize(
    ("length", "counted"),
    [(("--minibatches", "5"), 25), (("--epochs", "3", "--data-scale", "0.002"), None)],
    ids=["more than asked for, until there are power samples", "epochs"],
)
def test_pytest_benchmark_and_the_profile_are_of_the_same_minibatches(run_suite, tmp_path, length, counted):
    (tmp_path / "patient.py").write_text(NEVER_ENOUGH_POWER_SAMPLES)
    run_suite("--workload", "lenet-mnist", "--workers", "0", "--results", "r.sqlite", "-p", "patient", *length,
              "--benchmark-json", "b.json")  # fmt: skip
    [profile] = profiles(tmp_path)
    assert len(profile.counted) == (counted or 2 * (profile.conditions["data_samples"] // 16))
    [benchmark] = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    assert benchmark["stats"]["data"] == pytest.approx([one.e2e_ms / 1000 for one in profile.counted])
    assert benchmark["stats"]["median"] * 1000 == pytest.approx(profile.minibatch_time_ms)


MANY = (*SMALL, "--workers", "0,1", "--batch-size", "1,2,4,16")


KILLED = """
import os, signal, threading, time
from harness.measure.training_loop import Trainer

whole, steps = Trainer.step, 0

def kill():
    time.sleep({delay_s})
    os.killpg(0, signal.SIGKILL)

def step(self, batch):
    global steps
    steps += 1
    if steps == {last}:
        threading.Thread(target=kill).start()
    return whole(self, batch)

Trainer.step = step
"""
"""Kills the run, workers and all, a moment after a step: not by the clock, or a starved machine would kill it late."""


def kill_runs_in_the_middle(start_suite, folder, times, seed):
    """Start a long run that is killed at a random moment; after each, check what it had stored."""
    moments = random.Random(seed)
    known = 0
    for _ in range(times):
        moment = {"last": moments.randrange(10, 35), "delay_s": moments.uniform(0, 0.1)}
        (folder / "killed.py").write_text(KILLED.format(**moment))
        run = start_suite(*MANY, "-p", "killed")
        out, _ = run.communicate(300)
        assert run.returncode == -signal.SIGKILL, out
        assert SHOWN in out
        with sqlite3.connect(folder / "r.sqlite") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = profiles(folder)
        assert len(stored) >= known + out.count(SHOWN)
        assert all(len(profile.counted) == 5 for profile in stored)
        known = len(stored)


FULL = """
import os, signal, torch
from jetwatt import Workload

class Killed(list):
    def __getitem__(self, index):  # as anybody may; the kernel has counted no lack of memory
        if torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

def loss(model, batch):
    return model(batch[0]).mean()

def full(model, batch):
    raise RuntimeError('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/opt/c10/cuda/CUDACachingAllocator.cpp":1131')

SAMPLES = [(torch.rand(4), 0)] * 64
KILLED = Workload("killed", model=lambda: torch.nn.Linear(4, 2), data=lambda: Killed(SAMPLES), loss=loss)
ALLOCATOR = Workload("allocator", model=lambda: torch.nn.Linear(4, 2), data=lambda: SAMPLES, loss=full)
"""


@pytest.mark.exhaustive
def test_memory_that_runs_out_skips_the_one_case_with_its_peak_and_a_way_out_and_the_run_goes_on(run_suite, tmp_path):
    (tmp_path / "full.py").write_text(FULL)
    workloads = "full:KILLED,full:ALLOCATOR,lenet-mnist"
    done = run_suite(*SMALL, "--workers", "1", "--workload", workloads, "-rs", check=False)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search("worker of killed( with batches of 16)? .*signal 9", done.stdout)
    said = r"allocator( with batches of 16)? does not fit .* peak \d+ MiB.*a smaller batch size.* fewer workers"
    assert re.search(said, done.stdout), done.stdout
    assert [profile.case.workload for profile in profiles(tmp_path)] == ["lenet-mnist"]


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_runs_that_are_killed_lose_at_most_the_case_they_were_in_and_resume_does_the_rest(
    start_suite, run_suite, tmp_path, times
):
    kill_runs_in_the_middle(start_suite, tmp_path, times=times, seed=0)
    forget_flags(tmp_path)
    before = {profile.case.id for profile in profiles(tmp_path)}
    assert 0 < len(before) < 8
    done = run_suite(*MANY, "--resume", "-rs")
    assert f"{8 - len(before)} passed, {len(before)} skipped" in done.stdout
    assert "measured already" in done.stdout
    assert len({profile.case.id for profile in profiles(tmp_path)}) == 8


def test_two_runs_at_once_are_refused(run_suite, tmp_path):
    with locked("host"):
        done = run_suite(*SMALL, "--workers", "0,1,2", check=False)
    assert done.returncode != 0
    assert "1 error" in done.stdout  # said once, and the run is over
    assert "host is in use by process" in done.stdout
