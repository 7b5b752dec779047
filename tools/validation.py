"""How good simulated boards are, against the papers and measured tables: what `simulation validate` says."""

from __future__ import annotations

import argparse
import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.corpus import Row, read_corpus
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.claim_list import load_claims
from harness.judge.claims import CONFIRMED, Verdict, judge
from harness.judge.evidence import evidence_of
from harness.judge.published_figures import CLOSE, Condition, PublishedFigure, load_figures
from tools.measured_tables import (
    FACTOR,
    MeasuredTable,
    Point,
    is_large,
    keys_of,
    learning_curves,
    split_tables,
    validate_table,
)
from tools.model_checks import ClaimResult, check_model
from tools.published import Evaluator
from tools.simulated_campaign import SimulatedCampaign


class Answer(NamedTuple):
    """A figure of a paper and what simulated boards answer, in the figure's unit."""

    figure: PublishedFigure
    simulated: float

    @property
    def deviation(self) -> float:
        """Relative deviation of the answer, as `PublishedFigure.deviation` has it."""
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


def validate(tables: Sequence[MeasuredTable] = (), device: Optional[str] = None) -> Report:
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


OK_CODE, CLAIMS_CODE = 0, 1

CORPUS_COLUMNS = (
    ("time_median_ape", "time med %"),
    ("time_p90_ape", "p90 %"),
    ("power_median_ape", "power med %"),
    ("power_p90_ape", "p90 %"),
    ("time_rank_correlation", "time rank r"),
    ("power_rank_correlation", "power rank r"),
    ("front_median_penalty_pct", "front med %"),
    ("front_worst_penalty_pct", "worst %"),
    ("front_over_budget_pct", "over budget %"),
)


def run(arguments: argparse.Namespace) -> int:
    rows: List[Row] = [row for path in arguments.corpus for row in read_corpus(path)]
    tables, left_out = split_tables(rows)
    if rows and not tables:
        raise InvalidValueError("no row of the corpora can be compared with a simulated board", "; ".join(left_out))
    report = validate(tables, arguments.device)
    if not report.answers and not report.corpora:
        raise InvalidValueError(
            f"there is nothing to compare {arguments.device} with: the papers have no figure of it",
            "give a measured table of it with --corpus",
        )
    for part in (*_sections(report), *left_out):
        print(part)
    if arguments.json is not None:
        write_output(arguments.json, (json.dumps(as_json(report), indent=2) + "\n").encode("utf-8"))
        print(f"\n{arguments.json}: written")
    return OK_CODE if all(claim.is_as_known for claim in report.claims) else CLAIMS_CODE


def _sections(report: Report) -> List[str]:
    sections = []
    if report.answers:
        sections += ["Published figures, and what simulated boards answer\n", _figures(report.answers)]
        sections += ["\nDeviations by kind of figure\n", _kinds(report.answers)]
    if report.claims:
        sections += ["\nClaims of the papers on simulated boards\n", _claims(report.claims)]
    if report.corpora:
        sections += ["\nSimulated boards against measured tables\n", _corpora(report.corpora)]
    if report.curves:
        title = f"\nLearning curves, mean absolute error in %; alike: within a factor of {FACTOR:g}\n"
        sections += [title, _curves(report.curves)]
    return sections


def _figures(answers: List[Answer]) -> str:
    ordered = sorted(answers, key=lambda a: (a.figure.condition.device, a.figure.condition.workload, a.kind))
    header = ("device", "workload", "quantity", "condition", ">published", ">simulated", "unit", ">off", "fact")
    return format_table(header, [_figure_row(answer) for answer in ordered])


def _figure_row(answer: Answer) -> List[str]:
    figure = answer.figure
    off = f"{100.0 * answer.deviation:+.1f} %"
    return [
        figure.condition.device,
        figure.condition.workload or "idle",
        answer.kind,
        _told(figure),
        figure.value,
        f"{answer.simulated:.4g}",
        figure.unit,
        off if answer.is_close else f"{off} !",
        f"{figure.fact} ({figure.paper} {figure.section})",
    ]


def _told(figure: PublishedFigure) -> str:
    """A condition in short: mode, and what is not as the papers have it by default."""
    told = [_mode(figure.condition.power_mode), *_differences(figure.condition)]
    if figure.versus is not None:
        changed = [
            _mode(other) if name == "power_mode" else _tell(name, other)
            for name, own, other in zip(Condition._fields, figure.condition, figure.versus)
            if own != other
        ]
        told.append(f"against {' '.join(changed)}")
    return " ".join(told)


def _differences(condition: Condition) -> List[str]:
    plain = Condition("", "", "")
    skipped = ("device", "workload", "power_mode")
    return [
        _tell(name, value)
        for name, value, usual in zip(Condition._fields, condition, plain)
        if name not in skipped and value != usual
    ]


def _tell(name: str, value: Any) -> str:
    short = {"workers": "w={}", "batch_size": "bs={}", "data_scale": "data x{:g}", "clocks": "clocks {}"}
    return short.get(name, "{}").format(value)


def _mode(text: str) -> str:
    """A power mode's text; a list of single letters as their range."""
    names = text.split(",")
    return text if len(names) < 4 else f"{names[0]}..{names[-1]} ({len(names)})"


def _kinds(answers: List[Answer]) -> str:
    summaries = [*by_kind(answers).items(), ("all", summarise(answers))]
    if exact(answers):
        summaries.append(("all but ranges and bounds", summarise(exact(answers))))
    rows = [
        [kind, str(found.count), f"{found.close_pct:.0f}", f"{found.median_pct:.1f}", f"{found.greatest_pct:.1f}"]
        for kind, found in summaries
    ]
    return format_table(("quantity", ">figures", ">within 15 %", ">median %", ">greatest %"), rows)


def _claims(claims: List[ClaimResult]) -> str:
    rows = [[_verdict(claim), claim.name, " ".join(claim.facts), claim.found] for claim in claims]
    reasons = [f"{claim.name}: {claim.shortfall}" for claim in claims if claim.shortfall]
    end = f"\n{sum(claim.holds for claim in claims)} of {len(claims)} hold."
    return "\n".join([format_table(("verdict", "claim", "facts", "found"), rows), end, *reasons])


def _verdict(claim: ClaimResult) -> str:
    if claim.is_as_known:
        return "holds" if claim.holds else "known not to"
    return "holds now" if claim.holds else "FAILS"


def _corpora(corpora: Dict[str, Dict[str, Any]]) -> str:
    rows = []
    for key, found in corpora.items():
        rows.append([key, found["device"], found["task"], *_corpus_cells(found)])
        for part, title in (("sound", "without the odd slice"), ("smooth", "smooth model")):
            if part in found:
                rows.append([f"  {title}", "", "", *_corpus_cells(found[part])])
    return format_table(("workload", "device", "task", ">rows", *(f">{title}" for _, title in CORPUS_COLUMNS)), rows)


def _corpus_cells(found: Dict[str, Any]) -> List[str]:
    return [str(found["rows"]), *(_cell(found.get(name)) for name, _ in CORPUS_COLUMNS)]


def _cell(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.3g}"


def _curves(points: List[Point]) -> str:
    rows = [
        [
            point.workload,
            point.target,
            point.learner,
            str(point.count),
            f"{point.measured_mape_pct:.1f}",
            f"{point.simulated_mape_pct:.1f}",
            f"{point.ratio:.2f}",
            "yes" if point.is_alike else "no",
        ]
        for point in points
    ]
    return format_table(("workload", "target", "model", ">modes", ">measured", ">simulated", ">ratio", "alike"), rows)
