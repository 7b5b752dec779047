"""`predict`: time and power of all modes of a board, with intervals, from a saved predictor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.cli.options import options_of, output_file, whole_numbers
from harness.core.corpus import TASKS
from predictors.search.prediction import predict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="M", help="a predictor saved by `fit --out`")
    add("--board", required=True, help="orin-agx, ...; an unknown name lists all boards")
    add("--variant", default="", help="module of the board; an unknown name lists all")
    add("--power-mode", default="all", metavar="TEXT", help="as in `jetwatt modes` (default: all)")
    add("--batch-size", type=int, metavar="N", help="default: that of the predictor's profiles")
    add("--power-limit", metavar="LIST", help="of a discrete GPU, in W: comma list (default: the profiled ones)")
    add("--unprofiled", action="store_true", help="allow modes outside the profiled settings on the front")
    add("--task", choices=TASKS, help="default: that of the predictor's profiles")
    add("--out", type=output_file, required=True, metavar="FILE", help="a CSV file, or .parquet")


def run(arguments: argparse.Namespace) -> int:
    options = options_of(predict, arguments)
    if arguments.power_limit is not None:
        options["power_limit"] = whole_numbers("--power-limit", arguments.power_limit, "100,150")
    prediction = predict(arguments.model, arguments.board, **options)
    print(prediction)
    print(f"wrote {arguments.out}")
    for note in prediction.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
