"""Statistics of measured cases as plain functions of a frame; compared with a bound, they give verdicts.

    frame = pooled(read_frame(store))
    ratio(frame, "time", workers=(0, 4), workload=PAPERS, device="orin-agx") < 1

`frame` has a row for each case (`harness.judge.case_frame.pooled`); a `Cases` of such a frame is accepted too. Each
function returns `CaseFigures`: a cell with an interval for each case or pair of cases. Comparing them with a bound
(`< 1`, `> 0.5`, `.within(0.85, 1.15)`) returns a `Judgement`: confirmed, contradicted or undecided.

Conditions are keyword arguments with the names of a case's axes and settings: `workload`, `power_mode`, `workers`,
`storage`, `batch_size`, `cache`, `data_scale`, `clocks`, `task` (default: training).

    workers=4, workers=[1, 4]      this value, or any of these
    workers=(0, 4)                 a change: the ratio is 4 workers over none, everything else equal
    workers=(0, [1, 4])            to each of these
    batch_size=[(1, 2), (2, 4)]    several comparisons
    epochs="cold"                  epoch 0 instead of later ones; ("cold", "warm"): later ones over epoch 0
    where=f                        a predicate on rows that each case must satisfy
    either=[{...}, {...}]          sets of further conditions, at least one of which must hold
    device="sim:nano"              only this device (default: all in the frame)

`DEFAULT` is the papers' default power mode of the board, `HELD_DOWN` a medium with limited reads. In
`(value, ANY_OTHER)`, `ANY_OTHER` is every other value that the device has.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)  # fmt: skip

import numpy as np

from harness.core.boards import BOARDS, load_board
from harness.core.cases import AXES, INSTANCE_MARK, TRAINING, Case
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.mode_texts import DEFAULT, MAXN
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.core.units import mw_to_w
from harness.judge.case_frame import (
    COLD,
    MEASURED,
    QUANTITIES,
    SIMULATED,
    WARM,
    Row,
    board_of,
    case_of,
    estimate_of,
    is_left_out,
)  # fmt: skip
from harness.judge.published_figures import PrintedRatio, comparisons
from harness.stats.estimates import DRAWS, Drawn, Estimate, drawn, quotient
from harness.stats.experiments import LENGTHS
from harness.store.frames import FOLLOWS_IN_CLAIMS

if TYPE_CHECKING:
    import pandas as pd

CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
CONFIDENCE = 0.95

ANY_OTHER, HELD_DOWN = "*", "held-down"
"""Values that depend on the device: any other value; storage with limited reads."""

REPEATED = 5  # with fewer epochs, their variation cannot be estimated
LEAST_BOARDS = 3  # with fewer boards, the variation between boards of a type cannot be estimated
ENOUGH_MODES = 20  # fewer modes do not represent the range of all
SHORT, USUAL = LENGTHS[0], LENGTHS[-1]

REPEATS = {"minibatches", "epochs", "idle_s", "duration_s", "seed"}
"""Comparable conditions in which runs of one case may differ."""

_SETTINGS = ("cache", "data_scale", "clocks")
FIELDS = (*(axis for axis in AXES if axis != "device"), *_SETTINGS, "task")
"""Fields that distinguish the cases of a device, and that conditions may name."""

Conditions = Dict[str, Tuple[Any, ...]]  # field of a case to the values that it may have


class Bounds(NamedTuple):
    """Bounds of a claim's figures; infinite if there is none."""

    above: float = -math.inf
    below: float = math.inf


class Cell(NamedTuple):
    """The figure of one case or pair of cases, with its label and rows."""

    label: str
    figure: Union[Estimate, Drawn]
    cases: Tuple[Row, ...] = ()


class Judged(NamedTuple):
    """The verdict on some cells, with the deciding cell: nearest to a bound, or farthest beyond it."""

    verdict: str  # `confirmed`, `contradicted` or `undecided`
    case: str  # of the deciding cell
    effect: float
    low: float  # its interval, together 95 % over all cases
    high: float
    n: int  # number of cells


