"""Power at the plug, or recorded by something else, as telemetry: what a socket meter's logger writes.

A CSV file with a header and two columns, in either order; further columns are ignored:

    time_s,power_w          seconds since any moment, ascending; watt (or power_mw: milliwatt)
    0,11.52
    20,11.49

A `SocketMeter` is such a file that its logger appends to while cases run: seconds since 1970, by this machine's clock.
"""

from __future__ import annotations

import csv
import itertools
import math
import statistics
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Tuple

from harness.board.power_rails import TOTAL
from harness.board.source import possible_mw
from harness.core.errors import HarnessError, InvalidValueError, SourceUnavailableError
from harness.core.files import read_bounded, read_unpacked
from harness.core.profiles import Series, Telemetry
from harness.core.units import w_to_mw

TIME = "time_s"
POWERS: Dict[str, Callable[[float], float]] = {"power_mw": float, "power_w": w_to_mw}  # to milliwatt
SOCKET = "power_socket_mw"  # the channel of the whole device at its plug, beside the board's own sensors
LONGEST_WAIT_S = 30.0  # for a meter that writes seldom

MOST_MW = 25_000_000.0
"""More than any one plug gives: 32 A of three phases at 400 V are 22 kW (IEC 60309)."""

EPOCH_S = (1e9, 1e10)  # since 1970 in this century and the next two; not their milliseconds, nor since a start
EXAMPLE = f"the first line names the columns: {TIME} and {' or '.join(POWERS)}"


def read_power_log(path: Path) -> Telemetry:
    """Power of the whole device at its plug; InvalidValueError if the file is not of that form, names the line."""
    try:
        text = read_unpacked(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"power log {path} cannot be read: {error}", EXAMPLE) from error
    try:
        series = parse_power_log(text.splitlines())
    except InvalidValueError as error:
        raise InvalidValueError(f"power log {path}: {error.what}", error.hint) from error
    gaps_s = [later - earlier for earlier, later in zip(series.times_s, series.times_s[1:])]
    interval_s = statistics.median(gaps_s)
    series, why = possible_samples(series)
    if len(series.values) < 2:
        raise InvalidValueError(f"power log {path}: {why}", "check the unit of its columns power_w and power_mw")
    note = f"the whole device at its plug, as recorded in {path.name}"
    missing = {TOTAL: why} if why else {}
    return Telemetry(interval_s, interval_s, series={TOTAL: series}, missing=missing, notes={TOTAL: note})


def possible_samples(series: Series, most_mw: float = MOST_MW) -> Tuple[Series, str]:
    """The samples that a plug can give, and how many are left out, with the reason; empty if none is."""
    kept, why = [], ""
    for time_s, power_mw in zip(*series):
        try:
            kept.append((time_s, possible_mw(power_mw, most_mw)))
        except ValueError as error:
            why = why or str(error)
    if not why:
        return series, ""
    times_s, values = zip(*kept) if kept else ((), ())
    lost = len(series.values) - len(kept)
    return Series(times_s, values), f"{why} ({lost} of {len(series.values)} samples)"


class SocketMeter:
    """A file that grows: what it holds of the time of a case, when that has ended."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        if path.exists() and not path.is_file():  # reading a pipe or a serial port would wait
            what = f"--socket-meter {path} is not a regular file"
            raise InvalidValueError(what, "let the meter's logger append to a file; " + EXAMPLE)
        try:
            last_s = self._samples().times_s[-1]
        except HarnessError as error:
            raise InvalidValueError(f"--socket-meter {path}: {error.what}", error.hint or EXAMPLE) from error
        if not EPOCH_S[0] < last_s < EPOCH_S[1]:
            hint = "beside cases, times are seconds since 1970: `date +%s`; of an idle state, STATE=FILE.csv takes any"
            raise InvalidValueError(f"--socket-meter {path}: its last time is {last_s:g}", hint)

    def _samples(self) -> Series:
        try:
            whole, _, _ = read_bounded(self.path).decode("utf-8-sig").rpartition("\n")  # the last line may be half one
            return parse_power_log(whole.splitlines())
        except (OSError, ValueError) as error:
            raise SourceUnavailableError(f"it cannot be read: {error}") from error

    def during(self, start_s: float, end_s: float) -> Series:
        """The samples of a stretch and those next to it, at monotonic times; waits for the meter to come to its end."""
        offset_s = self._clock() - time.monotonic()
        waited_until_s = None
        while True:
            samples = self._samples()
            gaps_s = [later - earlier for earlier, later in zip(samples.times_s, samples.times_s[1:])]
            interval_s = statistics.median(gaps_s)
            first_s, last_s, now_s = samples.times_s[0] - offset_s, samples.times_s[-1] - offset_s, time.monotonic()
            if waited_until_s is None:
                waited_until_s = now_s + min(2 * interval_s + 1.0, LONGEST_WAIT_S)
            if last_s >= end_s or now_s >= waited_until_s:
                break
            time.sleep(min(interval_s, 1.0) / 4)
        if last_s > now_s + max(interval_s, 1.0):
            raise SourceUnavailableError(f"its clock is {last_s - now_s:.1f} s ahead of this machine's")
        if last_s < end_s - interval_s:
            why = f"it ends {end_s - last_s:.1f} s before the case: it has stopped, or its clock is slow"
            raise SourceUnavailableError(why)
        if first_s > start_s + interval_s:
            raise SourceUnavailableError(f"it begins {first_s - start_s:.1f} s after the case did")
        near_s = (start_s - 2 * interval_s, end_s + 2 * interval_s)
        times = [(at - offset_s, value) for at, value in zip(*samples) if near_s[0] <= at - offset_s <= near_s[1]]
        return Series(*map(tuple, zip(*times)))


def parse_power_log(lines: Iterable[str]) -> Series:
    """The samples of a file's lines, in milliwatt; InvalidValueError if they cannot be such a recording."""
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
