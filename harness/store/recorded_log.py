"""One profile from a tegrastats log and the minibatch times that were recorded with it.

The times are a CSV file with a header and these columns, in any order; further ones are ignored:

    start_s,minibatch_time_ms      seconds since the log's first line, ascending; end-to-end milliseconds
    start_at,minibatch_time_ms     the same with date and time (2026-01-31 12:00:05.250) as in the log's lines
"""

from __future__ import annotations

import csv
import datetime
import math
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from harness.core.corpus import MOST_COLUMNS, Row
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_unpacked
from harness.core.metrics import POWER_CHANNEL, STABLE_WINDOW_S, stable_from, summarise
from harness.core.profiles import CLEAN, FIRST, SETTLING, Minibatch, Telemetry

SECONDS, DATE, TIME = "start_s", "start_at", "minibatch_time_ms"
FORM = f"a header with {SECONDS} (seconds since the log's first line) or {DATE} (date and time), and {TIME}"
_MISSING = 0.0  # stall and compute time were not recorded: figures made of them are dropped


def recorded_row(case: Row, telemetry: Telemetry, log: Path, times: Path, began: Optional[datetime.datetime]) -> Row:
    """The row of a corpus for a recorded run, by the rules of a measured one (C12, C13; 001 sec. 2.5).

    `case` is the case that was run, as columns of the corpus; `telemetry` is in seconds since the log's first line,
    whose date is `began`. Errors name the line.
    """
    if POWER_CHANNEL not in telemetry.series:
        raise InvalidValueError(f"{log}: the total power is unknown", telemetry.missing.get(POWER_CHANNEL, ""))
    starts_s, times_ms = zip(*_read_times(times, began))
    minibatches = phased(starts_s, times_ms, telemetry)
    figures = summarise(minibatches, telemetry, case["batch_size"])
    if figures["minibatch_time_ms"] is None:
        raise InvalidValueError(f"{times}: no minibatch is left after power became stable", "record more minibatches")
    if figures["power_mw"] is None:
        raise InvalidValueError(f"{log} and {times}: no power sample falls into a clean minibatch")
    kept = {name: figures[name] for name in KEPT}
    return {**case, "provenance": "measured", **kept, "power_definition": telemetry.notes.get(POWER_CHANNEL)}


KEPT = (
    "minibatch_time_ms", "clean_minibatches", "e2e_s", "samples_per_s", "power_mw", "power_mean_mw", "energy_mwh",
)  # fmt: skip
"""The aggregates that a replay, its summary or its report reads and that need neither stall nor compute time."""


def phased(starts_s: Sequence[float], times_ms: Sequence[float], telemetry: Telemetry) -> List[Minibatch]:
    """Minibatches with their phases: the first one, those before power became stable, and the clean ones."""
    power = telemetry.series[POWER_CHANNEL]
    since = [(time, value) for time, value in zip(power.times_s, power.values) if time >= starts_s[0]]
    stable_s = stable_from([time for time, _ in since], [value for _, value in since]) if since else None
    clean_s = -math.inf if stable_s is None else stable_s + STABLE_WINDOW_S
    phases = [FIRST, *(CLEAN if start_s >= clean_s else SETTLING for start_s in starts_s[1:])]
    return [
        Minibatch(0, number, phase, start_s, _MISSING, _MISSING, time_ms)
        for number, (phase, start_s, time_ms) in enumerate(zip(phases, starts_s, times_ms))
    ]


def read_text(path: Path) -> str:
    """A text file, which may be gzipped."""
    try:
        return read_unpacked(path).decode("utf-8-sig")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name an existing file") from error
    except ValueError as error:
        raise InvalidValueError(f"{path} is not UTF-8 text: {error}") from error


def _read_times(path: Path, began: Optional[datetime.datetime]) -> List[Tuple[float, float]]:
    """Start in seconds since the log's first line, and time in ms, of each minibatch."""
    reader = csv.DictReader(read_text(path).splitlines())
    header = reader.fieldnames or []
    if len(header) > MOST_COLUMNS:
        raise InvalidValueError(f"{path} line 1: it has {len(header)} columns", f"expected: {FORM}")
    starts = [name for name in (SECONDS, DATE) if name in header]
    if len(starts) != 1 or TIME not in header:
        raise InvalidValueError(f"{path} line 1: the columns are {', '.join(header) or 'none'}", f"expected: {FORM}")
    if starts == [DATE] and began is None:
        raise InvalidValueError(f"{path} has dates, but the lines of the log have none", f"give {SECONDS} instead")
    entries: List[Tuple[float, float]] = []
    for cells in reader:
        place = f"{path} line {reader.line_num}"
        start_s = (
            _number(cells[SECONDS], SECONDS, place) if SECONDS in cells else _since(began, cells[DATE] or "", place)
        )
        entries.append((start_s, _number(cells[TIME], TIME, place)))
        if entries[-1][1] <= 0:
            raise InvalidValueError(f"{place}: {TIME} is {cells[TIME]!r}, expected a number above 0")
        if len(entries) > 1 and entries[-1][0] <= entries[-2][0]:
            raise InvalidValueError(f"{place}: it starts before the minibatch above it", "sort the lines by start")
    if not entries:
        raise InvalidValueError(f"{path} holds no minibatch", f"expected: {FORM}, and a line for each")
    return entries


def _since(began: Optional[datetime.datetime], text: str, place: str) -> float:
    """Seconds from the log's first line, which has a date where minibatches have."""
    try:
        at = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "write it like 2026-01-31 12:00:05.250"
        raise InvalidValueError(f"{place}: {DATE} is {text!r}, no date and time", hint) from None
    if at.tzinfo is not None:
        what = f"{place}: {DATE} {text!r} has an offset, and the lines of the log have none"
        raise InvalidValueError(what, "write the local time that the log has, without an offset")
    return (at - began).total_seconds()  # type: ignore[operator]


def _number(text: Optional[str], name: str, place: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidValueError(f"{place}: {name} is {text!r}, expected a number")
    return value
