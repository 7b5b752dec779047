"""`baseline record` and `baseline check`: the medians of a results file, stored, and compared with what was stored."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import add_by, add_include_flagged, add_results, add_threshold
from harness.judge.baseline import DEFAULT_THRESHOLD, TEST, check, exit_code, format_checked, record, recorded_median
from harness.store.conditions import LEFT_OUT
from harness.store.results import ResultsStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Record what cases take now, or check that they have not become slower since."
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", description="Write a baseline from the profiles of a results file.")
    checking = actions.add_parser(
        "check",
        description=f"Compare the profiles of a results file with a baseline. {TEST}",
        epilog="exit code: 0 none is slower, 1 a case is slower, 2 a comparison was refused or none was possible;"
        " inconclusive cases (without --strict), and those that only one side has, are listed and change nothing",
    )
    for action in (recording, checking):
        add_results(action)
        action.add_argument("--baseline", type=Path, required=True, help="the baseline, a JSON file")
        action.add_argument(
            "--last",
            type=int,
            metavar="N",
            help="take the newest N runs of each case (default: all of its environment)",
        )
        add_include_flagged(action)
    add_threshold(checking, DEFAULT_THRESHOLD, "by how much a median may grow")
    add_by(checking)
    checking.add_argument("--strict", action="store_true", help="exit with 2 where a case is inconclusive, too")


def run(arguments: argparse.Namespace) -> int:
    with ResultsStore(arguments.results, read_only=True) as store:
        if arguments.action == "check":
            choice = (arguments.threshold, arguments.last, arguments.include_flagged, arguments.by)
            found = check(store, arguments.baseline, *choice)
            print(format_checked(found, arguments.threshold))
            return exit_code(found, arguments.strict)
        done = record(store, arguments.baseline, arguments.last, arguments.include_flagged)
    vague = []
    for case in done.cases:
        estimate = recorded_median(case)
        runs = f"{len(case.runs)} run{'s' if len(case.runs) > 1 else ''}"
        older = f", {case.older} older profiles not used" if case.older else ""
        print(f"{case.case_id}: {estimate.value:.3f} ms ({estimate.low:.3f} to {estimate.high:.3f}), {runs}{older}")
        if len(case.runs) == 1 and estimate.high > estimate.value * (1 + DEFAULT_THRESHOLD):
            vague.append(case.case_id)
    for case_id in done.dropped:
        print(f"{case_id}: no longer in the baseline, {arguments.results} has no profile of the same conditions")
    if done.flagged:
        print(f"left out: {done.flagged} {LEFT_OUT}")
    if vague:
        print(
            f"warning: {len(vague)} of {len(done.cases)} cases rest on one run and are uncertain by more than"
            f" {DEFAULT_THRESHOLD:.0%}, so a check misses changes of that size: repeat the same pytest command twice,"
            " without --resume, and record again"
        )
    print(f"{arguments.baseline}: {len(done.cases)} cases")
    return 0
