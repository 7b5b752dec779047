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
from harness.core.environment import usable_cpus
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json, write_output
from harness.core.measured_tables import corpus_file
from harness.core.profiles import DISQUALIFYING
from harness.judge.claims import counts_of_claims
from harness.judge.requirement_verdicts import RequirementVerdict, describe_counts, note_lines
from harness.judge.requirements import read_requirements
from harness.judge.verdict import CONTRADICTED, Verdict
from harness.report import summary
from harness.report.colours import MARKERS, RAMP
from harness.report.figure import Figure, csv_text, joined
from harness.report.figures import KINDS, FigureKind
from harness.report.material import Material, file_name
from harness.report.mode_tables import MOST_TABLES, ModeTable, explorer_tables
from harness.report.template import HERE, fill, require_drawing
from harness.report.vega import DrawnPanel, write_figure
from harness.store.corpora import corpus_rows
from harness.store.frames import FURTHER, profiles
from harness.store.results import ResultsStore

WORTH_PROCESSES = 60  # panels; fewer are drawn before further processes have loaded the drawing library
MOST_SURPRISES = 6
TABLE_ROWS, SHOWN = 12, 4
"""Rows in a figure's table (its CSV file has all rows); panels shown before the others are folded."""


class Written(NamedTuple):
    """A report that was written."""

    page: Path  # `index.html`
    figures: int  # how many it has
    missing: Tuple[str, ...]  # titles of figures that the given files have no data for
    judging: str  # how to judge the claims of the papers if they were not judged; else empty


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
    require: Optional[Path] = None,
) -> Written:
    """Write a report of files into a folder; the default results file may be absent if another file is given.

    `predicted` are tables of modes from the saved predictors `models`. `require` is a requirements file, by which the
    profiles are judged.
    """
    origins = [] if require is None else read_requirements(require)
    corpus = None if corpus is None else corpus_file(corpus)
    others = [corpus, predictors, strategies, *models]
    if results == DEFAULT_RESULTS and not results.exists() and any(others):
        results = None
    if results is None and require is not None:
        raise InvalidValueError("requirements were given without results", "name the results file that they judge")
    made_from = [path for path in (results, require, *others) if path is not None]
    opened = ResultsStore(results, read_only=True) if results else contextlib.nullcontext()
    with opened as store:
        material = Material.read(
            store,
            tuple(rows_of(read_corpus(corpus))) if corpus else (),
            read_evaluation(predictors, "predictor"),
            read_evaluation(strategies, "strategy"),
            predicted=tuple(predicted),
            requirements=origins,
        )
        return write_report(material, out, made_from, png)


