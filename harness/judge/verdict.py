"""Figures of cases, their comparison with bounds, and the verdict on a claim.

    ratio(frame, "time", workers=(0, 4)) < 1

Each statistic returns `CaseFigures`: a cell with an interval for each case or pair of cases. Comparing them with a
bound (`< 1`, `> 0.5`, `.within(0.85, 1.15)`) returns `BoundedFigures`, true if they are confirmed. On a claim and a
device, the `Verdict` is recorded.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError
from harness.judge.case_frame import MEASURED, SIMULATED, Row
from harness.judge.query import FIELDS, field
from harness.stats.estimates import Drawn, Estimate, quotient

CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
CONFIDENCE = 0.95


class Bounds(NamedTuple):
    """Bounds of a claim's figures; infinite if there is none."""

    above: float = -math.inf
    below: float = math.inf


class Cell(NamedTuple):
    """The figure of one case or pair of cases, with its label and rows."""

    label: str
    figure: Union[Estimate, Drawn]
    cases: Tuple[Row, ...] = ()


class DecidingCell(NamedTuple):
    """The cell that decides the verdict on some cells: nearest to a bound, or farthest beyond it."""

    verdict: str  # `confirmed`, `contradicted` or `undecided`
    case: str  # of the deciding cell
    effect: float
    low: float  # its interval, together 95 % over all cases
    high: float
    n: int  # number of cells


def deciding_cell(cells: Sequence[Cell], bounds: Bounds, confidence: float = CONFIDENCE) -> Optional[DecidingCell]:
    """Confirmed if all intervals lie within the bounds, contradicted if one lies beyond, undecided otherwise.

    Confirmation by all cells needs no correction for their number; contradiction by one cell does. The intervals are
    corrected by Bonferroni for both, so a claim of many cells is confirmed with more than the nominal confidence.
    """
    if not cells:
        return None
    share = 1 - (1 - confidence) / len(cells)
    intervals = [(cell.label, cell.figure.interval(share)) for cell in cells]
    beyond = [pair for pair in intervals if pair[1].high <= bounds.above or pair[1].low >= bounds.below]
    label, worst = min(
        beyond or intervals, key=lambda pair: min(pair[1].low - bounds.above, bounds.below - pair[1].high)
    )
    holds = all(bounds.above < interval.low and interval.high < bounds.below for _, interval in intervals)
    verdict = CONFIRMED if holds else CONTRADICTED if beyond else UNDECIDED
    return DecidingCell(verdict, label, worst.value, worst.low, worst.high, len(intervals))


class BoundedFigures:
    """The result of comparing figures with bounds; true if confirmed.

    In the test of a claim, evaluating its truth records the verdict, and it is true unless the run's rules fail it.
    """

    def __init__(self, figures: CaseFigures, bounds: Bounds) -> None:
        self.figures, self.bounds = figures, bounds
        deciding = deciding_cell(figures.cells, bounds)
        if deciding is None:
            raise CannotRunError(figures.missing or "there are no profiles of the compared cases")
        self.deciding = deciding

    @functools.cached_property
    def _is_accepted(self) -> bool:
        decide = self.figures.decide
        return self.deciding.verdict == CONFIRMED if decide is None else decide(self)

    def __bool__(self) -> bool:
        return self._is_accepted

    def __repr__(self) -> str:
        deciding = self.deciding
        interval = f"{deciding.low:.3g} to {deciding.high:.3g}{expected(self.bounds)}"
        figure = f"{self.figures.meaning}: {deciding.effect:.3g} ({interval})"
        return f"{deciding.verdict}: {figure}, n = {deciding.n}, for {deciding.case}"


def expected(bounds: Bounds) -> str:
    """`; expected above 0.85 and below 1.15`; empty without a bound."""
    limits = [f"above {bounds.above:g}"] if bounds.above != -math.inf else []
    limits += [f"below {bounds.below:g}"] if bounds.below != math.inf else []
    return f"; expected {' and '.join(limits)}" if limits else ""


Decide = Callable[[BoundedFigures], bool]


