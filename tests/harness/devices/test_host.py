"""`host`: its modes, what it refuses, and a whole profile with a RAPL counter that is a file of the test's own."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from harness.core import metrics
from harness.core.cases import DVFS, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, HarnessError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.devices.host import HostDevice
from harness.measure import recording
from harness.measure.run import check, run
from predictors.choose.device_profiler import power_sampler
from tests.harness.board.kernel_trees import CPU, policy
from tests.harness.counting_rapl import POWER_W
from tests.named_modes import mode_on


def host(root=Path("/"), **places):
    return HostDevice(Configuration(**places), root)


def case(**changes):
    return dataclasses.replace(Case("host", "lenet-mnist", mode_on(), 0, "ssd", 16), **changes)


@pytest.fixture
def clocked(tree, monkeypatch, tmp_path):
    """A machine whose clocks can be set."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tree.write(policy(0, "0 1", levels=(800_000, 1_600_000, 2_400_000)))
    return tree


def test_maxn_is_every_cpu_that_may_be_used_and_without_cpufreq_a_mode_is_a_core_count(tmp_path):
    [(name, mode)] = host(tmp_path).power_modes("maxn")
    assert (name, mode) == ("maxn", PowerMode(len(os.sched_getaffinity(0)), *[UNKNOWN_KHZ] * 3))


def test_a_containers_cpu_quota_counts_like_missing_cpus(tree):
    mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    tree.write({"proc/self/cgroup": "0::/", "proc/self/mountinfo": mount, "sys/fs/cgroup/cpu.max": "150000 100000"})
    assert host(tree.path).power_mode_space().cpu_cores == (1,)


def test_where_clocks_can_be_written_they_are_part_of_the_space(clocked):
    assert host(clocked.path).power_mode_space().cpu_khz == (800_000, 1_600_000, 2_400_000)
    assert host(clocked.path).power_modes("1c-1600-x-x") == [("1c-1600-x-x", PowerMode(1, 1_600_000, 0, 0))]


@pytest.mark.parametrize("text", ["turbo", "0c", "100000c", "1c-999-x-x"])
def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(clocked, text):
    with pytest.raises(HarnessError, match=r"available: maxn, 1c|allowed: "):
        host(clocked.path).power_modes(text)


def test_clocks_are_left_free_below_the_mode_or_held_and_all_is_put_back(clocked):
    before, affinity = clocked.contents(), os.sched_getaffinity(0)
    device, mode = host(clocked.path), PowerMode(1, 1_600_000, 0, 0)
    with device.session():
        for how, lowest in (((DVFS,), "800000"), ((), "1600000")):
            assert device.apply(mode, *how) == mode
            files = (clocked.path / f"{CPU}/cpufreq/policy0/scaling_{end}_freq" for end in ("min", "max"))
            assert [file.read_text().strip() for file in files] == [lowest, "1600000"]
            assert len(os.sched_getaffinity(0)) == 1
    assert (clocked.contents(), os.sched_getaffinity(0)) == (before, affinity)
    free = case(settings=CaseSettings(clocks=DVFS), power_mode=named_mode(device, "1c-1600-x-x"))
    assert [device.conditions(one)["dvfs"] for one in (free, case())] == ["on", "off"]


BY_TURNS = CaseSettings(minibatches=None, duration_s=5.0)
TURNS = {"workload": "lenet-mnist+lenet-mnist-bs4@20", "task": "concurrent", "settings": BY_TURNS}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"workload": "resnet18-cifar10-32", "batch_size": 1}, "batch_size=2"),
        ({"storage": "ssd@20"}, "reads cannot be held down here: no control group"),
        ({"storage": "ssd@20", **TURNS}, "a concurrent case has no read limit"),
        ({"settings": CaseSettings(clocks=DVFS)}, "DVFS cannot be switched on or off here"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_is_done(tmp_path, changes, reason):
    with pytest.raises(CannotRunError, match=reason):
        check(case(**changes), host(tmp_path))


def test_what_is_missing_is_named_and_not_claimed(tmp_path):
    found = {capability.name: capability for capability in host(tmp_path).capabilities()}
    assert not found["measure power"].available
    assert found["measure power"].detail
    assert found["set the core count"].available
    assert not found["hold reads to a limit"].available
    assert "dvfs" not in host(tmp_path).conditions(case())


@pytest.mark.training
def test_a_case_without_a_storage_is_refused_before_anything_is_touched(tmp_path):
    pytest.importorskip("torch")
    device = host(tmp_path)
    with pytest.raises(CannotRunError, match="has no storage"):
        check(case(storage=None), device)


@pytest.mark.parametrize(("counts", "difference"), [((5, 12), 7), ((5, None), None), ((None, 12), None)])
def test_a_cpu_quota_that_is_not_reported_is_left_out(counts, difference, monkeypatch):
    counted = iter(counts)
    monkeypatch.setattr(recording, "throttled_periods", lambda root: next(counted))
    before = recording.throttled_so_far(Path("/"))
    assert recording.throttled_since(before, Path("/")) == difference


def test_a_search_waits_for_the_second_reading_of_an_energy_counter(machine_with_rapl):
    with power_sampler(host(machine_with_rapl), 0.2, machine_with_rapl) as sampler:
        assert sampler.series(metrics.POWER_CHANNEL).values[0] == pytest.approx(POWER_W * 1000, rel=0.001)


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.long
def test_power_is_recorded_from_where_it_is_stable_and_says_what_it_is_made_of(
    machine_with_rapl, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    device = host(machine_with_rapl, storage={"ssd": tmp_path})
    asked = case(settings=CaseSettings(minibatches=5, interval_s=0.5, max_temperature_c=80.0))
    periods = iter((5, 12))
    monkeypatch.setattr(recording, "throttled_periods", lambda root: next(periods))
    limits = (metrics, "MAX_SETTLING_S"), (metrics, "MAX_GAP_INTERVALS"), (recording, "MAX_SILENCE_INTERVALS")
    for module, limit in limits:
        monkeypatch.setattr(module, limit, 240)  # on a busy machine the sampler may get no core for long
    said = []
    with device.session():
        profile = run(asked, device, said.append)
    assert profile.aggregates["power_mw"] == pytest.approx(POWER_W * 1000, rel=0.001)
    assert profile.aggregates["power_samples"] >= 3
    assert len(profile.counted) >= 5
    assert {minibatch.phase for minibatch in profile.minibatches} == {"first", "settling", "clean"}
    seconds = sum(minibatch.e2e_ms for minibatch in profile.counted) / 1000
    assert profile.aggregates["energy_mwh"] == pytest.approx(POWER_W * 1000 * seconds / 3600, rel=0.001)
    assert "package" in profile.conditions["power_definition"]
    assert profile.conditions["cpu_quota_throttled_periods"] == 7
    assert set(profile.conditions["temperature_limits_c"].values()) == {80.0}
    assert "cpu-quota" in {flag.partition(":")[0] for flag in profile.flags}
    assert said
