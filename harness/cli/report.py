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
        "Write a report: one page that needs no network, and each figure as SVG and CSV. A figure without data is left"
        " out, and the page names what would bring it. Without a results file it is made of the other files named."
    )
    add_results(parser)
    add("--corpus", type=Path, metavar="FILE", help="a corpus, for scatters of its power modes")
    add("--predictors", type=Path, metavar="JSON", help="from python -m predictors evaluate --json")
    add("--strategies", type=Path, metavar="JSON", help="from python -m predictors strategies evaluate --json")
    add("--out", type=output_folder, default=DEFAULT_OUT, metavar="DIR", help="where to (default: %(default)s)")
    add("--png", action="store_true", help="write each figure as PNG too, which takes as long again")
    add("--no-png", action="store_false", dest="png", help="write no PNG files, as without --png")


def run(arguments: argparse.Namespace, predicted: Sequence[ModeTable] = (), models: Sequence[Path] = ()) -> int:
    """Write the report; `predicted`: tables of modes that the saved predictors `models` made."""
    gc.set_threshold(200_000)  # millions of minibatches pass through, and nothing of them refers in circles
    done = report_files(
        arguments.out,
        results=arguments.results,
        corpus=arguments.corpus,
        predictors=arguments.predictors,
        strategies=arguments.strategies,
        png=arguments.png,
        predicted=predicted,
        models=models,
    )
    formats = "SVG, PNG and CSV" if arguments.png else "SVG and CSV"
    print(f"{done.page}: {done.figures} figures, each as {formats} in {arguments.out / 'figures'}")
    if done.missing:
        print(f"no data for: {', '.join(done.missing)}")
    if done.judging:
        print(done.judging)
    return 0
