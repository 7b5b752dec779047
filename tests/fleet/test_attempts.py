"""What becomes of a slice that failed: parts, cases left out, boards to avoid, boards that fail every slice."""

from __future__ import annotations

import fcntl
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.fleet import attempts as deciding
from harness.fleet import submission
from harness.fleet.attempts import ENDED_EARLY, HELD, QUEUED, UNNAMED, Ledger, SliceAttempt, blamed, boards_to_avoid
from harness.fleet.slurm import Node, SlurmJob
from harness.fleet.submission import Submission
from tests.fleet.test_slices import made, profile, store  # noqa: F401 (a fixture)
from tests.messages import says


def lost(board, case=UNNAMED):
    return SliceAttempt("now", board, f"{board} was lost", case)


def failure(board):
    return SliceAttempt("now", board, "pytest ended with 1", "")


def test_a_case_that_cut_off_a_run_is_a_part_of_its_own():
    assert deciding.windows(list("abcde"), [lost("b1", "c")]) == [["a", "b"], ["c"], ["d", "e"]]
    assert deciding.windows(list("abcde"), [lost("b1", "a"), lost("b2", "e")]) == [["a"], ["b", "c", "d"], ["e"]]
    assert deciding.windows(list("abcde"), [failure("b1")]) == [list("abcde")]


def test_a_run_that_was_cut_off_without_a_name_halves_the_parts():
    assert deciding.windows(list("abcdef"), [lost("b1")]) == [["a", "b", "c"], ["d", "e", "f"]]
    assert [len(part) for part in deciding.windows(list("abcdef"), [lost("b1"), lost("b2")])] == [2, 2, 2]
    assert [len(part) for part in deciding.windows(list("abcd"), [lost("b1")] * 9)] == [1, 1, 1, 1]


@given(st.lists(st.integers(0, 30).map(str), unique=True), st.lists(st.integers(0, 30).map(str), max_size=4))
def test_the_parts_have_each_case_once_in_its_order(cases, suspects):
    parts = deciding.windows(cases, [lost("b1", case) for case in suspects])
    assert [case for part in parts for case in part] == cases
    assert all(part for part in parts)


def test_a_retry_avoids_boards_on_which_the_slice_failed_while_another_is_in_service():
    assert boards_to_avoid([failure("b1")], {"b1", "b2"}) == ["b1"]
    assert boards_to_avoid([failure("b1"), lost("b2")], {"b1", "b2"}) == []
    assert boards_to_avoid([failure("b1")], {"b1"}) == []
    assert boards_to_avoid([SliceAttempt("now", "b1", ENDED_EARLY, "")], {"b1", "b2"}) == []  # its script was killed


def test_a_board_is_blamed_for_slices_that_no_other_board_failed():
    failures = [("night", 1), ("night", 2), ("night", 2), ("day", 3)]
    by_slice = {("night", 1): [failure("b1")], ("night", 2): [failure("b1")] * 2, ("day", 3): [failure("b1")]}
    assert blamed(failures, lambda *part: by_slice[part], "b1") == 3
    by_slice["day", 3].append(failure("b2"))
    assert blamed(failures, lambda *part: by_slice[part], "b1") == 2


@pytest.fixture
def fleet(made, monkeypatch):  # noqa: F811
    """A fleet of three boards in service with the submission `made`; `drained` and `queued` record what is decided."""
    monkeypatch.setattr(submission.Slurm, "nodes", lambda self: fleet.nodes)
    monkeypatch.setattr(submission.Slurm, "jobs", lambda self, name: fleet.jobs)
    boards = [SimpleNamespace(name=name, pool="pool") for name in ("b1", "b2", "b3")]
    lab = SimpleNamespace(requeue_seconds=30, board=boards)
    fleet = SimpleNamespace(folder=made.folder.parents[1], lab=lab, pool=lambda name: boards, made=made)
    fleet.jobs = []
    fleet.nodes = [Node(board.name, "idle", "", "") for board in boards]
    (fleet.folder / "run").mkdir()
    made.queued.clear()
    return fleet


def fail(fleet, number, *attempts):
    path = fleet.made.file(number, "attempts")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join("\t".join(attempt) + "\n" for attempt in attempts))
    board = attempts[-1].board
    with (fleet.folder / "run" / f"{board}.failures").open("a") as file:
        file.write(f"night\t{number}\t{attempts[-1].why}\n")
    fleet.made.queued.clear()
    return deciding.failed(fleet, Submission(fleet.made.folder), number, board)


