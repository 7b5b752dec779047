"""Telemetry sources: their protocol, the list of them, and functions that they share.

A source is a function `open_source(root, **options) -> Source` in the module of its subsystem, and a line in `SOURCES`
with its name in `doctor`. Sources run in the sampler's process, so they import nothing heavy.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import re
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.board.bounded_reads import watched
from harness.board.kernel_file import KeptFile
from harness.core.errors import SourceUnavailableError
from harness.core.terminal import available_hint
from harness.core.units import mw_to_w


class SourceModule(NamedTuple):
    module: str  # of this package, with the function `open_source`
    topic: str  # its name in `doctor`


SOURCES: Dict[str, SourceModule] = {
    "cpu": SourceModule("cpu", "measure CPU use, own and others'"),
    "cpufreq": SourceModule("cpu_clocks", "measure CPU clocks"),
    "devfreq": SourceModule("gpu", "measure GPU and memory clocks"),
    "diskstats": SourceModule("disk", "measure block I/O"),
    "fan": SourceModule("fan", "watch the fan"),
    "ina": SourceModule("power_rails", "measure power"),
    "jtop": SourceModule("jtop", "read jtop beside it"),
    "memory": SourceModule("memory", "measure memory"),
    "nvml": SourceModule("nvml", "measure the GPU and its power"),
    "pmic": SourceModule("pmic", "measure power"),
    "rapl": SourceModule("rapl", "measure power"),
    "thermal": SourceModule("thermal", "measure temperatures"),
    "throttle": SourceModule("throttling", "notice throttling"),
}
"""The suite's sources by their names in records; a package's device names its own as `module:FUNCTION`."""

MIN_WINDOW_S = 0.02
"""The shortest time over which a counter is turned into a rate: two ticks of the kernel's 100-Hz CPU accounting, some
20 updates of a RAPL counter. A rate over a shorter time would be noise."""


MOST_BOARD_MW = 500_000.0
"""More than the supply of any Jetson kit or Raspberry Pi gives: the bound of a board without facts."""


MOST_MACHINE_MW = 100_000_000.0
"""More than the supply of any one machine gives: the bound of what a package's source reads."""

POSSIBLE = {
    "c": (-100.0, 200.0),  # chips are made for -55 to 175 C at most
    "khz": (0.0, 1e8),  # of the memory of a GPU NVML shows some 14 GHz
    "share": (0.0, 2.0),  # a fan may turn faster than its data sheet says, and a disk's counter is of milliseconds
    "bytes": (0.0, 2.0**60),
}
"""By the unit that ends a channel's name what a sensor can have; what is outside is a fault of it or of its driver."""

POWER_TOTAL = "power_total_mw"


class SourceSpec(NamedTuple):
    name: str  # one of `SOURCES`, or `module:FUNCTION` of another package
    options: Dict[str, Any] = {}  # noqa: RUF012 - never changed; keyword arguments of its `open_source`
    root: str = ""  # the folder with `/sys` and `/proc`; empty for that of the other sources


class Reading(NamedTuple):
    """What a source saw; the unit ends a channel: `_mw`, `_khz`, `_bytes`, `_c`, `_cores`, `_per_s`, `_share`, ..."""

    values: Dict[str, float]  # by channel
    failed: Dict[str, str]  # channel to the reason, for channels that should have a value now and have none


class Source(NamedTuple):
    """Sensors that are read together; any object with these two attributes will do."""

    notes: Dict[str, str]  # channel, or the source's own name, to the meaning of its values
    read: Callable[[float], Reading]  # a reading at `time.monotonic()` = its argument
    """Reads every channel once, at `time.monotonic()` = its argument.

    Rates and power from counters are means since the previous reading, so the first reading has none. Raises OSError,
    ValueError or SourceUnavailableError if nothing could be read; a later reading may succeed.
    """


def open_source(spec: SourceSpec, root: str) -> Source:
    """Open the source that `spec` names; SourceUnavailableError if it does not exist or may not be read."""
    source = _opener(spec.name)(spec.root or root, **spec.options)
    return Source(source.notes, lambda now_s: _possible(source.read(now_s)))


def _possible(reading: Reading) -> Reading:
    """A reading without what cannot be: numbers that are none, and values that no sensor of their unit has."""
    values, failed = dict(reading.values), dict(reading.failed)
    for channel, value in reading.values.items():
        why = why_impossible(channel, value)
        if why:
            failed[channel] = why
            del values[channel]
    lost = [channel for channel in failed if channel.startswith("power_") and channel in reading.values]
    if lost and values.pop(POWER_TOTAL, None) is not None:  # others in it may have hidden what is wrong with this one
        failed[POWER_TOTAL] = f"{lost[0]}: {failed[lost[0]]}"
    return Reading(values, failed)


