"""Power at the plug, or recorded by something else, as telemetry: what a socket meter's logger writes.

A CSV file with a header and two columns, in either order; further columns are ignored:

    time_s,power_w          seconds since any moment, ascending; watt (or power_mw: milliwatt)
    0,11.52
    20,11.49

A `SocketMeter` is such a file that its logger appends to while cases run: seconds since 1970, by this machine's clock.

A line that is no sample, or whose time is not in order, is left out and counted; half of them make the file wrong.
"""

from __future__ import annotations

import csv
import itertools
import math
import statistics
import time
from bisect import bisect_left
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

from harness.board.power_rails import TOTAL
from harness.board.source import possible_mw
from harness.core.errors import HarnessError, InvalidValueError, SourceUnavailableError
from harness.core.files import read_bounded, read_unpacked
from harness.core.metrics import between
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


class MeterSamples(NamedTuple):
    """What a socket meter measured, and what was left out of its file."""

    series: Series  # milliwatt
    dropped: Tuple[Tuple[float, str], ...] = ()  # for each: about when it was, and the reason

    @property
    def missing(self) -> str:
        """Why some are left out, and how many; empty if none is."""
        if not self.dropped:
            return ""
        lost = len(self.dropped)
        return f"{self.dropped[0][1]} ({lost} of {len(self.series.values) + lost} samples)"

    def possible(self, most_mw: float = MOST_MW) -> MeterSamples:
        """Those that a plug can give."""
        kept: List[Tuple[float, float]] = []
        dropped = list(self.dropped)
        for time_s, power_mw in zip(*self.series):
            try:
                kept.append((time_s, possible_mw(power_mw, most_mw)))
            except ValueError as error:
                dropped.append((time_s, str(error)))
        times_s, values = zip(*kept) if kept else ((), ())
        return MeterSamples(Series(times_s, values), tuple(dropped))


