"""`predict`: time and power of all modes of a board, with intervals, from a saved predictor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List

import numpy as np

from harness.cli.options import output_file
from harness.core.boards import load_board
from harness.core.files import write_output
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w, share_to_percent
from harness.workloads.optional_packages import require
from predictors.evaluation import LEVELS
from predictors.models.base import TASKS, Prediction, admitted_rows, describe_unprofiled, usual_batch_size
from predictors.models.persistence import load_model

if TYPE_CHECKING:
    import pandas as pd

MAX_DEVIATION = 1e-3  # between machines; a note is printed above it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="M", help="a predictor saved by `fit --out`")
    add("--board", required=True, help="orin-agx, ...; an unknown name lists all boards")
    add("--variant", default="", help="module of the board; an unknown name lists all")
    add("--power-mode", default="all", metavar="TEXT", help="as in `harness modes` (default: all)")
    add("--batch-size", type=int, metavar="N", help="default: that of the predictor's profiles")
    add("--unprofiled", action="store_true", help="allow modes outside the profiled settings on the front")
    add("--task", choices=TASKS, help="default: that of the predictor's profiles")
    add("--out", type=output_file, required=True, metavar="FILE", help="a CSV file, or .parquet")


def run(arguments: argparse.Namespace) -> int:
    as_parquet = arguments.out.suffix.lower() == ".parquet"
    if as_parquet:
        require("pyarrow")
    model = load_model(arguments.model)
    spec = load_board(arguments.board, arguments.variant)
    modes = [mode for _, mode in spec.power_modes(arguments.power_mode)]
    task = arguments.task or model.origin.get("task", TASKS[0])
    size = arguments.batch_size or usual_batch_size(model.predictor)
    inputs = {"modes": np.array(modes, dtype=np.int64), "batch_size": size, "task": task}
    prediction, unprofiled = model.predictor.predict(**inputs), model.predictor.unprofiled(**inputs)
    front = prediction.front(admitted_rows({} if arguments.unprofiled else unprofiled, len(modes)))
    provenance = f"predicted from {model.origin.get('provenance', 'unknown')}"
    table = table_of(modes, size, prediction, front, provenance)
    content = table.to_parquet(index=False) if as_parquet else table.to_csv(index=False, float_format="%.6g").encode()
    write_output(arguments.out, content)
    print(_describe(prediction, front, modes))
    print(f"wrote {len(modes)} power modes of {spec.name} to {arguments.out}, {provenance} profiles")
    if unprofiled and not arguments.unprofiled:
        print(f"note: {describe_unprofiled(unprofiled)} without --unprofiled", file=sys.stderr)
    learned = model.origin.get("device")
    if learned != spec.name:
        print(f"note: the predictor was fitted on {learned}, not {spec.name}", file=sys.stderr)
    if model.deviation > MAX_DEVIATION:
        off = f"up to {share_to_percent(model.deviation):.2g} %"
        print(
            f"note: with this software its predictions deviate by {off} from those when it was saved", file=sys.stderr
        )
    if spec.gap:
        print(f"note: {spec.gap}", file=sys.stderr)
    return 0


def table_of(
    modes: List[PowerMode], batch_size: int, prediction: Prediction, front: np.ndarray, provenance: str
) -> pd.DataFrame:
    """Predictions as a table: the mode, the median of time and power, their intervals, whether it is on the front.

    Figures that the predictor does not give are missing.
    """
    import pandas as pd

    table = pd.DataFrame(modes, columns=PowerMode._fields)
    table["batch_size"] = batch_size
    table["minibatch_time_ms"], table["power_mw"] = prediction.time_ms, prediction.power_mw
    for level in LEVELS:
        for what, unit, ends in (
            ("time", "ms", prediction.time_interval_ms(level / 100)),
            ("power", "mw", prediction.power_interval_mw(level / 100)),
        ):
            table[f"{what}_{level}_low_{unit}"], table[f"{what}_{level}_high_{unit}"] = ends
    table["on_front"] = 0
    table.loc[front, "on_front"] = 1
    table["provenance"] = provenance
    return table


def _describe(prediction: Prediction, front: np.ndarray, modes: List[PowerMode]) -> str:
    if not len(front):
        if np.isfinite([prediction.time_ms, prediction.power_mw]).all():
            return "no front: all of these modes are outside the profiled settings"
        return "no front: the predictor does not give both time and power"
    ends = [
        f"{modes[place].name} with {prediction.time_ms[place]:.1f} ms at {mw_to_w(prediction.power_mw[place]):.1f} W"
        for place in (front[0], front[-1])
    ]
    return f"front of {len(front)} modes, from {ends[0]} to {ends[1]}"
