"""`predict`: time and power of all modes of a board, with intervals, from a saved predictor."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import output_file, whole_numbers
from harness.core.corpus import TASKS
from harness.core.files import write_output
from harness.workloads.optional_packages import require
from predictors.choose.fitting import describe_front, load
from predictors.forecast import LEVEL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="M", help="a predictor saved by `fit --out`")
    add(
        "--board",
        help="orin-agx, ...; an unknown name lists all boards (default: the device of the predictor's profiles)",
    )
    add("--variant", default="", help="module of the board; an unknown name lists all")
    add("--power-mode", default="all", metavar="TEXT", help="as in `jetwatt modes` (default: all)")
    add("--batch-size", type=int, metavar="N", help="default: that of the predictor's profiles")
    add("--power-limit", metavar="LIST", help="of a discrete GPU, in W: comma list (default: the profiled ones)")
    add(
        "--level",
        type=float,
        default=LEVEL,
        metavar="P",
        help="share of measurements in an interval (default: 0.8)",
    )
    add("--unprofiled", action="store_true", help="allow modes outside the profiled settings on the front")
    add("--task", choices=TASKS, help="default: that of the predictor's profiles")
    add("--out", type=output_file, required=True, metavar="FILE", help="a CSV file, or .parquet")


def run(arguments: argparse.Namespace) -> int:
    as_parquet = arguments.out.suffix.lower() == ".parquet"
    if as_parquet:
        require("pyarrow")
    limits_w = arguments.power_limit
    model = load(arguments.model)
    predicted = model.predict(
        arguments.board,
        arguments.power_mode,
        arguments.batch_size,
        arguments.level,
        arguments.unprofiled,
        None if limits_w is None else whole_numbers("--power-limit", limits_w, "100,150"),
        arguments.task,
        arguments.variant,
    )
    content = predicted.to_parquet(index=False) if as_parquet else predicted.to_csv(index=False, float_format="%.6g")
    write_output(arguments.out, content.encode() if isinstance(content, str) else content)
    print(describe_front(predicted))
    board = arguments.board or model.origin["device"]
    print(f"{len(predicted)} power modes of {board}, {predicted['provenance'].iloc[0]} profiles")
    print(f"wrote {arguments.out}")
    return 0
