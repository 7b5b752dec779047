"""What `tegrastats` prints, as telemetry: from one that runs beside the board's own sensors, and from a recorded log.

Channels of a running one start with `tegrastats_`.
"""

from __future__ import annotations

import collections
import itertools
import os
import statistics
import subprocess
import weakref
from typing import DefaultDict, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.board.power_rails import TOTAL, choose_total, rail_channel
from harness.board.source import Reading, plain_name
from harness.board.tegrastats_format import TegrastatsLine, UnitLoad, parse_line
from harness.core.errors import InvalidValueError, SourceUnavailableError
from harness.core.profiles import Series, Telemetry
from harness.core.units import s_to_ms

PREFIX = "tegrastats_"

DEFAULT_INTERVAL_S = 1.0
"""What tegrastats uses when it is given no interval."""

DATE_STEP_S = 1.0
"""The resolution of the dates."""

SILENT_INTERVALS = 3
"""After as many intervals without a line it is said to be silent."""

_READ_BYTES = 1 << 16


def channel_values(line: TegrastatsLine) -> Dict[str, float]:
    """The channels of one line, all but the total; of clocks of several GPU parts the highest.

    What the line does not say, a core that is offline, a unit or a sensor that is off: these have no channel in it.
    """
    values: Dict[str, Optional[float]] = {
        "memory_used_bytes": line.ram_used_bytes,
        "swap_used_bytes": line.swap_used_bytes,
        **{rail_channel(label): power_mw for label, power_mw in line.rails_mw.items()},
        **{_temperature_channel(name): celsius for name, celsius in line.temperatures_c.items()},
    }
    units: Dict[str, Optional[UnitLoad]] = {
        "gpu": line.gpu,
        "emc": line.emc,
        **{f"cpu{number}": core for number, core in enumerate(line.cpu)},
        **{plain_name(name): load for name, load in line.engines.items()},
    }
    for name, load in units.items():
        if load is not None:
            values[f"{name}_load_share"] = load.share
            values[f"{name}_khz"] = max(load.khz, default=None)
    return {channel: value for channel, value in values.items() if value is not None}


def _temperature_channel(name: str) -> str:
    return f"temperature_{plain_name(name)}_c"


# -- a running tegrastats ------------------------------------------------------------------------------------------


