"""What slows a Jetson board down against its power mode, as far as the kernel reports: heat and over-current.

    sys/class/thermal/cooling_device8/type, cur_state     cpu-throttle-alert, cpufreq-cpu0, devfreq-17000000.gpu, ...:
                                                          above 0 the kernel or the firmware holds a clock down
    sys/class/hwmon/hwmon3/oc2_event_cnt, oc2_throt_en    Orin and Thor (soctherm_oc): events since the boot; whether
                                                          they throttle
    sys/class/hwmon/hwmon3/oc2_irq_cnt                    TX2 and Xavier (soctherm_oc): the same as interrupts
    proc/interrupts, lines soctherm_edp                   Nano, TX1: an interrupt for each over-current event
    sys/kernel/debug/bpmp/debug/soctherm/oc2/event_cnt    root only; used where hwmon has no counter

A fan does not throttle, and `hot-surface-alert` only warns against touching the board.
"""

from __future__ import annotations

import functools
import glob
import itertools
import os
import re
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from harness.board.kernel_file import KeptFile, may_read, numbered, read_text, text_of
from harness.board.source import Reading, Source, add_sum, free_channel, read_each
from harness.core.errors import SourceUnavailableError
from harness.core.terminal import counted

if TYPE_CHECKING:
    from harness.core.profiles import Series

# types of cooling devices that hold a clock down; the rest are fans, warnings, and shutdowns
HOLDS_CLOCKS = re.compile(r".*throttle-alert|(thermal-)?(cpufreq|devfreq)\b.*|.*(balanced|heavy)|\d+\.g[a-z0-9]+")
PREFIX = "throttle_"  # of the names of all channels of throttling
OVERCURRENT = "throttle_overcurrent_events"  # the channel of all over-current events together
# what the counters of Orin count (L4T Developer Guide, Jetson Orin, over-current throttling)
OC_MEANING = {"oc1": "under-voltage", "oc2": "average over-current", "oc3": "instantaneous over-current"}


def count_edp_interrupts(text: str) -> int:
    """Over-current interrupts of all CPUs since the boot, from the text of `/proc/interrupts`."""
    # `44:  0  2  GICv2 80 Level  soctherm_edp`: a column of counts for each CPU
    rows = [line.split()[1:] for line in text.splitlines() if "soctherm_edp" in line]
    counts = [int(count) for row in rows for count in itertools.takewhile(str.isdigit, row)]
    if not counts:
        raise ValueError("/proc/interrupts has no line for soctherm_edp")
    return sum(counts)


def open_source(root: str) -> Source:
    states: Dict[str, Callable[[], int]] = {}
    counters: Dict[str, Callable[[], int]] = {}
    notes: Dict[str, str] = {"throttle": "a state above 0, or an event more, is throttling"}
    for directory in numbered(os.path.join(root, "sys/class/thermal/cooling_device*")):
        kind = text_of(os.path.join(directory, "type"))
        if HOLDS_CLOCKS.fullmatch(kind.lower()):
            channel = free_channel("throttle_{}_state", kind, states)
            states[channel] = KeptFile(os.path.join(directory, "cur_state")).read_int
            notes[channel] = f"cur_state of the cooling device {kind}"
    for name, path in _event_counters(root):
        channel = free_channel("throttle_{}_events", name, counters)
        counters[channel] = KeptFile(path).read_int
        meaning = OC_MEANING.get(name) if path.endswith("event_cnt") else None
        notes[channel] = f"{meaning or 'over-current'} events since the first sample, from {path}"
    interrupts = os.path.join(root, "proc/interrupts")
    parts = list(counters)
    if parts:
        notes[OVERCURRENT] = f"sum of {', '.join(counters)} since the first sample"
    elif "soctherm_edp" in text_of(interrupts):
        counters[OVERCURRENT] = lambda: count_edp_interrupts(read_text(interrupts))
        notes[OVERCURRENT] = "lines soctherm_edp of /proc/interrupts since the first sample"
    if not (states or counters):
        raise SourceUnavailableError(
            f"no cooling device in {os.path.join(root, 'sys/class/thermal')} holds a clock down and nothing counts "
            "over-current events",
            "only Jetson boards report it, some to root only",
        )
    first: Dict[str, int] = {}

    def since_first(channel: str) -> int:
        count = counters[channel]()
        grown = count - first.setdefault(channel, count)
        if grown < 0:
            raise ValueError(f"the counter of {channel} fell from {first[channel]} or more to {count}")
        return grown

    growths = {channel: functools.partial(since_first, channel) for channel in counters}
    readers: Dict[str, Callable[[], int]] = {**states, **growths}

    def read(now_s: float) -> Reading:
        reading = read_each(readers)
        if parts:
            add_sum(reading, OVERCURRENT, parts)
        return reading

    return Source(notes, read)


