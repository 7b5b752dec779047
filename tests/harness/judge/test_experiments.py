"""The experiments as a user runs them, on simulated boards: what runs when, verdicts, deadline, repetitions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.judge.claims import stored_verdicts
from harness.store.results import ResultsStore
from tests import warm_pytest
from tests.messages import says

pytest.importorskip("scipy")

pytestmark = pytest.mark.one_python

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
USAGE_ERROR = 4
FAILED = 1


def ids(done):
    return [line.partition("benchmarks/")[2] for line in done.stdout.splitlines() if "::" in line]


def files_of(done):
    return {found.partition("::")[0] for found in ids(done)}


CAMPAIGN = """
[axes]
workload = ["mobilenetv3-gld23k"]
[settings]
minibatches = 60
[[sweep]]
workers = [4]
[experiment.worker_parallelism]
workload = ["mobilenetv3-gld23k"]
storage = ["ssd"]
workers = [0, 4]
[experiment.variability]
workload = ["mobilenetv3-gld23k"]
instances = 3
settings = { epochs = 2 }
[[experiment.power_modes.sweep]]
workload = ["mobilenetv3-gld23k"]
boards = ["xavier-agx"]
power_mode = ["g", "maxn"]
[experiment.corpus_profiling]
workload = ["mobilenetv3-gld23k"]
power_mode = ["sample:5"]
[experiment.inference]
task = "inference"
workload = ["mobilenetv3-gld23k"]
batch_size = [16]
[experiment.concurrent_training_inference]
task = "concurrent"
workload = ["resnet18-cifar10+lenet-mnist-bs2@10"]
settings = { duration_s = 20 }
"""


@pytest.fixture
def run(tmp_path):
    """Runs that campaign on simulated boards; `files` are those of `benchmarks/`, all of them where none is named."""

    def start(*arguments, files=(), device="sim:xavier-agx", campaign=CAMPAIGN):
        (tmp_path / "mine.toml").write_text(campaign)
        places = [BENCHMARKS / file for file in files] or [BENCHMARKS]
        words = ["-c", BENCHMARKS.parent / "pytest.ini", "--rootdir", BENCHMARKS.parent, *places, "--benchmark-disable",
                 "--campaign", "mine.toml", "--device", device, *arguments]  # fmt: skip
        return warm_pytest.run(words, tmp_path, {**os.environ, "COLUMNS": "200"})

    return start


@pytest.mark.exhaustive
def test_who_asks_for_an_axis_gets_a_sweep_and_no_experiments(run):
    assert files_of(run("--collect-only", "-q", "--workers", "2")) == {"test_training.py"}
    done = run("--collect-only", "-q", "--workload", "lenet-mnist", files=["test_worker_parallelism.py"])
    assert any("test_workers[sim:xavier-agx-lenet-mnist-maxn-w0-ssd-bs16-cold]" in found for found in ids(done))


@pytest.mark.exhaustive
def test_a_whole_run_measures_each_case_once_and_ends_in_verdicts(run, tmp_path):
    done = run("--results", "r.sqlite")
    assert done.returncode == 0, done.stdout
    assert "as measured before in this run" in done.stdout  # four workers stand in the sweep and in an experiment
    assert "claims of the papers" in done.stdout
    assert "confirmed (simulated)" in done.stdout
    assert "requests/s, latency" in done.stdout
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        records = list(store.records())
    assert len({(record.key, record.case_id) for record in records}) == len(records)
    assert {"g", "maxn"} <= {record.case.power_mode.name for record in records}  # one mode by two names
    assert sum("@" in record.case.device for record in records) == 2 * 3  # two more boards, three repetitions
    assert {record.case.task for record in records} == {"training", "inference", "concurrent"}
    again = run("--results", "r.sqlite", "--resume", files=["test_worker_parallelism.py"])
    assert "ms per minibatch" not in again.stdout
    assert "2 passed, 35 skipped" in again.stdout  # the verdicts are those of what was there


@pytest.mark.exhaustive
def test_what_simulated_boards_do_not_confirm_fails_only_where_it_is_asserted(run):
    campaign = CAMPAIGN.replace("minibatches = 60", "epochs = 2\ndata_scale = 0.003")  # says too little
    arguments = {"files": ["test_worker_parallelism.py"], "campaign": campaign}
    assert run("--results", "r.sqlite", **arguments).returncode == 0
    asserted = run("--results", "r.sqlite", "--resume", "--assert-takeaways", **arguments)
    assert asserted.returncode == FAILED
    assert "undecided: one_worker_shortens_every_epoch" in asserted.stdout


@pytest.mark.exhaustive
def test_no_case_begins_after_the_deadline(run):
    done = run("--deadline", "2020-01-01T00:00", "--results", "r.sqlite")
    assert "the deadline has come" in done.stdout
    assert "ms per minibatch" not in done.stdout


@pytest.mark.exhaustive
def test_a_corpus_is_profiled_where_its_file_is_named_and_slow_modes_are_cut_and_marked(run, tmp_path):
    done = run("--results", "c.sqlite", "--case-limit", "6", files=["test_corpus_profiling.py"])
    with ResultsStore(tmp_path / "c.sqlite", read_only=True) as store:
        records = list(store.records())
    assert len(records) == 5
    cut = [record for record in records if any(flag.startswith("cut:") for flag in record.flags)]
    assert cut
    assert all(10 <= record.aggregates["clean_minibatches"] < 60 for record in cut)
    assert "left]" in done.stdout


IDLE = """
[axes]
workload = ["lenet-mnist"]
[experiment.baseload]
boards = ["xavier-agx"]
power_mode = ["a", "g"]
"""


@pytest.mark.exhaustive
def test_baseload_of_the_modes_that_a_campaign_names_is_measured_at_once_on_simulated_boards_only(run):
    found = ids(run("--collect-only", "-q", device="sim:xavier-agx,sim:orin-agx,host", campaign=IDLE))
    idle = [one.partition("[")[2].rstrip("]") for one in found if one.startswith("test_baseload.py::test_baseload")]
    states = ("idle-maxn", "idle-quiet-maxn", "idle-quiet-maxn-dvfs")
    assert sorted(idle) == sorted(
        [f"sim:{board}-{state}" for board in ("xavier-agx", "orin-agx") for state in states]
        + ["sim:xavier-agx-idle-a", "sim:xavier-agx-idle-g"]
    )
    asked = run("--collect-only", "-q", "--power-mode", "b", files=["test_baseload.py"], campaign=IDLE)
    idle = {one.rpartition("idle")[2] for one in ids(asked) if "::test_baseload[" in one}
    assert idle == {"-b]", "-quiet-b]", "-quiet-b-dvfs]"}


LONG = """
[axes]
workload = ["resnet18-imagenet"]
[experiment.profile_length]
workload = ["resnet18-imagenet"]
settings = { minibatches = 200 }
[experiment.mode_search]
workload = ["mobilenetv3-gld23k"]
"""


@pytest.mark.exhaustive
def test_long_profiles_tell_what_shorter_ones_would_have_said(run):
    done = run(
        "--results", "l.sqlite", "--assert-takeaways",
        files=["test_profile_length.py"], device="sim:orin-agx", campaign=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert says(done.stdout, "confirmed (simulated): 2", "fitted", ": 2")
    told = next(line for line in done.stdout.splitlines() if "error of the time of so many minibatches" in line)
    assert "10: " in told
    assert "40: " in told


@pytest.mark.exhaustive
def test_searches_for_a_mode_are_held_against_the_best_one_and_keep_their_profiles(run, tmp_path):
    done = run("--results", "s.sqlite", files=["test_mode_search.py"], device="sim:orin-nano", campaign=LONG)
    assert done.returncode == 0, done.stdout
    searched = [line for line in done.stdout.splitlines() if "modes profiled" in line]
    assert [line.split(": ")[1] for line in searched] == ["mdbs", "closed-loop"] * 2
    assert all("times as long as the best mode" in line for line in searched)
    assert "confirmed (simulated): 2, contradicted (simulated): 1" in done.stdout
    with ResultsStore(tmp_path / "s.sqlite", read_only=True) as store:
        records, found = list(store.records()), stored_verdicts(store).verdicts
    assert {one.takeaway: (one.verdict, one.device) for one in found} == {
        "halving_profiles_about_as_many_modes_as_log2_of_their_number": ("confirmed", "sim:orin-nano"),
        "the_mode_that_halving_chooses_keeps_the_limits": ("confirmed", "sim:orin-nano"),
        "halving_finds_the_best_mode": ("contradicted", "sim:orin-nano"),
    }
    run("--results", "s.sqlite", files=["test_training.py"], device="sim:orin-nano", campaign=LONG)
    judged = run("--judge", "s.sqlite", "-rs", files=["test_mode_search.py"], device="sim:orin-nano")
    assert judged.returncode == 0, judged.stdout
    assert says(judged.stdout, "sim:orin-nano", "no search")
    with ResultsStore(tmp_path / "s.sqlite", read_only=True) as store:
        assert stored_verdicts(store) == (found, 0)  # what cannot be judged again is not said to be out of date
    assert len(records) > 20
    assert len({record.case.power_mode for record in records}) == len(records)
