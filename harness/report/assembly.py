"""From results to the report's folder: the page, each figure as SVG, PNG and CSV, the corpus of the results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, NamedTuple, Sequence, Tuple

from harness.core.corpus import TASKS, write_corpus
from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.judge.claims import Verdict, verdicts
from harness.report.figure import csv_text
from harness.report.figures import KINDS
from harness.report.material import Material, file_name
from harness.report.page import PageSection, page_html
from harness.report.png import can_write_png, write_png
from harness.report.svg import figure_svg
from harness.store.corpora import corpus_rows
from harness.store.frames import FURTHER, profiles

PAGE = "index.html"


class Written(NamedTuple):
    """What a report consists of: its page, how many figures, whether they are PNG files too, and what has no data."""

    page: Path
    figures: int
    with_png: bool
    missing: Tuple[str, ...]


def write_report(material: Material, out: Path, made_from: Sequence[Path], png: bool = True) -> Written:
    """Write a report.

    Args:
        material: what it is made of.
        out: its folder; made where it is missing. Files of the same names are replaced, others stay.
        made_from: the files that it was made of.
        png: whether to write PNG files, where matplotlib is installed.

    Raises:
        StoreError: there is nothing to report, or a file cannot be written.
    """
    if not (material.rows or material.corpus or material.predictors or material.strategies):
        raise StoreError(f"{material.store.path} holds no profile", "measure some: pytest benchmarks")
    sections, missing = [], []
    for kind in KINDS:
        figures = tuple(kind.make(material))
        if figures:
            sections.append(PageSection(file_name(kind.title), kind.experiments, kind.title, figures))
        else:
            missing.append((f"{kind.title} ({kind.experiments})", kind.needs))
    drawn = [figure for section in sections for figure in section.figures]
    with_png = png and can_write_png()
    for figure in drawn:
        stem = str(out / "figures" / figure.name)
        write_output(Path(f"{stem}.svg"), figure_svg(figure).encode("utf-8"))
        write_output(Path(f"{stem}.csv"), csv_text(figure.columns, figure.rows).encode("utf-8"))
        if with_png:
            write_png(figure, Path(f"{stem}.png"))
    found = verdicts(material.store)
    raw = [(os.path.relpath(path, out), "what this report is made of, where it lay then") for path in made_from]
    files = [*_write_tables(material, found, out), *raw]
    page = page_html(material, sections, missing, found, files, [path.name for path in made_from], with_png)
    write_output(out / PAGE, page.encode("utf-8"))
    return Written(out / PAGE, len(drawn), with_png, tuple(title for title, _ in missing))


def _write_tables(material: Material, found: Sequence[Verdict], out: Path) -> List[Tuple[str, str]]:
    """Write the results as a corpus, and the verdicts; each file with what it is."""
    files = []
    rows = corpus_rows(profiles(material.store, include_flagged=True, newest_only=True, timed=True, tasks=TASKS))
    if rows:
        write_corpus(out / "results.csv", rows, FURTHER)
        files.append(("results.csv", f"the newest profile of each comparable conditions as a corpus, {len(rows)} rows"))
    if found:
        text = csv_text(Verdict._fields, [tuple(verdict) for verdict in found])
        write_output(out / "takeaways.csv", text.encode("utf-8"))
        files.append(("takeaways.csv", "the take-aways with their verdicts"))
    return files
