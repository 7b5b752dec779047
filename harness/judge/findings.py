"""A finding: effects with intervals, the bounds that a take-away sets them, and what follows: its verdict."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.stats.estimates import Estimate, Interval

CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
CONFIDENCE = 0.95


class Cell(NamedTuple):
    """One place where a take-away is looked for: a ratio, a share or another positive figure with its noise.

    Attributes:
        label: which case, in short.
        mean: the figure.
    """

    label: str
    mean: Estimate

    def interval(self, confidence: float) -> Interval:
        """The figure with its two-sided interval."""
        return self.mean.interval(confidence)


class Drawn(NamedTuple):
    """A figure that is no ratio of means, such as a correlation: made anew from figures drawn by their noise.

    Attributes:
        label: of what, in short.
        value: made of the figures as they are.
        draws: the same of the drawn figures.
    """

    label: str
    value: float
    draws: Tuple[float, ...]

    def interval(self, confidence: float) -> Interval:
        """The figure with its percentile interval; without draws it is exact."""
        if not self.draws:
            return Interval(self.value, self.value, self.value)
        low, high = np.quantile(self.draws, [0.5 - confidence / 2, 0.5 + confidence / 2])
        return Interval(self.value, min(float(low), self.value), max(float(high), self.value))


class Finding(NamedTuple):
    """What a check found.

    Attributes:
        cells: where; a take-away holds where it holds in all of them.
        effect: what each is, in words: `time with 4 workers / without`.
        above: the bound that each has to be above of.
        below: the bound that each has to be below of.
    """

    cells: Sequence[Union[Cell, Drawn]]
    effect: str
    above: float = -math.inf
    below: float = math.inf


class Judged(NamedTuple):
    """A finding's verdict, with the cell that decides it: the one that is nearest to a bound, or farthest beyond."""

    verdict: str
    label: str
    effect: float
    low: float
    high: float
    n: int


def judge(finding: Finding, confidence: float = CONFIDENCE) -> Optional[Judged]:
    """Confirmed where all intervals lie within the bounds, contradicted where one lies beyond, undecided otherwise.

    That all cells have to hold needs no correction for their number; that one contradicts does. The intervals are
    corrected by Bonferroni for both, so a take-away of many cells is confirmed with more than the confidence said.

    Returns:
        None where there is nothing to judge.
    """
    if not finding.cells:
        return None
    share = 1 - (1 - confidence) / len(finding.cells)
    found = [(cell.label, cell.interval(share)) for cell in finding.cells]
    label, worst = min(found, key=lambda one: min(one[1].low - finding.above, finding.below - one[1].high))
    if all(finding.above < one.low and one.high < finding.below for _, one in found):
        verdict = CONFIRMED
    else:
        beyond = [one for one in found if one[1].high <= finding.above or one[1].low >= finding.below]
        verdict = CONTRADICTED if beyond else UNDECIDED
        if beyond:
            label, worst = min(beyond, key=lambda one: min(one[1].low - finding.above, finding.below - one[1].high))
    return Judged(verdict, label, worst.value, worst.low, worst.high, len(found))