def words_of(fleet, command):
    return [word for words in fleet.made.queued if words[0] == command for word in words]


def test_a_failed_slice_is_queued_for_another_board(fleet):
    assert fail(fleet, 3, failure("b1"))[0] == QUEUED
    words = words_of(fleet, "sbatch")
    assert {"--array=3", "--exclude=b1", "--begin=now+30", "--constraint=mode_15w"} <= {*words}
    assert fail(fleet, 3, failure("b2"))[0] == QUEUED
    assert "--exclude=b1,b2" in words_of(fleet, "sbatch")
    verdict, why = fail(fleet, 3, failure("b3"))
    assert verdict == HELD
    assert says(why, "3 times", "pytest ended with 1")
    assert words_of(fleet, "sbatch") == []


def test_a_slice_of_one_board_avoids_none(fleet):
    content = json.loads((fleet.made.folder / "submission.json").read_text())
    (fleet.made.folder / "submission.json").write_text(json.dumps({**content, "board": "b1"}))
    fail(fleet, 1, failure("b1"))
    words = words_of(fleet, "sbatch")
    assert "--nodelist=b1" in words
    assert not any(word.startswith("--exclude") for word in words)


def test_a_board_that_fails_three_slices_is_drained_unless_it_is_the_last(fleet):
    for number in (1, 2):
        fail(fleet, number, failure("b1"))
        assert words_of(fleet, "scontrol") == []
    fail(fleet, 2, failure("b1"))
    assert words_of(fleet, "scontrol") == []  # the same slice again
    fleet.nodes[1:] = [node._replace(reason="fan") for node in fleet.nodes[1:]]
    fail(fleet, 3, failure("b1"))
    assert words_of(fleet, "scontrol") == []
    assert not any(word.startswith("--exclude") for word in words_of(fleet, "sbatch"))
    fleet.nodes[1] = fleet.nodes[1]._replace(reason="")
    fail(fleet, 3, failure("b1"))
    [reason] = [word for word in words_of(fleet, "scontrol") if word.startswith("Reason")]
    assert says(reason, "jetwatt", "3 slices", "pytest")
    fail(fleet, 3, failure("b2"))
    assert Ledger(fleet).fault_of("b1", {"b2", "b3"}) == ""  # slice 3 is to blame


def test_no_board_is_drained_for_slices_that_all_boards_fail(fleet):
    for board, number in (("b2", 4), ("b3", 5)):  # of another submission
        (fleet.folder / f"run/{board}.failures").write_text(f"day\t{number}\tpytest ended with 1\n")
    for number in (1, 2, 3):
        fail(fleet, number, failure("b1"))
        assert words_of(fleet, "scontrol") == []
    others = {"b2", "b3"}
    assert Ledger(fleet).fault_of("b1", {"b2", "b3", "b4"}) == ""  # three different boards are enough
    (fleet.folder / "run/b3.failures").write_text("day\t5\tb3 was lost\n")  # in another way
    assert Ledger(fleet).fault_of("b1", others).startswith("failed 3 slices in succession")
    (fleet.folder / "run/b3.failures").write_text("day\t5\tpytest ended with 1\n")
    assert Ledger(fleet).fault_of("b1", others) == ""
    fleet.made.file(2, "ended").write_text("done\tb2\t12\t2\t\n")  # others can do what it cannot
    assert Ledger(fleet).fault_of("b1", others).startswith("failed 3 slices in succession")


def report(fleet, board, when, *messages):
    """A JUnit report of slice 1 on a board, with a message for each case that failed."""
    rows = ""
    for (name, _), message in zip(fleet.made.cases()[:2], messages):
        inside = f'<failure message="{message}"/>' if message else ""
        rows += f'<testcase classname="benchmarks.test_training" name="{name.partition("::")[2]}">{inside}</testcase>'
    path = fleet.made.file(1, f"junit-{when}-{board}-1.xml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<testsuite>{rows}</testsuite>")


@pytest.mark.parametrize(
    ("messages", "is_left_out"),
    [
        (["no 7 MB of memory on b1", "no 9 MB of memory on b2", "no 3 MB of memory on b3"], True),
        (["no memory", "no data", "no memory"], False),
        (["no memory", "no memory", ""], False),
    ],
    ids=["same", "different", "two"],
)
def test_a_case_that_fails_on_three_boards_in_the_same_way_is_left_out(fleet, messages, is_left_out):
    verdicts = []
    for when, board in enumerate(("b1", "b2", "b3")):
        report(fleet, board, when, messages[when])
        verdicts.append(fail(fleet, 1, failure(board))[0])
    assert verdicts == [QUEUED, QUEUED, QUEUED if is_left_out else HELD]
    name = fleet.made.cases()[0][0]
    why = "left out, because it failed on b1, b2, b3: no 3 MB of memory on b3"
    assert fleet.made.left_out(1) == ([(name, why, 3)] if is_left_out else [])
    assert words_of(fleet, "scontrol") == []