def read_power_log(path: Path) -> Telemetry:
    """Power of the whole device at its plug; InvalidValueError if the file is not of that form, names the line."""
    try:
        text = read_unpacked(path).decode("utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"power log {path} cannot be read: {error}", EXAMPLE) from error
    try:
        samples = parse_power_log(text.splitlines())
    except InvalidValueError as error:
        raise InvalidValueError(f"power log {path}: {error.what}", error.hint) from error
    interval_s = _interval_s(samples.series)
    samples = samples.possible()
    if len(samples.series.values) < 2:
        raise InvalidValueError(
            f"power log {path}: {samples.missing}", "check the unit of its columns power_w and power_mw"
        )
    note = f"the whole device at its plug, as recorded in {path.name}"
    missing = {TOTAL: samples.missing} if samples.missing else {}
    return Telemetry(interval_s, interval_s, series={TOTAL: samples.series}, missing=missing, notes={TOTAL: note})


def _interval_s(series: Series) -> float:
    return statistics.median(later - earlier for earlier, later in zip(series.times_s, series.times_s[1:]))


def _tolerance_s(interval_s: float) -> float:
    """By how much the clocks of a meter and of this machine may differ."""
    return max(interval_s, 1.0)


class SocketMeter:
    """A file that grows: what it holds of the time of a case, when that has ended."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        if path.exists() and not path.is_file():  # reading a pipe or a serial port would wait
            what = f"--socket-meter {path} is not a regular file"
            raise InvalidValueError(what, "let the meter's logger append to a file; " + EXAMPLE)
        try:
            last_s = self._samples().series.times_s[-1]
        except HarnessError as error:
            raise InvalidValueError(f"--socket-meter {path}: {error.what}", error.hint or EXAMPLE) from error
        if not EPOCH_S[0] < last_s < EPOCH_S[1]:
            hint = "beside cases, times are seconds since 1970: `date +%s`; of an idle state, STATE=FILE.csv takes any"
            raise InvalidValueError(f"--socket-meter {path}: its last time is {last_s:g}", hint)

    def _samples(self) -> MeterSamples:
        try:
            text = read_bounded(self.path).decode("utf-8-sig", errors="replace")
        except (OSError, ValueError) as error:
            raise SourceUnavailableError(f"it cannot be read: {error}") from error
        whole, _, _ = text.rpartition("\n")  # the last line may be half one
        samples = parse_power_log(whole.splitlines())
        times_s, values = samples.series
        latest_s = self._clock() + _tolerance_s(_interval_s(samples.series))
        if len(times_s) > 2 and times_s[-2] <= latest_s < times_s[-1]:  # its clock is right, and this line is wrong
            why = f"the time of its last line, {times_s[-1]:.12g} s, is still to come"
            return MeterSamples(Series(times_s[:-1], values[:-1]), (*samples.dropped, (times_s[-2], why)))
        return samples

    def during(self, start_s: float, end_s: float) -> MeterSamples:
        """The samples of a stretch and those next to it, at monotonic times; waits for the meter to come to its end."""
        offset_s = self._clock() - time.monotonic()
        waited_until_s = None
        while True:
            samples = self._samples()
            interval_s = _interval_s(samples.series)
            first_s, last_s = samples.series.times_s[0] - offset_s, samples.series.times_s[-1] - offset_s
            now_s = time.monotonic()
            if waited_until_s is None:
                waited_until_s = now_s + min(2 * interval_s + 1.0, LONGEST_WAIT_S)
            if last_s >= end_s or now_s >= waited_until_s:
                break
            time.sleep(min(interval_s, 1.0) / 4)
        if last_s > now_s + _tolerance_s(interval_s):
            raise SourceUnavailableError(f"its clock is {last_s - now_s:.1f} s ahead of this machine's")
        if last_s < end_s - interval_s:
            why = f"it ends {end_s - last_s:.1f} s before the case: it has stopped, or its clock is slow"
            raise SourceUnavailableError(why)
        if first_s > start_s + interval_s:
            raise SourceUnavailableError(f"it begins {first_s - start_s:.1f} s after the case did")
        near_s = start_s - 2 * interval_s, end_s + 2 * interval_s
        times_s, values = samples.series
        series = between(Series(tuple(at_s - offset_s for at_s in times_s), values), *near_s)
        dropped = [(at_s - offset_s, why) for at_s, why in samples.dropped]
        near = tuple((at_s, why) for at_s, why in dropped if near_s[0] <= at_s <= near_s[1])
        return MeterSamples(series, near).possible()


class _Line(NamedTuple):
    number: int  # from 1, the header's
    time_s: float
    power_mw: float


def parse_power_log(lines: Iterable[str]) -> MeterSamples:
    """The samples of a file's lines; InvalidValueError if they cannot be such a recording."""
    rows = [_fields(line) for line in lines]
    header = rows[0] if rows else []
    powers = [name for name in header if name in POWERS]
    if header.count(TIME) != 1 or len(powers) != 1:
        raise InvalidValueError(f"its columns are {', '.join(header) or 'none'}", EXAMPLE)
    parsed: List[_Line] = []
    wrong: Dict[int, str] = {}  # number of a line to the reason
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        fields = dict(itertools.zip_longest(header, row[: len(header)], fillvalue=""))
        try:
            time_s, power = (_number(name, fields[name]) for name in (TIME, powers[0]))
            if power < 0:
                raise ValueError(f"{powers[0]} is {power:g}, below 0")
            parsed.append(_Line(number, time_s, POWERS[powers[0]](power)))
        except ValueError as error:
            wrong[number] = f"line {number}: {error}"
    in_order = _ascending([line.time_s for line in parsed])
    for place, line in enumerate(parsed):
        if place not in in_order:
            wrong[line.number] = f"line {line.number}: its time, {line.time_s:.12g} s, is not in order"
    kept = [line for place, line in enumerate(parsed) if place in in_order]
    if wrong and (len(kept) < 2 or len(wrong) >= len(kept)):
        what = f" ({len(wrong)} of {len(kept) + len(wrong)} lines are wrong)" if len(wrong) > 1 else ""
        raise InvalidValueError(wrong[min(wrong)] + what)
    if len(kept) < 2:
        raise InvalidValueError(f"it holds {len(kept)} samples", "two are the least")
    numbers = [line.number for line in kept]
    before = {number: kept[max(bisect_left(numbers, number) - 1, 0)] for number in sorted(wrong)}
    dropped = tuple((line.time_s, wrong[number]) for number, line in before.items())
    return MeterSamples(Series(tuple(line.time_s for line in kept), tuple(line.power_mw for line in kept)), dropped)


def _fields(line: str) -> List[str]:
    """The fields of one line: a quotation mark without its second must not swallow those that follow."""
    try:
        return [field.strip() for field in next(csv.reader([line]), [])]
    except csv.Error:  # a byte 0 before Python 3.11, or 131,072 characters without a comma
        return [line]


def _ascending(times_s: Sequence[float]) -> Set[int]:
    """The places of the most times that ascend: a longest increasing subsequence."""
    least_last_s: List[float] = []  # of all subsequences of 1, 2, ... times
    ends: List[int] = []  # the places of those times
    previous: List[int] = []  # the place before each, in its own subsequence
    for place, time_s in enumerate(times_s):
        length = bisect_left(least_last_s, time_s)
        previous.append(ends[length - 1] if length else -1)
        if length == len(ends):
            least_last_s.append(time_s)
            ends.append(place)
        elif time_s < least_last_s[length]:
            least_last_s[length], ends[length] = time_s, place
    kept: Set[int] = set()
    place = ends[-1] if ends else -1
    while place >= 0:
        kept.add(place)
        place = previous[place]
    return kept


def _number(column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{column} is {text[:40]!r}, not a number")
    return value