def _event_counters(root: str) -> List[Tuple[str, str]]:
    hwmon = os.path.join(root, "sys/class/hwmon/hwmon*")
    files = sorted(glob.glob(f"{hwmon}/oc*_event_cnt") + glob.glob(f"{hwmon}/oc*_irq_cnt"))
    if files:
        named = [(os.path.basename(path).partition("_")[0], path) for path in files]
        # What one counts need not slow the board down: each can be switched off, and counts on.
        return [(name, path) for name, path in named if text_of(f"{os.path.dirname(path)}/{name}_throt_en") != "0"]
    files = sorted(glob.glob(os.path.join(root, "sys/kernel/debug/bpmp/debug/soctherm/oc*/event_cnt")))
    # The firmware numbers from 0 what hwmon numbers from 1.
    return [(f"oc{int(path.split(os.sep)[-2][len('oc') :]) + 1}", path) for path in files if may_read(path)]


class Throttling(NamedTuple):
    """A time during which something throttled the board, in monotonic seconds."""

    start_s: float
    end_s: float
    by: str  # `cpu_throttle_alert`, `oc3`, ...
    events: Optional[int] = None  # how many were counted; None if there is a state and no count

    def text(self, origin_s: float = 0.0) -> str:
        """In words, its times counted from `origin_s`: `throttled from 12.0 s to 15.5 s by oc3 (4 events)`."""
        words = f"throttled from {self.start_s - origin_s:.1f} s to {self.end_s - origin_s:.1f} s by {self.by}"
        return words if self.events is None else f"{words} ({counted(self.events, 'event')})"


def throttled_times(series: Mapping[str, Series]) -> List[Throttling]:
    """Every time of throttling, by its start; those of one cause that touch are one.

    A state lasts from the sample that first shows it to the first that does not, or the last; an event lies between the
    sample before it and the one that counts it.
    """
    periods: List[Throttling] = []
    channels = [match for match in map(re.compile(r"throttle_(\w+)_(state|events)").fullmatch, series) if match]
    has_parts = any(re.fullmatch(r"oc\d+", match[1]) for match in channels)
    for match in channels:
        if match[0] != OVERCURRENT or not has_parts:
            periods += _times(series[match[0]], match[1], match[2] == "events")
    return sorted(periods, key=lambda throttling: throttling[:3])


def _times(series: Series, by: str, are_events: bool) -> List[Throttling]:
    periods: List[Throttling] = []
    samples = list(zip(series.times_s, series.values))
    for (before_s, before), (time_s, value) in zip(samples, [*samples[1:], *samples[-1:]]):
        events = round(value - before) if are_events else None
        is_throttled = before > 0 if events is None else events > 0
        if not is_throttled:
            continue
        start_s = before_s
        if periods and periods[-1].end_s == before_s:
            earlier = periods.pop()
            start_s = earlier.start_s
            if events is not None and earlier.events is not None:
                events += earlier.events
        periods.append(Throttling(start_s, time_s, by, events))
    return periods
