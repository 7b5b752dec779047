"""The command `jetwatt report`: that of the harness, with predictions of saved predictors."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import report
from jetwatt.reporting import predicted_table
from predictors.choose.fitting import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    report.add_arguments(parser)
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="M",
        help="a file of `fit --out`, to show its predictions of all modes, with intervals; may be given more than once",
    )


def run(arguments: argparse.Namespace) -> int:
    tables = [predicted_table(load(path)) for path in arguments.model]
    return report.run(arguments, tables, arguments.model)
