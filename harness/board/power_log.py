"""Power recorded by something else, such as a socket meter, as telemetry.

A CSV file with a header and two columns, in either order; further columns are ignored:

    time_s,power_w          seconds since any moment, ascending; watt (or power_mw: milliwatt)
    0,11.52
    20,11.49
"""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Tuple

from harness.board.power_rails import TOTAL
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series, Telemetry
from harness.core.units import w_to_mw

TIME = "time_s"
POWERS: Dict[str, Callable[[float], float]] = {"power_mw": float, "power_w": w_to_mw}
"""Column of power to its conversion into milliwatt."""

EXAMPLE = f"the first line names the columns: {TIME} and {' or '.join(POWERS)}"


def read_power_log(path: Path) -> Telemetry:
    """Power of the whole device at its plug; InvalidValueError where the file is not of that form, names the line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            series = parse_power_log(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"power log {path} cannot be read: {error}", EXAMPLE) from error
    except InvalidValueError as error:
        raise InvalidValueError(f"power log {path}: {error.what}", error.hint) from error
    gaps_s = [later - earlier for earlier, later in zip(series.times_s, series.times_s[1:])]
    interval_s = statistics.median(gaps_s)
    note = f"the whole device at its plug, as recorded in {path.name}"
    return Telemetry(interval_s, interval_s, series={TOTAL: series}, notes={TOTAL: note})


def parse_power_log(lines: Iterable[str]) -> Series:
    """The samples of a file's lines, in milliwatt; InvalidValueError where they cannot be such a recording."""
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    powers = [name for name in header if name in POWERS]
    if header.count(TIME) != 1 or len(powers) != 1:
        raise InvalidValueError(f"its columns are {', '.join(header) or 'none'}", EXAMPLE)
    samples: List[Tuple[float, float]] = []
    for row in filter(None, reader):
        fields = dict(itertools.zip_longest(header, row[: len(header)], fillvalue=""))
        time_s, power = (_number(name, fields[name], reader.line_num) for name in (TIME, powers[0]))
        if power < 0:
            raise InvalidValueError(f"line {reader.line_num}: {powers[0]} is {power:g}, below 0")
        if samples and time_s <= samples[-1][0]:
            raise InvalidValueError(f"line {reader.line_num}: {time_s:g} s does not come after {samples[-1][0]:g} s")
        samples.append((time_s, POWERS[powers[0]](power)))
    if len(samples) < 2:
        raise InvalidValueError(f"it holds {len(samples)} samples", "two are the least")
    return Series(*map(tuple, zip(*samples)))


def _number(column: str, text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidValueError(f"line {line}: {column} is {text!r}, not a number")
    return value
