"""What slows a Jetson board down against its power mode, as far as the kernel tells: heat and over-current.

    sys/class/thermal/cooling_device8/type, cur_state     cpu-throttle-alert, cpufreq-cpu0, devfreq-17000000.gpu, ...:
                                                          above 0 the kernel or the firmware holds a clock down
    sys/class/hwmon/hwmon3/oc2_event_cnt, oc2_throt_en    Orin and Thor (soctherm_oc): events since the boot; whether
                                                          they throttle
    sys/class/hwmon/hwmon3/oc2_irq_cnt                    TX2 and Xavier (soctherm_oc): the same as interrupts
    proc/interrupts, lines soctherm_edp                   Nano, TX1: an interrupt for each over-current event
    sys/kernel/debug/bpmp/debug/soctherm/oc2/event_cnt    root only; used where hwmon has no counter

A fan does not throttle, and `hot-surface-alert` only warns whoever touches the board.
"""

from __future__ import annotations

import functools
import glob
import os
import re
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from harness.board.kernel_file import KeptFile, read_text
from harness.board.source import Reading, free_channel, read_each
from harness.core.errors import SourceUnavailableError

if TYPE_CHECKING:
    from harness.core.profiles import Series

HOLDS_CLOCKS = re.compile(r".*throttle-alert|(thermal-)?(cpufreq|devfreq)\b.*|.*(balanced|heavy)|\d+\.g[a-z0-9]+")
"""Types of cooling devices that hold a clock down; the rest are fans, warnings, and shutdowns."""

OVERCURRENT = "throttle_overcurrent_events"
"""The channel of all over-current events together."""

OC_MEANING = {"oc1": "under-voltage", "oc2": "average over-current", "oc3": "instantaneous over-current"}
"""What the counters of Orin count (L4T Developer Guide, Jetson Orin, over-current throttling)."""


class ThrottleSource:
    """States of the cooling devices now, and events since the first reading.

    `states` and `counters` are channel to file; `interrupts` is `/proc/interrupts` where it counts over-current events,
    or empty.
    """

    def __init__(
        self, states: Dict[str, str], counters: Dict[str, str], interrupts: str, notes: Dict[str, str]
    ) -> None:
        counts: Dict[str, Callable[[], int]] = {channel: KeptFile(path).read_int for channel, path in counters.items()}
        if interrupts:
            counts[OVERCURRENT] = lambda: count_edp_interrupts(read_text(interrupts))
        self._readers: Dict[str, Callable[[], float]] = {
            **{channel: KeptFile(path).read_int for channel, path in states.items()},
            **{channel: functools.partial(self._since_first, channel, count) for channel, count in counts.items()},
        }
        self._summed = list(counters)
        self._first: Dict[str, int] = {}
        self.notes = notes

    def read(self, now_s: float) -> Reading:
        reading = read_each(self._readers)
        without = [channel for channel in self._summed if channel not in reading.values]
        if without:
            reading.failed[OVERCURRENT] = f"its part {', '.join(without)} gave no value"
        elif self._summed:
            reading.values[OVERCURRENT] = sum(reading.values[channel] for channel in self._summed)
        return reading

    def _since_first(self, channel: str, read: Callable[[], int]) -> int:
        count = read()
        grown = count - self._first.setdefault(channel, count)
        if grown < 0:
            raise ValueError(f"the counter of {channel} fell from {self._first[channel]} or more to {count}")
        return grown


def count_edp_interrupts(text: str) -> int:
    """Over-current interrupts of all CPUs since the boot, from the text of `/proc/interrupts`."""
    counts: List[int] = []
    for line in text.splitlines():  # `44:  0  2  GICv2 80 Level  soctherm_edp`, a column of counts for each CPU
        if "soctherm_edp" in line:
            for field in line.split()[1:]:
                if not field.isdigit():
                    break
                counts.append(int(field))
    if not counts:
        raise ValueError("/proc/interrupts has no line for soctherm_edp")
    return sum(counts)


def open_source(root: str) -> ThrottleSource:
    """What the board below `root` tells of throttling; SourceUnavailableError where it tells nothing."""
    states: Dict[str, str] = {}
    counters: Dict[str, str] = {}
    notes: Dict[str, str] = {"throttle": "a state above 0, or an event more, is throttling"}
    for kind, path in _cooling_devices(root):
        channel = free_channel("throttle_{}_state", kind, states)
        states[channel] = path
        notes[channel] = f"cur_state of the cooling device {kind}"
    for name, path in _event_counters(root):
        channel = free_channel("throttle_{}_events", name, counters)
        counters[channel] = path
        meaning = OC_MEANING.get(name) if path.endswith("event_cnt") else None
        notes[channel] = f"{meaning or 'over-current'} events since the first sample, from {path}"
    interrupts = os.path.join(root, "proc/interrupts")
    if counters or not os.path.isfile(interrupts) or "soctherm_edp" not in read_text(interrupts):
        interrupts = ""
    if interrupts or counters:
        what = "lines soctherm_edp of /proc/interrupts" if interrupts else f"sum of {', '.join(counters)}"
        notes[OVERCURRENT] = f"{what} since the first sample"
    if not (states or counters or interrupts):
        raise SourceUnavailableError(
            f"no cooling device in {os.path.join(root, 'sys/class/thermal')} holds a clock down and nothing counts "
            "over-current events",
            "only Jetson boards tell; some count for root only",
        )
    return ThrottleSource(states, counters, interrupts, notes)