def judge_cells(cells: Sequence[Cell], bounds: Bounds, confidence: float = CONFIDENCE) -> Optional[Judged]:
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
    return Judged(verdict, label, worst.value, worst.low, worst.high, len(intervals))


class Judgement:
    """The result of comparing figures with bounds; true if confirmed.

    In the test of a claim, evaluating its truth records the verdict, and it is true unless the run's rules fail it.
    """

    def __init__(self, figures: CaseFigures, bounds: Bounds) -> None:
        self.figures, self.bounds = figures, bounds
        judged = judge_cells(figures.cells, bounds)
        if judged is None:
            raise CannotRunError(figures.missing or "there are no profiles of the compared cases")
        self.judged = judged

    @functools.cached_property
    def _is_accepted(self) -> bool:
        decide = self.figures.decide
        return self.judged.verdict == CONFIRMED if decide is None else decide(self)

    def __bool__(self) -> bool:
        return self._is_accepted

    def __repr__(self) -> str:
        judged = self.judged
        interval = f"{judged.low:.3g} to {judged.high:.3g}{expected(self.bounds)}"
        figure = f"{self.figures.meaning}: {judged.effect:.3g} ({interval})"
        return f"{judged.verdict}: {figure}, n = {judged.n}, for {judged.case}"


def expected(bounds: Bounds) -> str:
    """`; expected above 0.85 and below 1.15`; empty without a bound."""
    limits = [f"above {bounds.above:g}"] if bounds.above != -math.inf else []
    limits += [f"below {bounds.below:g}"] if bounds.below != math.inf else []
    return f"; expected {' and '.join(limits)}" if limits else ""


Decide = Callable[[Judgement], bool]


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
        self.decide = decide  # determines a judgement's truth within the test of a claim
        self.board = board  # of the device, for bounds that differ between boards

    def __lt__(self, bound: float) -> Judgement:
        return Judgement(self, Bounds(below=bound))

    def __gt__(self, bound: float) -> Judgement:
        return Judgement(self, Bounds(above=bound))

    def within(self, above: float, below: float, on: Optional[Mapping[str, Tuple[float, float]]] = None) -> Judgement:
        """Between two bounds; `on` has those of some boards: `within(0.97, 1.03, on={"xavier-nx": (0.92, 1.08)})`."""
        return Judgement(self, Bounds(*(on or {}).get(self.board, (above, below))))

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


def field(row: Row, name: str) -> Any:
    """The value of a condition in a row's case; a power mode by its name."""
    case = row.case
    if name == "power_mode":
        return case.power_mode.name
    return getattr(case.settings if name in _SETTINGS else case, name)


def label_of(row: Row) -> str:
    """The case's id without its device."""
    case = row.case
    return case.id[len(case.device) + 1 :]


@functools.lru_cache(maxsize=None)
def default_mode(board: str) -> str:
    """The name in cases of the papers' power mode of a board; `maxn` for any other machine."""
    return load_board(board).power_modes(DEFAULT)[0][0] if board in BOARDS and load_board(board).papers_mode else MAXN


