"""The page: one HTML file that needs nothing else, made of figures, verdicts, flags and tables."""

from __future__ import annotations

import dataclasses
import datetime
import json
from html import escape
from pathlib import Path
from typing import Any, Container, List, Sequence, Tuple

import harness
from harness.judge.claims import Verdict, counts_of_claims
from harness.report.colours import RAMP, css_variables
from harness.report.figure import Figure, cell_text
from harness.report.material import Material
from harness.report.mode_tables import MOST_TABLES, ModeTable, explorer_json, mode_tables
from harness.report.summary import device_rows, flag_rows, lead, tiles, verdict_rows, words
from harness.report.svg import Brush, legend_key, panel_svg
from harness.store.conditions import DISQUALIFYING

TABLE_ROWS = 120
"""Rows that a figure's table shows; its CSV file has all."""

LONG = 60
"""Characters of a cell that needs a wide column."""

Rows = Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class PageSection:
    """A section of the page: its anchor, experiments, title and figures."""

    anchor: str
    experiments: str
    title: str
    figures: Tuple[Figure, ...]


def page_html(
    material: Material,
    sections: Sequence[PageSection],
    missing: Sequence[Tuple[str, str]],
    found: Sequence[Verdict],
    files: Sequence[Tuple[str, str]],
    made_from: List[str],
    with_png: bool,
) -> str:
    """The page as text; `missing`: titles and needs of figures without data; `files`: paths and what they are."""
    others = (*material.corpus, *material.predictors, *material.strategies)
    provenances = {*(row.provenance for row in material.rows), *(row["provenance"] for row in others)}
    devices = dict.fromkeys([*(row.base for row in material.rows), *(row["device"] for row in material.corpus)])
    title = f"jetwatt: {words(list(devices)) or 'report'}"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    made = f"made {now} by jetwatt {harness.__version__} from {words(made_from)}"
    figures = [figure for section in sections for figure in section.figures]
    tables, flags = mode_tables(material), flag_rows(material.rows)
    links = [("summary", "Summary"), *([("explore", "Explore")] if tables else [])]
    links += [("takeaways", "Take-aways")] if found else []
    links += [*((section.anchor, section.title) for section in sections), ("flags", "Flags"), ("files", "Data")]
    items = "".join(f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in links)
    csv_files = [(f"figures/{figure.name}.csv", figure.title) for figure in figures]
    parts = [
        _head(title),
        f'<header id="top"><h1>{escape(title)}</h1><p>{escape(lead(material, found))}</p>',
        f'<p class="muted">{escape(made)}</p>{_notice(provenances, flags[1])}</header>',
        f'<nav aria-label="Sections"><ul>{items}</ul></nav>',
        "<main>",
        _heading("summary", "Summary"),
        _tiles(tiles(material, found, len(figures))),
        _table(*device_rows(material)),
        _explorer(tables[:MOST_TABLES]),
        _verdicts(found),
        *(_section(section, with_png) for section in sections),
        _flags(*flags),
        _missing(missing),
        _files([*files, *csv_files]),
        "</main>",
        '<div id="tip" role="status"></div>',
        '<svg width="0" height="0" style="position:absolute" aria-hidden="true">'
        f"<defs>{Brush(False).hatch()}</defs></svg>",
        f'<script type="application/json" id="explorer-data">{explorer_json(tables)}</script>',
        f'<script type="application/json" id="ramp">{json.dumps(RAMP)}</script>',
        f"<script>{_own('page.js')}</script></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _head(title: str) -> str:
    light, dark = (f":root{{{css_variables(is_dark)}}}" for is_dark in (False, True))
    colours = f"{light}@media screen and (prefers-color-scheme: dark){{{dark}}}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{colours}{_own('page.css')}</style></head><body>"
    )


def _notice(provenances: Container[str], flags: Rows) -> str:
    """What a reader must know who looks no further: that figures are not measured, or were disturbed."""
    told = {
        "simulated": "<b>Simulated</b> figures come from a model of the board, not from a board. Every panel with them"
        " carries a dashed badge; their bars are hatched.",
        "replayed": "<b>Replayed</b> figures were measured earlier, elsewhere, and are repeated from a corpus.",
    }
    found = [text for name, text in told.items() if name in provenances]
    if any(kind in DISQUALIFYING for kind, *_ in flags):
        found.append(
            "Profiles flagged <b>disturbed</b> or <b>throttled</b> are drawn like all others, though their times and"
            " powers are wrong; take-aways leave them out. With <code>--resume</code> they are measured again."
        )
    return f'<div class="notice" role="note">{" ".join(found)}</div>' if found else ""


def _heading(anchor: str, title: str, small: str = "") -> str:
    more = f"<small>{escape(small)}</small>" if small else ""
    return f'<h2 id="{anchor}">{escape(title)}{more}</h2>'


def badge(text: str, kind: str = "") -> str:
    """A word in a frame; several provenances make a badge each."""
    return " ".join(f'<span class="badge {kind or part}">{escape(part)}</span>' for part in text.split(", "))


