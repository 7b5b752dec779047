"""From results to the report's folder: the page, each figure as SVG, PNG and CSV, the corpus of the results."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from pathlib import Path
from typing import List, NamedTuple, Sequence, Tuple

from harness.core.corpus import TASKS, write_corpus
from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.judge.claims import Verdict, judge
from harness.report.figure import csv_text
from harness.report.figures import KINDS
from harness.report.material import Material, file_name
from harness.report.page import PageSection, page_html
from harness.report.template import require_drawing
from harness.report.vega import write_figure
from harness.store.corpora import corpus_rows
from harness.store.frames import FURTHER, profiles

PAGE = "index.html"
WORTH_PROCESSES = 60  # panels; fewer are drawn before further processes have loaded what draws them


class Written(NamedTuple):
    page: Path
    figures: int
    missing: Tuple[str, ...]


def write_report(material: Material, out: Path, made_from: Sequence[Path], png: bool = False) -> Written:
    """Write a report into a folder: files of the same names are replaced, others stay; the page links `made_from`."""
    if not (material.rows or material.corpus or material.predictors or material.strategies or material.predicted):
        raise StoreError(f"{material.store.path} holds no profile", "measure some: pytest benchmarks")
    require_drawing("the report")
    figures = {kind: kind.make(material) for kind in KINDS}
    count = sum(len(figure.panels) for made in figures.values() for figure in made)
    with _drawers(count) as pool:
        drawn = {
            kind: [(figure, pool.submit(write_figure, figure, out / "figures", png)) for figure in made]
            for kind, made in figures.items()
        }
        found = judge(material.evidence)
        raw = [(os.path.relpath(path, out), "what this report is made of, where it lay then") for path in made_from]
        files = [*_write_tables(material, found, out), *raw]
        sections = [
            PageSection(file_name(kind.title), kind, [(figure, panels.result()) for figure, panels in made])
            for kind, made in drawn.items()
            if made
        ]
    missing = [(f"{kind.title} ({kind.experiments})", kind.needs) for kind, made in figures.items() if not made]
    page = page_html(material, sections, missing, found, files, [path.name for path in made_from], png)
    write_output(out / PAGE, page.encode("utf-8"))
    count = sum(len(section.figures) for section in sections)
    return Written(out / PAGE, count, tuple(title for title, _ in missing))


def _drawers(panels: int) -> concurrent.futures.Executor:
    """A process for each core where there is much to draw, else a thread."""
    cores = len(os.sched_getaffinity(0))
    if panels < WORTH_PROCESSES or cores == 1:
        return concurrent.futures.ThreadPoolExecutor(1)
    return concurrent.futures.ProcessPoolExecutor(min(cores, 4), mp_context=multiprocessing.get_context("spawn"))


def _write_tables(material: Material, found: Sequence[Verdict], out: Path) -> List[Tuple[str, str]]:
    """Write the results as a corpus, and the verdicts; each file with what it is."""
    files = []
    rows = []
    if material.store is not None:
        rows = corpus_rows(profiles(material.store, include_flagged=True, newest_only=True, timed=True, tasks=TASKS))
    if rows:
        write_corpus(out / "results.csv", rows, FURTHER)
        files.append(("results.csv", f"the newest profile of each comparable conditions as a corpus, {len(rows)} rows"))
    if found:
        text = csv_text(Verdict._fields, [tuple(verdict) for verdict in found])
        write_output(out / "takeaways.csv", text.encode("utf-8"))
        files.append(("takeaways.csv", "the take-aways with their verdicts"))
    return files
