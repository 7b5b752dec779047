"""`report`: results as a page and as figures for papers."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Sequence

from harness.cli.options import add_results, output_folder
from harness.report.assembly import report_files
from harness.report.mode_tables import ModeTable

DEFAULT_OUT = Path("out") / "report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.description = (
        "Write a report: one page that needs no network, and each figure as SVG and CSV. Figures without data are left"
        " out, and the page lists what they need. Without a results file only the other files are used."
    )
    add_results(parser)
    add("--corpus", type=Path, metavar="FILE", help="a corpus, for scatter plots of its power modes")
    add("--predictors", type=Path, metavar="JSON", help="from jetwatt evaluate --json")
    add("--strategies", type=Path, metavar="JSON", help="from jetwatt strategies evaluate --json")
    add("--require", type=Path, metavar="FILE", help="a requirements file, whose verdicts on the profiles are shown")
    add("--out", type=output_folder, default=DEFAULT_OUT, metavar="DIR", help="output folder (default: %(default)s)")
    add("--png", action="store_true", help="also write each figure as PNG, which doubles the time")
    add("--no-png", action="store_false", dest="png", help="do not write PNG files (default)")


def run(arguments: argparse.Namespace, predicted: Sequence[ModeTable] = (), models: Sequence[Path] = ()) -> int:
    """Write the report; `predicted` are tables of modes predicted by the saved `models`."""
    gc.set_threshold(200_000)  # millions of minibatches are loaded, without reference cycles
    done = report_files(
        arguments.out,
        results=arguments.results,
        corpus=arguments.corpus,
        predictors=arguments.predictors,
        strategies=arguments.strategies,
        png=arguments.png,
        predicted=predicted,
        models=models,
        require=arguments.require,
    )
    formats = "SVG, PNG and CSV" if arguments.png else "SVG and CSV"
    print(f"{done.page}: {done.figures} figures, each as {formats} in {arguments.out / 'figures'}")
    if done.missing:
        print(f"no data for: {', '.join(done.missing)}")
    if done.judging:
        print(done.judging)
    return 0
