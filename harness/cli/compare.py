"""`compare`: the changes between two results files, baselines or JSON files of pytest-benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import add_board_threshold, add_by, add_forms, add_include_flagged, print_report
from harness.judge.compare import compare_files, format_result, to_plain
from harness.judge.comparison import DEFAULT_SHARE, TEST
from harness.stats.comparison import FEWEST_RUNS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.description = f"Compare the cases of two files whose conditions agree. {TEST}"
    parser.epilog = (
        "exit code: 0 nothing is slower or takes more power by more than the tolerance; 1 a case is, or a workload, or"
        " all cases together; 2 nothing is, but a comparison was refused or none was possible; cases of only one side"
        " are listed and do not count"
    )
    for name, text in (("before", "one side"), ("after", "the other")):
        add(
            name,
            type=Path,
            metavar=name.upper(),
            help=f"{text}: a results file, a baseline, or a .json of pytest-benchmark",
        )
    add_by(parser)
    add_board_threshold(parser, "the tolerance: smaller changes are shown, and do not fail", DEFAULT_SHARE)
    add(
        "--fastest",
        action="store_true",
        help="compare the fast minibatches (first tenth) of the fast runs (first quarter) instead of medians: for "
        f"shared machines, where noise only ever slows; needs {FEWEST_RUNS} runs on each side",
    )
    add_include_flagged(parser)
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    choice = (arguments.threshold, arguments.fastest, arguments.include_flagged)
    result = compare_files(arguments.before, arguments.after, arguments.by, *choice)
    print_report(arguments, lambda: to_plain(result), lambda markdown: format_result(result, markdown))
    return result.exit_code
