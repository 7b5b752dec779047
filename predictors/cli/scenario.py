"""`scenario`: the papers' questions on predictors, on measured or simulated boards."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import options_of
from harness.core.terminal import format_table
from predictors.cli.evaluate import add_run_arguments, print_evaluation
from predictors.cli.options import runs_of
from predictors.contest.scenarios import scenario, scenarios


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", help="the scenario; without it, all are listed")
    add("--predictors", metavar="LIST", help="comma-separated names, or all (default: those of the paper)")
    add_table_arguments(parser)
    add_run_arguments(parser, repeats=10)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corpus", type=Path, action="append", default=[], metavar="FILE",
        help="measured profiles, used where they match the scenario; repeatable",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="at most N modes of each table, for a quick look")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        listed = scenarios()
        print(format_table(["name", "question", "source", ">targets"], listed.astype(str).to_numpy().tolist()))
        return 0
    options = options_of(scenario, arguments)
    return print_evaluation(scenario(arguments.name, **options, runs=runs_of(arguments)), arguments)
