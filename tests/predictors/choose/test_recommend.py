"""`recommend`: what it refuses, and the tables of a corpus that a search starts from."""

from __future__ import annotations

import pandas as pd
import pytest

import jetwatt
from harness.core.boards import load_board
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.devices.simulated import SimulatedDevice
from predictors.choose import recommend as module

REFERENCE, OTHER, TARGET = "mobilenetv3-gld23k", "lstm-wikitext", "resnet18-imagenet"


def simulated(device, workload, task):
    modes = load_board(device).power_mode_space().sample(12)
    return pd.DataFrame(jetwatt.simulate_corpus(device, workload, modes, task=task))


class SearchBeginsError(Exception):
    """Ends a search before its first profile."""


@pytest.fixture
def references_of(monkeypatch, tmp_path):
    """The references that a search with a corpus of these tables and these options starts from."""

    def start(tables, **options):
        path = tmp_path / "c.csv"
        jetwatt.write_corpus(path, pd.concat([simulated(*table) for table in tables]))
        searches = []

        def note(*given, references, **further):
            searches.append([(table.device, table.workload, table.task) for table in references])
            raise SearchBeginsError

        monkeypatch.setattr(module, "recommend_mode", note)
        with pytest.raises(SearchBeginsError):
            jetwatt.recommend("sim:orin-agx", workload=TARGET, corpus=path, power_budget=30, profiles=3, **options)
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
    ("options", "message"),
    [
        ({"percentile": -5}, "--percentile is -5, expected a number above 0"),
        ({"epochs": 0, "deadline": 5}, "--epochs is 0, expected a number above 0"),
        ({"epochs": -5}, "--epochs is -5, expected a number above 0"),
        ({"power_budget": "20"}, "--power-budget is '20', expected a number above 0"),
        ({"power_budget": [20, -5]}, "--power-budget is -5, expected a number above 0"),
        ({"profiles": 2.5}, "--profiles is 2.5, expected a whole number above 0"),
        ({"batch_size": [16, 0]}, "--batch-size is 0, expected a whole number above 0"),
        ({"batch_size": []}, "no --batch-size was given; omit it for 16"),
        ({"seed": -1}, "--seed is -1, expected a whole number, 0 or more"),
        ({"deadline": float("inf")}, "--deadline is inf, expected a finite number above 0"),
        ({"storage": "ssdd"}, "storage 'ssdd' is unknown; did you mean ssd?"),
        ({"goal": "x"}, "--goal is 'x'; available: .*energy.*"),
        ({"task": "train"}, "--task is 'train'; did you mean training?"),
    ],
)
def test_numbers_and_names_out_of_range_are_refused_before_a_profile(monkeypatch, options, message):
    monkeypatch.setattr(SimulatedDevice, "profile", lambda device, case: pytest.fail("a mode was profiled"))
    with pytest.raises((InvalidValueError, UnknownNameError), match=message):
        jetwatt.recommend("sim:orin-agx", **{"workload": TARGET, "power_budget": 30, **options})


def test_a_batch_size_given_twice_is_one_as_in_the_command():
    answer = jetwatt.recommend("sim:orin-agx", workload=TARGET, power_budget=30, batch_size=[16, 16], profiles=1)
    assert len(answer.recommendations[0][0].history.profiler.candidates.modes) == 18096
