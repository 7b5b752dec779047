"""`replay:CORPUS.csv`: a device that returns the recorded profile of a case from a corpus, at once."""

from __future__ import annotations

import contextlib
import hashlib
import re
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from harness.core.boards import load_board
from harness.core.campaigns import Sweep
from harness.core.capability import Capability
from harness.core.cases import Case, CaseSettings
from harness.core.corpus import CASE_COLUMNS, CONTRADICTION, CORPUS_COLUMNS, POWER_LIMIT, Row, read_corpus, rows_of
from harness.core.device import Identity
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.measured_tables import corpus_file
from harness.core.metrics import AGGREGATES
from harness.core.mode_texts import MAXN, NamedModes, parse_power_modes
from harness.core.power_modes import PowerMode, RecordedSpace
from harness.core.profiles import Profile, Telemetry, wall_clock
from harness.core.terminal import available_hint, counted
from harness.core.units import mw_to_w, w_to_mw

PREFIX = "replay:"
DEVICE_MARK = "@"  # between the file and a device, where the corpus holds several: `replay:FILE.csv@orin-agx`
SELECTING = ("workers", "storage")  # axes that only some corpora have as columns; otherwise None in every case
_NEXT_FLAG = re.compile(r"; (?=[a-z-]+: )")  # between the flags of an exported row


