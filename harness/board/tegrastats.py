"""A recorded log of `tegrastats` as telemetry, and its lines as L4T r32, r35, r36 and Thor's r38 and r39 print them.

    RAM 1655/3956MB (lfb 311x4MB) SWAP 0/1978MB (cached 0MB) IRAM 0/252kB(lfb 252kB) CPU [12%@102,off] EMC_FREQ 3%@1600
        GR3D_FREQ 0%@76 APE 25 PLL@36.5C GPU@37C POM_5V_IN 2132/2132                        r32; POM_5V_IN now/mean
    04-11-2025 10:36:27 RAM ... GR3D_FREQ 0%@[0,0] VIC_FREQ 729 CV0@-256C VDD_CPU_CV 390mW/390mW      r35
    ... NVENC 79%@166 NVDEC off PVA0_FREQ off APE 174 cpu@52.562C                                     r36
    ... EMC_FREQ @4266 GR3D_FREQ @[314,314,314] NVENC0_FREQ @314 cpu@58.25C/61.75C VIN 9mW/8mW/9mW    Thor

Which fields there are depends on the board too, so a line is read word by word, and unknown words are kept apart.
Averages and peaks are left out: their window is not documented.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import re
import statistics
from typing import Callable, DefaultDict, Dict, Iterable, List, Match, NamedTuple, Optional, Pattern, Sequence, Tuple

from harness.board.power_rails import NOT_CONNECTED, TOTAL, choose_total, rail_channel
from harness.board.source import plain_name
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series, Telemetry
from harness.core.units import kib_to_bytes, mhz_to_khz, percent_to_share

DEFAULT_INTERVAL_S = 1.0
"""What tegrastats uses when it is given no interval."""

DATE_STEP_S = 1.0
"""The resolution of the dates."""

SENSOR_OFF_C = -256.0
"""What a temperature sensor shows while its part of the chip is off."""


class UnitLoad(NamedTuple):
    """How busy a unit of the chip is that is not off."""

    share: Optional[float] = None  # of 1; None where the line does not tell
    khz: Tuple[int, ...] = ()  # a clock for each of its parts; empty where the line does not tell


@dataclasses.dataclass
class TegrastatsLine:
    """What one line says; what it does not say is None, or left out of a dictionary."""

    at: Optional[datetime.datetime] = None  # the board's local time, in whole seconds
    ram_used_bytes: Optional[int] = None  # memory that CPU and GPU share
    swap_used_bytes: Optional[int] = None
    cpu: Tuple[Optional[UnitLoad], ...] = ()  # every core, None for one that is offline
    emc: Optional[UnitLoad] = None  # memory controller; without root `0%` and no clock is printed, which says nothing
    gpu: Optional[UnitLoad] = None
    engines: Dict[str, Optional[UnitLoad]] = dataclasses.field(default_factory=dict)  # `NVENC`; None for off
    temperatures_c: Dict[str, Optional[float]] = dataclasses.field(default_factory=dict)  # None for off
    rails_mw: Dict[str, float] = dataclasses.field(default_factory=dict)  # now; without those that are not connected
    unknown: List[str] = dataclasses.field(default_factory=list)  # words that were not understood

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it was understood but, perhaps, a date."""
        return dataclasses.replace(self, at=None, unknown=[]) == TegrastatsLine()


def parse_line(text: str) -> TegrastatsLine:
    """Read one line; a line of something else gives a `TegrastatsLine` that is empty."""
    line = TegrastatsLine()
    position = 0
    while position < len(text):
        for pattern, take in _FIELDS:
            match = pattern.match(text, position)
            if match:
                take(line, match)
                position = match.end()
                break
    return line


def _skip(line: TegrastatsLine, match: Match[str]) -> None:
    pass


def _take_date(line: TegrastatsLine, match: Match[str]) -> None:
    try:
        line.at = datetime.datetime.strptime(match.group("date"), "%m-%d-%Y %H:%M:%S")
    except ValueError:
        line.unknown.append(match.group("date"))


def _take_memory(line: TegrastatsLine, match: Match[str]) -> None:
    # `kB`, `MB` and `GB` are powers of 1024 here.
    used_bytes = kib_to_bytes(int(match.group("used"))) * 1024 ** "kMG".index(match.group("unit"))
    if match.group("name") == "RAM":
        line.ram_used_bytes = used_bytes
    else:
        line.swap_used_bytes = used_bytes


