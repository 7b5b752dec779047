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
import math
import re
import statistics
from typing import DefaultDict, Dict, Iterable, List, Match, NamedTuple, Optional, Sequence, Tuple

from harness.board.power_rails import BELOW_0, NOT_CONNECTED, TOTAL, choose_total, rail_channel
from harness.board.source import MOST_BOARD_MW, plain_name, possible_mw, why_impossible
from harness.board.thermal import SENSOR_OFF_C
from harness.core.errors import InvalidValueError
from harness.core.profiles import Series, Telemetry
from harness.core.units import kib_to_bytes, mhz_to_khz, percent_to_share

DEFAULT_INTERVAL_S = 1.0  # what tegrastats uses when it is given no interval
DATE_STEP_S = 1.0  # the resolution of the dates


@dataclasses.dataclass
class TegrastatsLine:
    """One line's values, by telemetry channel: of the clocks of GPU parts the highest, and none of what is off."""

    at: Optional[datetime.datetime] = None  # the board's local time, in whole seconds
    values: Dict[str, float] = dataclasses.field(default_factory=dict)  # all but the total
    rails_mw: Dict[str, float] = dataclasses.field(default_factory=dict)  # by label; NaN of one that it has twice
    off: List[str] = dataclasses.field(default_factory=list)  # channels of temperature sensors that are off
    unknown: List[str] = dataclasses.field(default_factory=list)  # words that were not understood
    twice: List[str] = dataclasses.field(default_factory=list)  # channels that it has twice, and no value of
    is_empty: bool = True  # whether nothing in it was understood but, perhaps, a date


def parse_line(text: str) -> TegrastatsLine:
    line = TegrastatsLine()
    text = re.sub(r"([\[,@/]) ", r"\1", re.sub(r"\s+", " ", text))  # some lines of r36 pad their columns
    position = 0
    while position < len(text):
        matches = ((kind, pattern.match(text, position)) for kind, pattern in _FIELDS)
        kind, match = next((kind, match) for kind, match in matches if match)
        line.is_empty &= kind in ("skip", "date", "unknown")
        before, line.values = line.values, {}
        _take(line, kind, match)
        line.twice += [channel for channel in line.values if channel in before]
        line.values = {**before, **line.values}
        position = match.end()
    for channel in line.twice:  # two lines in one, or a rail of the module and one of the carrier: none is guessed
        line.values.pop(channel, None)
    line.rails_mw.update({label: math.nan for label in line.rails_mw if rail_channel(label) in line.twice})
    return line


def _take(line: TegrastatsLine, kind: str, match: Match[str]) -> None:
    if kind == "date":
        try:
            line.at = datetime.datetime.strptime(match["date"], "%m-%d-%Y %H:%M:%S")
        except ValueError:
            line.unknown.append(match["date"])
    elif kind == "memory":  # kB, MB and GB are powers of 1024 here
        channel = {"RAM": "memory_used_bytes", "SWAP": "swap_used_bytes"}[match["name"]]
        line.values[channel] = kib_to_bytes(int(match["used"])) * 1024 ** "kMG".index(match["unit"])
    elif kind == "cpu":
        shared = match["clock"]
        for number, core in enumerate(core.strip() for core in match["cores"].split(",")):
            line.values.update(_load(f"cpu{number}", core if "@" in core or not shared else f"{core}@{shared}"))
    elif kind == "unit":
        load = _load("gpu" if match["name"] == "GR3D" else plain_name(match["name"]), match["load"])
        if load != {"emc_load_share": 0.0}:  # without root `0%` and no clock is printed, which says nothing
            line.values.update(load)
    elif kind == "temperature":
        channel, celsius = f"temperature_{plain_name(match['name'])}_c", float(match["celsius"])
        if celsius == SENSOR_OFF_C:
            line.off.append(channel)
        else:
            line.values[channel] = celsius
    elif kind == "rail" and match["name"] != NOT_CONNECTED:
        line.rails_mw[match["name"]] = line.values[rail_channel(match["name"])] = float(match["now"])
    elif kind == "unknown":
        line.unknown.append(match.group())


