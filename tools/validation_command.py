"""What `simulation validate` does: says how far simulated boards are from the papers and from measured tables."""

from __future__ import annotations

import argparse
import json
from typing import Any, Dict, List, Optional

from harness.core.corpus import Row, read_corpus
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.terminal import format_table
from harness.judge.published_figures import Condition, Figure
from tools.learning_curves import FACTOR, Point
from tools.model_checks import ClaimResult
from tools.table_errors import split_tables
from tools.validation import Answer, Report, as_json, by_kind, exact, summarise, validate

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


def _told(figure: Figure) -> str:
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
