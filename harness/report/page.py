"""The page: one HTML file that needs nothing else, filled into `page.html` from figures, verdicts, flags and tables."""

from __future__ import annotations

import base64
import hashlib
from typing import List, NamedTuple, Sequence, Tuple

from harness.judge.claims import CONTRADICTED, Verdict, counts_of_claims
from harness.report.colours import MARKERS, RAMP
from harness.report.figure import Figure, joined
from harness.report.figures import FigureKind
from harness.report.material import Material
from harness.report.mode_tables import MOST_TABLES, explorer_tables
from harness.report.summary import (
    answers,
    claim_rows,
    device_rows,
    flag_rows,
    lead,
    profile_rows,
    recommended_modes,
    words,
)
from harness.report.template import HERE, fill
from harness.report.vega import DrawnPanel
from harness.store.conditions import DISQUALIFYING

MOST_SURPRISES = 6
TABLE_ROWS, SHOWN = 12, 4
"""Rows that a figure's table shows, and its CSV file has all; panels that are shown at once, the others folded."""


class PageSection(NamedTuple):
    anchor: str
    kind: FigureKind
    figures: List[Tuple[Figure, List[DrawnPanel]]]

    @property
    def provenance(self) -> str:
        return joined(figure.provenance for figure, _ in self.figures)


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
    from markupsafe import Markup

    script = (HERE / "page.js").read_text(encoding="utf-8")
    tables, flags, claims = material.tables, flag_rows(material.rows), claim_rows(found)
    corpora = [*(row["device"] for row in material.corpus), *(table.device for table in material.predicted)]
    devices = dict.fromkeys([*(row.base for row in material.rows), *corpora])
    evaluated = (*material.corpus, *material.predictors, *material.strategies)
    named = [*(row.provenance for row in material.rows), *(one["provenance"] for one in evaluated)]
    named += [table.provenance for table in material.predicted]
    return fill(
        "page.html",
        f" from {words(made_from)}",
        title=f"jetwatt: {words(list(devices)) or 'report'}",
        lead=lead(material),
        provenances=dict.fromkeys(named),
        disturbed=any(kind in DISQUALIFYING for kind, *_ in flags[1]),
        devices=device_rows(material),
        profiles=profile_rows(material),
        modes=recommended_modes(tables[:MOST_TABLES]),
        counts=[(name.partition(" ")[0], count, name) for name, count in counts_of_claims(found).items()],
        surprises=[one for one in claims if one["verdict"] == CONTRADICTED and not one["notes"]][:MOST_SURPRISES],
        claims=claims,
        sections=[(section, answers(found, section.kind.claim)) for section in sections],
        tables=tables[:MOST_TABLES],
        flags=flags,
        missing=missing,
        files=[
            *files,
            *((f"figures/{figure.name}.csv", figure.title) for one in sections for figure, _ in one.figures),
        ],
        formats=["svg", *(["png"] if with_png else []), "csv"],
        markers=MARKERS,
        ramp=RAMP,
        table_rows=TABLE_ROWS,
        shown=SHOWN,
        drawing=Markup,
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        explorer=explorer_tables(material),
    )