def _tiles(tiles: Sequence[Tuple[str, str]]) -> str:
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(meaning)}</span></div>' for value, meaning in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _table(header: Sequence[str], rows: Rows, badges: Sequence[int] = ()) -> str:
    numbers = [
        bool(rows) and all(isinstance(row[place], (int, float, type(None))) for row in rows)
        for place in range(len(header))
    ]

    def cell(place: int, value: Any) -> str:
        text = badge(str(value)) if place in badges or header[place] == "provenance" else escape(cell_text(value))
        if numbers[place]:
            return f'<td class="number">{text}</td>'
        return f'<td class="long">{text}</td>' if len(str(value)) > LONG else f"<td>{text}</td>"

    head = "".join(
        f'<th class="number">{escape(name)}</th>' if is_number else f"<th>{escape(name)}</th>"
        for name, is_number in zip(header, numbers)
    )
    body = "".join("<tr>" + "".join(cell(place, value) for place, value in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _explorer(tables: Sequence[ModeTable]) -> str:
    if not tables:
        return ""
    titles = "".join(f'<option value="{place}">{escape(table.title)}</option>' for place, table in enumerate(tables))
    resources = ("CPU cores", "CPU clock", "GPU clock", "memory clock")
    colours = "".join(f'<option value="{place}">{name}</option>' for place, name in enumerate(resources))
    swatch = "".join(f'<i style="background:{colour}"></i>' for colour in RAMP)
    return f"""{_heading("explore", "Explore power modes")}
<p>Every point is a power mode. Point at one to see which;
set a power budget to see which mode is fastest within it.</p>
<div id="explorer">
<div class="controls">
<label>workload<select name="table">{titles}</select></label>
<label>colour by<select name="colour">{colours}</select></label>
<label>against<select name="cost"><option value="power">power</option>
<option value="energy">energy</option></select></label>
<label>power budget: <b id="budget-value"></b>
<input type="range" name="budget" step="0.1" aria-label="power budget in W"></label>
</div>
<svg id="plot" role="img"></svg>
<div class="legend"><span id="scale-low"></span><span>{swatch}</span><span id="scale-high"></span>
<span id="explorer-badge" class="badge"></span></div>
<output aria-live="polite"></output>
<p id="note" class="muted"></p>
<noscript><p>This part needs JavaScript; the section Pareto fronts shows the same as pictures.</p></noscript>
</div>"""


def _verdicts(found: Sequence[Verdict]) -> str:
    if not found:
        return ""
    header, rows = verdict_rows(found)
    counts = ", ".join(f"{count} {name}" for name, count in counts_of_claims(found).items())
    return (
        _heading("takeaways", "Take-aways of the papers", counts)
        + "<p>What the papers claim, held against these profiles. Confirmed: the 95 % interval of the effect lies"
        " within the claim's bounds in every case looked at; contradicted: it lies beyond them in one; undecided"
        " otherwise. The effect shown is the one nearest to a bound. Counts are of claims, each by its least favourable"
        " device; a simulation that was fitted to a figure confirms that the model can say it, and no more.</p>"
        + _table(header, rows, badges=(0,))
    )


def _section(section: PageSection, with_png: bool) -> str:
    figures = "".join(_figure(figure, with_png) for figure in section.figures)
    return _heading(section.anchor, section.title, section.experiments) + figures


def _figure(figure: Figure, with_png: bool) -> str:
    legend = "".join(f"<li>{legend_key(series)}{escape(series.name)}</li>" for series in figure.series)
    panels = "".join(panel_svg(panel, figure.caption) for panel in figure.panels)
    formats = ["svg", *(["png"] if with_png else []), "csv"]
    links = " ".join(f'<a href="figures/{figure.name}.{suffix}">{suffix.upper()}</a>' for suffix in formats)
    rows = figure.rows[:TABLE_ROWS]
    more = f", the first {len(rows)} of {len(figure.rows)} rows" if len(rows) < len(figure.rows) else ""
    return (
        f'<figure id="figure-{figure.name}"><h3>{escape(figure.title)} {badge(figure.provenance)}</h3>'
        + (f'<ul class="legend">{legend}</ul>' if legend else "")
        + f'<div class="panels">{panels}</div><figcaption>{escape(figure.caption)}</figcaption>'
        f'<div class="links">{links}</div>'
        f"<details><summary>Table{more}</summary>{_table(figure.columns, rows)}</details></figure>"
    )


def _flags(header: Sequence[str], rows: Rows) -> str:
    text = "What to know before trusting figures: who was disturbed, throttled, lost samples."
    inner = _table(header, rows) if rows else "<p>No profile carries a flag.</p>"
    return (
        _heading("flags", "Flags", f"{len(rows)} kind{'s' if len(rows) > 1 else ''}" if rows else "")
        + f"<p>{text}</p>{inner}"
    )


def _missing(missing: Sequence[Tuple[str, str]]) -> str:
    if not missing:
        return ""
    items = "".join(f"<li><b>{escape(title)}</b>: {escape(needs)}</li>" for title, needs in missing)
    return _heading("missing", "Not shown, for want of data") + f"<ul>{items}</ul>"


def _files(files: Sequence[Tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a>: {escape(what)}</li>' for path, what in files)
    return _heading("files", "Data") + f"<ul>{items}</ul>"
