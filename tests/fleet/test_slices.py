"""Submissions without Slurm: how cases are cut, how slices stand, what is collected, what is missing and why."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.campaigns import case_key
from harness.core.errors import CannotRunError
from harness.core.power_modes import PowerMode
from harness.fleet import submission
from harness.fleet.collecting import collect, format_missing, missing
from harness.fleet.lab import BoardEntry
from harness.fleet.slurm import SlurmJob
from harness.fleet.submission import ListedCase, Slice, Submission, make_slices, ranges
from harness.store.conditions import MEASURED_ALREADY
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

BOARD = BoardEntry("orin1", "orin-agx", "6.2", "orin1", "suite", modes=("maxn", "mode_15w"), reboot="boot {mode}")


def listed(number, mode, name=""):
    return ListedCase(f"test_a.py::test_a[{number}]", f"case {number}", "orin-agx", name or mode.name, mode)


def random_modes(count):
    draw = random.Random(0).choice
    return [PowerMode(draw((2, 4)), draw(range(1, 9)) * 1000, draw(range(1, 9)) * 1000, 3199000) for _ in range(count)]


def test_in_a_slice_no_clock_rises_and_every_case_is_in_one():
    cases = [listed(number, mode) for number, mode in enumerate(random_modes(200))]
    slices = make_slices(cases, BOARD, 7)
    assert sorted(case.id for part in slices for case in part.cases) == sorted(case.id for case in cases)
    for part in slices:
        assert len(part.cases) <= 7
        for before, after in zip(part.cases, part.cases[1:]):
            assert after.mode.cpu_khz <= before.mode.cpu_khz
            assert after.mode.gpu_khz <= before.mode.gpu_khz


def test_cases_of_another_boot_mode_are_slices_of_their_own():
    cases = [
        listed(number, mode, "MODE_15W" if number % 3 == 0 else "") for number, mode in enumerate(random_modes(30))
    ]
    slices = make_slices(cases, BOARD, 5)
    modes = [part.boot_mode for part in slices]
    assert modes == sorted(modes)  # the usual mode first, the other one once
    assert {case.id for part in slices if part.boot_mode == "mode_15w" for case in part.cases} == {
        case.id for case in cases[::3]
    }
    assert {part.boot_mode for part in make_slices(cases, BOARD.__class__("a", "orin-agx", "6", "a", "b"), 5)} == {""}


@pytest.mark.parametrize(
    ("numbers", "text"), [([1], "1"), ([1, 2, 3, 7], "1-3,7"), ([9, 2, 3], "2-3,9"), (range(1, 18097), "1-18096")]
)
def test_numbers_as_slurm_writes_them(numbers, text):
    assert ranges(numbers) == text


def profile(number, instance="1", **further):
    return make_profile(
        case={"device": f"sim:orin-agx@{instance}", "batch_size": number},
        conditions={"board_instance": instance},
        **further,
    )


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A submission of three slices of two cases, of batch sizes 1 to 6."""
    queued = []
    monkeypatch.setattr(submission.Slurm, "call", lambda self, *words, **how: queued.append(words) or "7\n")
    cases = []
    for number in range(1, 7):
        key = case_key(profile(number).case).replace("sim:orin-agx@1", "sim:orin-agx", 1)
        name = f"benchmarks/test_training.py::test_training[reads-{key.partition(' ')[0]}]"
        cases.append(ListedCase(name, key, "sim:orin-agx", "maxn", PowerMode(1, 1, 1, 1)))
    folder = tmp_path / "submissions" / "night"
    folder.mkdir(parents=True)

    slices = [Slice(tuple(cases[at : at + 2]), "maxn" if at < 4 else "mode_15w") for at in (0, 2, 4)]
    found = submission.enqueue(SimpleNamespace(folder=tmp_path), folder, "pool", "sim:orin-agx", slices, ["-k", "a b"])
    found.queued = queued
    return found


def store(made, number, run, *profiles):
    path = made.file(number, "results.sqlite")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.unlink()
    with ResultsStore(path) as results:
        for one in profiles:
            results.add(one, ENVIRONMENT, run)


def ended(made, number, state, why=""):
    path = made.file(number, "ended")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{state}\tboard1\t12\t2\t{why}\n")


