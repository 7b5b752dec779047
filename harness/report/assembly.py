"""From results to the report's folder: the page, each figure as SVG, PNG and CSV, the corpus of the results."""

from __future__ import annotations

import datetime
import math
import os
from pathlib import Path
from typing import Any, List, NamedTuple, Sequence, Tuple

import harness
from harness.core.corpus import TASKS, write_corpus
from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.judge.verdicts import CONFIRMED, CONTRADICTED, UNDECIDED, Verdict, counts_of_claims, verdicts
from harness.report.figure import Figure, csv_text
from harness.report.figures import KINDS
from harness.report.layout import figure_text
from harness.report.material import Material, bare, file_name
from harness.report.mode_tables import MOST_TABLES, explorer_json, mode_tables
from harness.report.page import Content, Section, page_html, words
from harness.report.png import can_write_png, write_png
from harness.report.summary import device_rows, flag_rows, lead, tiles
from harness.report.svg import figure_svg
from harness.store.corpora import corpus_rows
from harness.store.frames import FURTHER, profiles

PAGE = "index.html"
VERDICT_COLUMNS = ("verdict", "provenance", "claim", "paper", "device", "effect (95 %)", "expected", "n", "case")


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
            sections.append(Section(file_name(kind.title), kind.experiments, kind.title, figures))
        else:
            missing.append((f"{kind.title} ({kind.experiments})", kind.needs))
    drawn = [figure for section in sections for figure in section.figures]
    with_png = png and can_write_png()
    for figure in drawn:
        _write_figure(figure, out / "figures", with_png)
    found = verdicts(material.store)
    files = [*_write_tables(material, found, out), *_raw(made_from, out)]
    content = _content(material, sections, missing, found, files, made_from, drawn if with_png else [])
    write_output(out / PAGE, page_html(content).encode("utf-8"))
    return Written(out / PAGE, len(drawn), with_png, tuple(title for title, _ in missing))


def _write_figure(figure: Figure, folder: Path, with_png: bool) -> None:
    write_output(folder / f"{figure.name}.svg", figure_svg(figure).encode("utf-8"))
    write_output(folder / f"{figure.name}.csv", csv_text(figure.columns, figure.rows).encode("utf-8"))
    if with_png:
        write_png(figure, folder / f"{figure.name}.png")


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


def _raw(made_from: Sequence[Path], out: Path) -> List[Tuple[str, str]]:
    """The files that a report is made of, as seen from its folder."""
    return [(os.path.relpath(path, out), "what this report is made of, where it lay then") for path in made_from]


def _content(
    material: Material,
    sections: Sequence[Section],
    missing: Sequence[Tuple[str, str]],
    found: Sequence[Verdict],
    files: Sequence[Tuple[str, str]],
    made_from: Sequence[Path],
    pictures: Sequence[Figure],
) -> Content:
    tables = mode_tables(material)
    provenances = {row.provenance for row in material.rows}
    provenances.update(row["provenance"] for row in (*material.corpus, *material.predictors, *material.strategies))
    devices = list(dict.fromkeys(row.base for row in material.rows))
    corpora = list(dict.fromkeys(row["device"] for row in material.corpus if row["device"] not in devices))
    figures = [figure for section in sections for figure in section.figures]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Content(
        title=f"jetwatt: {words([*devices, *corpora]) or 'report'}",
        lead=lead(material, found),
        provenances=tuple(sorted(provenances)),
        tiles=tiles(material, found, len(figures)),
        devices=device_rows(material),
        sections=tuple(sections),
        missing=tuple(missing),
        verdicts=(VERDICT_COLUMNS, [_verdict_row(verdict) for verdict in sorted(found, key=_by_news)]),
        verdict_counts=counts_of_claims(found),
        flags=flag_rows(material.rows),
        explorer=explorer_json(tables),
        explorer_titles=tuple(table.title for table in tables[:MOST_TABLES]),
        files=(*files, *((f"figures/{figure.name}.csv", figure.title) for figure in figures)),
        made=f"made {now} by jetwatt {harness.__version__} from {words([path.name for path in made_from])}",
        pictures=frozenset(figure.name for figure in pictures),
    )


def _by_news(verdict: Verdict) -> int:
    """What a reader did not expect comes first."""
    return (CONTRADICTED, UNDECIDED, CONFIRMED).index(verdict.verdict)


def _verdict_row(verdict: Verdict) -> Tuple[Any, ...]:
    bounds = [f"above {verdict.above:.3g}"] if math.isfinite(verdict.above) else []
    bounds += [f"below {verdict.below:.3g}"] if math.isfinite(verdict.below) else []
    interval = f"{figure_text(verdict.effect)} ({figure_text(verdict.low)} to {figure_text(verdict.high)})"
    why = f"{verdict.says} Known of the model: {verdict.shortfall}" if verdict.shortfall else verdict.says
    if verdict.fitted:
        why = f"{why} The simulation was fitted to this: confirmed means that the model can say it."
    if verdict.provenance == "measured":
        notes = [f"Runs differ in {verdict.between_runs}"] * bool(verdict.between_runs) + [verdict.apart]
        why = f"{why} {'; '.join(note for note in notes if note)}"
    return (
        *(verdict.verdict, verdict.provenance, why, verdict.section, bare(verdict.device)),
        *(f"{verdict.meaning}: {interval}", " and ".join(bounds), verdict.n, verdict.case),
    )