def _load(name: str, text: str) -> Dict[str, float]:
    """Share and clock of a unit by `35%`, `0%@76`, `14%@[407,407]`, `@[314,314]`, `@314`, `729`; none by `off`."""
    if text.startswith("off"):
        return {}
    percent, at, clocks = text.partition("@")
    if not at and not percent.endswith("%"):
        percent, clocks = "", percent
    load = {f"{name}_load_share": percent_to_share(float(percent.rstrip("%")))} if percent else {}
    khz = [mhz_to_khz(float(clock)) for clock in re.findall(r"[\d.]+", clocks)]
    return {**load, f"{name}_khz": max(khz)} if khz else load


_END = r"(?=\s|$)"
_MEMORY_NOTE = r"(?: ?\((?:lfb [^)]*|cached \d+[kMG]B)\))?"
_CORE = r"(?:off|\d+%(?:@\d+)?)"
_LOAD = r"(?:off|(?:\d+%)?@(?:\[[\d.,\s]*\]|[\d.]+)|\d+%)"

_FIELDS = [
    (kind, re.compile(pattern))
    for pattern, kind in [
        (r"\s+", "skip"),
        (rf"(?P<date>\d\d-\d\d-\d{{4}} \d\d:\d\d:\d\d){_END}", "date"),
        (rf"(?P<name>RAM|SWAP) (?P<used>\d+)/\d+(?P<unit>[kMG])B{_MEMORY_NOTE}{_END}", "memory"),
        (rf"IRAM \d+/\d+[kMG]B{_MEMORY_NOTE}{_END}", "skip"),  # memory on the chip (Nano)
        (rf"CPU \[(?P<cores>{_CORE}(?:,\s*{_CORE})*)\](?:@(?P<clock>\d+))?{_END}", "cpu"),
        (rf"MTS fg \d+% bg \d+%{_END}", "skip"),  # TX2: the Denver cores' translation, which is no clock and no unit
        (rf"(?P<name>[A-Z]\w*?)(?:_FREQ)? (?P<load>{_LOAD}){_END}", "unit"),
        (rf"(?P<name>[\w-]+)(?:@| )(?P<celsius>-?\d+(?:\.\d+)?)C(?:/-?\d+(?:\.\d+)?C)*{_END}", "temperature"),
        (rf"(?P<name>[A-Z]\w*) (?P<now>-?\d+)mW(?:/-?\d+mW)*{_END}", "rail"),
        (rf"(?P<name>[A-Z][A-Z0-9_]*) (?P<now>-?\d+)/-?\d+(?:/-?\d+)?{_END}", "rail"),
        (rf"(?P<name>APE|VIC|OFA|MSENC|NV[A-Z]+\d*|[A-Z]\w*?(?=_FREQ))(?:_FREQ)? (?P<load>\d+){_END}", "unit"),
        (r"\S+", "unknown"),
    ]
]


# -- a log -------------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    number: int  # from 1
    place: int  # how many lines that are not blank come before it
    line: TegrastatsLine