class ReplayDevice:
    """A corpus as a device: its power modes are those of the rows, a profile is a row."""

    provenance = "replayed"
    board_instance: Optional[str] = None  # a corpus may hold rows of several
    clocks_only_fall = False

    def __init__(self, text: str) -> None:
        """`text` is a corpus file or a name of `load_table`, followed by `@DEVICE` where it holds several devices."""
        file, mark, chosen = text.rpartition(DEVICE_MARK)
        if not mark or Path(text).expanduser().exists():  # the file name itself contains the mark
            file, chosen = text, ""
        self.path = corpus_file(Path(file).expanduser())
        rows = rows_of(read_corpus(self.path))
        if not rows:
            raise InvalidValueError(f"{self.path} holds no row", "give a corpus with profiles")
        self.board, devices = chosen or rows[0]["device"], {row["device"] for row in rows}
        if self.board not in devices:
            hint = available_hint(chosen, sorted(devices))
            raise UnknownNameError(f"{self.path} holds no profile of {chosen!r}", hint)
        if not chosen and len(devices) > 1:
            what = f"{self.path} holds profiles of several devices: {_values(rows, 'device')}"
            raise InvalidValueError(what, f"choose one: device='{PREFIX}{self.path}{DEVICE_MARK}{self.board}'")
        self._rows = [row for row in rows if row["device"] == self.board]
        self.name = PREFIX + self.path.name + (DEVICE_MARK + chosen if chosen else "")
        self._sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self._silent = [axis for axis in SELECTING if axis not in self._rows[0]]
        self._spaces: Dict[str, RecordedSpace] = {}
        self._by_mode: Dict[Tuple[Any, ...], List[Row]] = {}
        for row in self._rows:
            self._by_mode.setdefault((row["task"], row["workload"], row["batch_size"], _mode(row)), []).append(row)

    @property
    def settable_limits_mw(self) -> Tuple[int, ...]:
        """The power limits of the rows, ascending; empty unless all rows have one."""
        limits_mw = [row.get(POWER_LIMIT.name) for row in self._rows]
        limited = {int(limit_mw) for limit_mw in limits_mw if limit_mw is not None}
        return () if None in limits_mw else tuple(sorted(limited))

    def identity(self) -> Identity:
        specification = {"board": self.board, "corpus": self.path.name, "sha256": self._sha256}
        return Identity(f"replay of {self.board}", specification)

    def narrow(self, sweep: Sweep, is_chosen: bool) -> Sweep:
        """The part of a sweep that can be replayed; unless they were chosen, workloads are those of the corpus."""
        # Axes that are not columns of the corpus collapse to None, and settings to the defaults.
        axes = {**sweep.axes, "device": (self.name,), **dict.fromkeys(self._silent, (None,))}
        if not is_chosen:
            for axis in ("workload", "batch_size"):
                axes[axis] = tuple(dict.fromkeys(row[axis] for row in self._rows))
        return Sweep(axes, CaseSettings())

    def power_mode_space(self) -> RecordedSpace:
        return self._space("")

    def _space(self, workload: str) -> RecordedSpace:
        """The recorded modes of a workload; of all workloads if it has none."""
        if workload not in self._spaces:
            modes = [_mode(row) for row in self._rows if row["workload"] == workload]
            self._spaces[workload] = RecordedSpace.of(modes or [_mode(row) for row in self._rows])
        return self._spaces[workload]

    def power_modes(self, text: str, workload: str = "") -> NamedModes:
        space = self._space(workload)
        if text.startswith("grid:"):
            recorded = [(name, mode) for name, mode in load_board(self.board).power_modes(text) if mode in space]
            if not recorded:
                raise InvalidValueError(f"{self.path.name} holds no mode of {text}", "`all` takes its own modes")
            return recorded
        return parse_power_modes(text, space, {MAXN: space.greatest})

    def capabilities(self) -> List[Capability]:
        profiles = f"{counted(len(self._rows), 'profile')} of {self.board}"
        return [Capability("replay", True, f"{profiles}: {_values(self._rows, 'workload')}")]

    def check(self, case: Case) -> None:
        self._row(case)

    def _row(self, case: Case) -> Row:
        name, mode = case.power_mode.name, case.power_mode.mode
        if name == MAXN:  # the greatest of its workload, which may not be the one that the case was made for
            mode = self._space(case.workload).greatest
        rows = self._by_mode.get((case.task, case.workload, case.batch_size, mode)) or self._refuse(case, mode)
        for axis in (axis for axis in SELECTING if axis not in self._silent):
            wanted = getattr(case, axis)
            matching = [row for row in rows if str(row[axis]) == str(wanted)]  # cells of further columns are text
            if not matching:
                what = f"{self.path.name} holds no {case.workload} at {mode.name} with {axis} {wanted}"
                raise CannotRunError(what, f"it has: {_values(rows, axis)}")
            rows = matching
        rows = self._under_limit(rows, case)
        if len(rows) > 1:
            differing = [name for name in rows[0] if len({str(row[name]) for row in rows}) > 1]
            times_ms = [row["minibatch_time_ms"] for row in rows]
            if max(times_ms) > CONTRADICTION * min(times_ms) or not set(differing).isdisjoint(CASE_COLUMNS):
                raise CannotRunError(
                    f"{self.path.name} holds {len(rows)} rows of {case.workload} at {mode.name}, "
                    f"which differ in {', '.join(differing)}",
                    "keep only one of them in the corpus",
                )
        return rows[0] if len(rows) == 1 else self._median(rows)

    def _median(self, rows: Sequence[Row]) -> Row:
        """The medians of what was measured repeatedly, as predictors take them; all else is that of the first row."""
        medians: Row = {}
        for name in AGGREGATES:
            figures = [_figure(row, name, self.path) for row in rows]
            there = [figure for figure in figures if figure is not None]
            if there:
                medians[name] = statistics.median(there)
        return {**rows[0], **medians}

    def _under_limit(self, rows: List[Row], case: Case) -> List[Row]:
        """The rows under the power limit of a case; under the greatest where it has none."""
        if not self.settable_limits_mw:
            return rows
        limit_w = case.settings.power_limit_w
        limit_mw = max(row[POWER_LIMIT.name] for row in rows) if limit_w is None else round(w_to_mw(limit_w))
        kept = [row for row in rows if row[POWER_LIMIT.name] == limit_mw]
        if not kept:
            there = ", ".join(f"{mw_to_w(row[POWER_LIMIT.name]):g}" for row in rows)
            what = f"{self.path.name} holds no {case.workload} under a power limit of {limit_w:g} W"
            raise CannotRunError(what, f"it has, in W: {there}")
        return kept

    def _refuse(self, case: Case, mode: PowerMode) -> List[Row]:
        rows: Sequence[Row] = self._rows
        for column in ("task", "workload", "batch_size"):
            matching = [row for row in rows if row[column] == getattr(case, column)]
            if not matching:
                what = f"{self.path.name} holds no {case.task} of {case.workload} with batches of {case.batch_size}"
                raise CannotRunError(what, f"{column} in the corpus: {_values(rows, column)}")
            rows = matching
        near = RecordedSpace.of(_mode(row) for row in rows).nearest_ones(mode)
        what = f"{self.path.name} holds no {case.workload} with batches of {case.batch_size} at {mode.name}"
        raise CannotRunError(what, f"the nearest that it has are {', '.join(other.name for other in near)}")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        yield

    def apply(self, mode: PowerMode) -> PowerMode:
        self.power_mode_space().check(mode)
        return mode

    def conditions(self, case: Case) -> Dict[str, Any]:
        row = self._row(case)
        identity, source = self.identity(), row["provenance"]
        return {
            "device_model": identity.model,
            "device_specification": identity.specification,
            "board": self.board,
            **({"board_instance": str(row["board_instance"])} if row.get("board_instance") else {}),
            "power_mode": _mode(row)._asdict(),
            "power_mode_name": case.power_mode.name,
            "source_provenance": source,
            "recorded": {
                name: value for name, value in row.items() if name not in CORPUS_COLUMNS and value not in ("", None)
            },
            "minibatch_series": "not recorded: a corpus holds medians",
            "power_definition": f"replayed from {self.path.name}, where it is {source}",
            **dict.fromkeys(("accelerator", "torch", "data_source", "data_samples")),
        }

    def profile(self, case: Case) -> Profile:
        row = self._row(case)
        return Profile(
            case=case,
            provenance=self.provenance,
            conditions=self.conditions(case),
            minibatches=[],
            telemetry=Telemetry(case.settings.interval_s, missing={"replay": "a corpus holds no telemetry"}),
            aggregates={name: _figure(row, name, self.path) for name in AGGREGATES},
            flags=[flag for flag in _NEXT_FLAG.split(row.get("flags") or "") if flag],
            started_at=wall_clock(),
        )


def _values(rows: Sequence[Row], column: str) -> str:
    return ", ".join(dict.fromkeys(str(row[column]) for row in rows))


def _mode(row: Mapping[str, Any]) -> PowerMode:
    return PowerMode(*(row[name] for name in PowerMode._fields))


def _figure(row: Row, name: str, path: Path) -> Optional[float]:
    value = row.get(name)
    if value in ("", None):
        return None
    try:
        return float(value)
    except ValueError:
        raise InvalidValueError(f"{path}: {name} is {value!r}, expected a number") from None