class CaseFigures:
    """Figures of a statistic, a cell for each case or pair of cases."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        cells: Iterable[Cell],
        meaning: str,
        missing: str = "",
        named: Iterable[str] = (),
        quantity: str = "",
        against: str = "",
        decide: Optional[Decide] = None,
        board: str = "",
    ) -> None:
        self.cells = list(cells)
        self.meaning = meaning  # the figure, in words
        self.missing = missing  # why there are no cells
        self.named = frozenset(named)  # names of the given conditions, in which cells of two statistics may differ
        self.quantity, self.against = quantity, against
        self.decide = decide  # determines the truth of a comparison within the test of a claim
        self.board = board  # of the device, for bounds that differ between boards

    def __lt__(self, bound: float) -> BoundedFigures:
        return BoundedFigures(self, Bounds(below=bound))

    def __gt__(self, bound: float) -> BoundedFigures:
        return BoundedFigures(self, Bounds(above=bound))

    def within(
        self, above: float, below: float, on: Optional[Mapping[str, Tuple[float, float]]] = None
    ) -> BoundedFigures:
        """Between two bounds; `on` has those of some boards: `within(0.97, 1.03, on={"xavier-nx": (0.92, 1.08)})`."""
        return BoundedFigures(self, Bounds(*(on or {}).get(self.board, (above, below))))

    def __bool__(self) -> bool:
        raise InvalidValueError(
            f"figures of {self.meaning} are neither true nor false", "compare them with a bound: figures < 1"
        )

    def __truediv__(self, other: CaseFigures) -> CaseFigures:
        """Each figure over those of `other` whose cases agree in all conditions given to neither statistic."""
        return self._combined(other, "over the same of", lambda later, earlier: _over(earlier.figure, later.figure))

    def __sub__(self, other: CaseFigures) -> CaseFigures:
        """Each figure minus those of `other`, without noise: for counts."""
        difference = lambda later, earlier: Drawn(later.figure.value - earlier.figure.value, ())  # noqa: E731
        return self._combined(other, "less the same of", difference)

    def _combined(
        self, other: CaseFigures, word: str, combine: Callable[[Cell, Cell], Union[Estimate, Drawn]]
    ) -> CaseFigures:
        shared = [name for name in FIELDS if name not in self.named | other.named]
        cells = [
            Cell(_either_label(later.label, earlier.label), combine(later, earlier), later.cases)
            for earlier, later in itertools.product(other.cells, self.cells)
            if all(field(earlier.cases[-1], name) == field(later.cases[-1], name) for name in shared)
        ]
        meaning = f"{self.meaning}, {word} {other.meaning}" if self.meaning != other.meaning else self.meaning
        return self._replaced(cells, meaning, self.missing or other.missing)

    def _replaced(self, cells: Sequence[Cell], meaning: str, missing: str = "") -> CaseFigures:
        missing = missing or self.missing or "no two of these cases agree in all other conditions"
        return CaseFigures(cells, meaning, missing, self.named, self.quantity, self.against, self.decide, self.board)

    def least_over_greatest(self) -> CaseFigures:
        """The least figure over the greatest."""
        cells = sorted(self.cells, key=lambda cell: cell.figure.value)
        meaning = f"least / greatest of {self.meaning}"
        if len(cells) < 2:
            return self._replaced([], meaning, self.missing or "fewer than two cases to compare")
        least, greatest = cells[0], cells[-1]
        both = _over(greatest.figure, least.figure)
        return self._replaced([Cell(f"{least.label} against {greatest.label}", both, least.cases)], meaning)

    def mean(self, of: str) -> CaseFigures:
        """The mean of all figures, without their noise; `of` is a word for their cases."""
        rows = tuple(row for cell in self.cells for row in cell.cases)
        values = [cell.figure.value for cell in self.cells]
        cells = [Cell(f"{len(values)} {of}", Drawn(float(np.mean(values)), ()), rows)] if values else []
        return self._replaced(cells, self.meaning)

    def exact(self) -> CaseFigures:
        """The same figures without noise, which draws would only add to counts."""
        cells = [cell._replace(figure=Drawn(float(cell.figure.value), ())) for cell in self.cells]
        return self._replaced(cells, self.meaning)


def both(first: CaseFigures, second: CaseFigures) -> CaseFigures:
    """The cells of two statistics; a claim on the result must hold for all of them."""
    missing = first.missing if not first.cells else second.missing if not second.cells else ""
    cells = [] if missing else [*first.cells, *second.cells]
    meaning = first.meaning if first.meaning == second.meaning else f"{first.meaning}; {second.meaning}"
    return first._replaced(cells, meaning, missing)


def _either_label(later: str, earlier: str) -> str:
    return later if later == earlier else f"{later} over {earlier}"


def _over(before: Union[Estimate, Drawn], after: Union[Estimate, Drawn]) -> Union[Estimate, Drawn]:
    if isinstance(before, Estimate) and isinstance(after, Estimate):
        return quotient(before, after)
    pairs = zip(before.draws, after.draws) if isinstance(before, Drawn) and isinstance(after, Drawn) else ()
    return Drawn(after.value / before.value, tuple(later / earlier for earlier, later in pairs))


def exactly(label: str, figure: float, *cases: Row) -> Cell:
    """A cell without noise."""
    return Cell(label, Drawn(float(figure), ()), cases)


class Verdict(NamedTuple):
    """The verdict of the profiles of one device on one claim."""

    experiment: str  # `benchmarks/test_EXPERIMENT.py` measures what it needs
    takeaway: str  # the claim's name
    section: str  # paper and section, such as `004 5.1.7`
    says: str  # the claim and how it is judged
    device: str  # whose profiles were judged
    verdict: str  # as in `DecidingCell`, like the deciding figure, its interval, case and n
    effect: float
    low: float
    high: float
    above: float  # the bounds; infinite if open
    below: float
    meaning: str  # of the figure, in words
    case: str
    n: int
    provenance: str  # of the profiles
    # the reason why a simulated board deviates, if it is a known deviation; None if it should agree, if it deviates
    # otherwise, and for measurements
    shortfall: Optional[str]
    left_out: int = 0  # disturbed or throttled profiles of the device, which were not used
    # the noise between runs on the device, as included in the interval, and whether it was learned from repeated cases
    # or assumed
    between_runs: str = ""
    apart: str = ""  # how a measured device differs from those of the paper, or empty
    fitted: str = ""  # how the judged simulation depends on the claim, or empty
    quantity: str = ""  # of a ratio, and the reference board of the ratio
    against: str = ""
    of_run: bool = False  # whether only a run has its figures, so that it cannot be judged again by a results file

    @property
    def must_hold(self) -> bool:
        """Whether anything but confirmation is an error of the suite: on a simulated board without known shortfall."""
        return self.provenance == SIMULATED and self.shortfall is None

    @property
    def is_violated(self) -> bool:
        """Whether it fails its expectation: contradicted by a measurement, or not confirmed although it must hold."""
        if self.provenance == MEASURED:
            return self.verdict == CONTRADICTED
        return self.must_hold and self.verdict != CONFIRMED

    def fails(self, is_asserted: bool) -> bool:
        """Whether it fails a run: contradicted by a simulated board, or any violation with `--assert-takeaways`."""
        return self.is_violated and (is_asserted or (self.must_hold and self.verdict == CONTRADICTED))

    @property
    def text(self) -> str:
        notes = [self.fitted] if self.fitted else []
        if self.provenance == MEASURED:
            notes += [f"runs differ in {self.between_runs}"] * bool(self.between_runs) + [self.apart] * bool(self.apart)
        return (
            f"{self.verdict}: {self.takeaway} (paper {self.section}) on {self.device}: "
            f"{self.meaning}: {self.effect:.3g}"
            f" ({self.low:.3g} to {self.high:.3g}{expected(Bounds(self.above, self.below))}),"
            f" n = {self.n}, for {'; '.join([self.case, *notes])}"
        )
