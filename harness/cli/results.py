"""The commands on results: `export`, and `baseline record|check`. Each returns its exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.core.configuration import DEFAULT_RESULTS
from harness.core.corpus import SUFFIXES
from harness.core.units import percent_to_share, share_to_percent
from harness.judge.baseline import record
from harness.judge.gate import (
    DEFAULT_THRESHOLD,
    OK_CODE,
    TEST,
    check,
    exit_code,
    format_verdicts,
)
from harness.store.conditions import DISQUALIFYING, LEFT_OUT
from harness.store.corpora import export as export_corpus
from harness.store.results import ResultsStore


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.description = "Write the profiles of a results file as a corpus: a row per device, workload, power mode, ..."
    _add_results(parser)
    parser.add_argument("--out", type=Path, required=True, help=f"the corpus to write, {' or '.join(SUFFIXES)}")
    parser.add_argument(
        "--all-runs", action="store_true", help="a row for every profile, not only the newest of the same conditions"
    )
    add_include_flagged(parser)


def export(arguments: argparse.Namespace) -> int:
    """Run `export`.

    Raises:
        HarnessError: the corpus was not written.
    """
    with ResultsStore(arguments.results, read_only=True) as store:
        done = export_corpus(store, arguments.out, arguments.all_runs, arguments.include_flagged)
    print(f"{arguments.out}: {done.rows} rows")
    if done.older:
        print(f"left out: {done.older} older profiles of the same conditions (--all-runs keeps them)")
    if done.without_time:
        print(f"left out: {done.without_time} profiles without a clean minibatch")
    if done.mixed:
        print(f"left out: {done.mixed} profiles of training and inference together, for which a corpus has no task")
    if done.flagged:
        print(f"left out: {done.flagged} {LEFT_OUT}")
    return OK_CODE


def add_baseline_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `baseline record` and `baseline check`."""
    parser.description = "Record what cases take now, or check that they have not become slower since."
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", description="Write a baseline from the profiles of a results file.")
    checking = actions.add_parser(
        "check",
        description=f"Compare the profiles of a results file with a baseline. {TEST}",
        epilog="exit code: 0 none is slower, 1 a case is slower, 2 a comparison was refused or none was possible;"
        " inconclusive cases, and those that only one side has, are listed and change nothing",
    )
    for action in (recording, checking):
        _add_results(action)
        action.add_argument("--baseline", type=Path, required=True, help="the baseline, a JSON file")
        action.add_argument(
            "--last",
            type=int,
            metavar="N",
            help="take the newest N runs of each case (default: all of its environment)",
        )
        add_include_flagged(action)
    checking.add_argument(
        "--threshold",
        type=float,
        default=share_to_percent(DEFAULT_THRESHOLD),
        metavar="PERCENT",
        help="by how much a median may grow (default: %(default)g)",
    )


def baseline(arguments: argparse.Namespace) -> int:
    """Run `baseline record` or `baseline check`; the latter returns 1 for slower, 2 for refused.

    Raises:
        HarnessError: nothing was recorded or compared.
    """
    with ResultsStore(arguments.results, read_only=True) as store:
        return _record(store, arguments) if arguments.action == "record" else _check(store, arguments)


def add_include_flagged(parser: argparse.ArgumentParser) -> None:
    """Add the option that keeps profiles which are left out otherwise."""
    flags = " or ".join(DISQUALIFYING)
    parser.add_argument("--include-flagged", action="store_true", help=f"keep profiles that were flagged {flags}")


def _record(store: ResultsStore, arguments: argparse.Namespace) -> int:
    done = record(store, arguments.baseline, arguments.last, arguments.include_flagged)
    for case in done.cases:
        estimate = case.interval()
        runs = f"{len(case.runs)} run{'s' if len(case.runs) > 1 else ''}"
        older = f", {case.older} older profiles not used" if case.older else ""
        print(f"{case.case_id}: {estimate.value:.3f} ms ({estimate.low:.3f} to {estimate.high:.3f}), {runs}{older}")
    for case_id in done.dropped:
        print(f"{case_id}: no longer in the baseline, {arguments.results} has no profile of the same conditions")
    if done.flagged:
        print(f"left out: {done.flagged} {LEFT_OUT}")
    print(f"{arguments.baseline}: {len(done.cases)} cases")
    return OK_CODE


def _check(store: ResultsStore, arguments: argparse.Namespace) -> int:
    threshold = percent_to_share(arguments.threshold)
    verdicts = check(store, arguments.baseline, threshold, arguments.last, arguments.include_flagged)
    print(format_verdicts(verdicts, threshold))
    return exit_code(verdicts)


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, metavar="FILE", help="the results file (default: %(default)s)"
    )
