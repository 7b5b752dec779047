"""What a figure is: panels of values in layers, a caption, a legend, the rows of its CSV file. Knows nothing of SVG."""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import math
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.files import read_toml

TEXTS = read_toml(Path(__file__).parent / "figures.toml")  # what each kind of figure says
LINEAR_TO = 5.0
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula of a spreadsheet begins with


class Spacing(enum.Enum):
    LINEAR, LOG = range(2)
    SYMLOG = 2  # linear up to `LINEAR_TO` on both sides of 0, logarithmic beyond: mostly small and sometimes very large


class Mark(enum.Enum):
    """What a layer draws. Bars side by side and curves have whiskers from `low` to `high` too; rules are vertical."""

    STACKED, BESIDE, CURVES, STEPS, DOTS, NAMES, VIOLINS, WHISKERS, RULES = range(9)


class Axis(NamedTuple):
    """An axis, labelled with quantity and unit: `energy per 1,000 samples (J)`; a category axis has names."""

    label: str
    spacing: Spacing = Spacing.LINEAR
    names: Tuple[str, ...] = ()  # a line break makes a second line
    from_zero: bool = True
    ends: Tuple[float, ...] = ()  # what it shows at least, so that panels share it


class LegendEntry(NamedTuple):
    """An entry of the legend: a name, a colour `#rrggbb`, and a marker of `harness.report.colours.MARKERS`."""

    name: str
    colour: str
    marker: str = "square"


class Value(NamedTuple):
    """A figure in a panel, or the distribution of some."""

    series: Any  # the legend's entry that it belongs to; of dots the number that their colour stands for
    x: Any  # where it lies: a number, or one of the axis's names. Of a violin x or y is all of its values
    y: Any
    provenance: str
    low: Optional[float] = None  # its 95 % interval, or what the caption says of the whiskers
    high: Optional[float] = None
    apart: bool = False  # its profile was disturbed or throttled, so it is drawn open and grey
    note: str = ""  # what a reader is told of it besides


class Layer(NamedTuple):
    mark: Mark
    values: Tuple[Value, ...]
    ends: Tuple[float, ...] = ()  # of dots: the numbers at the ends of the ramp of colours
    many: bool = False  # of dots: so many that they are small, and say nothing by themselves


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes; bars lie where `y` is the category axis.

    The profiles that are compared in it share all comparable conditions but those in which it says that they vary: axes
    or legend show them, or what is drawn does not depend on them. Panels of a corpus or an evaluation name no profiles.
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
    """A figure of the panels that show something, with a legend of what they show.

    Title and caption are its kind's in `figures.toml`, filled in with details; a further figure, `about` energy or what
    has a text of that name there, has a caption of its own.
    """
    texts = TEXTS[kind]
    title = texts["title"].format(**details) + (f": {about}" if about else "")
    caption = about if about in texts else "energy" if about else "caption"
    told = f"{texts['question']} {texts[caption].format(**TEXTS['common'], **details)}"
    shown = [panel for panel in panels if panel.values]
    drawn = {value.series for panel in shown for value in panel.values}
    legend = [entry for entry in series if entry.name in drawn]
    return Figure(name, title, " ".join(told.split()), shown, legend, columns, rows)


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
    """A panel of values that profiles have which differ in the named conditions and share all others.

    An axis of names without any has those of the values, in their order.
    """
    shown = tuple(values)
    axes = [
        axis._replace(names=axis.names or tuple(dict.fromkeys(at for at in places if isinstance(at, str))))
        for axis, places in ((x, [value.x for value in shown]), (y, [value.y for value in shown]))
    ]
    return Panel(title, *axes, (*behind, Layer(mark, shown)), tuple(row.id for row in rows), tuple(varies))


def joined(provenances: Iterable[str]) -> str:
    """Provenances as one text, each once, sorted."""
    return ", ".join(sorted({part for text in provenances for part in text.split(", ")}))


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as CSV; a missing value is an empty cell, and a text that would be a formula gets an apostrophe."""
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
    """A figure with three significant digits for people: 0.0123, 1.23, 12.3, 123, 1,230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
