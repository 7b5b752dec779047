"""`history`: the changes over many runs: what became slower or takes more power, since when, and what else changed."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import List

from harness.cli.options import (
    add_board_threshold,
    add_forms,
    add_include_flagged,
    output_file,
    print_report,
    progress_report,
)
from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table, shown, wrap
from harness.judge.comparison import DEFAULT_SHARE, TOO_FEW
from harness.judge.history import FEWEST, RULES, CaseHistories, CaseSeries, read_history, to_plain
from harness.judge.history_index import NAME
from harness.report.history import write_page
from harness.report.template import require_drawing

_SILENT_S = 2.0  # before progress is shown: a few new nights are read sooner
_MOST_LINES = 40
"""With more series than this, text only counts those without a change; JSON lists all."""

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    rules = "; ".join(RULES)
    parser.description = (
        "Analyse many runs of the same cases, from a results file per night or one with all: the minibatch time and the"
        f" power of each case on each board instance, over time. {rules[0].upper()}{rules[1:]}. A slowdown is reported"
        " until it is gone, or until --since excludes the runs before it."
    )
    parser.epilog = (
        "exit code: 0 nothing is slower or takes more power in its newest run than before its last change; 1 something"
        " does; 2 no case has enough runs. Example, as the last step of a nightly job: jetwatt history nights/ --since"
        ' 2026-03-01 --markdown >> "$GITHUB_STEP_SUMMARY"'
    )
    add("files", type=Path, nargs="+", metavar="FILE", help="results files, or folders of them, in any order")
    add("--since", type=_day, metavar="DATE", help="leave out profiles stored before that day: 2026-01-31")
    add_board_threshold(parser, "the tolerance: smaller changes of level do not fail", DEFAULT_SHARE)
    add_include_flagged(parser)
    indexes = parser.add_mutually_exclusive_group()
    indexes.add_argument(
        "--index",
        type=output_file,
        metavar="FILE",
        help="where to keep what was read of each night, so that the next analysis reads new nights only (default:"
        f" {NAME} in each folder of FILEs, nothing for single files)",
    )
    indexes.add_argument("--no-index", action="store_true", help="read every night, and keep nothing")
    add("--out", type=output_file, metavar="PAGE.html", help="also write a page with a figure of each case")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        require_drawing("the page", ", or leave out --out")
    index = arguments.index or not arguments.no_index
    options = (arguments.include_flagged, arguments.since, arguments.threshold, index)
    histories = read_history(arguments.files, *options, progress_report(_SILENT_S))
    print_report(arguments, lambda: to_plain(histories), lambda markdown: _in_words(histories, markdown))
    if arguments.out is not None:
        write_page(histories, arguments.out)
        print(f"wrote {arguments.out}", file=sys.stderr)
    return histories.exit_code


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(f"--since is {text!r}, which is not a date", "write it like 2026-01-31") from None


def _in_words(histories: CaseHistories, markdown: bool) -> str:
    worse = [series for series in histories.series if series.is_worse]
    changed = [line for series in histories.series for line in _changes(series)]
    too_short = sum(series.status == TOO_FEW for series in histories.series)
    heading = f"{len(worse)} of {len(histories.series)} series became slower or take more power"
    heading += f"; {too_short} have fewer than the {FEWEST} runs that this takes" if too_short else ""
    rows = [_cells(series) for series in histories.series if series.steps or len(histories.series) <= _MOST_LINES]
    header = ["case", "figure", ">runs", ">newest", "status", "since", ">change", f"last {_MOST_BARS}"]
    lines = [f"## {heading}" if markdown else heading]
    if changed:
        lines += ["", *changed[:_MOST_LINES]]
    if len(changed) > _MOST_LINES:
        lines.append(f"- {len(changed) - _MOST_LINES} more changes, see --json")
    if rows:
        lines += ["", format_table(header, rows, markdown)]
    if len(rows) < len(histories.series):
        lines += ["", f"{len(histories.series) - len(rows)} more series: no change, or too few runs"]
    lines += ["", *(f"left out: {shown(reason)}" for reason in histories.left_out)]
    explained = [f"tolerance: {histories.thresholds}", *RULES]
    if markdown:
        return "\n".join([*lines, "", *(f"- {text}" for text in explained)])
    return "\n".join([*lines, *(wrap(text, indent="  ") for text in explained)])


def _changes(series: CaseSeries) -> List[str]:
    lines = []
    for step in reversed(series.steps):
        first, last = (series.points[place].created_at[:10] for place in (step.at.low, step.at.high))
        when = f"{_moment(series, step.at.place)} (run {step.at.place + 1} of {len(series.points)})"
        between = "" if first == last else f", between {first} and {last}"
        also = f"; {'; '.join(step.differ)}" if step.differ else ""
        lines.append(f"- {shown(f'{series.case_id}: {series.figure} {step.change} since {when}{between}{also}')}")
    return lines


def _moment(series: CaseSeries, place: int) -> str:
    return series.points[place].created_at[:16].replace("T", " ")


def _cells(series: CaseSeries) -> List[str]:
    newest = series.quantity.to_shown(series.points[-1].value)
    value = f"{newest:.4g} {series.quantity.unit_shown}"
    step = series.steps[-1] if series.steps else None
    since, change = (_moment(series, step.at.place), str(step.change)) if step else ("", "")
    name = series.case_id if series.provenance == "measured" else f"{series.case_id} ({series.provenance})"
    return [name, series.figure, str(len(series.points)), value, series.status, since, change, _sparkline(series)]


def _sparkline(series: CaseSeries) -> str:
    """The last runs as bars, scaled from the least to the greatest value, but at least 10 % to keep noise small."""
    values = [point.value for point in series.points[-_MOST_BARS:]]
    low, span = min(values), max(max(values) - min(values), 0.1 * min(values))
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)
