"""`check`: whether the profiles of a results file keep the limits of a requirements file."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import add_forms, add_include_flagged, print_report
from harness.core.configuration import DEFAULT_RESULTS
from harness.judge.requirement_verdicts import check_file, exit_code, format_requirements, to_plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judge the profiles of a results file by requirements: PASS if the 95 % interval of a figure keeps its limit,"
        " FAIL if it lies beyond, else INCONCLUSIVE."
    )
    parser.epilog = (
        "exit code: 0 every requirement is kept, or undecided; 1 one is not; 2 nothing was decided; with --strict also"
        " 2 if a figure is inconclusive, or no case met a requirement"
    )
    add = parser.add_argument
    add("requirements", type=Path, metavar="FILE", help="the requirements, a TOML file")
    add(
        "results",
        type=Path,
        nargs="?",
        default=DEFAULT_RESULTS,
        metavar="RESULTS",
        help="the results file (default: %(default)s)",
    )
    add("--last", type=int, metavar="N", help="use the newest N runs of each case (default: all of its environment)")
    add_include_flagged(parser)
    add("--strict", action="store_true", help="also exit with 2 if not everything was decided")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    chosen = (arguments.include_flagged, arguments.last)
    verdicts = check_file(arguments.results, arguments.requirements, *chosen)
    print_report(arguments, lambda: to_plain(verdicts), lambda markdown: format_requirements(verdicts, markdown))
    return exit_code(verdicts, arguments.strict)
