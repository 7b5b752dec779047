"""A comparison in words: plain text for a terminal, Markdown for a job summary, JSON for programs."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Sequence

from harness.core.terminal import format_table
from harness.judge.compare import MIN_MINIBATCHES, SAME, TELLING, TEST, TOO_FEW, Compared, Comparison, exit_code
from harness.judge.sides import Pairing, Side
from harness.stats.changes import FEWEST_RUNS
from harness.stats.estimates import CONFIDENCE
from harness.store.conditions import LEFT_OUT

_INTERVAL = f"{CONFIDENCE:.0%} interval"
_PLAIN_CASES = 40
"""Of more cases than this, those without a difference are counted in text and not listed; JSON has them all."""


class ComparedSides(NamedTuple):
    """Everything about one comparison."""

    before: Side  # one side
    after: Side  # the other
    by: Sequence[str]  # the conditions in question
    pairing: Pairing  # what was compared and what was not
    verdicts: Comparison  # what came out
    threshold: float  # as a share


def format_result(result: ComparedSides, markdown: bool = False) -> str:
    """The comparison as text: the overall answer first, then workloads, cases, what was refused, and the test."""
    verdicts, pairing = result.verdicts, result.pairing
    parts = [_heading(result, markdown), "\n".join(_sentences(result))]
    if verdicts.workloads:
        parts.append(_table("workload", "cases", verdicts.workloads, markdown))
    shown = [one for one in verdicts.cases if len(verdicts.cases) <= _PLAIN_CASES or one.status != SAME]
    if shown:
        parts.append(_table("case", "runs", shown, markdown))
    if len(shown) < len(verdicts.cases):
        parts.append(f"{len(verdicts.cases) - len(shown)} more figures of cases: {SAME}")
    for title, lines in (
        (
            "Not compared, because conditions differ:",
            [f"{case_id}: {'; '.join(why)}" for case_id, why in pairing.refused],
        ),
        (f"Only in {result.before.path.name}:", pairing.only_before),
        (f"Only in {result.after.path.name}:", pairing.only_after),
        ("Machine or software differs, which is compared all the same:", pairing.environment),
        ("Notes:", _notes(result)),
    ):
        if lines:
            parts.append("\n".join([title, *([""] if markdown else []), *(f"- {line}" for line in lines)]))
    parts.append(f"Threshold {result.threshold:.1%}. {TEST}")
    return "\n\n".join(parts)


def to_json(result: ComparedSides) -> str:
    """The comparison as JSON: ratios are after / before, `p_value` is corrected for the number of cases."""
    pairing, verdicts = result.pairing, result.verdicts
    document = {
        "before": str(result.before.path),
        "after": str(result.after.path),
        "by": list(result.by),
        "changed": _changed(pairing),
        "confidence": CONFIDENCE,
        "threshold": result.threshold,
        "exit_code": exit_code(verdicts, pairing),
        "overall": [_compared(one) for one in verdicts.overall],
        "workloads": [_compared(one) for one in verdicts.workloads],
        "cases": [_compared(one) for one in verdicts.cases],
        "refused": [{"case": case_id, "why": why} for case_id, why in pairing.refused],
        "only_before": pairing.only_before,
        "only_after": pairing.only_after,
        "environment": pairing.environment,
        "notes": _notes(result),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _heading(result: ComparedSides, markdown: bool) -> str:
    text = f"{result.before.path.name} -> {result.after.path.name}"
    heading = f"## Comparison: {text}" if markdown else text
    changed = _changed(result.pairing)
    return "\n\n".join([heading, "; ".join(changed)]) if changed else heading


def _changed(pairing: Pairing) -> List[str]:
    """What differs of the conditions in question, each line once."""
    return list({line: None for one in pairing.pairs for line in one.changed})


def _sentences(result: ComparedSides) -> List[str]:
    """The overall answers."""
    if not result.verdicts.overall:
        return ["Nothing could be compared."]
    return [
        f"Overall, {one.figure}: {one.status} ({_percent(one.change.ratio)}, {_INTERVAL} {_percent(one.change.low)} to"
        f" {_percent(one.change.high)}, {one.counts[0]} case{'s' if one.counts[0] > 1 else ''})"
        for one in result.verdicts.overall
        if one.change
    ]


def _table(what: str, counted: str, findings: Sequence[Compared], markdown: bool) -> str:
    header = [what, "figure", ">change", f">{_INTERVAL}", ">p", f">{counted}", "verdict"]
    return format_table(header, [_cells(one, counted) for one in findings], markdown)


def _cells(one: Compared, counted: str) -> List[str]:
    count = f"{one.counts[0]}" if counted == "cases" else f"{one.counts[0]}, {one.counts[1]}"
    if one.change is None or one.p_value is None:
        return [one.name, one.figure, "-", "-", "-", count, one.status]
    interval = f"{_percent(one.change.low)} to {_percent(one.change.high)}"
    return [one.name, one.figure, _percent(one.change.ratio), interval, _p(one.p_value), count, one.status]


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _p(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _notes(result: ComparedSides) -> List[str]:
    notes = []
    for side in (result.before, result.after):
        older = sum(case.older for case in side.cases)
        if side.flagged:
            notes.append(f"{side.path.name}: left out {side.flagged} {LEFT_OUT}")
        if older:
            notes.append(f"{side.path.name}: left out {older} older profiles, of another environment")
    cases = result.verdicts.cases
    if any(one.status == TOO_FEW for one in cases):
        notes.append(
            f"too few: each side of a case needs {MIN_MINIBATCHES} minibatches, and {FEWEST_RUNS} runs for --fastest"
        )
    if cases and all(one.counts == (1, 1) for one in cases):
        notes.append(
            "one run on each side: how much runs differ is taken from what is known of boards and from how much cases"
            " scatter; measure each side three times for a sure answer"
        )
    if any(one.change and one.change.high > one.change.low * (1 + TELLING) for one in result.verdicts.overall):
        notes.append(
            f"runs differ so much here that a change of {TELLING:.0%} may be missed: measure more runs of each side, in"
            " turns (before, after, before, ...); where others share the machine, compare with --fastest"
        )
    return notes


def _compared(one: Compared) -> Dict[str, Any]:
    change = one.change
    return {
        "name": one.name,
        "figure": one.figure,
        "status": one.status,
        "ratio": change.ratio if change else None,
        "low": change.low if change else None,
        "high": change.high if change else None,
        "p_value": one.p_value,
        "rank_p_value": one.rank_p,
        "counts": list(one.counts),
    }
