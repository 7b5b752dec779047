"""A search on a pool whose boards are simulated here, without Slurm."""

from __future__ import annotations

import itertools
import json

import pytest

from harness.core.cases import Case
from harness.core.configuration import load_configuration
from harness.core.errors import CannotRunError
from harness.devices.simulated import SimulatedDevice
from harness.fleet import pool, submission
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Job
from harness.store.results import ResultsStore
from predictors.__main__ import main
from tests.harness.store.profile_examples import ENVIRONMENT

LAB = "\n".join(
    f'[[board]]\nname = "board{number}"\ntype = "sim:orin-agx@{number}"\njetpack = "6"\nssh = "host"\nfolder = "/"\n'
    for number in (1, 2, 3)
)
BOARDS = ("board1", "board2", "board3")
OPTIONS = ["--workload", "mobilenetv3-gld23k", "--power-budget", "30", "--profiles", "9", "--strategy", "random"]


class Pool:
    """Runs what is submitted when it is submitted, on board3 and board2 in turns unless a board is named."""

    def __init__(self, folder):
        self.folder, self.ran, self.away, self.refuses = folder, [], set(), False
        self._turns = itertools.cycle(("board3", "board2"))

    def submit(self, fleet, name, words, *, case_s, board):
        told = dict(zip(words[1::2], words[2::2]))
        one = self.folder / f"submissions/{len(self.ran)}"
        (one / "slices/1").mkdir(parents=True)
        (one / "submission.json").write_text(
            json.dumps({"pool": name, "device": "sim:orin-agx", "slices": [(1, 1, "")]})
        )
        (one / "cases.txt").write_text("benchmarks/test_training.py::test_training[x]\tx\n")
        found = submission.Submission(one)
        pinned, board = board, board or next(self._turns)
        self.ran.append((pinned, told["--power-mode"]))
        if board in self.away:
            return found
        found.file(1, "attempts").write_text(f"now\t{board}\tstarted\n")
        if self.refuses:
            found.file(1, "ended").write_text(
                f"held\t{board}\t1\t1\tfailed 3 times, the last time: pytest ended with 1\n"
            )
            return found
        case = Case(f"sim:orin-agx@{board[-1]}", told["--workload"], told["--power-mode"], 4, "ssd", 16)
        with ResultsStore(found.file(1, "results.sqlite")) as store:
            store.add(SimulatedDevice(case.device[4:]).profile(case), ENVIRONMENT, f"run {len(self.ran)}")
        return found

    def jobs(self, *_):
        return [Job("1", "me", "PENDING", "", 1, "Resources", f"jetwatt-{number}") for number in range(len(self.ran))]


@pytest.fixture
def boards(tmp_path, monkeypatch):
    (tmp_path / "lab.toml").write_text(LAB)
    made = Pool(tmp_path)
    monkeypatch.setattr(submission, "submit", made.submit)
    monkeypatch.setattr(submission, "cancel", lambda fleet, one: None)
    monkeypatch.setattr(pool.Slurm, "jobs", made.jobs)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_search_on_a_pool_ends_as_on_one_board_and_keeps_what_each_measured(boards, capsys, tmp_path):
    def chosen(*where):
        assert main(["recommend", *where, *OPTIONS, "--json", "o.json", "--results", "r.sqlite"]) == 0
        return json.loads((tmp_path / "o.json").read_text())["choice"], capsys.readouterr().out

    found, said = chosen("--pool", "sim-orin-agx-jp6")
    alone, _ = chosen("--device", "sim:orin-agx@1")
    assert "boards:      as on board1; board3 takes " in said
    assert [board for board, _ in boards.ran] == [*BOARDS, *[""] * 8]  # the first mode on each, then any board
    for figure in ("time_ms", "power_mw"):
        assert found[figure]["value"] == pytest.approx(alone[figure]["value"], rel=0.03)
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        devices = [record.case.device for record in store.records()]
    assert [devices.count(f"sim:orin-agx@{number}") for number in (1, 2, 3)] == [1 + 9, 1 + 4, 1 + 4]


def profiles(boards, *modes):
    device = pool.PoolDevice(Fleet(boards.folder / "lab.toml"), "sim-orin-agx-jp6", boards.folder / "r.sqlite",
                             load_configuration(boards.folder / "none.toml"), boards.said.append)  # fmt: skip
    cases = [Case("sim:orin-agx", "resnet18-imagenet", mode, 4, "ssd", 16) for mode in modes]
    device.begin(cases)
    return [device.profile(case) for case in cases]


def test_a_board_that_was_away_counts_once_it_has_measured_the_first_mode(boards):
    boards.said, boards.away = [], {"board2"}
    boards.away.clear()
    first, of_board3, of_board2 = profiles(boards, "maxn", "MODE_30W", "MODE_30W")
    assert first.case.device == "sim:orin-agx@1"
    assert of_board3.minibatch_time_ms == pytest.approx(of_board2.minibatch_time_ms, rel=0.02)


def test_a_mode_that_fails_on_every_board_says_why(boards):
    boards.said, boards.refuses = [], True
    with pytest.raises(CannotRunError, match="maxn has no profile: slice 1 is held: failed 3 times"):
        profiles(boards, "maxn")