def read_evaluation(path: Optional[Path], what: str) -> Tuple[Dict[str, Any], ...]:
    """The results in a file of `jetwatt evaluate` or `jetwatt strategies evaluate`, empty without a file.

    Inference is marked in the target.
    """
    if path is None:
        return ()
    command = "evaluate" if what == "predictor" else "strategies evaluate"
    hint = f"write it by `jetwatt {command} --json`"
    try:
        content = read_json(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name an existing file") from error
    except ValueError as error:
        raise InvalidValueError(f"{path} is not valid JSON: {error}", hint) from error
    results: List[Dict[str, Any]] = content.get("results", []) if isinstance(content, dict) else []
    if not results or not all(
        isinstance(result, dict) and what in result and "provenance" in result for result in results
    ):
        raise InvalidValueError(f"{path} has no results with {what} and provenance", hint)
    return tuple(
        {**result, "target": f"{result['target']} {INFERENCE}"} if result.get("task") == INFERENCE else result
        for result in results
    )


def write_report(material: Material, out: Path, made_from: Sequence[Path], png: bool = False) -> Written:
    """Write a report into a folder: files of the same names are replaced, others stay; the page links `made_from`."""
    if not (material.rows or material.corpus or material.predictors or material.strategies or material.predicted):
        what = "a report needs profiles" if material.store is None else f"{material.store.path} has no profiles"
        raise StoreError(what, "measure some: pytest benchmarks")
    require_drawing("the report")
    figures = {kind: kind.make(material) for kind in KINDS}
    with _drawers(sum(len(figure.panels) for of_kind in figures.values() for figure in of_kind)) as pool:
        drawings = {
            kind: [(figure, pool.submit(write_figure, figure, out / "figures", png)) for figure in of_kind]
            for kind, of_kind in figures.items()
        }
        verdicts = material.judged.verdicts
        raw = [
            (os.path.relpath(path, out), "input of this report, at its path when the report was written")
            for path in made_from
        ]
        files = [*_write_tables(material, verdicts, out), *raw]
        drawn = {
            kind: [(figure, panels.result()) for figure, panels in of_kind]
            for kind, of_kind in drawings.items()
            if of_kind
        }
    page = out / "index.html"
    judging = "" if material.store is None or not material.rows else material.judged.note(material.store.path)
    write_output(page, _page(material, drawn, verdicts, files, made_from, png, judging).encode("utf-8"))
    # Figures of evaluations have their own files: without them they are no gap in the results.
    given = {"--predictors": bool(material.predictors), "--strategies": bool(material.strategies)}
    gaps = [kind for kind in KINDS if kind not in drawn and given.get(kind.needs.split()[0], True)]
    missing = tuple(f"{kind.title} ({kind.experiments})" for kind in gaps)
    return Written(page, sum(map(len, drawn.values())), missing, judging)


def _drawers(panels: int) -> concurrent.futures.Executor:
    """A process for each core if there are many panels, else a thread."""
    cores = usable_cpus()
    if panels >= WORTH_PROCESSES and cores > 1:
        with contextlib.suppress(OSError):  # processes share locks in /dev/shm, which may be closed or missing
            return concurrent.futures.ProcessPoolExecutor(
                min(cores, 4), mp_context=multiprocessing.get_context("spawn")
            )
    return concurrent.futures.ThreadPoolExecutor(1)


def _write_tables(material: Material, verdicts: Sequence[Verdict], out: Path) -> List[Tuple[str, str]]:
    files = []
    rows = []
    if material.store is not None:
        rows = corpus_rows(profiles(material.store, include_flagged=True, newest_only=True, timed=True, tasks=TASKS))
    if rows:
        write_corpus(out / "results.csv", rows, FURTHER)
        files.append(
            ("results.csv", f"the newest profile of each case and its conditions as a corpus, {len(rows)} rows")
        )
    if verdicts:
        text = csv_text(Verdict._fields, [tuple(verdict) for verdict in verdicts])
        write_output(out / "takeaways.csv", text.encode("utf-8"))
        files.append(("takeaways.csv", "the take-aways with their verdicts"))
    if material.required:
        texts = [(*verdict[:-1], "; ".join(verdict.notes)) for verdict in material.required]
        text = csv_text(RequirementVerdict._fields, texts)
        write_output(out / "requirements.csv", text.encode("utf-8"))
        files.append(("requirements.csv", "the requirements with their verdicts"))
    return files


def _page(
    material: Material,
    drawn: Mapping[FigureKind, Sequence[Tuple[Figure, List[DrawnPanel]]]],
    verdicts: Sequence[Verdict],
    files: Sequence[Tuple[str, str]],
    made_from: Sequence[Path],
    png: bool,
    judging: str,
) -> str:
    """One self-contained HTML file; `files`: paths and their descriptions."""
    from markupsafe import Markup

    script = (HERE / "page.js").read_text(encoding="utf-8")
    tables, flags, claims = material.tables, summary.flag_rows(material.rows), summary.claim_rows(verdicts)
    corpora = [*(row["device"] for row in material.corpus), *(table.device for table in material.predicted)]
    devices = dict.fromkeys([*(row.base for row in material.rows), *corpora])
    evaluated = (*material.corpus, *material.predictors, *material.strategies)
    named = [*(row.provenance for row in material.rows), *(result["provenance"] for result in evaluated)]
    named += [table.provenance for table in material.predicted]
    sections = [
        {
            "anchor": file_name(kind.title),
            "kind": kind,
            "figures": of_kind,
            "provenance": joined(figure.provenance for figure, _ in of_kind),
            "answers": summary.answers(verdicts, kind.claim),
        }
        for kind, of_kind in drawn.items()
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
        counts=[(name.partition(" ")[0], count, name) for name, count in counts_of_claims(verdicts).items()],
        surprises=[claim for claim in claims if claim["verdict"] == CONTRADICTED and not claim["notes"]][
            :MOST_SURPRISES
        ],
        claims=claims,
        judging=judging,
        requirements=summary.requirement_rows(material.required),
        requirement_counts=describe_counts(material.required),
        requirement_notes=note_lines(material.required),
        sections=sections,
        tables=tables[:MOST_TABLES],
        flags=flags,
        missing=[kind for kind in KINDS if kind not in drawn],
        files=[
            *files,
            *((f"figures/{figure.name}.csv", figure.title) for of_kind in drawn.values() for figure, _ in of_kind),
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
