"""`report`: results as a page and as figures for papers."""

from __future__ import annotations

import argparse
import contextlib
import gc
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from harness.cli.options import add_results, output_folder
from harness.core.cases import INFERENCE
from harness.core.configuration import DEFAULT_RESULTS
from harness.core.corpus import read_corpus, rows_of
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json
from harness.report.assembly import write_report
from harness.report.material import Material
from harness.report.mode_tables import ModeTable
from harness.store.results import ResultsStore

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
    others = [arguments.corpus, arguments.predictors, arguments.strategies, *models]
    results: Optional[Path] = arguments.results
    if results == DEFAULT_RESULTS and not results.exists() and any(others):
        results = None
    made_from = [path for path in (results, *others) if path is not None]
    gc.set_threshold(200_000)  # millions of minibatches pass through, and nothing of them refers in circles
    opened = ResultsStore(results, read_only=True) if results else contextlib.nullcontext()
    with opened as store:
        material = Material.read(
            store,
            tuple(rows_of(read_corpus(arguments.corpus))) if arguments.corpus else (),
            read_evaluation(arguments.predictors, "predictor"),
            read_evaluation(arguments.strategies, "strategy"),
            predicted=tuple(predicted),
        )
        done = write_report(material, arguments.out, made_from, arguments.png)
    formats = "SVG, PNG and CSV" if arguments.png else "SVG and CSV"
    print(f"{done.page}: {done.figures} figures, each as {formats} in {arguments.out / 'figures'}")
    if done.missing:
        print(f"no data for: {', '.join(done.missing)}")
    if done.judging:
        print(done.judging)
    return 0


def read_evaluation(path: Optional[Path], what: str) -> Tuple[Dict[str, Any], ...]:
    """The results in a file of `python -m predictors`, none where no file is named; targets tell inference apart."""
    if path is None:
        return ()
    command = "evaluate" if what == "predictor" else "strategies evaluate"
    hint = f"write it by `python -m predictors {command} --json`"
    try:
        content = read_json(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a file that there is") from error
    except ValueError as error:
        raise InvalidValueError(f"{path} is no JSON: {error}", hint) from error
    results: List[Dict[str, Any]] = content.get("results", []) if isinstance(content, dict) else []
    if not results or not all(isinstance(one, dict) and what in one and "provenance" in one for one in results):
        raise InvalidValueError(f"{path} holds no results with {what} and provenance", hint)
    return tuple(
        {**one, "target": f"{one['target']} {INFERENCE}"} if one.get("task") == INFERENCE else one for one in results
    )
