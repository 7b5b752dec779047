"""`physical-gp` is on no measured table far behind the best other predictor, but for exceptions that are listed.

The prior has learned from these tables, so their errors are not those on hardware that it never saw.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest

from harness.core.measured_tables import load_table
from predictors.contest.trials import TrialPlan, run_plan
from predictors.evaluation import make_target
from predictors.profiles import tables_of
from tests.gates.conftest import part_of

pytestmark = [pytest.mark.exhaustive, pytest.mark.one_python]

OURS, OTHERS = "physical-gp", ("ridge", "gbr", "mlp")
COUNTS, REPEATS = (3, 5, 10), 5
MOST_ROWS = 400
ALLOWED = 0.5  # points of MAPE
AS_RECORDED = 0.25  # by which a listed exception may differ: other processors and versions round differently

ON_V100 = (
    *("shufflenetv2-cifar100", "resnet50-imagenet", "deepspeech2-librispeech", "ncf-movielens-1m"),
    *("bert-base-uncased-squad", "bert-base-uncased-sentiment140"),
)
TABLES = [
    *(("zeus-v100", name) for name in ON_V100),
    ("zeus-a40", "shufflenetv2-cifar100"),
    ("loudva-nano", "inception-triton"),
    *(("qutibench-tx2", name) for name in ("googlenetv1-imagenet-fp16", "resnet50-imagenet-fp16")),
]

BEHIND: Dict[Tuple[str, str, int, str], float] = {
    ("zeus-v100", "ncf-movielens-1m", 3, "power"): 0.70,
    ("zeus-v100", "ncf-movielens-1m", 5, "power"): 0.92,
    ("zeus-v100", "ncf-movielens-1m", 10, "power"): 0.55,
}
"""The exceptions: points of MAPE behind the best other predictor, by source, workload, number of modes and figure."""


def points_behind(source: str, workload: str) -> Dict[Tuple[int, str], float]:
    """By number of modes and figure, the points of MAPE, median of the repeats, behind the best other predictor.

    A predictor that cannot be fitted to so few modes is not among the others.
    """
    (table,) = (each.complete() for each in tables_of(load_table(source)) if each.workload == workload)
    target = make_target(part_of(table, MOST_ROWS), ())
    evaluated = run_plan(TrialPlan((OURS, *OTHERS), (target,), COUNTS, repeats=REPEATS))
    behind = {}
    for count in COUNTS:
        errors = {group.predictor: row for group, row in evaluated.by_group.items() if group.count == count}
        for figure in ("time", "power"):
            others = [row[f"{figure}_mape_median"] for name, row in errors.items() if name != OURS]
            behind[count, figure] = errors[OURS][f"{figure}_mape_median"] - min(others)
    return behind


@pytest.mark.parametrize(("source", "workload"), TABLES, ids=["-".join(table) for table in TABLES])
def test_no_other_predictor_is_far_ahead(source, workload):
    wrong: List[str] = []
    for (count, figure), points in points_behind(source, workload).items():
        listed = BEHIND.get((source, workload, count, figure))
        is_as_listed = points <= ALLOWED if listed is None else abs(points - listed) <= AS_RECORDED
        if not is_as_listed:
            known = "is not listed" if listed is None else f"is listed with {listed}"
            wrong.append(f"{count} modes, {figure}: {points:.2f} points behind, which {known}")
    assert not wrong, "; ".join(wrong)


def test_the_exceptions_are_of_tables_that_are_tested():
    assert {(source, workload) for source, workload, _, _ in BEHIND} <= set(TABLES)
    assert min(BEHIND.values()) > ALLOWED
