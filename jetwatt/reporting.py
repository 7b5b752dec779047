"""`report`: results as a page and as figures, with predictions of saved predictors for all modes."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence, Union

from harness.core.configuration import DEFAULT_RESULTS
from harness.report.assembly import Written, report_files
from harness.report.mode_tables import INTERVALS, PREDICTED, ModeTable, with_fronts
from predictors.choose.fitting import FittedModel, load

COLUMNS = {"time_ms": "minibatch_time_ms", "time_low_ms": INTERVALS[0], "time_high_ms": INTERVALS[1]}


PathLike = Union[str, Path]


def report(
    results: Optional[PathLike] = DEFAULT_RESULTS,
    *,
    out: PathLike,
    corpus: Optional[PathLike] = None,
    predictors: Optional[PathLike] = None,
    strategies: Optional[PathLike] = None,
    model: Sequence[PathLike] = (),
    require: Optional[PathLike] = None,
    png: bool = False,
) -> Written:
    """Write a report, as `jetwatt report` does: one page that needs no network, and each figure as SVG and CSV.

    Args:
        results: the results file; None for a report of the other files only.
        out: the folder to write to.
        corpus: a corpus, for scatter plots of its power modes.
        predictors: a file of `evaluate --json`.
        strategies: a file of `strategies evaluate --json`.
        model: files of `fit --out`, for predictions of all modes with intervals.
        require: a requirements file, whose verdicts on the profiles are shown.
        png: also write each figure as PNG.

    Returns:
        The page, the number of its figures, and those without data.

    Raises:
        HarnessError: a file cannot be read, has no data, or the plotting package is not installed.
    """
    given = [None if path is None else Path(path) for path in (results, corpus, predictors, strategies)]
    models = [Path(path) for path in model]
    return report_files(
        Path(out),
        results=given[0],
        corpus=given[1],
        predictors=given[2],
        strategies=given[3],
        png=png,
        predicted=[predicted_table(load(path)) for path in models],
        models=models,
        require=None if require is None else Path(require),
    )


def predicted_table(model: FittedModel) -> ModeTable:
    modes = model.predict().rename(columns=COLUMNS)
    modes = modes.dropna(subset=["minibatch_time_ms", "power_mw"]).reset_index(drop=True)
    modes["profile"] = 0
    origin = model.origin
    place = (origin["device"], origin["workload"], origin["task"], model.batch_size)
    return ModeTable(*place, f"predicted from {origin['provenance']}", PREDICTED, with_fronts(modes))
