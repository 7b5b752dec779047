"""The command `jetwatt report`: that of the harness, and beside what was measured what saved predictors say."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import report
from harness.report.mode_tables import INTERVALS, PREDICTED, ModeTable, with_fronts
from jetwatt.fitting import FittedModel, load

COLUMNS = {"time_ms": "minibatch_time_ms", "time_low_ms": INTERVALS[0], "time_high_ms": INTERVALS[1]}


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


def predicted_table(model: FittedModel) -> ModeTable:
    modes = model.predict().rename(columns=COLUMNS)
    modes = modes.dropna(subset=["minibatch_time_ms", "power_mw"]).reset_index(drop=True)
    modes["profile"] = 0
    origin = model.origin
    place = (origin["device"], origin["workload"], origin["task"], model.batch_size)
    return ModeTable(*place, f"predicted from {origin['provenance']}", PREDICTED, with_fronts(modes))
