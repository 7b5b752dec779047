"""How good simulated boards are, against the papers and measured tables: what `simulation validate` says."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from harness.core.corpus import read_corpus, rows_of
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.units import share_to_percent
from harness.judge.case_frame import frame_of_profiles, pooled
from harness.judge.claims import Verdict, judge
from harness.judge.figures import CONFIRMED
from harness.judge.published_figures import CLOSE, Condition, PublishedFigure, load_figures
from predictors.models.tables import Table
from tools.measured_tables import FACTOR, is_large, keys_of, learning_curves, split_tables, validate_table
from tools.model_checks import ClaimResult, check_model
from tools.simulated_answers import answers
from tools.simulated_campaign import SimulatedCampaign, papers_claims

if TYPE_CHECKING:
    import pandas as pd

OK_CODE, CLAIMS_CODE = 0, 1


class Report(NamedTuple):
    # a row for each figure of a paper: `figure`, `kind` (its metric, and what is made of it), what simulated boards
    # answer (`simulated`, in the figure's unit), `deviation` as `PublishedFigure.deviation` has it, and `is_close`
    figures: pd.DataFrame
    # what simulated profiles say to the papers' claims, and the model to those that no profile tells
    claims: List[ClaimResult]
    corpora: Dict[str, Dict[str, Any]]  # errors against each measured table, by `keys_of`
    curves: pd.DataFrame  # `learning_curves` of the larger tables


def validate(tables: Sequence[Table] = (), device: Optional[str] = None) -> Report:
    """Compare simulated boards with all there is; for one device, its figures and tables without the claims."""
    import pandas as pd

    figures = [figure for figure in load_figures() if device in (None, *figure.condition.device.split(","))]
    tables = [table for table in tables if device in (None, table.device)]
    found = pd.DataFrame({"figure": pd.Series(figures, dtype=object), "simulated": answers(figures)})
    found["kind"] = [f"{one.metric} {one.relation}".replace(" value", "") for one in figures]
    found["deviation"] = [one.deviation(said) for one, said in zip(figures, found["simulated"])]
    found["is_close"] = found["deviation"].abs() <= CLOSE
    return Report(
        found,
        [*judge_simulation(), *check_model()] if device is None else [],
        {key: validate_table(table) for key, table in zip(keys_of(tables), tables)},
        pd.concat([pd.DataFrame(), *(learning_curves(table) for table in tables if is_large(table))]),
    )


def judge_simulation() -> List[ClaimResult]:
    """What the profiles of the campaign `paper` on simulated boards say to the papers' claims.

    A claim holds where it is confirmed on every board that it is about. Where it is known not to, some board has to
    miss it as is on record.
    """
    cases = pooled(frame_of_profiles(SimulatedCampaign().profiles()))
    by_claim: Dict[str, List[Verdict]] = {}
    for verdict in judge(cases, papers_claims()):
        by_claim.setdefault(verdict.takeaway, []).append(verdict)
    results = []
    for claim in papers_claims():
        found = by_claim.get(claim.name, [])
        if found:
            holds = all(one.verdict == CONFIRMED for one in found)
            told = "; ".join(f"{one.device} {one.effect:.3g}" for one in found)
            as_known = not any(one.is_violated for one in found) and holds == (claim.shortfall is None)
            text = f"{found[0].meaning}: {told}"
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
    found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return found[found["count"] > 0]


def as_json(report: Report) -> Dict[str, Any]:
    told = ("fact", "paper", "section", "metric", "relation", "unit")
    found: Dict[str, Any] = {
        "provenance": "simulated",
        "figures": [
            {
                **{name: getattr(row.figure, name) for name in told},
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
        found["summary"] = {
            **by_kind.pop("all"),
            "of_exact_figures": by_kind.pop("all but ranges and bounds", None),
            "by_kind": by_kind,
        }
    return found


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
                "device": [one.condition.device for one in figures],
                "workload": [one.condition.workload or "idle" for one in figures],
                "quantity": report.figures["kind"],
                "condition": list(map(_told, figures)),
                "published": [one.value for one in figures],
                "simulated": report.figures["simulated"],
                "unit": [one.unit for one in figures],
                "off_pct": share_to_percent(report.figures["deviation"]),
                "close": report.figures["is_close"].map({True: "", False: "no"}),
                "fact": [f"{one.fact} ({one.paper} {one.section})" for one in figures],
            }
        )
        title = "Published figures, and what simulated boards answer"
        add(title, table.sort_values(["device", "workload", "quantity"], kind="stable"))
        add("Deviations by kind of figure", summaries(report.figures).rename_axis("quantity").reset_index())
    if report.claims:
        claims = [[_verdict(one), one.name, " ".join(one.facts), one.found] for one in report.claims]
        title = "Claims of the papers on simulated boards"
        add(title, pd.DataFrame(claims, columns=["verdict", "claim", "facts", "found"]))
        sections.append(f"{sum(claim.holds for claim in report.claims)} of {len(report.claims)} hold.")
        sections += [f"{claim.name}: {claim.shortfall}" for claim in report.claims if claim.shortfall]
    if report.corpora:
        rows = []
        for key, found in report.corpora.items():
            whole = {name: value for name, value in found.items() if not isinstance(value, dict)}
            rows.append({"table": key, **whole})
            for part, name in (("sound", "  without the odd slice"), ("smooth", "  smooth model")):
                rows += [{"table": name, **found[part]}] if part in found else []
        add("\nSimulated boards against measured tables", pd.DataFrame(rows))
    if len(report.curves):
        title = f"Learning curves, mean absolute error in %; alike: within a factor of {FACTOR:g}"
        add(title, report.curves)
    return sections


def _verdict(claim: ClaimResult) -> str:
    if claim.is_as_known:
        return "holds" if claim.holds else "known not to"
    return "holds now" if claim.holds else "FAILS"


def _told(figure: PublishedFigure) -> str:
    """A condition in short: mode, what is not as the papers have it by default, and what it is compared with."""
    short = {"workers": "w={}", "batch_size": "bs={}", "data_scale": "data x{:g}", "clocks": "clocks {}"}

    def differences(condition: Condition, other: Condition, skipped: Sequence[str] = ()) -> List[str]:
        return [
            _mode(value) if name == "power_mode" else short.get(name, "{}").format(value)
            for name, value, usual in zip(Condition._fields, condition, other)
            if name not in skipped and value != usual
        ]

    own = figure.condition
    told = [_mode(own.power_mode), *differences(own, Condition("", "", ""), ("device", "workload", "power_mode"))]
    if figure.versus is not None:
        told.append(f"against {' '.join(differences(figure.versus, own))}")
    return " ".join(told)


def _mode(text: str) -> str:
    """A power mode's text; a list of single letters as their range."""
    names = text.split(",")
    return text if len(names) < 4 else f"{names[0]}..{names[-1]} ({len(names)})"
