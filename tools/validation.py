"""`simulation validate`: compares simulated boards with the papers' figures and claims, and with measured tables."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from harness.core.corpus import read_corpus, rows_of
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.units import share_to_percent
from harness.judge.case_frame import frame_of_profiles, pooled
from harness.judge.claims import judge
from harness.judge.published_figures import CLOSE, Condition, PublishedFigure, load_figures
from harness.judge.verdict import CONFIRMED, Verdict
from predictors.profiles import Profiles
from tools.measured_tables import FACTOR, is_large, keys_of, learning_curves, split_tables, validate_table
from tools.model_checks import ClaimResult, check_model
from tools.simulated_answers import answers
from tools.simulated_campaign import SimulatedCampaign, papers_claims

if TYPE_CHECKING:
    import pandas as pd

OK_CODE, CLAIMS_CODE = 0, 1


class Report(NamedTuple):
    # a row for each figure of a paper: `figure`, `kind` (its metric and relation), the value on simulated boards
    # (`simulated`, in the figure's unit), `deviation` as of `PublishedFigure.deviation`, and `is_close`
    figures: pd.DataFrame
    claims: List[ClaimResult]  # the papers' claims on simulated profiles, and the checks of the model itself
    corpora: Dict[str, Dict[str, Any]]  # errors against each measured table, by `keys_of`
    curves: pd.DataFrame  # `learning_curves` of the larger tables


def validate(tables: Sequence[Profiles] = (), device: Optional[str] = None) -> Report:
    """Compare simulated boards with all figures, claims and tables; with a device, only with its figures and tables."""
    import pandas as pd

    figures = [figure for figure in load_figures() if device in (None, *figure.condition.device.split(","))]
    tables = [table for table in tables if device in (None, table.device)]
    compared = pd.DataFrame({"figure": pd.Series(figures, dtype=object), "simulated": answers(figures)})
    compared["kind"] = [f"{figure.metric} {figure.relation}".replace(" value", "") for figure in figures]
    compared["deviation"] = [figure.deviation(value) for figure, value in zip(figures, compared["simulated"])]
    compared["is_close"] = compared["deviation"].abs() <= CLOSE
    return Report(
        compared,
        [*judge_simulation(), *check_model()] if device is None else [],
        {key: validate_table(table) for key, table in zip(keys_of(tables), tables)},
        pd.concat([pd.DataFrame(), *(learning_curves(table) for table in tables if is_large(table))]),
    )


def judge_simulation() -> List[ClaimResult]:
    """Judge the papers' claims on the profiles of the campaign `paper` on simulated boards.

    A claim holds if it is confirmed on every board that it applies to. A claim with a known shortfall must fall short
    on some board, within the recorded bounds.
    """
    cases = pooled(frame_of_profiles(SimulatedCampaign().profiles()))
    by_claim: Dict[str, List[Verdict]] = {}
    for verdict in judge(cases, papers_claims()):
        by_claim.setdefault(verdict.takeaway, []).append(verdict)
    results = []
    for claim in papers_claims():
        verdicts = by_claim.get(claim.name, [])
        if verdicts:
            holds = all(verdict.verdict == CONFIRMED for verdict in verdicts)
            effects = "; ".join(f"{verdict.device} {verdict.effect:.3g}" for verdict in verdicts)
            as_known = not any(verdict.is_violated for verdict in verdicts) and holds == (claim.shortfall is None)
            text = f"{verdicts[0].meaning}: {effects}"
            shortfall = None if claim.shortfall is None else claim.shortfall.why
            results.append(ClaimResult(claim.name, claim.facts, claim.says, holds, text, shortfall, as_known))
    return results


def summaries(figures: pd.DataFrame) -> pd.DataFrame:
    """Count, share within 15 %, median and worst deviation in % of each kind of figure, of all, and of exact ones."""
    import pandas as pd

    exact = figures[[figure.comparator in ("=", "~") for figure in figures["figure"]]]
    groups = [*figures.groupby("kind", sort=False), ("all", figures), ("all but ranges and bounds", exact)]
    rows = {}
    for kind, part in groups:
        off = part["deviation"].abs()
        shares = (part["is_close"].mean(), off.median(), off.max())
        rows[kind] = [len(part), *map(share_to_percent, shares)]
    columns = ["count", "close_pct", "median_pct", "greatest_pct"]
    counted = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return counted[counted["count"] > 0]


def as_json(report: Report) -> Dict[str, Any]:
    shown = ("fact", "paper", "section", "metric", "relation", "unit")
    content: Dict[str, Any] = {
        "provenance": "simulated",
        "figures": [
            {
                **{name: getattr(row.figure, name) for name in shown},
                "condition": row.figure.condition._asdict(),
                "versus": None if row.figure.versus is None else row.figure.versus._asdict(),
                "published": row.figure.value,
                "simulated": row.simulated,
                "deviation_pct": share_to_percent(row.deviation),
                "is_close": row.is_close,
            }
            for row in report.figures.itertuples()
        ],
        "claims": [
            {name: value for name, value in claim._asdict().items() if name != "is_as_known"} for claim in report.claims
        ],
        "corpora": report.corpora,
        "learning_curves": report.curves.to_dict("records"),
    }
    if len(report.figures):
        by_kind = summaries(report.figures).to_dict("index")
        content["summary"] = {
            **by_kind.pop("all"),
            "of_exact_figures": by_kind.pop("all but ranges and bounds", None),
            "by_kind": by_kind,
        }
    return content


def run(arguments: argparse.Namespace) -> int:
    rows = [row for path in arguments.corpus for row in rows_of(read_corpus(path))]
    tables, left_out = split_tables(rows)
    if rows and not tables:
        raise InvalidValueError("no row of the corpora can be compared with a simulated board", "; ".join(left_out))
    report = validate(tables, arguments.device)
    if not len(report.figures) and not report.corpora:
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
    import pandas as pd

    sections = []

    def add(title: str, table: pd.DataFrame) -> None:
        text = table.to_string(index=False, na_rep="-", float_format="{:.3g}".format)
        sections.append(f"{title}\n\n{text}\n")

    if len(report.figures):
        figures = report.figures["figure"]
        table = pd.DataFrame(
            {
                "device": [figure.condition.device for figure in figures],
                "workload": [figure.condition.workload or "idle" for figure in figures],
                "quantity": report.figures["kind"],
                "condition": list(map(describe_condition, figures)),
                "published": [figure.value for figure in figures],
                "simulated": report.figures["simulated"],
                "unit": [figure.unit for figure in figures],
                "off_pct": share_to_percent(report.figures["deviation"]),
                "close": report.figures["is_close"].map({True: "", False: "no"}),
                "fact": [f"{figure.fact} ({figure.paper} {figure.section})" for figure in figures],
            }
        )
        title = "Published figures and those of simulated boards"
        add(title, table.sort_values(["device", "workload", "quantity"], kind="stable"))
        add("Deviations by kind of figure", summaries(report.figures).rename_axis("quantity").reset_index())
    if report.claims:
        claims = [[_verdict(claim), claim.name, " ".join(claim.facts), claim.found] for claim in report.claims]
        title = "Claims of the papers on simulated boards"
        add(title, pd.DataFrame(claims, columns=["verdict", "claim", "facts", "effects"]))
        sections.append(f"{sum(claim.holds for claim in report.claims)} of {len(report.claims)} hold.")
        sections += [f"{claim.name}: {claim.shortfall}" for claim in report.claims if claim.shortfall]
    if report.corpora:
        rows = []
        for key, errors in report.corpora.items():
            whole = {name: value for name, value in errors.items() if not isinstance(value, dict)}
            rows.append({"table": key, **whole})
            for part, name in (("sound", "  without the odd slice"), ("smooth", "  smooth model")):
                rows += [{"table": name, **errors[part]}] if part in errors else []
        add("\nSimulated boards against measured tables", pd.DataFrame(rows))
    if len(report.curves):
        title = f"Learning curves, mean absolute error in %; alike: within a factor of {FACTOR:g}"
        add(title, report.curves)
    return sections


def _verdict(claim: ClaimResult) -> str:
    if claim.is_as_known:
        return "holds" if claim.holds else "known not to"
    return "holds now" if claim.holds else "FAILS"


def describe_condition(figure: PublishedFigure) -> str:
    """A condition in short: the mode, what differs from the papers' defaults, and what it is compared with."""
    short = {"workers": "w={}", "batch_size": "bs={}", "data_scale": "data x{:g}", "clocks": "clocks {}"}

    def differences(condition: Condition, other: Condition, skipped: Sequence[str] = ()) -> List[str]:
        return [
            _mode(str(value)) if name == "power_mode" else short.get(name, "{}").format(value)
            for name, value, usual in zip(Condition._fields, condition, other)
            if name not in skipped and value != usual
        ]

    own = figure.condition
    words = [_mode(own.power_mode), *differences(own, Condition("", "", ""), ("device", "workload", "power_mode"))]
    if figure.versus is not None:
        words.append(f"against {' '.join(differences(figure.versus, own))}")
    return " ".join(words)


def _mode(text: str) -> str:
    """A power mode's text; a list of single letters as their range."""
    names = text.split(",")
    return text if len(names) < 4 else f"{names[0]}..{names[-1]} ({len(names)})"