def _take_cpu(line: TegrastatsLine, match: Match[str]) -> None:
    shared = match.group("clock")
    cores = (core.strip() for core in match.group("cores").split(","))
    line.cpu = tuple(_load(core if "@" in core or not shared else f"{core}@{shared}") for core in cores)


def _load(text: str) -> Optional[UnitLoad]:
    """`35%`, `0%@76`, `14%@[407,407]`, `@[314,314]`, `@314`, `729`; None for `off`."""
    if text.startswith("off"):
        return None
    percent, at, clocks = text.partition("@")
    if not at and not percent.endswith("%"):
        percent, clocks = "", percent
    share = percent_to_share(float(percent.rstrip("%"))) if percent else None
    return UnitLoad(share, tuple(mhz_to_khz(float(clock)) for clock in re.findall(r"[\d.]+", clocks)))


def _take_unit(line: TegrastatsLine, match: Match[str]) -> None:
    name, load = match.group("name"), _load(match.group("load"))
    if name == "EMC":
        line.emc = None if load == UnitLoad(0.0) else load
    elif name == "GR3D":
        line.gpu = load
    else:
        line.engines[name] = load


def _take_temperature(line: TegrastatsLine, match: Match[str]) -> None:
    celsius = float(match.group("celsius"))
    line.temperatures_c[match.group("name")] = None if celsius == SENSOR_OFF_C else celsius


def _take_rail(line: TegrastatsLine, match: Match[str]) -> None:
    if match.group("name") != NOT_CONNECTED:
        line.rails_mw[match.group("name")] = float(match.group("now"))


def _take_unknown(line: TegrastatsLine, match: Match[str]) -> None:
    line.unknown.append(match.group())


_END = r"(?=\s|$)"
_MEMORY_NOTE = r"(?: ?\((?:lfb [^)]*|cached \d+[kMG]B)\))?"
_CORE = r"(?:off|\d+%(?:@\d+)?)"
_LOAD = r"(?:off|(?:\d+%)?@(?:\[[\d.,\s]*\]|[\d.]+)|\d+%)"

_FIELDS: List[Tuple[Pattern[str], Callable[[TegrastatsLine, Match[str]], None]]] = [
    (re.compile(pattern), take)
    for pattern, take in [
        (r"\s+", _skip),
        (rf"(?P<date>\d\d-\d\d-\d{{4}} \d\d:\d\d:\d\d){_END}", _take_date),
        (rf"(?P<name>RAM|SWAP) (?P<used>\d+)/\d+(?P<unit>[kMG])B{_MEMORY_NOTE}{_END}", _take_memory),
        (rf"IRAM \d+/\d+[kMG]B{_MEMORY_NOTE}{_END}", _skip),  # memory on the chip (Nano)
        (rf"CPU \[(?P<cores>{_CORE}(?:,\s*{_CORE})*)\](?:@(?P<clock>\d+))?{_END}", _take_cpu),
        (rf"MTS fg \d+% bg \d+%{_END}", _skip),  # TX2: the Denver cores' translation, which is no clock and no unit
        (rf"(?P<name>[A-Z]\w*?)(?:_FREQ)? (?P<load>{_LOAD}){_END}", _take_unit),
        (rf"(?P<name>[\w-]+)(?:@| )(?P<celsius>-?\d+(?:\.\d+)?)C(?:/-?\d+(?:\.\d+)?C)*{_END}", _take_temperature),
        (rf"(?P<name>[A-Z]\w*) (?P<now>\d+)mW(?:/\d+mW)*{_END}", _take_rail),
        (rf"(?P<name>[A-Z][A-Z0-9_]*) (?P<now>\d+)/\d+(?:/\d+)?{_END}", _take_rail),
        (rf"(?P<name>APE|VIC|NVENC|NVDEC|MSENC|[A-Z]\w*?(?=_FREQ))(?:_FREQ)? (?P<load>\d+){_END}", _take_unit),
        (r"\S+", _take_unknown),
    ]
]


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


# -- a log ---------------------------------------------------------------------------------------------------------


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

    Lines of something else are left out, and counted.

    Args:
        lines: the log.
        interval_s: seconds between two lines, as given to tegrastats; then the lines' dates do not matter. None where
            every line has a date; several lines of one second are spread evenly over it.
        total: labels of the rails that make up the board's total, as in `choose_total`.
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
