"""Every benchmark can fail: what it is about is broken, and its test fails; whole, it passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.__main__ import main

pytest.importorskip("scipy")

pytestmark = pytest.mark.exhaustive

PROJECT = Path(__file__).resolve().parents[2]

CAMPAIGN = """
[axes]
workload = ["lenet-mnist"]
workers = [0]
storage = ["ssd"]
[settings]
minibatches = 20
[[sweep]]
[experiment.worker_parallelism]
storage = ["ssd"]
workers = [0, 4]
[experiment.page_cache]
settings = { epochs = 2, cache = "cold", data_scale = 0.01 }
storage = ["hdd"]
[experiment.storage_media]
settings = { epochs = 2, cache = "cold", data_scale = 0.01 }
storage = ["ssd", "hdd"]
[experiment.dataset_scaling]
storage = ["ssd"]
settings = { epochs = 2, cache = "cold", data_scale = 0.02 }
[experiment.batch_size]
batch_size = [4, 16]
[experiment.variability]
settings = { epochs = 2, data_scale = 0.02 }
[experiment.dvfs]
workload = ["resnet18-cifar10"]
workers = [4]
[[experiment.dvfs.sweep]]
[[experiment.dvfs.sweep]]
settings = { clocks = "dvfs" }
[experiment.power_modes]
power_mode = ["a", "g"]
[experiment.inference]
task = "inference"
batch_size = [8]
[experiment.concurrent_training_inference]
task = "concurrent"
workload = ["lenet-mnist+lenet-mnist-bs2@10"]
settings = { duration_s = 10 }
[experiment.profile_length]
settings = { minibatches = 60 }
[experiment.baseload]
power_mode = ["a"]
[experiment.mode_transitions]
power_mode = ["maxn"]
[experiment.corpus_profiling]
workload = ["lenet-mnist"]
power_mode = ["sample:2"]
"""

BREAK_VERDICTS = """
from harness.judge.claims import ClaimOnDevice

whole_verdict = ClaimOnDevice._verdict

def verdict(self, bounded):
    return whole_verdict(self, bounded)._replace(verdict="contradicted", shortfall=None)

ClaimOnDevice._verdict = verdict
"""

BREAK = f"""
{BREAK_VERDICTS}
import dataclasses
from harness.devices.simulated import SimulatedDevice

whole_profile, whole_change = SimulatedDevice.profile, SimulatedDevice.change_mode

def profile(self, case):
    found = whole_profile(self, case)
    broken = dict(power_mean_mw=None) if case.task == "idle" else dict()
    if case.task == "concurrent":
        broken = dict(inference_per_s=1.0)
    return dataclasses.replace(found, aggregates=dict(found.aggregates, **broken))

def change_mode(self, case, to, before_s, after_s):
    return whole_change(self, case, case.power_mode.mode, before_s, after_s)

SimulatedDevice.profile = profile
SimulatedDevice.change_mode = change_mode
"""

OF_THEIR_OWN = {"containers", "corpus_profiling", "mode_search", "overhead", "prediction_speed", "software_versions"}
"""Benchmarks that run when they are named, or take longer; they are broken one by one."""

FILES = {path.stem.partition("_")[2] for path in (PROJECT / "benchmarks").glob("test_*.py")}


@pytest.fixture
def outcomes(run_suite, tmp_path):
    """Runs the benchmarks on a simulated board; gives how the tests of each function ended, by its file and name."""
    others = sorted(name for name in FILES - OF_THEIR_OWN if f"experiment.{name}]" not in CAMPAIGN)
    (tmp_path / "c.toml").write_text(CAMPAIGN + "".join(f"[experiment.{name}]\n" for name in others))
    (tmp_path / "broken.py").write_text(BREAK)
    (tmp_path / "broken_verdicts.py").write_text(BREAK_VERDICTS)

    def run(*arguments):
        path = tmp_path / "outcomes.xml"
        run_suite("--campaign", "c.toml", "--device", "sim:xavier-agx", "--results", "r.sqlite", f"--junitxml={path}",
                  *arguments, check=False)  # fmt: skip
        ended = {}
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            how = next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")
            file = case.get("classname").rpartition(".test_")[2]
            ended.setdefault((file, case.get("name").partition("[")[0]), set()).add(how)
        return ended

    return run


def twice_as_fast(folder):
    """Record a baseline of `r.sqlite`, with every minibatch at half its time; returns its path."""
    baseline = folder / "b.json"
    assert main(["baseline", "record", "--results", str(folder / "r.sqlite"), "--baseline", str(baseline)]) == 0
    recorded = json.loads(baseline.read_text())
    for case in recorded["cases"]:
        for run in case["runs"]:
            for column in {"minibatch_times_ms", "fetch_stalls_ms"} & set(run):
                run[column] = [time_ms / 2 for time_ms in run[column]]
    baseline.write_text(json.dumps(recorded))
    return str(baseline)


def test_each_benchmark_passes_whole_and_fails_broken(outcomes, tmp_path):
    whole = outcomes()
    assert {file for file, _ in whole} == FILES - OF_THEIR_OWN
    assert {test: how for test, how in whole.items() if {"failure", "error"} & how} == {}
    broken = outcomes("-p", "broken", "--baseline", twice_as_fast(tmp_path))
    assert [test for test, how in broken.items() if "passed" in how] == []
    judged = outcomes("-p", "broken_verdicts", "-k", "mode_transitions")  # its claim takes a transition that shows
    failed = {test for outcome in (broken, judged) for test, how in outcome.items() if "failure" in how}
    assert {test for test, how in whole.items() if "passed" in how} <= failed


def test_a_corpus_is_profiled_without_a_baseline_and_fails_against_a_faster_one(run_suite, tmp_path):
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    run = ("--campaign", "c.toml", "--device", "sim:xavier-agx", "--results", "r.sqlite", "-k", "corpus_profiling",
           PROJECT / "benchmarks" / "test_corpus_profiling.py")  # fmt: skip
    assert run_suite(*run).stdout.count("no baseline given: nothing was compared") == 1
    done = run_suite(*run, "--baseline", twice_as_fast(tmp_path), check=False)
    assert done.returncode == 1, done.stdout
    assert " passed" not in done.stdout.splitlines()[-1]
    assert "no baseline given" not in done.stdout


VERSIONS = (
    "from harness.judge import compare\n"
    "from harness.stats.estimates import Interval\n"
    "effect = compare.VersionEffect('a case', ['torch: 1 -> 2'], Interval({}))\n"
    "compare.version_effects = lambda store: [effect]\n"
)


SEARCHES = """
from predictors.contest.mode_search import ModeSearches, SearchOutcome