def test_slices_are_queued_by_boot_mode_with_their_cases_written_down(made):
    arrays = [[word for word in words if word.startswith(("--array", "--constraint"))] for words in made.queued]
    assert arrays == [["--array=1-2", "--constraint=maxn"], ["--array=3", "--constraint=mode_15w"]]
    assert (made.folder / "arguments").read_text() == "-k\na b\n"
    assert (made.folder / "slices.tsv").read_text() == "1\t1\t2\n2\t3\t2\n3\t5\t2\n"
    assert made.cases()[4][0].endswith("bs5]")


def test_cases_of_another_instance_than_the_boards_of_the_pool_are_left_out(tmp_path, monkeypatch):
    def listed(within_s, words, **how):
        rows = [
            {"id": f"a[{device}]", "key": device, "device": device, "power_mode": "maxn", "mode": [1, 1, 1, 1]}
            for device in ("sim:orin-agx", "sim:orin-agx@1")
        ]
        (tmp_path / "cases").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(submission, "run_within", listed)
    cases = submission.list_cases("sim:orin-agx", ["benchmarks/test_variability.py"], tmp_path / "cases")
    assert [one.id for one in cases] == ["a[sim:orin-agx]"]


def test_a_submission_that_slurm_did_not_take_says_how_to_go_on(made, tmp_path, monkeypatch):
    def refused(self, *words):
        raise CannotRunError("sbatch: no controller", "do the daemons run?")

    monkeypatch.setattr(submission.Slurm, "call", refused)
    folder = tmp_path / "submissions" / "later"
    folder.mkdir()
    slices = [Slice((ListedCase("test", "key", "sim:orin-agx", "maxn", PowerMode(1, 1, 1, 1)),), "maxn")]
    with pytest.raises(CannotRunError, match=r"later .*sbatch: no controller"):
        submission.enqueue(made, folder, "pool", "sim:orin-agx", slices, [])
    assert [state.state for state in Submission(folder).states([])] == ["gone"]


def test_what_slurm_prints_is_read_in_words_of_the_fleet(monkeypatch):
    printed = {
        "sinfo": "b1|planned|maxn|none\nb3|allocated#|maxn|none\nb2|drained|(null)|fan | x\n",
        "squeue": "7_3|ada|RUNNING|b1|3|None|a|b\n",
    }
    monkeypatch.setattr(submission.Slurm, "call", lambda self, name, *words: printed[name])
    slurm = submission.Slurm(Path())
    nodes = [("b1", "idle", "maxn", ""), ("b3", "allocated, boots", "maxn", ""), ("b2", "drained", "", "fan | x")]
    assert [tuple(node) for node in slurm.nodes()] == nodes
    assert slurm.jobs() == [SlurmJob("7_3", "ada", "RUNNING", "b1", 3, "", "a|b")]


def collected(path):
    with ResultsStore(path, read_only=True) as results:
        return sorted((record.case.batch_size, record.case.device, record.run_id) for record in results.records())


def test_a_case_that_two_boards_measured_is_collected_once_however_often(made, tmp_path):
    out = tmp_path / "night.sqlite"
    store(made, 1, "run a", profile(1), profile(2))
    store(made, 2, "run b", profile(3, "2"))
    assert collect(made, out) == (3, 0)
    store(made, 1, "run c", profile(1, "3"), profile(2, "3"))  # the engine gave the slice twice
    store(made, 2, "run d", profile(3), profile(4))  # a second attempt has all of it
    assert collect(made, out).added == 1
    assert collect(made, out) == (0, 4)
    assert collected(out) == [
        (1, "sim:orin-agx@1", "run a"),
        (2, "sim:orin-agx@1", "run a"),
        (3, "sim:orin-agx@2", "run b"),
        (4, "sim:orin-agx@1", "run d"),
    ]


def test_a_case_that_two_slices_measured_is_collected_from_the_first(made, tmp_path):
    store(made, 1, "run a", profile(1))
    store(made, 2, "run b", profile(1, "2"))
    assert collect(made, tmp_path / "night.sqlite") == (1, 0)
    assert collected(tmp_path / "night.sqlite") == [(1, "sim:orin-agx@1", "run a")]


