"""A search on a pool whose boards are simulated here, without Slurm."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import load_configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError
from harness.devices.simulated import SimulatedDevice
from harness.fleet import pool, submission
from harness.fleet.lab import Fleet
from harness.fleet.slurm import SlurmJob
from harness.store.results import ResultsStore
from jetwatt.cli import main
from predictors.choose.device_profiler import DeviceProfiler
from predictors.goals import Goal
from predictors.strategies.protocol import History
from predictors.strategies.search import RandomSearch
from tests.harness.store.profile_examples import ENVIRONMENT
from tests.messages import says
from tests.named_modes import mode_on

LAB = [
    f'[[board]]\nname = "board{number}"\ntype = "sim:orin-agx@{number}"\njetpack = "6"\nssh = "host"\nfolder = "/"\n'
    for number in (1, 2, 3)
]
BOARDS = ("board1", "board2", "board3")


def case_of(words):
    """The case that the words of a submission ask a board for."""
    told = dict(zip(words[1::2], words[2::2]))
    settings = CaseSettings(
        minibatches=int(told["--minibatches"]),
        seed=int(told["--seed"]),
        max_temperature_c=float(told["--max-temperature"]) if "--max-temperature" in told else None,
        power_limit_w=float(told["--power-limit"]) if "--power-limit" in told else None,
    )
    mode = mode_on("orin-agx", told["--power-mode"])
    where = int(told["--workers"]), told["--storage"], int(told["--batch-size"]), settings
    return Case("", told["--workload"], mode, *where, Path(words[0]).stem[len("test_") :])


class Pool:
    """Runs what is submitted when it is submitted, on board3 and board2 in turns unless a board is named."""

    def __init__(self, folder):
        self.folder, self.ran, self.cases, self.refuses, self.slowed = folder, [], [], False, {}
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
        self.cases.append(case_of(words))
        found.file(1, "attempts").write_text(f"now\t{board}\tstarted\n")
        if self.refuses:
            found.file(1, "ended").write_text(
                f"held\t{board}\t1\t1\tfailed 3 times, the last time: pytest ended with 1\n"
            )
            return found
        case = dataclasses.replace(self.cases[-1], device=f"sim:orin-agx@{board[-1]}")
        with ResultsStore(found.file(1, f"results-1-{board}.sqlite")) as store:
            device = SimulatedDevice(case.device[4:])
            device.slowdown = self.slowed.get(board, 0.0)
            store.add(device.profile(case), ENVIRONMENT, f"run {len(self.ran)}")
        return found

    def jobs(self, *_):
        return [
            SlurmJob("1", "me", "PENDING", "", 1, "Resources", f"jetwatt-{number}") for number in range(len(self.ran))
        ]


@pytest.fixture
def boards(tmp_path, monkeypatch):
    (tmp_path / "lab.toml").write_text("".join(LAB))
    made = Pool(tmp_path)
    monkeypatch.setattr(submission, "submit", made.submit)
    monkeypatch.setattr(submission, "cancel", lambda fleet, one: None)
    monkeypatch.setattr(pool.Slurm, "jobs", made.jobs)
    monkeypatch.chdir(tmp_path)
    return made


def opened(boards):
    configuration = load_configuration(boards.folder / "none.toml")
    return pool.PoolDevice(
        Fleet(boards.folder / "lab.toml"), "sim-orin-agx-jp6", boards.folder / "r.sqlite", configuration, print
    )


def search(device, count=9):
    """Profile random modes of a device; their figures."""
    case = Case(device.name, "resnet18-imagenet", named_mode(device, "maxn"), 4, "ssd", 16)
    with device.session():
        history = History(DeviceProfiler(device, case, device.power_modes("sample:50")), count)
        RandomSearch().choose(history, Goal("time_ms", {"power_mw": 30_000.0}))
    return history


@pytest.mark.exhaustive
def test_a_search_on_a_pool_sees_one_board_and_keeps_what_each_measured(boards, tmp_path):
    device = opened(boards)
    found, alone = search(device), search(SimulatedDevice("orin-agx@1"))
    assert [board for board, _ in boards.ran] == [*BOARDS, *[""] * 8]  # the first mode on each, then any board
    np.testing.assert_allclose(found.time_ms, alone.time_ms, rtol=0.04)
    np.testing.assert_allclose(found.power_mw, alone.power_mw, rtol=0.04)
    assert list(device.scales) == ["board1", "board3", "board2"]
    assert "board3 takes 0." in device.describe()
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        figures = {(record.case.device, record.case.power_mode.name): record.aggregates for record in store.records()}
    assert sorted(name for name, _ in figures) == sorted(["sim:orin-agx@1", *["sim:orin-agx@2", "sim:orin-agx@3"] * 5])
    of_board3 = figures["sim:orin-agx@3", boards.ran[3][1]]["power_mw"]
    assert of_board3 == pytest.approx(found.power_mw[1] * device.scales["board3"][1])


@pytest.mark.parametrize("task", ["training", "inference"])
def test_boards_are_asked_for_the_case_that_was_chosen(boards, task):
    settings = CaseSettings(minibatches=7, seed=3, max_temperature_c=71.5, power_limit_w=37.5)
    mode = mode_on("orin-agx", "8c-1728-612-3199")
    chosen = Case("", "resnet18-cifar10", mode, 2, "hdd", 8, settings, task)
    device, boards.refuses = opened(boards), True
    device.begin([chosen])
    device.begin([dataclasses.replace(chosen, settings=CaseSettings())])
    assert boards.cases == [chosen] * 3 + [dataclasses.replace(chosen, settings=CaseSettings())]


@pytest.mark.exhaustive
def test_a_board_that_joins_during_the_search_measures_as_it_is(boards, capsys):
    (boards.folder / "lab.toml").write_text("".join(LAB[:2]))
    found = search(opened(boards), 3)  # board3 is the first that is free
    assert says(capsys.readouterr().out, "board3", "unscaled")
    with ResultsStore(boards.folder / "r.sqlite", read_only=True) as store:
        of_board3 = [one.aggregates["power_mw"] for one in store.records() if one.case.device == "sim:orin-agx@3"]
    assert of_board3 == [found.power_mw[1]]


@pytest.mark.exhaustive
def test_modes_that_are_chosen_at_once_are_queued_before_the_first_is_waited_for(boards, monkeypatch):
    queued = []
    monkeypatch.setattr(pool.PoolDevice, "profile", lambda self, case: queued.append(len(boards.ran)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search(opened(boards))
    assert queued == [3 + 8]


def test_nothing_is_left_in_the_queue_where_profiles_cannot_be_collected(boards, monkeypatch):
    cancelled = []
    monkeypatch.setattr(submission, "cancel", lambda fleet, one: cancelled.append(one.id))
    monkeypatch.setattr(pool, "collect", lambda one, results: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search(opened(boards), 2)
    assert len(cancelled) == len(boards.ran) == 3 + 1


@pytest.mark.exhaustive
def test_a_mode_that_slurm_lost_is_waited_for_as_long_as_setting_that_right_takes(boards, monkeypatch):
    slept, profiled = [], pool._profiled
    monkeypatch.setattr(pool.Slurm, "jobs", lambda self: [])  # slurmctld was killed right after it had taken them
    monkeypatch.setattr(pool.time, "sleep", slept.append)
    monkeypatch.setattr(pool, "_profiled", lambda one: profiled(one) if slept else None)
    assert len(search(opened(boards), 2).taken) == 2
    slept.clear()
    monkeypatch.setattr(submission, "LOST_S", 0.0)
    with pytest.raises(CannotRunError, match="Slurm lost it"):
        search(opened(boards), 2)


def test_a_mode_that_fails_on_every_board_says_why(boards):
    boards.refuses = True
    with pytest.raises(CannotRunError, match=r"none of the last modes .*held.*3 times"):
        search(opened(boards))


@pytest.mark.exhaustive
def test_each_board_of_a_pool_says_whether_it_trains_in_time_in_which_mode_and_at_what_risk(boards, tmp_path, capsys):
    words = ["--pool", "sim-orin-agx-jp6", "--lab", str(tmp_path / "lab.toml"), "--workload", "resnet18-imagenet"]
    boards.slowed["board2"] = 0.2
    search = ["--strategy", "maxn", "--results", str(tmp_path / "r.sqlite"), "--json", str(tmp_path / "o.json")]

    def boards_within(*limits):
        code = main(["recommend", *words, *search, "--epochs", "20", *map(str, limits)])
        return code, json.loads((tmp_path / "o.json").read_text())["training"]["boards"]

    code, found = boards_within("--deadline", 20, "--energy-budget", 2000)
    assert code == 0
    assert says(capsys.readouterr().out, "20 epochs", "20 h", "2000 Wh")
    assert [one["board"] for one in found] == list(BOARDS)
    assert [one["device"] for one in found] == [f"sim:orin-agx@{number}" for number in (1, 2, 3)]
    hours = {one["board"]: one["fastest"]["hours"]["value"] for one in found}
    assert hours["board2"] == pytest.approx(1.2 * hours["board1"], rel=0.02)

    code, found = boards_within("--deadline", 1.1 * hours["board1"])
    assert code == 0  # some boards can
    by_board = {one["board"]: one for one in found}
    assert by_board["board1"]["feasible"]
    assert by_board["board1"]["fastest"]["risk"] < 0.05
    assert not by_board["board2"]["feasible"]
    assert "its fastest mode" in by_board["board2"]["why_not"]


def test_a_board_that_has_not_profiled_the_first_mode_says_so(boards):
    device = opened(boards)
    search(device, 2)
    first = device._first["board2"].file(1, "results-1-board2.sqlite")
    first.unlink()
    scales = device.measured_scales()
    assert scales["board1"] == ("sim:orin-agx@1", (1.0, 1.0), "")
    assert scales["board2"][1] is None
    assert "has not profiled the first mode" in scales["board2"][2]
    assert scales["board3"][1] == pytest.approx(device.scales["board3"])
