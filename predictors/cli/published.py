"""`published`: the papers' errors next to those of the predictors here in the same setting."""

from __future__ import annotations

import argparse
import sys

from harness.cli.options import options_of, write_json
from predictors.cli.evaluate import add_run_arguments
from predictors.cli.options import runs_of
from predictors.cli.scenario import add_table_arguments
from predictors.contest.published import published
from predictors.contest.trials import format_skipped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit code: 0 nothing is contradicted, 1 an error here is larger than published, or a relation between errors"
        " differs, 2 refused; an error smaller than published is not a failure"
    )
    add = parser.add_argument
    add("--predictors", metavar="LIST", help="only errors of these (default: all in the papers)")
    add("--fact", action="append", default=[], metavar="F123", help="only this error; repeatable")
    add_table_arguments(parser)
    add_run_arguments(parser, repeats=3, plots=False)


def run(arguments: argparse.Namespace) -> int:
    comparison = published(**options_of(published, arguments), runs=runs_of(arguments))
    if comparison.skipped:
        print(format_skipped(comparison.skipped), file=sys.stderr)
    print(comparison)
    if arguments.json:
        write_json(arguments.json, comparison.plain())
    return comparison.exit_code