def why_impossible(channel: str, value: float) -> str:
    """Why a channel cannot have a value; empty if it can."""
    try:
        if not math.isfinite(value):
            return f"it reads {value}"
        unit = channel.rpartition("_")[2]
        if unit == "mw":
            possible_mw(value, MOST_MACHINE_MW)
    except TypeError:
        return f"it reads {value!r}, which is no number"
    except ValueError as error:
        return str(error)
    least, most = POSSIBLE.get(unit, (-math.inf, math.inf))
    return "" if least <= value <= most else f"it reads {value:g}, and {least:g} to {most:g} are possible"


OPEN_S = 30.0  # most that opening a source takes: starting the helper, or waiting for jtop
READ_S = 8.0  # most that a reading takes; a run of which no temperature comes for 10 s is ended


def open_watched(spec: SourceSpec, root: str) -> Source:
    """As `open_source`, without what does not answer; whatever opening raises, and StuckError after `OPEN_S`."""
    return watched(functools.partial(open_source, spec, root), OPEN_S, f"telemetry source {spec.name}")


def read_watched(name: str, source: Source, now_s: float) -> Reading:
    """A reading without what does not answer; whatever reading raises, and StuckError after `READ_S`."""
    return watched(functools.partial(source.read, now_s), READ_S, f"telemetry source {name}")


def _opener(name: str) -> Callable[..., Source]:
    if name in SOURCES:
        return importlib.import_module(f"harness.board.{SOURCES[name].module}").open_source
    module, mark, function = name.partition(":")
    if not mark:
        hint = f"{available_hint(name, SOURCES)}; a package's own is named module:FUNCTION"
        raise SourceUnavailableError(f"there is no telemetry source {name!r}", hint)
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:
        what = f"telemetry source {name} cannot be loaded: {type(error).__name__}: {error}"
        raise SourceUnavailableError(what, "fix the package that provides it") from error


def read_each(readers: Mapping[str, Callable[[], float]]) -> Reading:
    values, failed = {}, {}
    for channel, read in readers.items():
        try:
            values[channel] = read()
        except (OSError, ValueError) as error:
            failed[channel] = str(error)
    return Reading(values, failed)


def possible_mw(power_mw: float, most_mw: float) -> float:
    """A reading of power; ValueError if its supply cannot give it, so that the sample is dropped and counted."""
    if abs(power_mw) <= most_mw:
        return power_mw
    raise ValueError(f"it reads {mw_to_w(power_mw):.4g} W, and its supply gives at most {mw_to_w(most_mw):.4g} W")


def add_sum(reading: Reading, channel: str, parts: Sequence[str]) -> None:
    """Add the sum of channels to a reading; if one of them has no value, there is no sum, never one of fewer."""
    without = [part for part in parts if part not in reading.values]
    if without:
        why = reading.failed.get(without[0])
        reading.failed[channel] = f"its part {', '.join(without)} gave no value{f': {why}' if why else ''}"
    else:
        reading.values[channel] = sum(reading.values[part] for part in parts)


def file_source(
    sensors: Mapping[str, Tuple[str, Callable[[int], float]]],
    notes: Optional[Dict[str, str]] = None,
    missing: Optional[Mapping[str, str]] = None,
) -> Source:
    """A source with one file per channel, which stays open: channel to path and conversion of the integer in it.

    `notes` default to the paths; `missing` has the reasons of channels that have no file.
    """

    def reader(path: str, convert: Callable[[int], float]) -> Callable[[], float]:
        file = KeptFile(path)
        return lambda: convert(file.read_int())

    readers = {channel: reader(*sensor) for channel, sensor in sensors.items()}

    def read(now_s: float) -> Reading:
        values, failed = read_each(readers)
        return Reading(values, {**(missing or {}), **failed})

    return Source({channel: path for channel, (path, _) in sensors.items()} if notes is None else notes, read)


def plain_name(name: str) -> str:
    """A sensor's name as part of a channel's name: `cpu_therm` for `CPU-therm`."""
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def free_channel(pattern: str, name: str, taken: Collection[str]) -> str:
    """The channel of a sensor, numbered from 2 if the name is taken: `temperature_acpitz_2_c` by `temperature_{}_c`."""
    channels = map(pattern.format, numbered_names(plain_name(name), "_"))
    return next(channel for channel in channels if channel not in taken)


def numbered_names(name: str, before_number: str = "") -> Iterator[str]:
    yield name
    yield from (f"{name}{before_number}{number}" for number in itertools.count(2))


class Counters:
    """Turns monotonic counters into their growth between two readings."""

    def __init__(self) -> None:
        self._last: Optional[Tuple[float, Mapping[str, float]]] = None

    def growth(self, now_s: float, totals: Mapping[str, float]) -> Optional[Tuple[float, Dict[str, float]]]:
        """Seconds since the last reading, and growth by counter (below 0: it wrapped); None without two readings."""
        if self._last is None:
            self._last = (now_s, totals)
            return None
        last_s, last_totals = self._last
        window_s = now_s - last_s
        if window_s < MIN_WINDOW_S:  # too short: this reading belongs to the next window
            return None
        self._last = (now_s, totals)
        return window_s, {name: total - last_totals[name] for name, total in totals.items() if name in last_totals}
