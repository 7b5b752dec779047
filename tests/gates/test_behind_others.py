"""`physical-gp` is on no measured table far behind the best other predictor.

The prior has learned from most of these tables, and what it weighs on other boards and GPUs was set by hand with these
draws in sight, so their errors are not those on hardware that it never saw. With four other seeds, 36 of some 940
figures are more than half a point behind.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest

from harness.core.measured_tables import table_file, table_names
from predictors.choose.corpora import load_tables
from predictors.contest.trials import TrialPlan, run_plan
from predictors.evaluation import make_target
from predictors.models.regression import Regression
from tests.gates.conftest import part_of, public_table

pytestmark = [pytest.mark.exhaustive, pytest.mark.one_python]

OURS, OTHERS = "physical-gp", ("ridge", "gbr", "mlp")
COUNTS, REPEATS, FIGURES = (3, 5, 10), 5, ("time", "power")
MOST_ROWS = 400
ALLOWED = 0.5  # points of MAPE
ROUNDING = 0.1  # points by which a figure may lie above that: other processors and versions round differently

ON_ORIN_AGX = ("resnet18-imagenet", "yolov8n-coco", "lstm-wikitext")
PUBLIC = {
    "orin-agx-training": ON_ORIN_AGX,
    "orin-agx-inference": ON_ORIN_AGX,
    "orin-nano-training": ("resnet18-imagenet",),
}
"""The workloads of the measured tables that the repository may not hold, by the name of their file."""

ALONE = {("zeus-a40", "resnet50-imagenet", 3), ("orin-agx-inference", "resnet18-imagenet", 3)}
"""Tables and numbers of modes at which there is no other predictor: in one of the draws all modes have the same batch
size, and the others refuse to predict further ones."""


def workloads_of(file: Path) -> List[str]:
    """The workloads of a corpus, without loading pandas for it: tests are collected often."""
    with file.open(encoding="utf-8", newline="") as rows:
        return list(dict.fromkeys(row["workload"] for row in csv.DictReader(rows)))


TABLES = [
    *((source, name) for source in table_names() for name in workloads_of(table_file(source))),
    *((source, name) for source, names in PUBLIC.items() for name in names),
]


@pytest.fixture(autouse=True)
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of the others, which take up to five further fits each, are not judged here."""
    monkeypatch.setattr(Regression, "_left_out", lambda self, inputs, figures: (figures, figures))


def points_behind(source: str, workload: str) -> Dict[Tuple[int, str], Optional[float]]:
    """By number of modes and figure, the points of MAPE, median of the repeats, behind the best other predictor.

    A predictor that cannot be fitted to so few modes is not among the others; None where none can.
    """
    file = public_table(f"{source}.csv") if source in PUBLIC else table_file(source)
    (table,) = (each.complete() for each in load_tables(file) if each.workload == workload)
    target = make_target(part_of(table, MOST_ROWS), ())
    evaluated = run_plan(TrialPlan((OURS, *OTHERS), (target,), COUNTS, repeats=REPEATS))
    behind: Dict[Tuple[int, str], Optional[float]] = {}
    for count in COUNTS:
        errors = {group.predictor: row for group, row in evaluated.by_group.items() if group.count == count}
        for figure in FIGURES:
            others = [row[f"{figure}_mape_median"] for name, row in errors.items() if name != OURS]
            behind[count, figure] = errors[OURS][f"{figure}_mape_median"] - min(others) if others else None
    return behind


@pytest.mark.parametrize(("source", "workload"), TABLES, ids=["-".join(table) for table in TABLES])
def test_no_other_predictor_is_far_ahead(source, workload):
    behind = points_behind(source, workload)
    alone = {count for (count, _), points in behind.items() if points is None}
    assert alone == {count for count in COUNTS if (source, workload, count) in ALONE}
    too_far = {key: points for key, points in behind.items() if points is not None and points > ALLOWED + ROUNDING}
    assert not too_far


@pytest.mark.parametrize("source", PUBLIC)
def test_every_workload_of_a_table_that_does_not_ship_is_tested(source):
    assert sorted(workloads_of(public_table(f"{source}.csv"))) == sorted(PUBLIC[source])


def test_what_stands_alone_is_tested():
    assert {(source, workload) for source, workload, _ in ALONE} <= set(TABLES)
