"""A figure's data: panels of values in layers, a caption, a legend, the rows of its CSV file. Drawing is elsewhere."""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import math
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.files import read_toml

TEXTS = read_toml(Path(__file__).parent / "figures.toml")  # the texts of each kind of figure
LINEAR_TO = 5.0
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that a spreadsheet takes for a formula


class Spacing(enum.Enum):
    LINEAR, LOG = range(2)
    SYMLOG = 2  # linear up to `LINEAR_TO` on both sides of 0, logarithmic beyond: mostly small and sometimes very large


class Mark(enum.Enum):
    """Kinds of layers. Bars side by side and curves also have whiskers from `low` to `high`; rules are vertical."""

    STACKED, BESIDE, CURVES, STEPS, DOTS, NAMES, VIOLINS, WHISKERS, RULES = range(9)


class Axis(NamedTuple):
    """An axis, labelled with quantity and unit: `energy per 1,000 samples (J)`; a category axis has names."""

    label: str
    spacing: Spacing = Spacing.LINEAR
    names: Tuple[str, ...] = ()  # a line break makes a second line
    from_zero: bool = True
    ends: Tuple[float, ...] = ()  # the least range that it shows, so that panels share it


class LegendEntry(NamedTuple):
    """An entry of the legend: a name, a colour `#rrggbb`, and a marker of `harness.report.colours.MARKERS`."""

    name: str
    colour: str
    marker: str = "square"


class Value(NamedTuple):
    """A value in a panel, or a distribution of values."""

    series: Any  # the legend's entry that it belongs to; of dots the number that their colour encodes
    x: Any  # its position: a number, or one of the axis's names. Of a violin x or y holds all of its values
    y: Any
    provenance: str
    low: Optional[float] = None  # its 95 % interval, or as the caption defines the whiskers
    high: Optional[float] = None
    apart: bool = False  # its profile was disturbed or throttled, so it is drawn open and grey
    note: str = ""  # further text of its tooltip


class Layer(NamedTuple):
    mark: Mark
    values: Tuple[Value, ...]
    ends: Tuple[float, ...] = ()  # of dots: the numbers at the ends of the ramp of colours
    many: bool = False  # of dots: so many that they are small and have no tooltips


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes; bars are horizontal if `y` is the category axis.

    Its profiles share all comparable conditions except those in `varies`: axes or legend show these, or the drawn
    values do not depend on them. Panels of a corpus or an evaluation name no profiles.
    """

    title: str
    x: Axis
    y: Axis
    layers: Tuple[Layer, ...]  # drawn in this order
    profiles: Tuple[int, ...] = ()
    varies: Tuple[str, ...] = ()

    @property
    def values(self) -> List[Value]:
        return [value for layer in self.layers for value in layer.values]

    @property
    def provenance(self) -> str:
        return joined(value.provenance for value in self.values)


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
        return joined(panel.provenance for panel in self.panels)


def figure_of(
    kind: str,
    name: str,
    panels: Sequence[Panel],
    series: Sequence[LegendEntry],
    columns: Sequence[str],
    rows: Sequence[Tuple[Any, ...]],
    *,
    about: str = "",
    **details: Any,
) -> Figure:
    """A figure of the non-empty panels, with a legend of the series that they show.

    Title and caption come from its kind in `figures.toml`, filled in with details; a second figure of the kind, `about`
    energy or another text of the kind there, has its own caption.
    """
    texts = TEXTS[kind]
    title = texts["title"].format(**details) + (f": {about}" if about else "")
    caption = about if about in texts else "energy" if about else "caption"
    text = f"{texts['question']} {texts[caption].format(**TEXTS['common'], **details)}"
    shown = [panel for panel in panels if panel.values]
    drawn = {value.series for panel in shown for value in panel.values}
    legend = [entry for entry in series if entry.name in drawn]
    return Figure(name, title, " ".join(text.split()), shown, legend, columns, rows)


def panel_of(
    title: str,
    x: Axis,
    y: Axis,
    mark: Mark,
    values: Iterable[Value],
    rows: Sequence[Any] = (),
    varies: Sequence[str] = (),
    behind: Sequence[Layer] = (),
) -> Panel:
    """A panel of values of profiles that differ in the named conditions and share all others.

    A category axis without names takes those of the values, in their order.
    """

    def named(axis: Axis, places: Iterable[Any]) -> Axis:
        return axis._replace(names=axis.names or tuple(dict.fromkeys(at for at in places if isinstance(at, str))))

    shown = tuple(values)
    axes = named(x, (value.x for value in shown)), named(y, (value.y for value in shown))
    return Panel(title, *axes, (*behind, Layer(mark, shown)), tuple(row.id for row in rows), tuple(varies))


def joined(provenances: Iterable[str]) -> str:
    """Provenances as one text, each once, sorted."""
    return ", ".join(sorted({part for text in provenances for part in text.split(", ")}))


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as CSV; a missing value is an empty cell, and a text that looks like a formula gets an apostrophe."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else cell_text(value) for value in row]
        for row in rows
    )
    return text.getvalue()


def cell_text(value: Any) -> str:
    """A value of a table: numbers with six digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def figure_text(value: float) -> str:
    """A figure with three significant digits, for reading: 0.0123, 1.23, 12.3, 123, 1,230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
