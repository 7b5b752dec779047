"""Frequency residency: share of the time at each share of a clock's maximum (M15; SIGMETRICS sec. 5.5.2)."""

from __future__ import annotations

import re
from typing import Dict, Mapping, NamedTuple, Optional

from harness.core.metrics import between
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import Series
from harness.core.units import percent_to_share

BIN_PERCENT = 5
"""Width of a bin in hundredths of the maximum."""

SET_PERCENT = 95.0
"""From here on a reading counts as the maximum itself: SIGMETRICS sec. 5.5, footnote 2 takes readings within the 95th
percentile of the value that was set for that value."""

_CHANNELS = {"cpu_khz": r"cpu\d+_khz", "gpu_khz": r"gpu\d*_khz", "mem_khz": r"emc_khz"}
"""Dimension of a power mode to the telemetry channels that show its clock."""


class ClockUse(NamedTuple):
    """What one clock did during a profile."""

    set_khz: int  # what the power mode sets it to
    residency: Dict[str, float]  # as `frequency_residency`, the edges as text: `{"0.9": 0.25, "1": 0.75}`
    samples: int  # how often it was read
    off: int  # how many of these readings do not count as `set_khz` by the 95 % rule (C3)


def clock_use(series: Mapping[str, Series], mode: PowerMode, start_s: float, end_s: float) -> Dict[str, ClockUse]:
    """What each clock did from `start_s` to `end_s`, by its channel.

    Args:
        series: telemetry by channel.
        mode: the power mode as it was read back; of a clock that is not known there is nothing to say.
        start_s: from when on, in monotonic seconds.
        end_s: until when.

    Returns:
        The channels that have a sample in that time, and whose clock the mode tells.
    """
    used: Dict[str, ClockUse] = {}
    for channel, clock in series.items():
        set_khz = next(
            (getattr(mode, name) for name, pattern in _CHANNELS.items() if re.fullmatch(pattern, channel)), UNKNOWN_KHZ
        )
        readings = between(clock, start_s, end_s).values
        if set_khz == UNKNOWN_KHZ or not readings:
            continue
        residency = frequency_residency(clock, set_khz, start_s, end_s)
        off = sum(not counts_as(reading, set_khz) for reading in readings)
        used[channel] = ClockUse(set_khz, {f"{edge:g}": share for edge, share in residency.items()}, len(readings), off)
    return used


def frequency_residency(
    clock: Series,
    max_khz: float,
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Dict[float, float]:
    """How long a clock stood where, as shares of the time.

    A sample holds until the next one: what the clock did between them nobody saw.

    Args:
        clock: the clock's samples in kHz.
        max_khz: its maximum in the power mode.
        start_s: from when on; None for the first sample. Before that nothing is known, so that time does not count.
        end_s: until when; None for the last sample. After that nothing is known either.

    Returns:
        Lower edge of a bin, as a share of the maximum (0, 0.05, ... 0.9; 1 for `SET_PERCENT` and above), to the share
        of the time in it, ascending and without those that never were; they sum to 1. Empty where no time is covered.

    Raises:
        ValueError: `max_khz` is not above 0.
    """
    if not max_khz > 0:
        raise ValueError(f"the maximum clock must be above 0 kHz, got {max_khz}")
    times_s: Dict[float, float] = {}
    for time_s, khz, next_s in zip(clock.times_s, clock.values, clock.times_s[1:]):
        from_s = time_s if start_s is None else max(time_s, start_s)
        to_s = next_s if end_s is None else min(next_s, end_s)
        if to_s > from_s:
            edge = _bin_of(khz, max_khz)
            times_s[edge] = times_s.get(edge, 0.0) + to_s - from_s
    covered_s = sum(times_s.values())
    return {edge: times_s[edge] / covered_s for edge in sorted(times_s)}


def _bin_of(khz: float, max_khz: float) -> float:
    percent = 100 * khz / max_khz
    if percent >= SET_PERCENT:
        return 1.0
    return percent_to_share(percent // BIN_PERCENT * BIN_PERCENT)


def counts_as(reading_khz: float, set_khz: float) -> bool:
    """Whether a reading is taken for the clock that was set.

    Args:
        reading_khz: what was read.
        set_khz: what was set, above 0.

    The paper gives a lower bound (2,262 MHz are taken for 2,265 MHz); the upper one lies as far above, so that a clock
    that was not lowered is not taken for a low one.
    """
    share = percent_to_share(SET_PERCENT)
    return share * set_khz <= reading_khz <= (2 - share) * set_khz
