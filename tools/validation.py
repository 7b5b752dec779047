"""How good simulated boards are: against the papers' figures and claims, and against measured tables."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.units import share_to_percent
from harness.judge.claims import load_claims
from harness.judge.evidence import evidence_of
from harness.judge.published_figures import CLOSE, Figure, load_figures
from harness.judge.verdicts import CONFIRMED, Verdict, judge
from tools.learning_curves import Point, is_large, learning_curves
from tools.model_checks import ClaimResult, check_model
from tools.published import Evaluator
from tools.simulated_campaign import SimulatedCampaign
from tools.table_errors import Table, keys_of, validate_table


class Answer(NamedTuple):
    """A figure of a paper and what simulated boards answer, in the figure's unit."""

    figure: Figure
    simulated: float

    @property
    def deviation(self) -> float:
        """Relative deviation of the answer, as `Figure.deviation` has it."""
        return self.figure.deviation(self.simulated)

    @property
    def is_close(self) -> bool:
        """Whether it lies within 15 %."""
        return abs(self.deviation) <= CLOSE

    @property
    def kind(self) -> str:
        """The metric, and what is made of it where that is not its plain value."""
        own = self.figure.relation == "value"
        return self.figure.metric if own else f"{self.figure.metric} {self.figure.relation}"


class Summary(NamedTuple):
    """Deviations of some answers: how many, the share within 15 %, and median and greatest, in %."""

    count: int
    close_pct: float
    median_pct: float
    greatest_pct: float


class Report(NamedTuple):
    """All that was found."""

    answers: List[Answer]  # to the papers' figures
    # what simulated profiles say to the papers' claims, and the model to those that no profile tells
    claims: List[ClaimResult]
    corpora: Dict[str, Dict[str, Any]]  # errors against each measured table, by `keys_of`
    curves: List[Point]  # points of learning curves on the larger tables


def validate(tables: Sequence[Table] = (), device: Optional[str] = None) -> Report:
    """Compare the suite's simulated boards with all there is.

    With a device only its figures and tables, and no claims: these compare boards.
    """
    figures = [figure for figure in load_figures() if device in (None, *figure.condition.device.split(","))]
    tables = [table for table in tables if device in (None, table.device)]
    return Report(
        [Answer(*pair) for pair in zip(figures, Evaluator(figures).answers())],
        [*judge_simulation(), *check_model()] if device is None else [],
        {key: validate_table(table) for key, table in zip(keys_of(tables), tables)},
        [point for table in tables if is_large(table) for point in learning_curves(table)],
    )


def judge_simulation() -> List[ClaimResult]:
    """What the profiles of the campaign `paper` on simulated boards say to the papers' claims.

    A claim holds where it is confirmed on every board that it is about. Where it is known not to, some board has to
    miss it as is on record.
    """
    by_claim: Dict[str, List[Verdict]] = {}
    for verdict in judge(evidence_of(profile) for profile in SimulatedCampaign().profiles()):
        by_claim.setdefault(verdict.takeaway, []).append(verdict)
    results = []
    for claim in load_claims():
        found = by_claim.get(claim.name, [])
        if found:
            holds = all(one.verdict == CONFIRMED for one in found)
            told = "; ".join(f"{one.device} {one.effect:.3g}" for one in found if "@" not in one.device)
            as_known = not any(one.is_violated for one in found) and holds == (not claim.shortfall)
            text = f"{claim.meaning}: {told}"
            own = (claim.name, claim.facts, claim.says, holds, text, claim.shortfall or None)
            results.append(ClaimResult(*own, as_known))
    return results


def summarise(answers: Sequence[Answer]) -> Summary:
    """The deviations of some answers; at least one."""
    deviations = np.abs([answer.deviation for answer in answers])
    return Summary(
        len(answers),
        share_to_percent(float(np.mean(deviations <= CLOSE))),
        share_to_percent(float(np.median(deviations))),
        share_to_percent(float(deviations.max())),
    )


def exact(answers: Sequence[Answer]) -> List[Answer]:
    """Those to figures of one value: neither a range nor a bound, which are easier to meet."""
    return [answer for answer in answers if answer.figure.comparator in ("=", "~")]


def by_kind(answers: Sequence[Answer]) -> Dict[str, Summary]:
    """A summary for each kind of figure, in the order in which kinds come first."""
    kinds = list(dict.fromkeys(answer.kind for answer in answers))
    return {kind: summarise([answer for answer in answers if answer.kind == kind]) for kind in kinds}


def as_json(report: Report) -> Dict[str, Any]:
    """The report as values for JSON."""
    found: Dict[str, Any] = {
        "provenance": "simulated",
        "figures": [_answer_as_json(answer) for answer in report.answers],
        "claims": [
            {name: value for name, value in claim._asdict().items() if name != "is_as_known"} for claim in report.claims
        ],
        "corpora": report.corpora,
        "learning_curves": [
            {**point._asdict(), "ratio": point.ratio, "is_alike": point.is_alike} for point in report.curves
        ],
    }
    if report.answers:
        found["summary"] = {
            **summarise(report.answers)._asdict(),
            "of_exact_figures": summarise(exact(report.answers))._asdict() if exact(report.answers) else None,
            "by_kind": {kind: summary._asdict() for kind, summary in by_kind(report.answers).items()},
        }
    return found


def _answer_as_json(answer: Answer) -> Dict[str, Any]:
    figure = answer.figure
    return {
        "fact": figure.fact,
        "paper": figure.paper,
        "section": figure.section,
        "condition": figure.condition._asdict(),
        "versus": None if figure.versus is None else figure.versus._asdict(),
        "metric": figure.metric,
        "relation": figure.relation,
        "published": figure.value,
        "unit": figure.unit,
        "simulated": answer.simulated,
        "deviation_pct": share_to_percent(answer.deviation),
        "is_close": answer.is_close,
    }
