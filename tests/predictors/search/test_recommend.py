"""`recommend`: the tables of a corpus that a search starts from."""

from __future__ import annotations

import pandas as pd
import pytest

import jetwatt
from harness.core.boards import load_board
from predictors.search import recommend as module

REFERENCE, OTHER, TARGET = "mobilenetv3-gld23k", "lstm-wikitext", "resnet18-imagenet"


def simulated(device, workload, task):
    modes = load_board(device).power_mode_space().sample(12)
    return pd.DataFrame(jetwatt.simulate_corpus(device, workload, modes, task=task))


@pytest.fixture
def references_of(monkeypatch, tmp_path):
    """The references that a search with a corpus of these tables and these options starts from."""

    def start(tables, **options):
        path = tmp_path / "c.csv"
        jetwatt.write_corpus(path, pd.concat([simulated(*table) for table in tables]))
        searches = []
        recommend_mode = module.recommend_mode

        def note(*given, references, **further):
            searches.append([(table.device, table.workload, table.task) for table in references])
            return recommend_mode(*given, references=references, **further)

        monkeypatch.setattr(module, "recommend_mode", note)
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