class TegrastatsSource:
    """The last line that a running process printed, given once and never again; the process ends with this source."""

    def __init__(
        self, process: subprocess.Popen, interval_s: float, total: Optional[Sequence[str]] = None, remark: str = ""
    ) -> None:
        self._process = process
        self._end = weakref.finalize(self, _end_process, process)
        os.set_blocking(process.stdout.fileno(), False)
        self._interval_s = interval_s
        self._definition = total
        self._remark = remark
        self._rest = b""
        self._last_s: Optional[float] = None
        self.notes = {"tegrastats": f"the last line of tegrastats, which prints one every {interval_s:g} s"}
        if total is not None:
            self.notes[PREFIX + TOTAL] = f"sum of the rails {', '.join(total)}. {remark}".strip()

    def read(self, now_s: float) -> Reading:
        """What the last line says, if it is new; nothing between two lines.

        Raises:
            SourceUnavailableError: it ended, or has been silent for several intervals.
            ValueError: nothing in its line was understood.
        """
        text = self._newest_line()
        if text is None:
            self._check(now_s)
            return Reading({}, {})
        self._last_s = now_s
        line = parse_line(text)
        if line.is_empty:
            raise ValueError(f"tegrastats printed {text[:80]!r}")
        values = channel_values(line)
        failed: Dict[str, str] = {}
        try:
            values[TOTAL] = choose_total(list(line.rails_mw), self._definition, self._remark).of(line.rails_mw)
        except ValueError as error:
            failed[PREFIX + TOTAL] = str(error)
        return Reading({PREFIX + channel: value for channel, value in values.items()}, failed)

    def _newest_line(self) -> Optional[str]:
        """The last whole line that was printed since the last reading, without waiting for one."""
        while True:
            try:
                block = os.read(self._process.stdout.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            if not block:
                break
            self._rest += block
        *whole, self._rest = self._rest.split(b"\n")
        lines = [line.decode(errors="replace").strip() for line in whole]
        return next((line for line in reversed(lines) if line), None)

    def _check(self, now_s: float) -> None:
        """Complain where no line means that there will be none."""
        status = self._process.poll()
        if status is not None:
            raise SourceUnavailableError(f"tegrastats ended with status {status}")
        self._last_s = now_s if self._last_s is None else self._last_s
        if now_s - self._last_s > SILENT_INTERVALS * self._interval_s:
            raise SourceUnavailableError(f"tegrastats has printed nothing for {now_s - self._last_s:.1f} s")

    def close(self) -> None:
        self._end()


def _end_process(process: subprocess.Popen) -> None:
    process.kill()  # it has nothing to put back
    process.wait()
    process.stdout.close()


def open_source(
    root: str,
    executable: str = "",
    interval_s: float = DEFAULT_INTERVAL_S,
    total: Optional[Sequence[str]] = None,
    remark: str = "",
) -> TegrastatsSource:
    """Start `usr/bin/tegrastats` below `root`, or `executable`; `total` and `remark` as in `choose_total`.

    Raises:
        SourceUnavailableError: it is not there or cannot be run.
        InvalidValueError: `interval_s` is below a millisecond.
    """
    interval_ms = round(s_to_ms(interval_s))
    if interval_ms < 1:
        raise InvalidValueError(f"the interval of tegrastats must be 0.001 s or more, got {interval_s}")
    path = executable or os.path.join(root, "usr/bin/tegrastats")
    try:
        process = subprocess.Popen(
            [path, "--interval", str(interval_ms)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # what it complains of becomes the reason in the record
        )
    except OSError as error:
        raise SourceUnavailableError(
            f"tegrastats cannot be run: {error}", "it comes with a Jetson board's L4T"
        ) from error
    return TegrastatsSource(process, interval_s, total, remark)


# -- a recorded log ------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A line of a log."""

    number: int  # from 1
    place: int  # how many lines that are not blank come before it
    line: TegrastatsLine


def parse_log(
    lines: Iterable[str],
    *,
    interval_s: Optional[float] = None,
    total: Optional[Sequence[str]] = None,
    remark: str = "",
) -> Telemetry:
    """Turn a recorded log into telemetry whose time starts at 0 with its first line.

    Args:
        lines: the log. Lines of something else are left out, and counted.
        interval_s: seconds between two lines, as given to tegrastats; then the lines' dates do not matter. None where
            every line has a date; several lines of one second are spread evenly over it.
        total: labels of the rails that make up the board's total; None where that is not known.
        remark: a caveat about that total.

    Raises:
        InvalidValueError: no line was understood, a line has no date and no interval is given, dates go backwards, or
            `interval_s` or `total` is not valid.
    """
    if interval_s is not None and not interval_s > 0:
        raise InvalidValueError(f"the interval of a tegrastats log must be above 0 s, got {interval_s}")
    rows, missing = _read_rows(lines)
    if interval_s is None:
        times_s = _dated_times(rows)
        interval_s, lost = _interval_and_lost(times_s)
    else:
        times_s, lost = [(row.place - rows[0].place) * interval_s for row in rows], 0
    gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]

    series: DefaultDict[str, List[Tuple[float, float]]] = collections.defaultdict(list)
    troubles: DefaultDict[str, List[str]] = collections.defaultdict(list)
    labels = dict.fromkeys(label for row in rows for label in row.line.rails_mw)
    definition = choose_total(list(labels), total, remark)
    for time_s, row in zip(times_s, rows):
        for channel, value in channel_values(row.line).items():
            series[channel].append((time_s, value))
        try:
            series[TOTAL].append((time_s, definition.of(row.line.rails_mw)))
        except ValueError as error:
            troubles[TOTAL].append(str(error))
        for name, celsius in row.line.temperatures_c.items():
            if celsius is None:
                troubles[_temperature_channel(name)].append("its sensor is off")
    for channel, whys in troubles.items():
        missing[channel] = f"{whys[0]} ({len(whys)} of {len(rows)} lines)"
    return Telemetry(
        interval_s=interval_s,
        real_interval_s=statistics.median(gaps_s) if gaps_s else None,
        lost_samples=lost,
        series={channel: Series(*map(tuple, zip(*samples))) for channel, samples in series.items() if samples},
        missing=missing,
        notes={"tegrastats": "read from a log", **({TOTAL: definition.text} if definition.text else {})},
    )


def _read_rows(lines: Iterable[str]) -> Tuple[List[_Row], Dict[str, str]]:
    """The lines that say something, and what is wrong with the others."""
    numbered = [(number, text.strip()) for number, text in enumerate(lines, start=1) if text.strip()]
    rows = [_Row(number, place, parse_line(text)) for place, (number, text) in enumerate(numbered)]
    known = [row for row in rows if not row.line.is_empty]
    if not known:
        raise InvalidValueError(
            f"none of {len(rows)} lines is one of tegrastats",
            "they look like `RAM 1655/3956MB (lfb 311x4MB) ... CPU [12%@102,...] ... GR3D_FREQ 0%@76 ...`",
        )
    other = [row for row in rows if row.line.is_empty]
    if not other:
        return known, {}
    first = dict(numbered)[other[0].number]
    return known, {
        "tegrastats": f"{len(other)} of {len(rows)} lines say nothing that is known, line {other[0].number} the first: "
        f"{first[:60]!r}"
    }


def _dated_times(rows: Sequence[_Row]) -> List[float]:
    """Seconds since the first line; lines of one second are spread evenly over it."""
    undated = [row.number for row in rows if row.line.at is None]
    if undated:
        raise InvalidValueError(
            f"line {undated[0]} of the log has no date", "say the interval that tegrastats was given (in seconds)"
        )
    times_s: List[float] = []
    start = rows[0].line.at
    for at, group in itertools.groupby(rows, key=lambda row: row.line.at):
        members = list(group)
        second = (at - start).total_seconds()
        if times_s and second <= times_s[-1]:
            raise InvalidValueError(
                f"the date of line {members[0].number} of the log, {at}, lies before that of the line above it",
                "the board's clock was set meanwhile: say the interval that tegrastats was given, or cut the log there",
            )
        times_s.extend(second + DATE_STEP_S * place / len(members) for place in range(len(members)))
    return times_s


def _interval_and_lost(times_s: Sequence[float]) -> Tuple[float, int]:
    """The interval that dated lines were printed at, and how many are missing between them.

    A date is up to a second off: only a gap longer than that is counted as missing.
    """
    gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
    interval_s = statistics.median(gaps_s) if gaps_s else DEFAULT_INTERVAL_S
    late = [gap for gap in gaps_s if gap >= interval_s + DATE_STEP_S]
    return interval_s, sum(round(gap / interval_s) - 1 for gap in late)
