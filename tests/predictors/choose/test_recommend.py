"""`recommend`: what it refuses, and the tables of a corpus that a search starts from."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import jetwatt
from harness.core.boards import load_board
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.devices.simulated import SimulatedDevice
from harness.fleet import pool as fleet_pool
from harness.workloads import get_workload
from harness.workloads.workload import Workload
from predictors.choose import recommend as module
from predictors.choose.device_profiler import workload_name
from predictors.choose.request import goals_of
from predictors.goals import Goal
from tests.messages import says

REFERENCE, OTHER, TARGET = "mobilenetv3-gld23k", "lstm-wikitext", "resnet18-imagenet"


def simulated(device, workload, task):
    modes = load_board(device).power_mode_space().sample(12)
    return pd.DataFrame(jetwatt.simulate_corpus(device, workload, modes, task=task))


class SearchBeginsError(Exception):
    """Ends a search before its first profile."""


@pytest.fixture
def references_of(monkeypatch, tmp_path):
    """The references that a search with a corpus of these tables and these options starts from."""

    def start(tables, task="training", reference=()):
        path = tmp_path / "c.csv"
        jetwatt.write_corpus(path, pd.concat([simulated(*table) for table in tables]))
        searches = []

        def note(*given, references, **further):
            searches.append([(table.device, table.workload, table.task) for table in references])
            raise SearchBeginsError

        monkeypatch.setattr(module, "recommend_mode", note)
        job, search = jetwatt.Job(TARGET, task=task), jetwatt.Search(corpus=path, profiles=3, reference=reference)
        with pytest.raises(SearchBeginsError):
            jetwatt.recommend("sim:orin-agx", workload=job, power_w=30, search=search)
        return searches[0]

    return start


@pytest.mark.parametrize("task", ["training", "inference"])
@pytest.mark.parametrize("reference", [[REFERENCE], []])
def test_references_are_of_the_task_that_is_searched(references_of, task, reference):
    tables = [("orin-agx", REFERENCE, "training"), ("orin-agx", REFERENCE, "inference")]
    assert references_of(tables, task=task, reference=reference) == [("orin-agx", REFERENCE, task)]


@pytest.mark.parametrize("reference", [[REFERENCE], []])
def test_references_are_of_the_board_if_the_corpus_has_several(references_of, reference):
    tables = [("xavier-agx", REFERENCE, "training"), ("orin-agx", REFERENCE, "training")]
    assert references_of(tables, reference=reference) == [tables[1]]


def test_a_workload_that_was_profiled_elsewhere_only_is_kept(references_of):
    tables = [("xavier-agx", REFERENCE, "training"), ("orin-agx", OTHER, "training"), ("xavier-agx", OTHER, "training")]
    assert references_of(tables) == tables[:2]
    assert references_of(tables, reference=[REFERENCE]) == tables[:1]


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("search", {"percentile": -5}, "percentile is -5, expected a number above 0"),
        ("search", {"percentile": 100}, "percentile is 100, expected less than 100"),
        ("job", {"epochs": 0}, "epochs is 0, expected a number above 0"),
        ("call", {"power_w": "20"}, "power_w is '20', expected a number above 0"),
        ("call", {"power_w": [20, -5]}, "power_w is -5, expected a number above 0"),
        ("search", {"profiles": 2.5}, "profiles is 2.5, expected a whole number above 0"),
        ("search", {"batch": 4, "profiles": 3}, "batch is 4, more than the 3 profiles allowed; .* give batch_size=4"),
        ("job", {"batch_size": [16, 0]}, "batch_size is 0, expected a whole number above 0"),
        ("job", {"batch_size": []}, "no batch_size= was given; omit it for 16"),
        ("search", {"seed": -1}, "seed is -1, expected a whole number, 0 or more"),
        ("budget", {"deadline_h": float("inf")}, "deadline_h is inf, expected a finite number above 0"),
        ("budget", {"power_w": 20}, "power_w= was given twice"),
        ("job", {"storage": "ssdd"}, "storage 'ssdd' is unknown; did you mean ssd?"),
        ("call", {"goal": "x"}, "goal is 'x'; available: .*energy.*"),
        ("job", {"task": "train"}, "task is 'train'; did you mean training?"),
        ("search", {"risk": 0.1, "strategy": "mdbs"}, "risk= applies to one-shot only, and strategy= is mdbs"),
        ("search", {"strategy": "mbds"}, "strategy is 'mbds'; available: .*mdbs"),
        ("search", {"check_s": 5}, "check_s= has no effect in recommend"),
        ("call", {"power_w": None}, "without any limit .* give power_w=, peak_w=, time_ms=, deadline_h= or energy_wh="),
    ],
)
def test_numbers_and_names_out_of_range_are_refused_before_a_profile(monkeypatch, where, options, message):
    """In the words of Python: no option of the command is named."""
    monkeypatch.setattr(SimulatedDevice, "profile", lambda device, case: pytest.fail("a mode was profiled"))
    given = {"job": {}, "search": {}, "budget": {}, "call": {}, where: options}
    with pytest.raises((InvalidValueError, UnknownNameError), match=message) as refused:
        jetwatt.recommend(
            "sim:orin-agx",
            workload=jetwatt.Job(TARGET, **given["job"]),
            search=jetwatt.Search(**given["search"]),
            budget=jetwatt.Budget(**given["budget"]),
            **{"power_w": 30, **given["call"]},
        )
    assert "--" not in str(refused.value) or "storage" in options  # that hint is of `pytest benchmarks`


def test_a_device_that_is_no_name_is_refused():
    with pytest.raises(InvalidValueError, match=r"device is a NoneType, .*'sim:orin-agx'"):
        jetwatt.recommend(None, workload=TARGET, power_w=30)


def test_a_batch_size_given_twice_is_one_as_in_the_command():
    job, search = jetwatt.Job(TARGET, batch_size=[16, 16]), jetwatt.Search(profiles=1)
    answer = jetwatt.recommend("sim:orin-agx", workload=job, power_w=30, search=search)
    assert len(answer.recommendations[0][0].history.profiler.candidates.modes) == 18096


def test_a_power_limit_that_no_mode_reaches_is_noted_since_it_may_be_meant_in_another_unit():
    search = jetwatt.Search("random", profiles=3)
    few, many = (jetwatt.recommend("sim:nano", workload=TARGET, power_w=watts, search=search) for watts in (8, 5000))
    assert "excludes none" not in repr(few)
    assert says(repr(many), "5000 W", "in W", "5000 mW are 5 W")


def test_of_two_goals_the_mode_that_keeps_its_limit_is_recommended_and_the_other_is_the_nearest():
    answer = jetwatt.recommend(
        "sim:orin-nano", workload="lenet-mnist", power_w=[1, 30], search=jetwatt.Search(profiles=4)
    )
    assert [each.choice.feasible for each in answer.recommendations[0]] == [False, True]
    assert [repr(answer).count(mark) for mark in ("<- recommended", "<- nearest to the limits")] == [1, 1]


def test_settings_show_what_differs_from_the_defaults():
    assert repr(jetwatt.Search()) == "Search()"
    assert repr(jetwatt.Search("mdbs", seed=3)) == "Search(strategy='mdbs', seed=3)"


def test_a_workload_itself_is_taken_where_its_name_is():
    search = jetwatt.Search("random", profiles=2)
    named, given = (
        jetwatt.recommend("sim:orin-nano", workload=workload, power_w=9, search=search)
        for workload in (TARGET, get_workload(TARGET))
    )
    assert repr(given) == repr(named)


def test_a_workload_of_ones_own_is_known_by_its_name_once_it_was_given_and_replaced_by_a_newer_one():
    first, second = (Workload("mine-in-a-notebook", *(lambda *given: None,) * 3) for _ in range(2))
    for workload in (first, second):
        assert workload_name(workload) == "mine-in-a-notebook"
        assert get_workload("mine-in-a-notebook") is workload
    with pytest.raises(InvalidValueError, match=f"{TARGET!r} of a Workload is that of another"):
        workload_name(Workload(TARGET, *(lambda *given: None,) * 3))


@pytest.mark.parametrize(
    ("device", "lab"), [("pool:orins", "lab.toml"), ("pool:orins@/labs/mine.toml", "/labs/mine.toml")]
)
def test_boards_of_a_fleet_are_named_as_a_device_is(monkeypatch, device, lab):
    def opened(*given):
        assert given[:2] == (Path(lab), "orins")
        raise SearchBeginsError

    monkeypatch.setattr(fleet_pool, "open_pool", opened)
    with pytest.raises(SearchBeginsError):
        jetwatt.recommend(device, workload=TARGET, power_w=30)
    with pytest.raises(InvalidValueError, match="resume= does not apply to a pool"):
        jetwatt.recommend(device, workload=TARGET, power_w=30, search=jetwatt.Search(resume=True))


def test_a_goal_may_have_limits_of_its_own_and_the_stricter_one_counts():
    goal = Goal("energy_mws", {"power_mw": 20e3, "time_ms": 90.0})
    [joined] = goals_of(jetwatt.Budget(power_w=25, time_ms=80), goal, None, [16])
    assert joined == Goal("energy_mws", {"power_mw": 20e3, "time_ms": 80.0})


@pytest.mark.parametrize("power_factor", [1.0, 0.5])
@pytest.mark.exhaustive
def test_a_choice_whose_profile_contradicts_all_others_is_named_as_outlying(tmp_path, power_factor):
    modes = load_board("orin-agx").power_mode_space().sample(80)
    table = pd.DataFrame(jetwatt.simulate_corpus("orin-agx", "resnet18-imagenet", modes))
    is_distorted = (table["power_mw"] > 20_000) & (table["power_mw"] < 21_000) & (table["minibatch_time_ms"] < 170)
    table.loc[is_distorted, "power_mw"] *= power_factor
    jetwatt.write_corpus(tmp_path / "c.csv", table)
    answer = jetwatt.recommend(f"replay:{tmp_path / 'c.csv'}", workload="resnet18-imagenet", power_w=20)
    [[recommendation]] = answer.recommendations
    assert recommendation.outlying == (power_factor < 1)
    assert ("\noutlying: " in repr(answer)) == recommendation.outlying
    assert answer.plain()["choice"]["outlying"] is recommendation.outlying
