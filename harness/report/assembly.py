"""From results to the report's folder: the page, each figure as SVG, PNG and CSV, the corpus of the results."""

from __future__ import annotations

import datetime
import math
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import harness
from harness.corpus import TASKS, write_corpus
from harness.durable_file import write_output
from harness.errors import StoreError
from harness.experiments.verdicts import Verdict, verdicts
from harness.report.explorer import MOST_TABLES, explorer_json
from harness.report.figure import Figure, csv_text
from harness.report.figures import KINDS
from harness.report.mode_tables import mode_tables
from harness.report.page import Content, Section, counted, page_html, words
from harness.report.png import can_write_png, write_png
from harness.report.scales import figure_text
from harness.report.selection import Material, bare, file_name
from harness.report.svg import figure_svg
from harness.results.export import FURTHER, corpus_row
from harness.results.rows import Record

PAGE = "index.html"
VERDICT_COLUMNS = ("verdict", "claim", "paper", "device", "effect (95 %)", "expected", "n", "case", "provenance")


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
    if not (material.records or material.corpus or material.predictors or material.strategies):
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
    rows = [
        corpus_row(record)
        for record in material.records
        if record.case.task in TASKS and record.aggregates.get("minibatch_time_ms") is not None
    ]
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
    provenances = {record.provenance for record in material.records}
    provenances.update(row["provenance"] for row in (*material.corpus, *material.predictors, *material.strategies))
    devices = list(dict.fromkeys(bare(record.case.device).partition("@")[0] for record in material.records))
    corpora = list(dict.fromkeys(row["device"] for row in material.corpus if row["device"] not in devices))
    figures = [figure for section in sections for figure in section.figures]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Content(
        title=f"jetwatt: {words([*devices, *corpora]) or 'report'}",
        lead=_lead(material),
        provenances=tuple(sorted(provenances)),
        tiles=_tiles(material, found, figures),
        devices=_devices(material),
        sections=tuple(sections),
        missing=tuple(missing),
        verdicts=(VERDICT_COLUMNS, [_verdict_row(verdict) for verdict in found]),
        verdict_counts=counted([verdict.verdict for verdict in found]),
        flags=_flags(material.records),
        explorer=explorer_json(tables),
        explorer_titles=tuple(table.title for table in tables[:MOST_TABLES]),
        files=(*files, *((f"figures/{figure.name}.csv", figure.title) for figure in figures)),
        made=f"made {now} by jetwatt {harness.__version__} from {words([path.name for path in made_from])}",
        pictures=frozenset(figure.name for figure in pictures),
    )


def _lead(material: Material) -> str:
    workloads = {record.case.workload for record in material.records if record.case.task in TASKS}
    told = [f"{len(material.records)} profiles of {len(workloads)} workloads"] if material.records else []
    told += [f"a corpus of {len(material.corpus):,} rows"] if material.corpus else []
    told += ["an evaluation of predictors"] if material.predictors else []
    told += ["a contest of strategies"] if material.strategies else []
    return f"How long a minibatch takes and how much power it draws: {words(told)}."


def _tiles(material: Material, found: Sequence[Verdict], figures: Sequence[Figure]) -> Tuple[Tuple[str, str], ...]:
    records = material.records
    tiles = [(f"{len(records):,}", "profiles, the newest of each conditions")]
    tiles.append((str(len({record.case.workload for record in records if record.case.task in TASKS})), "workloads"))
    tiles.append((str(len({str(record.conditions.get("power_mode")) for record in records})), "power modes"))
    if material.corpus:
        tiles.append((f"{len(material.corpus):,}", "rows of the corpus"))
    tiles.append((str(len(figures)), "figures"))
    if found:
        confirmed = sum(verdict.verdict == "confirmed" for verdict in found)
        tiles.append((f"{confirmed} of {len(found)}", "take-aways confirmed"))
    tiles.append((str(sum(bool(record.flags) for record in records)), "profiles with flags"))
    return tuple(tiles)


def _devices(material: Material) -> Tuple[Tuple[str, ...], List[Tuple[Any, ...]]]:
    """What was measured on what: a row for each device, provenance and software."""
    header = ("device", "provenance", "model", "profiles", "total power", "torch", "L4T", "host", "jetwatt")
    groups: Dict[Tuple[Any, ...], List[Record]] = {}
    for record in material.records:
        conditions = record.conditions
        place = (
            *(bare(record.case.device), record.provenance, conditions.get("device_model")),
            *(conditions.get("power_definition") or "not measured", conditions.get("torch"), conditions.get("l4t")),
        )
        groups.setdefault(place, []).append(record)
    rows: List[Tuple[Any, ...]] = [
        (*place[:3], len(records), *place[3:], _told(records, "host_name"), _told(records, "jetwatt", "suite_commit"))
        for place, records in groups.items()
    ]
    corpora = counted([f"{row['device']}\n{row['provenance']}" for row in material.corpus])
    for name, count in corpora.items():
        rows.append((*name.split("\n"), "corpus", count, *(None,) * 5))
    kept = [place for place in range(len(header)) if any(row[place] is not None for row in rows)]
    return tuple(header[place] for place in kept), [tuple(row[place] for place in kept) for row in rows]


def _told(records: Sequence[Record], *names: str) -> str:
    """What the environments of some records say under some names, each different answer once."""
    answers = [
        " ".join(str(record.environment[name]) for name in names if name in record.environment) for record in records
    ]
    return ", ".join(dict.fromkeys(answers))


def _verdict_row(verdict: Verdict) -> Tuple[Any, ...]:
    bounds = [f"above {verdict.above:g}"] if math.isfinite(verdict.above) else []
    bounds += [f"below {verdict.below:g}"] if math.isfinite(verdict.below) else []
    interval = f"{figure_text(verdict.effect)} ({figure_text(verdict.low)} to {figure_text(verdict.high)})"
    why = f"{verdict.says} Known of the model: {verdict.shortfall}" if verdict.shortfall else verdict.says
    return (
        *(verdict.verdict, why, verdict.section, bare(verdict.device), f"{verdict.meaning}: {interval}"),
        *(" and ".join(bounds), verdict.n, verdict.case, verdict.provenance),
    )


def _flags(records: Sequence[Record]) -> Tuple[Tuple[str, ...], List[Tuple[Any, ...]]]:
    """A row for each kind of flag: how many profiles carry it, and an example."""
    kinds: Dict[str, List[Tuple[str, str]]] = {}
    for record in records:
        for flag in record.flags:
            kinds.setdefault(flag.partition(":")[0], []).append((record.case_id, flag.partition(": ")[2]))
    rows = [(kind, len(found), found[0][1], found[0][0]) for kind, found in sorted(kinds.items())]
    return ("flag", "profiles", "for example", "case"), rows