class CasesOfDevice:
    """The cases of one device, with lookups of cases that differ in one condition and agree in the others."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        """Take the rows of the device, pooled.

        If a workload was run with a requested data set size, its cases with the small default set are not used: the
        start and end of their short epochs take too large a share.
        """
        self.name, self.board, self.provenance = name, board_of(rows[0]), rows[0].provenance
        self.left_out = [row for row in rows if is_left_out(row)]  # disturbed or throttled
        own = [row for row in rows if not is_left_out(row)]
        sized = {_sized_like(row.case) for row in own if field(row, "data_scale") is not None} - {None}
        self.rows = [row for row in own if field(row, "data_scale") is not None or _sized_like(row.case) not in sized]
        self.run_noise = self.rows[0].run_noise if self.rows else {}
        self.fields = [{name: field(row, name) for name in FIELDS} for row in self.rows]
        # Storage with limited reads: a fast medium that emulates a slow one.
        limited = {row.case.storage for row in self.rows if row.conditions.get("storage_limit_bytes_per_s")}
        self.held_down = tuple(sorted(limited))
        self._by_fields: Dict[Tuple[Any, ...], List[Row]] = {}
        for row, fields in zip(self.rows, self.fields):
            self._by_fields.setdefault(tuple(fields.values()), []).append(row)

    def resolve(self, conditions: Conditions) -> Conditions:
        """Conditions with the values that depend on the device."""
        resolved = dict(conditions)
        if resolved.get("power_mode") == (DEFAULT,):
            resolved["power_mode"] = (default_mode(self.board),)
        if resolved.get("storage") == (HELD_DOWN,):
            resolved["storage"] = self.held_down
        return resolved

    def where(self, conditions: Conditions) -> List[Row]:
        """Rows whose cases have one of these values in each field; training cases unless a task is given."""
        wanted = {"task": (TRAINING,), **self.resolve(conditions)}
        return [
            row
            for row, fields in zip(self.rows, self.fields)
            if all(fields[name] in values for name, values in wanted.items())
        ]

    def like(self, row: Row, changes: Mapping[str, Any], named: Iterable[str] = ()) -> Optional[Row]:
        """The case that has the changed conditions and agrees in all others, except those in `named`."""
        differing = {*changes, *named}
        open_names = REPEATS | differing | {name for thing in differing for name in FOLLOWS_IN_CLAIMS.get(thing, ())}
        fields = {name: field(row, name) for name in FIELDS}
        for other in self._by_fields.get(tuple({**fields, **changes}.values()), ()):
            names = {*row.comparable, *other.comparable} - open_names
            if all(row.comparable.get(name) == other.comparable.get(name) for name in names):
                return other
        return None

    def changes(self, row: Row, after: Conditions) -> Iterator[Dict[str, Any]]:
        """Every combination of the second case's values; `ANY_OTHER` becomes the other values of this device."""
        options = []
        for name, values in self.resolve(after).items():
            if values == (ANY_OTHER,):
                values = tuple(sorted({fields[name] for fields in self.fields} - {None, field(row, name)}))
                if name == "storage":  # without throttled media, which may be slower than any real one
                    values = tuple(value for value in values if value not in self.held_down)
            options.append([(name, value) for value in values])
        return (dict(change) for change in itertools.product(*options))


def _sized_like(case: Case) -> Optional[Tuple[str, str, str]]:
    """Groups cases on which the size of the data set has the same effect; None for a warm cache, which hides it."""
    return None if case.settings.cache == WARM else (case.task, case.workload, case.settings.cache)


class Cases:
    """A pooled frame, prepared for many statistics; no cases without a frame."""

    def __init__(self, frame: Optional[pd.DataFrame] = None) -> None:
        rows: Dict[str, List[Row]] = {}
        for row in () if frame is None else frame.itertuples():
            rows.setdefault(row.device_label, []).append(row)
        self.devices = {name: CasesOfDevice(name, own) for name, own in rows.items()}

    def of(self, device: Optional[str]) -> List[CasesOfDevice]:
        """One device, or none if it has no cases; or all devices."""
        return [item for name, item in self.devices.items() if device in (None, name)]

    def left_out(self, device: str) -> int:
        """The number of disturbed or throttled profiles of a device, which are not used."""
        return sum(len(row.profile_ids) for item in self.of(device) for row in item.left_out)


Frame = Union["pd.DataFrame", Cases]


def cases_of(frame: Frame) -> Cases:
    return frame if isinstance(frame, Cases) else Cases(frame)


