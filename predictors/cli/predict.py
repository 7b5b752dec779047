"""`predict`: time and power of all modes of a board, with intervals, and the best one within limits, by a predictor."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import output_file, whole_numbers
from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.workloads.optional_packages import require
from predictors.choose.fitting import describe_best, describe_front, load
from predictors.choose.request import RISK
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
    add("--out", type=output_file, metavar="FILE", help="a CSV file, or .parquet, for all modes")
    add("--power-budget", type=float, metavar="W", help="name the fastest mode within this module power")
    add(
        "--time-limit",
        type=float,
        metavar="MS",
        help="name the mode that draws least within this minibatch time; with both, least energy",
    )
    add("--risk", type=float, default=RISK, metavar="P", help="of the named mode to break a limit (default: 0.05)")


def run(arguments: argparse.Namespace) -> int:
    is_limited = arguments.power_budget is not None or arguments.time_limit is not None
    if arguments.out is None and not is_limited:
        raise InvalidValueError("nothing was asked for", "--out FILE for all modes, or --power-budget W for one")
    as_parquet = arguments.out is not None and arguments.out.suffix.lower() == ".parquet"
    if as_parquet:
        require("pyarrow")
    limits_w = arguments.power_limit
    power_limit = None if limits_w is None else whole_numbers("--power-limit", limits_w, "100,150")
    model = load(arguments.model)
    if arguments.out is not None:
        predicted = model.predict(
            arguments.board,
            arguments.power_mode,
            arguments.batch_size,
            arguments.level,
            arguments.unprofiled,
            power_limit,
            arguments.task,
            arguments.variant,
        )
        if as_parquet:
            content = predicted.to_parquet(index=False)
        else:
            content = predicted.to_csv(index=False, float_format="%.6g").encode()
        write_output(arguments.out, content)
        print(describe_front(predicted))
        board = arguments.board or model.origin["device"]
        print(f"{len(predicted)} power modes of {board}, {predicted['provenance'].iloc[0]} profiles")
        print(f"wrote {arguments.out}")
    if is_limited:
        best = model.best(
            arguments.power_budget,
            arguments.time_limit,
            arguments.risk,
            arguments.unprofiled,
            arguments.batch_size,
            power_limit,
            arguments.board,
            arguments.power_mode,
            arguments.task,
            arguments.variant,
        )
        print(describe_best(best))
    return 0
