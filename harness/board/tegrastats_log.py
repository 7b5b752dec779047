"""What `tegrastats` printed, as telemetry: the channels of one line, and a whole recorded log as a `Telemetry`."""

from __future__ import annotations

import collections
import itertools
import re
import statistics
from typing import DefaultDict, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.board.rail_total import TOTAL, choose_total, rail_channel
from harness.board.tegrastats_format import Load, TegrastatsLine, parse_line
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series, Telemetry

DEFAULT_INTERVAL_S = 1.0
"""What tegrastats takes when it is asked for no interval."""

DATE_STEP_S = 1.0
"""The resolution of the dates."""


def channel_values(line: TegrastatsLine) -> Dict[str, float]:
    """The channels of one line, all but the total; of clocks of several GPU parts the highest.

    What the line does not say, a core that is offline, a unit or a sensor that is off: these have no channel in it.
    """
    values: Dict[str, Optional[float]] = {
        "memory_used_bytes": line.ram_used_bytes,
        "swap_used_bytes": line.swap_used_bytes,
        **{rail_channel(label): power_mw for label, power_mw in line.rails_mw.items()},
        **{f"temperature_{_plain(name)}_c": celsius for name, celsius in line.temperatures_c.items()},
        **_load_values("gpu", line.gpu),
        **_load_values("emc", line.emc),
    }
    for number, core in enumerate(line.cpu):
        values.update(_load_values(f"cpu{number}", core))
    for name, load in line.engines.items():
        values.update(_load_values(_plain(name), load))
    return {channel: value for channel, value in values.items() if value is not None}


def _load_values(name: str, load: Optional[Load]) -> Dict[str, Optional[float]]:
    if load is None:
        return {}
    return {f"{name}_load_share": load.share, f"{name}_khz": max(load.khz, default=None)}


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


class _Row(NamedTuple):
    """A line of a log that says something.

    Attributes:
        number: which line of the log it is, from 1.
        place: how many lines that are not blank come before it.
        line: what it says.
    """

    number: int
    place: int
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
        interval_s: seconds between two lines, as tegrastats was asked for; then the lines' dates do not matter. None
            where every line has a date; several lines of one second are spread evenly over it.
        total: labels of the rails that make up the board's total; None where that is not known.
        remark: what is to be known of that total.

    Raises:
        InvalidValueError: no line says anything, a line has no date and no interval is given, dates go backwards, or
            `interval_s` or `total` is none.
    """
    if interval_s is not None and not interval_s > 0:
        raise InvalidValueError(f"the interval of a tegrastats log must be above 0 s, got {interval_s}")
    rows, missing = _read_rows(lines)
    if interval_s is None:
        times_s = _dated_times(rows)
        interval_s, lost = _rhythm(times_s)
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
                troubles[f"temperature_{_plain(name)}_c"].append("its sensor is off")
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


def _rhythm(times_s: Sequence[float]) -> Tuple[float, int]:
    """The interval that dated lines were printed at, and how many are missing between them.

    A date is up to a second wrong: only what is later than that is missing.
    """
    gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
    interval_s = statistics.median(gaps_s) if gaps_s else DEFAULT_INTERVAL_S
    late = [gap for gap in gaps_s if gap >= interval_s + DATE_STEP_S]
    return interval_s, sum(round(gap / interval_s) - 1 for gap in late)