def test_a_damaged_file_of_a_slice_is_left_out_and_reported(made, tmp_path):
    store(made, 1, "run a", profile(1), profile(2))
    damaged = made.file(1, "results-1-board1.sqlite")
    damaged.write_bytes(made.file(1, "results.sqlite").read_bytes()[:5000])
    said = []
    assert collect(made, tmp_path / "night.sqlite", said.append) == (2, 0)
    assert len(said) == 1
    assert said[0].startswith(f"left out: {damaged} is damaged")


def test_a_disturbed_profile_is_no_reason_to_leave_out_a_clean_one(made, tmp_path):
    store(made, 1, "run a", profile(1, flags=["disturbed: others took 2 cores"]))
    collect(made, tmp_path / "night.sqlite")
    store(made, 1, "run b", profile(1))
    collect(made, tmp_path / "night.sqlite")
    assert [run for _, _, run in collected(tmp_path / "night.sqlite")] == ["run a", "run b"]


def test_an_interrupted_collect_goes_on(made, tmp_path, monkeypatch):
    store(made, 1, "run a", profile(1), profile(2))
    store(made, 2, "run b", profile(3), profile(4))
    merge, count = ResultsStore.merge, []

    def interrupted(self, *arguments):
        count.append(1)
        if len(count) == 2:
            raise KeyboardInterrupt
        return merge(self, *arguments)

    monkeypatch.setattr(ResultsStore, "merge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(made, tmp_path / "night.sqlite")
    assert collect(made, tmp_path / "night.sqlite") == (4, 0)


def test_missing_cases_say_why(made, tmp_path):
    store(made, 1, "run a", profile(1))
    ended(made, 1, "done")
    name = made.cases()[1][0].partition("::")[2].replace("sim:orin-agx", "sim:orin-agx@1")
    made.file(1, "junit.xml").write_text(
        f'<testsuites><testsuite><testcase classname="benchmarks.test_training" name="{name}">'
        '<skipped message="it has no storage ssd&#10;more"/></testcase></testsuite></testsuites>'
    )
    ended(made, 2, "held", "failed 3 times, the last time: board1 was lost")
    collect(made, tmp_path / "night.sqlite")
    jobs = [SlurmJob("7_3", "root", "PENDING", "", 3, "Resources", made.job_name)]
    states = made.states(jobs)
    assert [state.state for state in states] == ["done", "held", "waiting"]
    lacking = missing(made, states)
    found = {one.id.rpartition("bs")[2]: one.why for one in lacking}
    assert found["2]"] == "it has no storage ssd"
    assert found["3]"] == found["4]"]
    assert says(found["3]"], "held", "3 times", "board1 was lost")
    assert found["5]"] == "its slice is waiting: Resources"
    said = format_missing(lacking, most=1).splitlines()
    assert says(said[0], "  2: ", "held", "3 times", "board1 was lost", "(slice 2: test_")
    assert said[1:] == [f"  {len(lacking) - 2} more, for 2 other reasons"]
    assert [state.state for state in made.states([])] == ["done", "held", "gone"]
    jobs = [SlurmJob("7_3", "root", "PENDING", "", 3, "launch failed requeued held", made.job_name)]
    assert made.states(jobs)[2].state == "gone"


def test_a_case_that_was_measured_under_another_name_is_not_missing(made):
    name = made.cases()[0][0].partition("::")[2]
    made.file(1, "junit.xml").parent.mkdir(parents=True)
    made.file(1, "junit.xml").write_text(
        f'<testsuite><testcase classname="benchmarks.test_training" name="{name}">'
        f'<skipped message="{MEASURED_ALREADY}, see there"/></testcase></testsuite>'
    )
    ended(made, 1, "done")
    assert [one.id for one in missing(made, made.states([])[:1])] == [made.cases()[1][0]]


def test_retry_clears_what_failed_and_queues_it_again(made, monkeypatch):
    ended(made, 1, "done")
    ended(made, 2, "held", "failed 3 times")
    made.file(2, "attempts").write_text("a\nb\nc\n")
    made.file(2, "junit-1-board1-1.xml").write_text("<testsuite/>")
    monkeypatch.setattr(
        submission.Slurm, "jobs", lambda self, name: [SlurmJob("7_2", "a", "PENDING", "", 2, "held", name)]
    )
    made.queued.clear()

    assert submission.retry(SimpleNamespace(folder=made.folder.parents[1]), made, ("held", "gone")) == [2, 3]
    assert [words[0] for words in made.queued] == ["scancel", "sbatch", "sbatch"]
    assert not made.file(2, "attempts").exists()
    assert made.reports(2) == []
    assert made.file(1, "ended").exists()
    # the others keep the commit that they were submitted with
    assert [made.file(number, "any_commit").exists() for number in (1, 2, 3)] == [False, True, True]
    assert (made.folder / "commit").exists()
    assert [state.state for state in Submission(made.folder).states([])] == ["done", "gone", "gone"]
    assert json.loads((made.folder / "submission.json").read_text())["pool"] == "pool"


def test_slices_that_slurm_lost_are_queued_again_three_times_at_most(made, monkeypatch):
    fleet, said = SimpleNamespace(folder=made.folder.parents[1]), []
    monkeypatch.setattr(
        submission.Slurm, "jobs", lambda self, name: [SlurmJob("7_2", "a", "RUNNING", "b", 2, "", name)]
    )
    ended(made, 1, "done")
    for losses in range(5):
        made.queued.clear()
        submission.queue_lost(fleet, said.append)
        queued = [word for words in made.queued for word in words if word.startswith("--array")]
        assert queued == (["--array=3"] if losses < 3 else [])
    assert len(said) == 3
    jobs = [SlurmJob("7_2", "a", "RUNNING", "b", 2, "", made.job_name)]
    assert made.states(jobs)[2][1:] == (
        "gone",
        "",
        0.0,
        2,
        "lost 4 times, so it is not queued again: see its log, then fleet retry",
    )
    assert made.file(3, "losses").read_text().count("\n") == 3


def test_finished_and_cancelled_submissions_are_left_alone(made, monkeypatch):
    fleet = SimpleNamespace(folder=made.folder.parents[1])
    asked = []
    monkeypatch.setattr(submission.Slurm, "jobs", lambda self, name: asked.append(name) or [])
    made.queued.clear()
    (made.folder / "cancelled").touch()
    submission.queue_lost(fleet)
    assert asked == []
    (made.folder / "cancelled").unlink()
    for number in (1, 2, 3):
        ended(made, number, "done")
    for _ in range(3):
        submission.queue_lost(fleet)
    assert len(asked) == 1  # then its slices are settled, and are not looked at any more
    assert made.queued == []


def test_slices_that_cannot_be_queued_do_not_keep_others_from_it(made, monkeypatch, tmp_path):
    other = tmp_path / "submissions" / "other"
    other.mkdir()
    slices = [Slice((ListedCase("test", "key", "sim:orin-agx", "maxn", PowerMode(1, 1, 1, 1)),), "maxn")]
    submission.enqueue(SimpleNamespace(folder=tmp_path), other, "pool", "sim:orin-agx", slices, [], board="gone")
    monkeypatch.setattr(submission.Slurm, "jobs", lambda self, name: [])
    queued, said = [], []

    def refuse_board(self, *words):
        if "--nodelist=gone" in words:
            raise CannotRunError("sbatch: invalid node")
        queued.append(words)
        return "7\n"

    monkeypatch.setattr(submission.Slurm, "call", refuse_board)
    submission.queue_lost(SimpleNamespace(folder=tmp_path), said.append)
    assert len(queued) == 2  # night, in its two modes
    assert any(says(line, "other", "invalid node") for line in said)
    assert Submission(other).losses(1) == 0


def test_variables_of_the_caller_do_not_change_what_slurm_is_asked(tmp_path, monkeypatch):
    (tmp_path / "slurm.conf").touch()
    command = tmp_path / "squeue"
    command.write_text('#!/bin/sh\nenv | grep -E "^(SLURM|SBATCH|SQUEUE|SINFO)" | sort\n')
    command.chmod(0o755)
    for name in (
        "SQUEUE_FORMAT",
        "SQUEUE_STATES",
        "SBATCH_PARTITION",
        "SLURM_CLUSTERS",
        "SLURM_JOB_ID",
        "SINFO_FORMAT",
    ):
        monkeypatch.setenv(name, "of the caller")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert submission.Slurm(tmp_path).call("squeue") == f"SLURM_CONF={tmp_path}/slurm.conf\n"