def test_cases_that_failed_do_not_count_as_cases_that_cut_off_runs(fleet):
    for when, board in enumerate(("b1", "b2", "b3")):
        report(fleet, board, when, "no memory", "no memory")
        fail(fleet, 1, failure(board))
    assert len(fleet.made.left_out(1)) == 2
    assert fail(fleet, 1, lost("b1"))[0] == QUEUED


def cannot_train(fleet, number, board, why="no module"):
    fleet.made.queued.clear()
    verdict = deciding.unable(fleet, Submission(fleet.made.folder), number, board, "lenet-mnist", why)[0]
    return verdict, [word for word in words_of(fleet, "sbatch") if word.startswith("--exclude")]


def test_a_workload_that_no_board_can_train_is_left_out_and_drains_none(fleet):
    (fleet.made.folder / "case_workloads").write_text("lenet-mnist\nresnet18-imagenet\n" + "lenet-mnist\n" * 4)
    fleet.pool("pool").append(SimpleNamespace(name="b4", pool="pool"))  # three are enough
    fleet.nodes.append(Node("b4", "idle", "", ""))
    assert cannot_train(fleet, 1, "b1", "no 4 MB at b1") == (QUEUED, ["--exclude=b1"])
    assert cannot_train(fleet, 2, "b2", "no 5 MB at b2") == (QUEUED, ["--exclude=b1,b2"])
    assert cannot_train(fleet, 1, "b3", "no 6 MB at b3") == ("workload", [])
    why = "left out, because lenet-mnist could not be trained (b1: no 4 MB at b1; b2: no 5 MB at b2; b3: no 6 MB at b3)"
    assert fleet.made.left_out(1) == [(fleet.made.cases()[0][0], why, 0)]
    assert words_of(fleet, "scontrol") == []
    for _ in range(2):
        assert cannot_train(fleet, 2, "b1", "no 7 MB at b1") == ("workload", [])
        assert len(fleet.made.left_out(2)) == 2
    submission.retry(fleet, fleet.made, ("gone",))
    assert cannot_train(fleet, 1, "b1") == (QUEUED, ["--exclude=b1"])  # it is tried anew


def test_a_board_that_cannot_train_what_another_can_is_to_blame(fleet):
    assert cannot_train(fleet, 1, "b1")[0] == QUEUED
    (fleet.folder / "run/b2.rehearsed").write_text("resnet18-imagenet\nlenet-mnist\n")
    assert cannot_train(fleet, 2, "b1") == ("board", [])
    assert Ledger(fleet).able("b1", "lenet-mnist") == ["b2"]
    assert Ledger(fleet).able("b2", "lenet-mnist") == []


def test_the_only_board_in_service_waits_for_others_before_a_workload_is_left_out(fleet):
    (fleet.made.folder / "case_workloads").write_text("lenet-mnist\n" * 6)
    fleet.nodes[1:] = [node._replace(reason="fan") for node in fleet.nodes[1:]]
    assert cannot_train(fleet, 1, "b1") == (QUEUED, [])
    assert fleet.made.left_out(1) == []
    fleet.nodes[1] = fleet.nodes[1]._replace(reason="")
    assert cannot_train(fleet, 1, "b2", "no data")[0] == "workload"  # none is left to try


def test_a_slice_that_was_queued_meanwhile_is_not_queued_twice(fleet):
    own, other = (SlurmJob(f"{array}_3", "root", "RUNNING", "b1", 3, "", fleet.made.job_name) for array in (7, 8))
    fleet.jobs = [own, other._replace(id="7_2", slice=2)]
    fleet.made.file(3, "attempts").parent.mkdir(parents=True)
    fleet.made.file(3, "attempts").write_text("\t".join(failure("b1")) + "\n")
    fleet.made.queued.clear()
    assert deciding.failed(fleet, fleet.made, 3, "b1", "7_3")[0] == QUEUED
    assert [words[0] for words in fleet.made.queued] == ["sbatch"]
    fleet.jobs.append(other)
    fleet.made.queued.clear()
    assert deciding.failed(fleet, fleet.made, 3, "b1", "7_3") == (QUEUED, "again already, as job 8_3")
    assert fleet.made.queued == []


