"""`scenario`: the papers' questions on predictors, on measured or simulated boards."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.core.terminal import format_table
from predictors.cli.evaluate import add_run_arguments, run_and_print
from predictors.search.scenario import plan_scenario, scenarios


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
    plan, title = plan_scenario(
        arguments.name,
        arguments.predictors,
        arguments.corpus,
        arguments.limit,
        arguments.repeats,
        arguments.seed,
    )
    return run_and_print(plan, arguments, title=title, files=arguments.corpus)
