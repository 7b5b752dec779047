"""`history`: many runs over weeks: what became slower or takes more power, since when, and what else changed then."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import List

from harness.cli.options import add_forms, add_include_flagged, add_threshold, output_file, say
from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table, shown
from harness.judge.compare import DEFAULT_THRESHOLD
from harness.judge.history import TEST, CaseHistories, CaseSeries, read_history, to_json
from harness.report.history import write_page
from harness.report.template import require_drawing

_MOST_LINES = 40
"""Of more series than this, those without a change are counted in text and not listed; JSON has them all."""

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.description = (
        "Look at many runs of the same cases, one results file a night or one with all: the minibatch time and the"
        f" power of each case on each board instance, over time. {TEST} A slowdown stays one until it is gone, or until"
        " --since leaves out the runs before it."
    )
    parser.epilog = (
        "exit code: 0 nothing is slower or takes more power in its newest run than before its last change; 1 something"
        " does; 2 no case has enough runs. Example, as the last step of a nightly job: jetwatt history nights/ --since"
        ' 2026-03-01 --markdown >> "$GITHUB_STEP_SUMMARY"'
    )
    add("files", type=Path, nargs="+", metavar="FILE", help="results files, or folders of them, in any order")
    add("--since", type=_day, metavar="DATE", help="leave out what was stored before that day: 2026-01-31")
    add_threshold(parser, DEFAULT_THRESHOLD, "a change of level below this is none")
    add_include_flagged(parser)
    add("--out", type=output_file, metavar="PAGE.html", help="write a page with a figure of each case, too")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        require_drawing("the page", ", or leave out --out")
    found = read_history(arguments.files, arguments.include_flagged, arguments.since, arguments.threshold)
    say(arguments, to_json(found), lambda markdown: _in_words(found, markdown))
    if arguments.out is not None:
        write_page(found, arguments.out)
        print(f"wrote {arguments.out}", file=sys.stderr)
    return found.exit_code


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(f"--since is {text!r}, which is no date", "write it like 2026-01-31") from None


def _in_words(found: CaseHistories, markdown: bool) -> str:
    worse = [one for one in found.series if one.is_worse]
    changed = [line for one in found.series for line in _changes(one)]
    heading = f"{len(worse)} of {len(found.series)} series became slower or take more power"
    rows = [_cells(one) for one in found.series if one.steps or len(found.series) <= _MOST_LINES]
    header = ["case", "figure", ">runs", ">newest", "status", "since", ">change", f"last {_MOST_BARS}"]
    lines = [f"## {heading}" if markdown else heading, "", *changed[:_MOST_LINES]]
    if len(changed) > _MOST_LINES:
        lines.append(f"- {len(changed) - _MOST_LINES} more changes, see --json")
    if rows:
        lines += ["", format_table(header, rows, markdown)]
    if len(rows) < len(found.series):
        lines += ["", f"{len(found.series) - len(rows)} more series: no change, or too few runs"]
    lines += ["", *(f"left out: {shown(one)}" for one in found.left_out)]
    return "\n".join([*lines, f"Threshold {found.threshold:.1%}. {TEST}"])


def _changes(one: CaseSeries) -> List[str]:
    lines = []
    for step in reversed(one.steps):
        first, last = (one.points[place].created_at[:10] for place in (step.at.low, step.at.high))
        when = f"{_moment(one, step.at.place)} (run {step.at.place + 1} of {len(one.points)})"
        between = "" if first == last else f", between {first} and {last}"
        told = f"; {'; '.join(step.differ)}" if step.differ else ""
        lines.append(f"- {shown(f'{one.case_id}: {one.figure} {step.change} since {when}{between}{told}')}")
    return lines


def _moment(one: CaseSeries, place: int) -> str:
    return one.points[place].created_at[:16].replace("T", " ")


def _cells(one: CaseSeries) -> List[str]:
    newest = one.quantity.to_shown(one.points[-1].value)
    value = f"{newest:.4g} {one.quantity.unit_shown}"
    step = one.steps[-1] if one.steps else None
    since, change = (_moment(one, step.at.place), str(step.change)) if step else ("", "")
    name = one.case_id if one.provenance == "measured" else f"{one.case_id} ({one.provenance})"
    return [name, one.figure, str(len(one.points)), value, one.status, since, change, _sparkline(one)]


def _sparkline(one: CaseSeries) -> str:
    """The last runs as bars, from the least to the greatest; a tenth apart at least, so that noise looks like noise."""
    values = [point.value for point in one.points[-_MOST_BARS:]]
    low, span = min(values), max(max(values) - min(values), 0.1 * min(values))
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)
