"""`predict`: time and power of all modes of a board, with intervals, and the best one within limits, by a predictor."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.cli.options import output_file, whole_numbers
from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.terminal import counted
from harness.core.units import mw_to_w, share_to_percent
from harness.workloads.optional_packages import require
from predictors.choose.fitting import load
from predictors.choose.request import RISK
from predictors.forecast import LEVEL

if TYPE_CHECKING:
    import pandas as pd


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


def describe_front(predicted: pd.DataFrame) -> str:
    """The ends of the front of a table of `FittedModel.predict`, or why it has none."""
    front = predicted[predicted["on_front"]].sort_values("power_mw", kind="stable")
    if not len(front):
        if np.isfinite(predicted[["time_ms", "power_mw"]]).all(axis=None):
            return "no front: all of these modes are outside the profiled settings"
        return "no front: the predictor does not give both time and power"
    ends = [
        f"{row.power_mode} with {row.time_ms:.1f} ms at {mw_to_w(row.power_mw):.1f} W"
        for row in front.iloc[[0, -1]].itertuples()
    ]
    size = front["batch_size"].iloc[0]
    of_modes = f"front of {counted(len(front), 'mode')} at batch size {size}"
    return f"{of_modes}: {ends[0]}" if len(front) == 1 else f"{of_modes}, from {ends[0]} to {ends[1]}"


def describe_best(best: pd.Series) -> str:
    """The row of `FittedModel.best`."""
    level = f"{share_to_percent(LEVEL):g} %"
    time = f"{best.time_ms:.1f} ms ({level}: {best.time_low_ms:.1f} to {best.time_high_ms:.1f})"
    low_w, high_w = mw_to_w(best.power_low_mw), mw_to_w(best.power_high_mw)
    power = f"{mw_to_w(best.power_mw):.1f} W ({level}: {low_w:.1f} to {high_w:.1f})"
    setting = f"{best.power_mode}, batch size {best.batch_size}"
    return f"best within the limits: {setting}, predicted {time}, {power}, risk {best.risk:.2g}"
