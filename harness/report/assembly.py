"""From results to the report's folder: the page, each figure as SVG, PNG and CSV, the corpus of the results."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import hashlib
import multiprocessing
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import INFERENCE
from harness.core.configuration import DEFAULT_RESULTS
from harness.core.corpus import TASKS, read_corpus, rows_of, write_corpus
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json, write_output
from harness.judge.claims import Verdict, counts_of_claims
from harness.judge.figures import CONTRADICTED
from harness.report import summary
from harness.report.colours import MARKERS, RAMP
from harness.report.figure import Figure, csv_text, joined
from harness.report.figures import KINDS, FigureKind
from harness.report.material import Material, file_name
from harness.report.mode_tables import MOST_TABLES, ModeTable, explorer_tables
from harness.report.template import HERE, fill, require_drawing
from harness.report.vega import DrawnPanel, write_figure
from harness.store.conditions import DISQUALIFYING
from harness.store.corpora import corpus_rows
from harness.store.frames import FURTHER, profiles
from harness.store.results import ResultsStore

WORTH_PROCESSES = 60  # panels; fewer are drawn before further processes have loaded what draws them
MOST_SURPRISES = 6
TABLE_ROWS, SHOWN = 12, 4
"""Rows that a figure's table shows, and its CSV file has all; panels that are shown at once, the others folded."""


class Written(NamedTuple):
    page: Path
    figures: int
    missing: Tuple[str, ...]
    judging: str  # how the claims of the papers come to be judged, where they were not; else empty


def report_files(
    out: Path,
    *,
    results: Optional[Path],
    corpus: Optional[Path] = None,
    predictors: Optional[Path] = None,
    strategies: Optional[Path] = None,
    png: bool = False,
    predicted: Sequence[ModeTable] = (),
    models: Sequence[Path] = (),
) -> Written:
    """Write a report of files into a folder; of the default results file only where it is there, or nothing else is.

    `predicted` are tables of modes that the saved predictors `models` made.
    """
    others = [corpus, predictors, strategies, *models]
    if results == DEFAULT_RESULTS and not results.exists() and any(others):
        results = None
    made_from = [path for path in (results, *others) if path is not None]
    opened = ResultsStore(results, read_only=True) if results else contextlib.nullcontext()
    with opened as store:
        material = Material.read(
            store,
            tuple(rows_of(read_corpus(corpus))) if corpus else (),
            read_evaluation(predictors, "predictor"),
            read_evaluation(strategies, "strategy"),
            predicted=tuple(predicted),
        )
        return write_report(material, out, made_from, png)


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


def write_report(material: Material, out: Path, made_from: Sequence[Path], png: bool = False) -> Written:
    """Write a report into a folder: files of the same names are replaced, others stay; the page links `made_from`."""
    if not (material.rows or material.corpus or material.predictors or material.strategies or material.predicted):
        raise StoreError(f"{material.store.path} holds no profile", "measure some: pytest benchmarks")
    require_drawing("the report")
    figures = {kind: kind.make(material) for kind in KINDS}
    with _drawers(sum(len(figure.panels) for made in figures.values() for figure in made)) as pool:
        drawings = {
            kind: [(figure, pool.submit(write_figure, figure, out / "figures", png)) for figure in made]
            for kind, made in figures.items()
        }
        found = material.judged.verdicts
        raw = [(os.path.relpath(path, out), "what this report is made of, where it lay then") for path in made_from]
        files = [*_write_tables(material, found, out), *raw]
        drawn = {
            kind: [(figure, panels.result()) for figure, panels in made] for kind, made in drawings.items() if made
        }
    page = out / "index.html"
    judging = "" if material.store is None or not material.rows else material.judged.note(material.store.path)
    write_output(page, _page(material, drawn, found, files, made_from, png, judging).encode("utf-8"))
    missing = tuple(f"{kind.title} ({kind.experiments})" for kind in KINDS if kind not in drawn)
    return Written(page, sum(map(len, drawn.values())), missing, judging)


def _drawers(panels: int) -> concurrent.futures.Executor:
    """A process for each core where there is much to draw, else a thread."""
    cores = len(os.sched_getaffinity(0))
    if panels < WORTH_PROCESSES or cores == 1:
        return concurrent.futures.ThreadPoolExecutor(1)
    return concurrent.futures.ProcessPoolExecutor(min(cores, 4), mp_context=multiprocessing.get_context("spawn"))


def _write_tables(material: Material, found: Sequence[Verdict], out: Path) -> List[Tuple[str, str]]:
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


def _page(
    material: Material,
    drawn: Mapping[FigureKind, Sequence[Tuple[Figure, List[DrawnPanel]]]],
    found: Sequence[Verdict],
    files: Sequence[Tuple[str, str]],
    made_from: Sequence[Path],
    png: bool,
    judging: str,
) -> str:
    """One HTML file that needs nothing else; `files`: paths and what they are."""
    from markupsafe import Markup

    script = (HERE / "page.js").read_text(encoding="utf-8")
    tables, flags, claims = material.tables, summary.flag_rows(material.rows), summary.claim_rows(found)
    corpora = [*(row["device"] for row in material.corpus), *(table.device for table in material.predicted)]
    devices = dict.fromkeys([*(row.base for row in material.rows), *corpora])
    evaluated = (*material.corpus, *material.predictors, *material.strategies)
    named = [*(row.provenance for row in material.rows), *(one["provenance"] for one in evaluated)]
    named += [table.provenance for table in material.predicted]
    sections = [
        {
            "anchor": file_name(kind.title),
            "kind": kind,
            "figures": made,
            "provenance": joined(figure.provenance for figure, _ in made),
            "answers": summary.answers(found, kind.claim),
        }
        for kind, made in drawn.items()
    ]
    return fill(
        "page.html",
        f" from {summary.words([path.name for path in made_from])}",
        title=f"jetwatt: {summary.words(list(devices)) or 'report'}",
        lead=summary.lead(material),
        provenances=dict.fromkeys(named),
        disturbed=any(kind in DISQUALIFYING for kind, *_ in flags[1]),
        devices=summary.device_rows(material),
        profiles=summary.profile_rows(material),
        modes=summary.recommended_modes(tables[:MOST_TABLES]),
        counts=[(name.partition(" ")[0], count, name) for name, count in counts_of_claims(found).items()],
        surprises=[one for one in claims if one["verdict"] == CONTRADICTED and not one["notes"]][:MOST_SURPRISES],
        claims=claims,
        judging=judging,
        sections=sections,
        tables=tables[:MOST_TABLES],
        flags=flags,
        missing=[kind for kind in KINDS if kind not in drawn],
        files=[
            *files,
            *((f"figures/{figure.name}.csv", figure.title) for made in drawn.values() for figure, _ in made),
        ],
        formats=["svg", *(["png"] if png else []), "csv"],
        markers=MARKERS,
        ramp=RAMP,
        table_rows=TABLE_ROWS,
        shown=SHOWN,
        drawing=Markup,
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        explorer=explorer_tables(material),
    )