class _Query:
    """Parsed conditions: those that both cases share, those that change, and the devices."""

    def __init__(self, frame: Frame, conditions: Mapping[str, Any]) -> None:
        given = dict(conditions)
        self.cases = cases_of(frame)
        self.device: Optional[str] = given.pop("device", None)
        self.devices = self.cases.of(self.device)
        self.holds: Callable[[Row], bool] = given.pop("where", None) or (lambda row: True)
        epochs = given.pop("epochs", WARM)
        self.phases: Tuple[str, str] = epochs if isinstance(epochs, tuple) else (epochs, epochs)
        if not {*self.phases} <= {WARM, COLD}:
            raise InvalidValueError(f"epochs={epochs!r}", f"{WARM!r}, {COLD!r} or a pair of both")
        alternatives: Sequence[Mapping[str, Any]] = given.pop("either", ({},))
        self.alternatives = [_split({**given, **own}) for own in alternatives]
        self.named = {name for shared, _ in self.alternatives for name in shared}

    def rows(self, device: CasesOfDevice) -> List[Row]:
        """The rows of a device that satisfy the conditions."""
        return [row for shared, _ in self.alternatives for row in device.where(shared) if self.holds(row)]

    def pairs(self, device: CasesOfDevice) -> Iterator[Tuple[Row, Row]]:
        for shared, changing in self.alternatives:
            for before, after in changing or [({}, {})]:
                for row in device.where({**shared, **before}):
                    for change in device.changes(row, after):
                        other = device.like(row, change)
                        if other is not None and self.holds(row) and self.holds(other):
                            yield row, other

    def pairs_against(self, device: CasesOfDevice, boards: Sequence[str]) -> Iterator[Tuple[Row, Row]]:
        """Cases of the first device of another board with the same case of this device, each in its default mode."""
        others = [other for other in self.cases.devices.values() if other.board in boards]
        for shared, _ in self.alternatives if others and device.board not in boards else ():
            for mine in device.where(shared):
                theirs = others[0].like(mine, {"power_mode": default_mode(others[0].board)}, ["device"])
                if theirs is not None:
                    yield theirs, mine

    @property
    def board(self) -> str:
        return self.devices[0].board if len(self.devices) == 1 else ""

    def figures(
        self, cells: Sequence[Cell], meaning: str, is_unmeasured: bool = False, quantity: str = "", against: str = ""
    ) -> CaseFigures:
        missing = ""
        if not cells:
            name = self.device or "no device"
            missing = f"{name} has no profiles of the compared cases"
            if is_unmeasured:
                missing = f"no verdict without a sensor: the profiles of {name} have no {quantity}"
        return CaseFigures(cells, meaning, missing, self.named, quantity, against, board=self.board)


def _split(conditions: Mapping[str, Any]) -> Tuple[Conditions, List[Tuple[Conditions, Conditions]]]:
    """The conditions that both cases share, and for each comparison those of the first and of the second case."""
    shared: Conditions = {}
    changing: Dict[str, List[Tuple[Any, Any]]] = {}
    for name, value in conditions.items():
        if name not in FIELDS:
            raise InvalidValueError(f"{name!r} is not a condition", available_hint(name, FIELDS))
        if isinstance(value, tuple):
            changing[name] = [value]
        elif isinstance(value, list) and any(isinstance(item, tuple) for item in value):
            changing[name] = value
        else:
            shared[name] = _values(value)
    if any(len(pair) != 2 for pairs in changing.values() for pair in pairs):
        raise InvalidValueError(
            f"{conditions!r}: a change is a pair, (before, after)", "give several values as a list: workers=[0, 1, 4]"
        )
    count = max(map(len, changing.values()), default=0)
    pairs = {name: own * count if len(own) == 1 else own for name, own in changing.items()}
    if any(len(own) != count for own in pairs.values()):
        raise InvalidValueError(
            f"{conditions!r}: the conditions have different numbers of changes", "give the same number of each, or one"
        )

    def of_side(place: int, side: int) -> Dict[str, Tuple[Any, ...]]:
        return {name: _values(own[place][side]) for name, own in pairs.items()}

    return shared, [(of_side(place, 0), of_side(place, 1)) for place in range(count)]


def _values(value: Any) -> Tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, set, frozenset)) else (value,)


