"""What a figure is: panels of marks on axes, a caption, and the data behind it. Knows nothing of SVG or HTML.

A `Figure` has a caption, a legend and the rows of its CSV file; each `Panel` of it is one pair of axes; what is drawn
there are marks: `Bar`, `Curve`, `Dots`, `Violin`, `Rule`, `Label`, `Ramp`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

LINEAR, LOG, CATEGORY = "linear", "log", "category"
SYMLOG = "symlog"
"""Linear up to `LINEAR_TO` on both sides of 0, logarithmic beyond: what is mostly small and sometimes very large."""

LINEAR_TO = 5.0


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis, labelled with quantity and unit: `time of an epoch (s)`; on a category axis 0, 1, ... have names."""

    label: str
    kind: str = LINEAR
    categories: Tuple[str, ...] = ()  # a line break makes a second line
    from_zero: bool = True


class LegendEntry(NamedTuple):
    """An entry of the legend: a name, the name of a colour in `harness.report.colours`, and a curve's marker."""

    name: str
    colour: str
    marker: Optional[int] = None


class Bar(NamedTuple):
    """A stacked bar on a category axis, between whole numbers where bars stand side by side."""

    place: float
    width: float  # as a share of the room between two categories
    parts: Tuple[Tuple[str, float], ...]  # name of a colour and height, from the axis up
    tip: str
    hatched: bool = False  # as what is simulated


class Curve(NamedTuple):
    """Points joined by a line: as steps, dashed, with markers, with whiskers from `lows` to `highs`, as asked for."""

    colour: str
    xs: Tuple[float, ...]
    ys: Tuple[float, ...]
    tip: str = ""
    step: bool = False
    dashed: bool = False
    marker: Optional[int] = None
    lows: Tuple[Optional[float], ...] = ()
    highs: Tuple[Optional[float], ...] = ()


class Dots(NamedTuple):
    """Points of one colour, a name of a colour or `#rrggbb`; `diameter` in pixels."""

    colour: str
    xs: Tuple[float, ...]
    ys: Tuple[float, ...]
    diameter: float = 3.0


class Violin(NamedTuple):
    """The distribution of some values at a place of the category axis, with quartiles and median."""

    place: float
    values: Tuple[float, ...]
    colour: str
    tip: str
    hatched: bool = False


class Rule(NamedTuple):
    """A thin line through the whole panel at a value of the x or of the y axis."""

    value: float
    vertical: bool = False


class Label(NamedTuple):
    """A name beside a point; left out where it would cover another one."""

    x: float
    y: float
    text: str


class Ramp(NamedTuple):
    """The legend of an ordered colouring: names of its ends."""

    low: str
    high: str


Mark = Union[Bar, Curve, Dots, Violin, Rule, Label, Ramp]


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes; bars lie where `y` is the category axis.

    The profiles that are compared in it share all comparable conditions but those in which it says that they vary: axes
    or legend show them, or what is drawn does not depend on them. Panels of a corpus or an evaluation name no profiles.
    """

    title: str
    x: Axis
    y: Axis
    marks: Tuple[Mark, ...]  # drawn in this order
    provenance: str  # `measured`, `simulated`, `replayed`, or several with commas
    profiles: Tuple[int, ...] = ()
    varies: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report; `columns` and `rows` are its CSV file, units end the columns' names."""

    name: str  # of its files, unique in a report
    title: str
    caption: str  # with units and how the figures were made
    panels: Sequence[Panel]
    series: Sequence[LegendEntry]
    columns: Sequence[str]
    rows: Sequence[Tuple[Any, ...]]

    @property
    def provenance(self) -> str:
        """Of all panels, each once."""
        return joined(panel.provenance for panel in self.panels)


def joined(provenances: Any) -> str:
    """Provenances as one text, each once, sorted."""
    return ", ".join(sorted({part for text in provenances for part in text.split(", ")}))


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as CSV; a missing value is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell_text(value) for value in row] for row in rows)
    return text.getvalue()


def cell_text(value: Any) -> str:
    """A value of a table: numbers with six digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def extent(panel: Panel) -> Tuple[List[float], List[float]]:
    """Every x and every y that a panel has to show, category places left out."""
    xs: List[float] = []
    ys: List[float] = []
    across = xs if panel.y.kind == CATEGORY else ys
    for mark in panel.marks:
        if isinstance(mark, Bar):
            across += [sum(height for _, height in mark.parts), min([0.0, *(height for _, height in mark.parts)])]
        elif isinstance(mark, Violin):
            across += mark.values
        elif isinstance(mark, (Curve, Dots)):
            xs += mark.xs
            ys += mark.ys
            ys += [value for value in (*getattr(mark, "lows", ()), *getattr(mark, "highs", ())) if value is not None]
        elif isinstance(mark, Rule):
            (xs if mark.vertical else ys).append(mark.value)
    return xs, ys
