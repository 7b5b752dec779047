"""`baseline record` and `baseline check`: store the medians of a results file, and compare others with them."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Sequence

from harness.cli.options import add_by, add_include_flagged, add_results, add_threshold
from harness.core.units import share_to_percent
from harness.judge.baseline import check, format_checked, record_baseline
from harness.judge.comparison import NOT_RUN, TEST, Comparison, exit_code, not_compared
from harness.judge.quantities import QUANTITIES
from harness.store.results import ResultsStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Record the time and power of cases, or check that none has become slower or takes more power."
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", description="Write a baseline from the profiles of a results file.")
    checking = actions.add_parser(
        "check",
        description=f"Compare the profiles of a results file with a baseline. {TEST}",
        epilog="exit code: 0 nothing is worse by more than the tolerance; 1 a case is, or a workload, or all cases"
        " together; 2 nothing is, but a comparison was refused or none was possible; inconclusive cases, those that are"
        " not in the baseline, and recorded cases that were not run are listed, and affect the exit code with --strict"
        " only",
    )
    for action in (recording, checking):
        add_results(action)
        action.add_argument("--baseline", type=Path, required=True, help="the baseline, a JSON file")
        action.add_argument(
            "--last",
            type=int,
            metavar="N",
            help="use the newest N runs of each case (default: all of its environment)",
        )
        add_include_flagged(action)
    defaults = ", ".join(f"{quantity.name} {share_to_percent(quantity.tolerance):g}" for quantity in QUANTITIES)
    explained = f"default: the board's own, which `doctor --accept` measures; else {defaults}"
    what = "the tolerance: the largest accepted increase of any median, for all quantities"
    add_threshold(checking, None, f"{what} ({explained})")
    add_by(checking)
    checking.add_argument(
        "--strict",
        action="store_true",
        help="also exit with 2 if a case is inconclusive, is not in the baseline, or is recorded and was not run",
    )
    checking.add_argument(
        "--partial",
        action="store_true",
        help="the results cover a part of the baseline (one device, pytest -k): --strict admits cases that were not"
        " run",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "record":
        kept = {"last": arguments.last, "include_flagged": arguments.include_flagged}
        print(record_baseline(arguments.results, arguments.baseline, **kept))
        return 0
    with ResultsStore(arguments.results, read_only=True) as store:
        choice = (arguments.threshold, arguments.last, arguments.include_flagged, arguments.by)
        checked = check(store, arguments.baseline, *choice)
    print(format_checked(checked, arguments.threshold))
    if arguments.strict:
        _explain_strictness(checked, arguments.partial)
    return exit_code(checked, arguments.strict, is_partial=arguments.partial)


def _explain_strictness(verdicts: Sequence[Comparison], is_partial: bool) -> None:
    """Print why `--strict` fails: how many figures were not compared, by verdict, and what to do."""
    missing = Counter(verdict.status for verdict in not_compared(verdicts, is_partial))
    if missing:
        counts = ", ".join(f"{count} {status}" for status, count in missing.items())
        remedy = "; for a run of a part of the cases, add --partial" if NOT_RUN in missing else ""
        print(f"--strict fails: of {len(verdicts)} comparisons {counts}{remedy}")