def worse(goal, strategy, slower):
    return SearchOutcome(goal, strategy, 10, {spent}, 1.2, 1.2, slower, "simulated")

over = [worse(goal, *found) for goal in "ab" for found in (("mdbs", 3.0), ("closed-loop", 9.0))]
ModeSearches.search = lambda *args, **how: over
ModeSearches.of = lambda *args: over
"""


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("mode_search", SEARCHES.format(spent=9)),
        ("mode_search", SEARCHES.format(spent=1)),
        ("software_versions", VERSIONS.format("2.0, 1.9, 2.1")),
        ("software_versions", VERSIONS.format("1.3, 1.1, 1.5")),
        ("software_versions", VERSIONS.format("0.8, 0.65, 0.9")),
    ],
)
def test_a_benchmark_that_is_named_fails_broken(run_suite, tmp_path, name, patch):
    (tmp_path / "c.toml").write_text(CAMPAIGN + f"[experiment.{name}]\n" * (name == "mode_search"))
    (tmp_path / "broken.py").write_text(patch)
    done = run_suite("--campaign", "c.toml", "--device", "sim:xavier-agx", "-p", "broken", "-k", name,
                     PROJECT / "benchmarks" / f"test_{name}.py", check=False)  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert not re.search(" (passed|skipped)", done.stdout.splitlines()[-1])


TRAINING = [
    (
        "overhead",
        "import harness.measure.training_loop as training_loop\n"
        "whole = training_loop.run_bare\n"
        "training_loop.run_bare = lambda trainer, count: [time_ms / 10 for time_ms in whole(trainer, count)]\n"
        "def quick(case, replace):\n"
        "    return replace(case, settings=replace(case.settings, interval_s=0.1))\n"
        "def pytest_collection_modifyitems(items):\n"
        "    from dataclasses import replace\n"
        "    items[:] = [item for item in items if 'instruments' in item.name]\n"
        "    for item in items:\n"
        "        make = item.module.Case\n"
        "        item.module.Case = lambda *args: quick(make(*args), replace)\n"
        "        item.module.PAIRS, item.module.MINIBATCHES = 4, 2\n",
        "assert found.low <= GOAL",
    ),
    (
        "containers",
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from harness.stats.estimates import Interval\n"
        "from tests import warm_pytest\n"
        "class Warm:\n"
        "    TimeoutExpired = subprocess.TimeoutExpired\n"
        "    def run(command, **how): return warm_pytest.run(command[3:], Path.cwd(), os.environ)\n"
        "class Engine:\n"
        "    python = sys.executable\n"
        "    def __init__(self, *given): pass\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *error): pass\n"
        "    def command(self, command, *rest): return command\n"
        "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if 'container_costs' in item.name]\n"
        "    for item in items:\n"
        "        item.module.PAIRS, item.module.ContainerEngine, item.module.subprocess = 1, Engine, Warm\n"
        "        item.module.paired_ratio = lambda *times: Interval(2.0, 1.9, 2.1)\n",
        'assert ratios["CPU time"].low <= MOST',
    ),
    (
        "prediction_speed",
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.module.PAPERS = ()\n"
        "        item.module.predict_front = lambda *args: 3.0\n",
        "assert ours <= GOAL_S",
    ),
]


@pytest.mark.training
@pytest.mark.parametrize(("name", "patch", "words"), TRAINING, ids=[name for name, *_ in TRAINING])
def test_a_benchmark_that_times_this_machine_fails_broken(run_suite, tmp_path, name, patch, words):
    pytest.importorskip("torch")
    (tmp_path / "broken.py").write_text(patch)
    done = run_suite("-p", "broken", "--workload", "lenet-mnist", "--workers", "0", "--minibatches", "10",
                     "-k", name, "--results", "r.sqlite",
                     PROJECT / "benchmarks" / f"test_{name}.py", check=False)  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert words in done.stdout