def _cooling_devices(root: str) -> List[Tuple[str, str]]:
    found = []
    for directory in sorted(glob.glob(os.path.join(root, "sys/class/thermal/cooling_device*")), key=_number):
        kind_file = os.path.join(directory, "type")
        kind = read_text(kind_file) if os.path.isfile(kind_file) else ""
        if HOLDS_CLOCKS.fullmatch(kind.lower()):
            found.append((kind, os.path.join(directory, "cur_state")))
    return found


def _event_counters(root: str) -> List[Tuple[str, str]]:
    hwmon = os.path.join(root, "sys/class/hwmon/hwmon*")
    files = sorted(glob.glob(f"{hwmon}/oc*_event_cnt") + glob.glob(f"{hwmon}/oc*_irq_cnt"))
    if files:
        named = [(os.path.basename(path).partition("_")[0], path) for path in files]
        # What one counts need not slow the board down: each can be switched off, and counts on.
        switches = [os.path.join(os.path.dirname(path), f"{name}_throt_en") for name, path in named]
        return [one for one, switch in zip(named, switches) if not os.path.isfile(switch) or read_text(switch) != "0"]
    debug = sorted(glob.glob(os.path.join(root, "sys/kernel/debug/bpmp/debug/soctherm/oc*/event_cnt")))
    # The firmware numbers from 0 what hwmon numbers from 1.
    return [
        (f"oc{_number(os.path.dirname(path)) + 1}", path)
        for path in debug
        if os.access(path, os.R_OK, effective_ids=True)
    ]


def _number(path: str) -> int:
    digits = re.search(r"\d+$", path)
    return int(digits.group()) if digits else -1


class Throttling(NamedTuple):
    """A time during which something throttled the board, in monotonic seconds."""

    start_s: float
    end_s: float
    by: str  # `cpu_throttle_alert`, `oc3`, ...
    events: Optional[int] = None  # how many were counted; None where there is a state and no count

    def text(self, origin_s: float = 0.0) -> str:
        """In words, its times counted from `origin_s`: `throttled from 12.0 s to 15.5 s by oc3 (4 events)`."""
        words = f"throttled from {self.start_s - origin_s:.1f} s to {self.end_s - origin_s:.1f} s by {self.by}"
        return words if self.events is None else f"{words} ({self.events} event{'s' if self.events != 1 else ''})"


_CHANNEL = re.compile(r"throttle_(?P<by>\w+)_(?P<unit>state|events)")


def throttled_times(series: Mapping[str, Series]) -> List[Throttling]:
    """Every time of throttling, by its start.

    Telemetry samples: a state lasts from the sample that first shows it to the first that does not, or to the last
    sample; an event lies somewhere between the sample before it and the one that counts it. Times of one cause that
    touch are one. The sum of all counters is used only where its parts are not there.
    """
    found: List[Throttling] = []
    channels = {channel: match for channel, match in ((c, _CHANNEL.fullmatch(c)) for c in series) if match}
    has_parts = any(re.fullmatch(r"oc\d+", match.group("by")) for match in channels.values())
    for channel, match in channels.items():
        if match.group("by") == "overcurrent" and has_parts:
            continue
        times = _event_times if match.group("unit") == "events" else _state_times
        found.extend(times(series[channel], match.group("by")))
    return sorted(found, key=lambda throttling: throttling[:3])


def _state_times(series: Series, by: str) -> Iterator[Throttling]:
    start_s = None
    for time_s, value in zip(series.times_s, series.values):
        if value > 0 and start_s is None:
            start_s = time_s
        elif value <= 0 and start_s is not None:
            yield Throttling(start_s, time_s, by)
            start_s = None
    if start_s is not None:
        yield Throttling(start_s, series.times_s[-1], by)


def _event_times(series: Series, by: str) -> List[Throttling]:
    found: List[Throttling] = []
    samples = list(zip(series.times_s, series.values))
    for (before_s, before), (time_s, count) in zip(samples, samples[1:]):
        grown = round(count - before)
        if grown > 0 and found and found[-1].end_s == before_s:
            found[-1] = found[-1]._replace(end_s=time_s, events=found[-1].events + grown)
        elif grown > 0:
            found.append(Throttling(before_s, time_s, by, grown))
    return found