def _describe_change(query: _Query) -> str:
    """The change, in words: `workers 1 or 4 / 0`."""

    def side(conditions: Conditions, is_named: bool = True) -> str:
        return ", ".join(f"{name} " * is_named + " or ".join(map(str, values)) for name, values in conditions.items())

    pairs = [pair for _, changing in query.alternatives for pair in changing]
    shown = list(dict.fromkeys((side(after), side(before, is_named=len(before) > 1)) for before, after in pairs))
    if query.phases[0] != query.phases[1]:
        shown.append((f"{query.phases[1]} epochs", f"{query.phases[0]} ones"))
    return "; ".join(f"{after} / {before}" for after, before in shown[:3]) + "; ..." * (len(shown) > 3)


# -- values and ratios -------------------------------------------------------------------------------------------------


def value(frame: Frame, quantity: str, **conditions: Any) -> CaseFigures:
    """A quantity of each case that satisfies the conditions, in the unit of `harness.judge.case_frame.QUANTITIES`."""
    query = _Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device)]
    figures = [(row, estimate_of(row, _checked_quantity(quantity), query.phases[1])) for row in rows]
    cells = [Cell(label_of(row), figure, (row,)) for row, figure in figures if figure is not None]
    return query.figures(cells, QUANTITIES[quantity], bool(rows), quantity)


def _checked_quantity(quantity: str) -> str:
    if quantity not in QUANTITIES:
        raise InvalidValueError(f"{quantity!r} is not a quantity", available_hint(quantity, QUANTITIES))
    return quantity


def ratio(
    frame: Frame,
    *quantities: str,
    per_sample: bool = False,
    against: Union[str, Sequence[str]] = (),
    **conditions: Any,
) -> CaseFigures:
    """The second case over the first, for all pairs that differ by the given change and agree in everything else.

    `per_sample` divides times by the batch size. `against` compares with the case of another board instead of with a
    change: `against="orin-agx"` is the time on this device over that on Orin AGX, each in its default power mode.
    """
    query = _Query(frame, conditions)
    boards = (against,) if isinstance(against, str) else tuple(against)
    is_across = bool(boards)
    pairs = [
        pair
        for device in query.devices
        for pair in (query.pairs_against(device, boards) if is_across else query.pairs(device))
    ]
    cells = []
    for quantity, (row, other) in itertools.product(map(_checked_quantity, quantities), pairs):
        ratio = _ratio(row, other, quantity, query.phases)
        if ratio is not None:
            shown = _per_sample(ratio, row, other) if per_sample else ratio
            cells.append(Cell(label_of(other), shown, (row, other)))
    what = f"{' and '.join(quantities)}{' per sample' * per_sample}"
    meaning = f"{what}, {f'here / on {boards[0]}' if is_across else _describe_change(query)}"
    return query.figures(cells, meaning, bool(pairs), " or ".join(quantities), boards[0] if is_across else "")


def _ratio(row: Row, other: Row, quantity: str, phases: Tuple[str, str]) -> Optional[Estimate]:
    first, second = estimate_of(row, quantity, phases[0]), estimate_of(other, quantity, phases[1])
    return None if first is None or second is None or not first.value else quotient(first, second)


def _per_sample(figure: Estimate, row: Row, other: Row) -> Estimate:
    return figure._replace(value=figure.value * row.case.batch_size / other.case.batch_size)


def time_over_data_sizes(frame: Frame, **conditions: Any) -> CaseFigures:
    """Time with one size of the data set over time with another; a simulated board has only the papers' cases."""
    query = _Query(frame, conditions)
    cells: List[Cell] = []
    for device in query.devices:
        own = {**conditions, "device": device.name}
        rows = query.rows(device)
        scales = sorted({field(row, "data_scale") for row in rows} - {None})
        if device.provenance == SIMULATED:
            own.update(workload="mobilenetv3-gld23k", workers=4, power_mode=DEFAULT)
            scales = [scale for scale in (1.0, 0.25, 4.0) if scale in scales]
        if len(scales) > 1:
            cells += ratio(query.cases, "time", data_scale=[(scales[0], other) for other in scales[1:]], **own).cells
    return query.figures(cells, "time per minibatch / with another size of the data set", quantity="time")