def test_a_slice_of_a_cancelled_submission_is_not_queued_again(fleet):
    submission.cancel(fleet, fleet.made)
    assert fail(fleet, 3, failure("b1")) == ("cancelled", "fleet retry continues it")
    assert fleet.made.queued == []


@pytest.mark.parametrize("decide", ["failed", "unable", "cancel"])
def test_slices_are_queued_and_cancelled_under_the_lock_of_their_submission(fleet, monkeypatch, decide):
    is_free = []

    def call(self, *words, **options):
        with (fleet.made.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free.append(False)
            else:
                is_free.append(True)
        return "7\n"

    monkeypatch.setattr(submission.Slurm, "call", call)
    (fleet.made.folder / "slices/1").mkdir(parents=True)
    if decide == "cancel":
        submission.cancel(fleet, fleet.made)
    elif decide == "failed":
        fail(fleet, 1, failure("b1"))
    else:
        deciding.unable(fleet, fleet.made, 1, "b1", "lenet-mnist", "no module")
    assert is_free == [False]


def test_the_reason_of_a_failure_may_have_tabs(fleet):
    (fleet.folder / "run/b1.failures").write_text("night\t1\tpytest ended with 1, and the board: ssh:\tno route\n")
    assert Ledger(fleet).failures("b1") == [("night", 1, "pytest ended with 1, and the board: ssh:\tno route")]


def test_a_case_that_cut_off_two_runs_is_left_out_and_named(fleet):
    made = fleet.made  # noqa: F811
    killer = made.cases()[1][0]
    assert fail(fleet, 1, lost("b1", killer))[0] == QUEUED
    assert made.left_out(1) == []
    assert fail(fleet, 1, lost("b2", killer))[0] == QUEUED
    [row] = made.left_out(1)
    case, why, runs = row
    assert (case, runs) == (killer, 2)
    assert says(why, "left out", "two runs", "b1: b1 was lost", "b2: b2 was lost")
    assert [[line.split("\t")[0] for line in part] for part in deciding.plan(made, 1)] == [[made.cases()[0][0]]]


def test_a_slice_in_which_a_third_case_cuts_off_a_run_is_held(fleet):
    first, second = (name for name, _ in fleet.made.cases()[:2])
    for case in (first, first, second, second):
        assert fail(fleet, 1, lost("b1", case))[0] == QUEUED
    verdict, why = fail(fleet, 1, lost("b2"))
    assert verdict == HELD
    assert says(why, "2 cases", "left out", "b2 was lost")


def test_runs_that_were_cut_off_at_different_cases_are_three_failures(fleet):
    first, second = (name for name, _ in fleet.made.cases()[:2])
    verdicts = [fail(fleet, 1, lost("b1", case))[0] for case in (first, second, UNNAMED)]
    assert verdicts == [QUEUED, QUEUED, HELD]
    assert fleet.made.left_out(1) == []


def test_the_next_attempt_measures_what_no_board_has_measured(fleet):
    made = fleet.made  # noqa: F811
    store(made, 1, "run a", profile(1, "2"))
    assert [[line.split("\t")[0] for line in part] for part in deciding.plan(made, 1)] == [[made.cases()[1][0]]]
    store(made, 1, "run a", profile(1, "2"), profile(2, "2", flags=["disturbed: others took 2 cores"]))
    assert len(deciding.plan(made, 1)) == 1
    store(made, 1, "run a", profile(1), profile(2))
    made.file(1, "results-2-b1.sqlite").write_bytes(b"damaged")
    assert deciding.plan(made, 1) == []


def test_a_waiting_slice_gets_the_boards_it_avoids_if_no_other_is_left(fleet, monkeypatch):
    fail(fleet, 3, failure("b1"))
    waiting = SlurmJob("7_3", "root", "PENDING", "", 3, "BeginTime", fleet.made.job_name)
    monkeypatch.setattr(submission.Slurm, "jobs", lambda self, name: [waiting])
    said = []
    for reason, updates in (("", 0), ("fan", 1), ("fan", 0)):
        fleet.nodes[1:] = [node._replace(reason=reason) for node in fleet.nodes[1:]]
        fleet.made.queued.clear()
        deciding.admit_avoided(fleet, said.append)
        assert words_of(fleet, "scontrol") == ["scontrol", "update", "JobId=7_3", "ExcNodeList="] * updates
    assert said == [f"{fleet.made.id}: slice 3 may have b1 again"]
