"""Cases by conditions: a pooled frame, and queries for its cases and for pairs that differ in one condition.

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

import functools
import itertools
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)  # fmt: skip

from harness.core.boards import BOARDS, load_board
from harness.core.cases import AXES, TRAINING, Case
from harness.core.errors import InvalidValueError
from harness.core.mode_texts import DEFAULT, MAXN
from harness.core.terminal import available_hint
from harness.judge.case_frame import COLD, WARM, Row, board_of, is_left_out
from harness.store.frames import FOLLOWS_IN_CLAIMS

if TYPE_CHECKING:
    import pandas as pd

ANY_OTHER, HELD_DOWN = "*", "held-down"
"""Values that depend on the device: any other value; storage with limited reads."""

REPEATS = {"minibatches", "epochs", "idle_s", "duration_s", "seed"}
"""Comparable conditions in which runs of one case may differ."""

_SETTINGS = ("cache", "data_scale", "clocks")
FIELDS = (*(axis for axis in AXES if axis != "device"), *_SETTINGS, "task")
"""Fields that distinguish the cases of a device, and that conditions may name."""

Conditions = Dict[str, Tuple[Any, ...]]  # field of a case to the values that it may have


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


class Query:
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


def describe_change(query: Query) -> str:
    """The change, in words: `workers 1 or 4 / 0`."""

    def side(conditions: Conditions, is_named: bool = True) -> str:
        return ", ".join(f"{name} " * is_named + " or ".join(map(str, values)) for name, values in conditions.items())

    pairs = [pair for _, changing in query.alternatives for pair in changing]
    shown = list(dict.fromkeys((side(after), side(before, is_named=len(before) > 1)) for before, after in pairs))
    if query.phases[0] != query.phases[1]:
        shown.append((f"{query.phases[1]} epochs", f"{query.phases[0]} ones"))
    return "; ".join(f"{after} / {before}" for after, before in shown[:3]) + "; ..." * (len(shown) > 3)