def watts_saved(frame: Frame, **conditions: Any) -> CaseFigures:
    """Power that the second case saves compared with the first, in W."""
    query, cells = _Query(frame, conditions), []
    pairs = [(device, pair) for device in query.devices for pair in query.pairs(device)]
    for device, (row, other) in pairs:
        powers = [
            estimate for estimate in (estimate_of(each, "power") for each in (row, other)) if estimate is not None
        ]
        if len(powers) == 2:
            label = f"{device.name} {row.case.power_mode.name}"
            saved = drawn(label, [[power] for power in powers], lambda held, free: mw_to_w(float(held[0] - free[0])))
            cells.append(Cell(label, saved, (row, other)))
    return query.figures(cells, f"W saved, {_describe_change(query)}", bool(pairs), "power")


# -- what the papers print ---------------------------------------------------------------------------------------------


def as_printed(frame: Frame, *facts: str, device: Optional[str] = None) -> CaseFigures:
    """A device's ratios over those printed for its board: 1 within a printed range, else over its nearer end.

    `facts` are ids in `baselines/published/figures.csv` of a ratio or a change, or `F919/F918`, one value over another.
    """
    query = _Query(frame, {"device": device})
    cells = []
    for own in query.devices:
        for fact in facts:
            for printed in comparisons(fact):
                if printed.after.device == own.board:
                    cells += [_over_printed(fact, printed, cell) for cell in _measured_ratio(query, own, printed)]
    return query.figures(cells, "ratio / the paper's")


def _over_printed(fact: str, printed: PrintedRatio, cell: Cell) -> Cell:
    nearest = min(max(cell.figure.value, printed.least), printed.greatest)
    return Cell(f"{fact}, {cell.label}", cell.figure._replace(value=cell.figure.value / nearest), cell.cases)


PER_EPOCH = {"epoch_time": "time", "stall_time": "stall", "compute_time": "compute", "energy": "energy"}
PER_MINIBATCH = {
    "minibatch_stall": "stall",
    "minibatch_compute": "compute",
    "power": "power",
    "gpu_utilisation": "gpu_load",
}
"""Metric of a printed figure to quantity."""


def _measured_ratio(query: _Query, device: CasesOfDevice, printed: PrintedRatio) -> List[Cell]:
    """The ratio in profiles of a device, from all pairs of cases that match the paper."""
    axes = ("workers", "storage", "batch_size", "power_mode", "clocks")
    conditions = (printed.before, printed.after)
    cold = [condition.cache == COLD for condition in conditions]
    before, after = ({name: getattr(condition, name) for name in axes} for condition in conditions)
    shared: Dict[str, Any] = {"workload": printed.after.workload, "cache": COLD if any(cold) else [WARM, COLD]}
    scales = [condition.data_scale for condition in conditions]
    if scales[0] == scales[1]:
        shared["data_scale"] = [None, 1.0] if scales[0] == 1.0 else scales[0]
    else:
        before["data_scale"], after["data_scale"] = scales
    shared.update((name, before[name]) for name in before if before[name] == after[name])
    changes: Dict[str, Any] = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    epochs = tuple(COLD if is_cold else WARM for is_cold in cold)
    quantity = {**PER_EPOCH, **PER_MINIBATCH}[printed.metric]
    measured = ratio(query.cases, quantity, device=device.name, epochs=epochs, **shared, **changes)
    if printed.metric not in PER_EPOCH:
        return measured.cells
    factor = scales[1] / scales[0]
    return [cell._replace(figure=cell.figure._replace(value=cell.figure.value * factor)) for cell in measured.cells]


# -- repetitions, boards, heat -----------------------------------------------------------------------------------------


def over_epochs(frame: Frame, statistic: Callable[..., Any], **conditions: Any) -> CaseFigures:
    """A statistic of the epoch times of each case with at least `REPEATED`; `statistic(times, axis)`, as in NumPy."""
    query = _Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device)]
    cells = [_bootstrapped(row, row.epochs_s, statistic) for row in rows if len(row.epochs_s) >= REPEATED]
    return query.figures(cells, f"{_in_words(statistic)} of epoch times")


