"""The command `jetwatt report`: that of the harness, and beside what was measured what saved predictors say."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import report
from jetwatt.fitting import load
from jetwatt.reporting import predicted_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    report.add_arguments(parser)
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="M",
        help="what `fit --out` wrote: its predictions of all modes, with intervals; may be given again",
    )


def run(arguments: argparse.Namespace) -> int:
    tables = [predicted_table(load(path)) for path in arguments.model]
    return report.run(arguments, tables, arguments.model)
