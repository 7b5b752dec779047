"""What slows a Jetson board down against its power mode: heat and too much current, as far as the kernel tells.

    sys/class/thermal/cooling_device8/type, cur_state     cpu-throttle-alert, cpufreq-cpu0, devfreq-17000000.gpu, ...:
                                                          above 0 the kernel or the firmware holds a clock down
    sys/class/hwmon/hwmon3/oc2_event_cnt, oc2_throt_en    Orin and Thor (soctherm_oc): events since the boot; whether
                                                          they throttle
    sys/class/hwmon/hwmon3/oc2_irq_cnt                    TX2 and Xavier (soctherm_oc): the same as interrupts
    proc/interrupts, lines soctherm_edp                   Nano, TX1: an interrupt for each over-current event
    sys/kernel/debug/bpmp/debug/soctherm/oc2/event_cnt    for root only; used where hwmon does not count

A fan is no throttling, and `hot-surface-alert` only warns who touches the board.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Dict, List, Tuple

from harness.board.kept_file import KeptFile
from harness.board.sensor_file import read_text
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError

HOLDS_CLOCKS = re.compile(r".*throttle-alert|(thermal-)?(cpufreq|devfreq)\b.*|.*(balanced|heavy)|\d+\.g[a-z0-9]+")
"""Types of cooling devices that hold a clock down; the rest are fans, warnings, and shutdowns."""

OVERCURRENT = "throttle_overcurrent_events"
"""The channel of all over-current events together."""

_COUNTS = ("event_cnt", "irq_cnt")

OC_MEANING = {"oc1": "under-voltage", "oc2": "average over-current", "oc3": "instantaneous over-current"}
"""What the counters of Orin count (L4T Developer Guide, Jetson Orin, over-current throttling)."""


class ThrottleSource:
    """States of the cooling devices now, and events since the first reading.

    Args:
        states: channel to the file of a cooling device's state.
        counters: channel to the file of an event counter.
        interrupts: `/proc/interrupts` where it counts over-current events, or empty.
        notes: channel to what it is.
    """

    def __init__(
        self, states: Dict[str, str], counters: Dict[str, str], interrupts: str, notes: Dict[str, str]
    ) -> None:
        """The files are opened at the first reading and stay open, but for the large table of interrupts."""
        self._states = {channel: KeptFile(path) for channel, path in states.items()}
        self._counters = {channel: KeptFile(path) for channel, path in counters.items()}
        self._interrupts = interrupts
        self._first: Dict[str, int] = {}
        self.notes = notes

    def read(self, now_s: float) -> Reading:
        """Every state and counter; the sum of the counters fails with any of them."""
        values: Dict[str, float] = {}
        failed: Dict[str, str] = {}
        for channel, file in self._states.items():
            try:
                values[channel] = file.read_int()
            except (OSError, ValueError) as error:
                failed[channel] = str(error)
        for channel, file in self._counters.items():
            try:
                values[channel] = self._since_first(channel, file.read_int())
            except (OSError, ValueError) as error:
                failed[channel] = str(error)
        if self._interrupts:
            try:
                values[OVERCURRENT] = self._since_first(OVERCURRENT, count_edp_interrupts(read_text(self._interrupts)))
            except (OSError, ValueError) as error:
                failed[OVERCURRENT] = str(error)
        elif self._counters:
            without = [channel for channel in self._counters if channel not in values]
            if without:
                failed[OVERCURRENT] = f"its part {', '.join(without)} gave no value"
            else:
                values[OVERCURRENT] = sum(values[channel] for channel in self._counters)
        return Reading(values, failed)

    def _since_first(self, channel: str, count: int) -> int:
        grown = count - self._first.setdefault(channel, count)
        if grown < 0:
            raise ValueError(f"the counter of {channel} fell from {self._first[channel]} or more to {count}")
        return grown


def count_edp_interrupts(text: str) -> int:
    """Over-current interrupts of all CPUs since the boot.

    Args:
        text: `/proc/interrupts`: `44:  0  2  GICv2 80 Level  soctherm_edp`, a column of counts for each CPU.

    Raises:
        ValueError: no line is about them.
    """
    counts: List[int] = []
    for line in text.splitlines():
        fields = line.split()
        if fields and any("soctherm_edp" in field for field in fields):
            for field in fields[1:]:
                if not field.isdigit():
                    break
                counts.append(int(field))
    if not counts:
        raise ValueError("/proc/interrupts has no line for soctherm_edp")
    return sum(counts)


def _cooling_devices(root: str) -> List[Tuple[str, str]]:
    """Type and state file of each cooling device that holds a clock down."""
    found = []
    for directory in sorted(glob.glob(os.path.join(root, "sys/class/thermal/cooling_device*")), key=_number):
        kind_file = os.path.join(directory, "type")
        kind = read_text(kind_file) if os.path.isfile(kind_file) else ""
        if HOLDS_CLOCKS.fullmatch(kind.lower()):
            found.append((kind, os.path.join(directory, "cur_state")))
    return found


def _number(path: str) -> int:
    digits = re.search(r"\d+$", path)
    return int(digits.group()) if digits else -1


def _counter_files(root: str) -> List[Tuple[str, str]]:
    """Name (`oc2`) and file of each event counter."""
    hwmon = sorted(
        path for kind in _COUNTS for path in glob.glob(os.path.join(root, f"sys/class/hwmon/hwmon*/oc*_{kind}"))
    )
    if hwmon:
        return [(_oc(path), path) for path in hwmon if _throttles(path)]
    debug = sorted(glob.glob(os.path.join(root, "sys/kernel/debug/bpmp/debug/soctherm/oc*/event_cnt")))
    # The firmware numbers from 0 what hwmon numbers from 1.
    named = [(_number(os.path.dirname(path)), path) for path in debug]
    return [(f"oc{number + 1}", path) for number, path in named if os.access(path, os.R_OK, effective_ids=True)]


def _oc(counter: str) -> str:
    return os.path.basename(counter).partition("_")[0]


def _throttles(counter: str) -> bool:
    """Whether what a counter counts slows the board down: each can be switched off, and counts on."""
    switch = os.path.join(os.path.dirname(counter), f"{_oc(counter)}_throt_en")
    return not os.path.isfile(switch) or read_text(switch) != "0"


def open_source(root: str) -> ThrottleSource:
    """What the board below `root` tells of throttling.

    Raises:
        SourceUnavailableError: it tells nothing.
    """
    states: Dict[str, str] = {}
    counters: Dict[str, str] = {}
    notes: Dict[str, str] = {"throttle": "a state above 0, or an event more, is throttling"}
    for kind, path in _cooling_devices(root):
        channel = _free(f"throttle_{_plain(kind)}", "state", states)
        states[channel] = path
        notes[channel] = f"cur_state of the cooling device {kind}"
    for name, path in _counter_files(root):
        channel = _free(f"throttle_{_plain(name)}", "events", counters)
        counters[channel] = path
        meaning = OC_MEANING.get(name) if path.endswith("event_cnt") else None
        notes[channel] = f"{meaning or 'over-current'} events since the first sample, from {path}"
    interrupts = "" if counters else _interrupts_file(root)
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


def _interrupts_file(root: str) -> str:
    path = os.path.join(root, "proc/interrupts")
    return path if os.path.isfile(path) and "soctherm_edp" in read_text(path) else ""


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def _free(stem: str, unit: str, taken: Dict[str, str]) -> str:
    """A channel's name that is not taken: the second of its kind is numbered 2."""
    candidates = [f"{stem}_{unit}", *(f"{stem}_{number}_{unit}" for number in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate not in taken)
