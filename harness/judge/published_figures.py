"""The papers' figures that a simulated board can reproduce, and the deviation of its answers."""

from __future__ import annotations

import csv
import functools
import math
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from harness.core.errors import InvalidValueError, StoreError
from harness.core.units import percent_to_share

FIGURES_FILE = Path(__file__).resolve().parents[2] / "baselines" / "published" / "figures.csv"
"""The package `baselines` is next to `harness`, both in a clone and in an installation."""

CHANGE = "change"
RELATIONS = ("value", "ratio", CHANGE, "spread", "least", "greatest")
COMPARATORS = ("=", "~", "<", "<=", ">", ">=", "range")
CLOSE = 0.15  # an answer within 15 % of the published figure counts as close
VERSUS = "vs_"
EMPTY = ("", "-")

Parsed = TypeVar("Parsed")


class Condition(NamedTuple):
    """The condition of a run: one side of a figure."""

    device: str  # a board, as in the corpus; several with commas if the figure is their mean
    workload: str  # as in the corpus; empty for an idle board
    power_mode: str  # as `tools.simulated_answers.find_modes` reads it
    workers: int = 4
    storage: str = "ssd"
    batch_size: int = 16
    cache: str = "warm"  # as the page cache is after a pass over the data set, or `cold`
    data_scale: float = 1.0  # size of the data set over the real one
    clocks: str = "static"
    task: str = "training"


class PublishedFigure(NamedTuple):
    fact: str  # its id
    paper: str
    section: str
    condition: Condition
    versus: Optional[Condition]  # the condition it is compared with; None if the figure is not relative
    metric: str  # a key of `tools.simulated_answers.METRICS`
    # `value`; `ratio` of the condition to `versus`; `change` against `versus` in %; over several modes `least`,
    # `greatest`, or `spread`: greatest less least over greatest, in %
    relation: str
    comparator: str  # how the value is meant; `range` is from least to greatest
    least: float  # the value in `unit`, equal to `greatest` but for a range
    greatest: float
    unit: str  # as printed

    @property
    def value(self) -> str:
        """The value as text, with its comparator unless that is `=`."""
        if self.comparator == "range":
            return f"{self.least:g}..{self.greatest:g}"
        return f"{'' if self.comparator == '=' else self.comparator}{self.least:g}"

    def deviation(self, answered: float) -> float:
        """How far an answer, in `unit`, lies from the figure, relative to it.

        0 within a range or on the right side of a bound; else relative to the nearer end. A change is judged by its
        ratio: -25 % against a published -22.3 % is 0.75 / 0.777, 3.5 % too little.
        """
        least, greatest = self.ends
        if self.relation == CHANGE:
            least, greatest, answered = (1.0 + percent_to_share(percent) for percent in (least, greatest, answered))
        if answered < least:
            return answered / least - 1.0
        return answered / greatest - 1.0 if answered > greatest else 0.0

    @property
    def ends(self) -> Tuple[float, float]:
        """The least and the greatest value that the figure allows; infinite on the open side of a bound."""
        if self.comparator in ("<", "<="):
            return -math.inf, self.greatest
        if self.comparator in (">", ">="):
            return self.least, math.inf
        return self.least, self.greatest


class PrintedRatio(NamedTuple):
    """A printed ratio of a quantity between two conditions: from least to greatest."""

    metric: str
    before: Condition
    after: Condition
    least: float
    greatest: float


def read_published(path: Path, what: str, parse: Callable[[Mapping[str, str]], Parsed]) -> List[Parsed]:
    """The rows of a CSV file of `baselines/published`, parsed.

    A line that `parse` refuses by a ValueError, or without a column, is an InvalidValueError: it is not a `what`.
    """
    rows = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                try:
                    rows.append(parse(row))
                except (KeyError, ValueError) as error:
                    raise InvalidValueError(f"{path} line {reader.line_num} is not a {what}: {error}") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "it is part of a clone and of an installation") from error
    return rows


@functools.lru_cache(maxsize=None)
def load_figures(path: Path = FIGURES_FILE) -> Tuple[PublishedFigure, ...]:
    """The figures of a file; an id may belong to several workloads; errors as in `read_published`."""
    return tuple(read_published(path, "figure", _figure))


def comparisons(fact: str) -> List[PrintedRatio]:
    """The printed ratios of a fact: the id of a ratio or change, or `F919/F918`, one value over another."""
    numerator, _, denominator = fact.partition("/")
    if denominator:
        after, before = (
            next(figure for figure in load_figures() if figure.fact == name) for name in (numerator, denominator)
        )
        ends = (after.least / before.greatest, after.greatest / before.least)
        return [PrintedRatio(after.metric, before.condition, after.condition, *ends)]
    ratios = []
    for figure in load_figures():
        if figure.fact == fact and figure.versus is not None:
            least, greatest = figure.ends
            if figure.relation == CHANGE:
                least, greatest = 1.0 + percent_to_share(least), 1.0 + percent_to_share(greatest)
            ratios.append(PrintedRatio(figure.metric, figure.versus, figure.condition, max(least, 0.0), greatest))
    return ratios


def _figure(row: Mapping[str, str]) -> PublishedFigure:
    if row["relation"] not in RELATIONS or row["comparator"] not in COMPARATORS:
        raise ValueError(
            f"relation {row['relation']!r}, comparator {row['comparator']!r}; relations are {', '.join(RELATIONS)},"
            f" comparators {', '.join(COMPARATORS)}"
        )
    own = {name: row[name] for name in Condition._fields}
    other = {name: row.get(f"{VERSUS}{name}") for name in Condition._fields}
    differing = {name: text for name, text in other.items() if text}
    if (row["relation"] in ("ratio", CHANGE)) != bool(differing):
        raise ValueError("ratios and changes must name what they are compared with, other relations must not")
    least, _, greatest = row["value"].partition("..")
    return PublishedFigure(
        condition=_condition(own),
        versus=_condition({**own, **differing}) if differing else None,
        least=float(least),
        greatest=float(greatest or least),
        **{name: row[name] for name in ("fact", "paper", "section", "metric", "relation", "comparator", "unit")},
    )


def _condition(row: Dict[str, str]) -> Condition:
    """A condition from text; empty fields, as for an idle board, have their defaults."""
    kinds = {"workers": int, "batch_size": int, "data_scale": float}
    given = {name: text for name, text in row.items() if text not in EMPTY}
    return Condition(**{"workload": "", **{name: kinds.get(name, str)(text) for name, text in given.items()}})