def _in_words(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", " ")


def _bootstrapped(row: Row, values: Sequence[float], statistic: Callable[..., Any]) -> Cell:
    """A statistic of independent values, with draws by bootstrap."""
    array, generator = np.array(values), np.random.default_rng(len(values))
    draws = statistic(array[generator.integers(len(array), size=(DRAWS, len(array)))], axis=1)
    return Cell(case_of(row).id, Drawn(float(statistic(array, axis=0)), tuple(draws.tolist())), (row,))


def coefficient_of_variation(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.std(values, axis=axis, ddof=1) / np.mean(values, axis=axis)


def greatest_over_least(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.max(values, axis=axis) / np.min(values, axis=axis)


def over_boards(frame: Frame, statistic: Callable[..., Any], quantity: str, **conditions: Any) -> CaseFigures:
    """A statistic of a quantity over the boards of a type, with at least `LEAST_BOARDS`: a cell of the first board.

    It uses the case that most of the boards have run.
    """
    query, cells = _Query(frame, conditions), []
    for device in query.devices:
        name = device.name.partition(INSTANCE_MARK)[0]
        family = [own for own in query.cases.devices.values() if own.name.partition(INSTANCE_MARK)[0] == name]
        runs: Dict[Case, List[Tuple[Row, Estimate]]] = {}
        for member in family if family[0] is device else ():
            for row in query.rows(member):
                estimate = estimate_of(row, _checked_quantity(quantity))
                if estimate is not None and len(row.epochs_s) >= REPEATED:
                    runs.setdefault(dataclasses.replace(row.case, device=name), []).append((row, estimate))
        boards = max(runs.values(), key=len, default=[])
        if len(boards) >= LEAST_BOARDS:
            label = f"{boards[0][0].case.workload} on {len(boards)} boards"
            figure = drawn(label, [[estimate for _, estimate in boards]], lambda values: float(statistic(values)))
            cells.append(Cell(label, figure, tuple(row for row, _ in boards)))
    return query.figures(cells, f"{_in_words(statistic)} {quantity} between boards")


def throttled_share(frame: Frame, **conditions: Any) -> CaseFigures:
    """Share of throttled training cases among those with a throttling sensor, left-out profiles included."""
    query, cells = _Query(frame, conditions), []
    for device in query.devices:
        trained = [*query.rows(device), *(row for row in device.left_out if row.case.task == TRAINING)]
        watched = [row for row in trained if any(name.startswith("throttle_") for name in row.channels)]
        throttled = {case_of(row) for row in trained if "throttled" in row.flag_kinds}
        cases = {case_of(row) for row in watched} | throttled
        if device.provenance == MEASURED and cases:
            cells.append(exactly(f"{len(cases)} cases", len(throttled) / len(cases), *watched))
    return query.figures(cells, "share of throttled cases", True, "sensor of throttling")


# -- over power modes --------------------------------------------------------------------------------------------------


class ProfiledModes(NamedTuple):
    """The power modes of a statistic."""

    names: List[str]
    settings: np.ndarray  # cores and clocks, shape (modes, 4)

    @property
    def cpu_khz(self) -> np.ndarray:
        return self.settings[:, PowerMode._fields.index("cpu_khz")]


def over_modes(
    frame: Frame,
    statistic: Callable[..., float],
    *quantities: str,
    papers_range: bool = False,
    complete: bool = False,
    **conditions: Any,
) -> CaseFigures:
    """A statistic over power modes, a cell for each workload.

    It covers the given modes, all of which must be profiled, or by default all profiled modes, at least `ENOUGH_MODES`.
    `statistic(modes, values, ...)` takes `ProfiledModes` and an array of each quantity; NaN gives no cell.
    `papers_range` leaves out modes below the CPU clocks of the papers' grid. With `complete` there are cells of all
    workloads or none.
    """
    query, cells = _Query(frame, conditions), []
    least = min(mode.cpu_khz for _, mode in load_board("orin-agx").power_modes("grid:paper")) if papers_range else 0
    is_unmeasured = False
    for device, workload in itertools.product(query.devices, query.alternatives[0][0]["workload"]):
        rows = [row for row in query.rows(device) if row.case.workload == workload]
        by_mode = {row.case.power_mode.name: row for row in rows if row.conditions["power_mode"]["cpu_khz"] >= least}
        wanted = query.alternatives[0][0].get("power_mode", tuple(by_mode))
        if set(by_mode) != set(wanted) or ("power_mode" not in query.named and len(wanted) < ENOUGH_MODES):
            continue
        own = [by_mode[name] for name in wanted]
        series: List[List[Estimate]] = []
        for quantity in quantities:
            estimates = [estimate_of(row, _checked_quantity(quantity)) for row in own]
            series.append([estimate for estimate in estimates if estimate is not None])
        if any(len(estimates) < len(own) for estimates in series):
            is_unmeasured = True
            continue
        settings = [[row.conditions["power_mode"][name] for name in PowerMode._fields] for row in own]
        modes = ProfiledModes(list(wanted), np.array(settings, dtype=float))
        figure = drawn(f"{device.name} {workload}", series, functools.partial(statistic, modes))
        label = f"{workload}, {len(own)} modes" if papers_range else workload
        cells += [Cell(label, figure, tuple(own))] if not math.isnan(figure.value) else []
    if complete and len(cells) < len(query.alternatives[0][0]["workload"]):
        cells = []
    meaning = f"{_in_words(statistic)} of {' and '.join(quantities)} over power modes"
    return query.figures(cells, meaning, is_unmeasured, " or ".join(quantities))


def correlation(frame: Frame, first: str, second: str, **conditions: Any) -> CaseFigures:
    """The correlation of the logarithms of two quantities over power modes."""

    def correlation_of_logarithms(modes: ProfiledModes, first: np.ndarray, second: np.ndarray) -> float:
        return float(np.corrcoef(np.log(first), np.log(second))[0, 1])

    return over_modes(frame, correlation_of_logarithms, first, second, **conditions)


# -- the length of a profile -------------------------------------------------------------------------------------------


def error_of_short_profiles(frame: Frame, quantity: str, **conditions: Any) -> CaseFigures:
    """The mean error of the time or power of disjoint stretches of ten minibatches, for each long profile."""
    query, cells = _Query(frame, conditions), []
    for row in (row for device in query.devices for row in query.rows(device) if SHORT in row.stretches):
        errors = np.array(getattr(row.stretches[SHORT], f"{quantity}_errors")[::SHORT])
        errors = errors[~np.isnan(errors)]
        if len(errors) > 1:
            cells.append(_bootstrapped(row, errors, np.mean))
    return query.figures(cells, f"error of the {quantity} of ten minibatches")


def share_without_power_sample(
    frame: Frame, length: int, shorter_than_s: float = math.inf, **conditions: Any
) -> CaseFigures:
    """Share of the stretches of a length without a power sample, for profiles whose stretches take less than a time."""
    query = _Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device) if length in row.stretches]
    cells = [
        exactly(case_of(row).id, row.stretches[length].without_power, row)
        for row in rows
        if estimate_of(row, "power") is not None and np.median(row.stretches[length].seconds) < shorter_than_s
    ]
    is_blind = bool(rows) and all(estimate_of(row, "power") is None for row in rows)
    return query.figures(cells, f"share of {length} minibatches without a power sample", is_blind, "power")


STATISTICS: Dict[str, Callable[..., CaseFigures]] = {
    statistic.__name__: statistic
    for statistic in (
        *(value, ratio, time_over_data_sizes, watts_saved, as_printed, over_epochs, over_boards, throttled_share),
        *(over_modes, correlation, error_of_short_profiles, share_without_power_sample),
    )
}
"""The statistics that are fixtures of a claim's test, by name."""