def parse_log(
    lines: Iterable[str],
    *,
    interval_s: Optional[float] = None,
    total: Optional[Sequence[str]] = None,
    remark: str = "",
    most_mw: float = MOST_BOARD_MW,
) -> Telemetry:
    """Turn a recorded log into telemetry whose time starts at 0 with its first line.

    `interval_s` is what tegrastats was given; None if every line has a date. `total`, `remark`: of `choose_total`.
    `most_mw` is more than the board's supply gives: such readings are left out and counted.
    """
    if interval_s is not None and not interval_s > 0:
        raise InvalidValueError(f"the interval of a tegrastats log must be above 0 s, got {interval_s}")
    rows, missing = _read_rows(lines)
    times_s = _dated_times(rows) if interval_s is None else [(row.place - rows[0].place) * interval_s for row in rows]
    gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
    median_s = statistics.median(gaps_s) if gaps_s else None
    lost = 0
    if interval_s is None:
        interval_s = median_s or DEFAULT_INTERVAL_S
        # A date is up to a second off: only a gap longer than that is counted as missing lines.
        lost = sum(round(gap / interval_s) - 1 for gap in gaps_s if gap >= interval_s + DATE_STEP_S)

    series: DefaultDict[str, List[Tuple[float, float]]] = collections.defaultdict(list)
    troubles: DefaultDict[str, List[str]] = collections.defaultdict(list)
    labels = dict.fromkeys(label for row in rows for label in row.line.rails_mw)
    definition = choose_total(list(labels), total, remark)
    impossible: List[str] = []  # a reason for each line whose total no supply gives
    for time_s, row in zip(times_s, rows):
        failed = dict.fromkeys(row.line.twice, "it is in a line twice")
        for label, power_mw in row.line.rails_mw.items():
            try:
                possible_mw(power_mw, most_mw)
            except ValueError as error:
                failed.setdefault(rail_channel(label), str(error))
        for channel, value in row.line.values.items():
            why = why_impossible(channel, value)
            if why:
                failed.setdefault(channel, why)
        in_total = [channel for channel in map(rail_channel, definition.rails) if channel in failed]
        impossible += [failed[channel] for channel in in_total[:1] if channel not in row.line.twice]
        for channel, value in row.line.values.items():
            if channel not in failed:
                series[channel].append((time_s, value))
        readings = {label: mw for label, mw in row.line.rails_mw.items() if rail_channel(label) not in failed}
        try:
            series[TOTAL].append((time_s, possible_mw(definition.of(readings), most_mw)))
        except ValueError as error:
            failed[TOTAL] = str(error)
        for channel, why in failed.items():
            troubles[channel].append(why)
        for channel in row.line.off:
            troubles[channel].append("its sensor is off")
    if 2 * len(impossible) > len(rows):
        what = f"the total power of {len(impossible)} of {len(rows)} lines cannot be: {impossible[0]}"
        raise InvalidValueError(what, "that looks like uW; tegrastats prints mW")
    for channel, whys in troubles.items():
        missing[channel] = f"{whys[0]} ({len(whys)} of {len(rows)} lines)"
    return Telemetry(
        interval_s=interval_s,
        real_interval_s=median_s,
        lost_samples=lost,
        series={channel: Series(*map(tuple, zip(*samples))) for channel, samples in series.items() if samples},
        missing=missing,
        notes={"tegrastats": f"read from a log{BELOW_0}", **({TOTAL: definition.text} if definition.text else {})},
    )


def _read_rows(lines: Iterable[str]) -> Tuple[List[_Row], Dict[str, str]]:
    numbered = [(number, text.strip()) for number, text in enumerate(lines, start=1) if text.strip()]
    rows = [_Row(number, place, parse_line(text)) for place, (number, text) in enumerate(numbered)]
    other = [row.number for row in rows if row.line.is_empty]
    if len(other) == len(rows):
        raise InvalidValueError(
            f"none of {len(rows)} lines is one of tegrastats",
            "they look like `RAM 1655/3956MB (lfb 311x4MB) ... CPU [12%@102,...] ... GR3D_FREQ 0%@76 ...`",
        )
    missing = {}
    if other:
        missing["tegrastats"] = (
            f"{len(other)} of {len(rows)} lines hold no value of tegrastats, line {other[0]} the first: "
            f"{dict(numbered)[other[0]][:60]!r}"
        )
    return [row for row in rows if not row.line.is_empty], missing


def _dated_times(rows: Sequence[_Row]) -> List[float]:
    """Seconds since the first line; lines of one second are spread evenly over it."""
    for row in rows:
        if row.line.at is None:
            what = f"line {row.number} of the log has no date"
            raise InvalidValueError(what, "say the interval that tegrastats was given (in seconds)")
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
