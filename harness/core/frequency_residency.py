"""Frequency residency: share of the time at each share of a clock's maximum (M15; SIGMETRICS sec. 5.5.2)."""

from __future__ import annotations

import math
import re
from typing import Any, Dict

from harness.core.metrics import between
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import Series, Telemetry
from harness.core.units import percent_to_share

BIN_PERCENT = 5  # width of a bin in hundredths of the maximum
SET_PERCENT = 95.0
"""From this share on a reading counts as the maximum: SIGMETRICS sec. 5.5, footnote 2 counts readings within the 95th
percentile of the set value as that value."""

# Dimension of a power mode to the telemetry channels that show its clock. gpu1_khz is not the GPU's: Thor's NVD.
_CHANNELS = {"cpu_khz": r"cpu\d+(_measured)?_khz", "gpu_khz": "gpu_khz", "mem_khz": r"(emc|gpu_mem)_khz"}


def clock_use(telemetry: Telemetry, mode: PowerMode, start_s: float, end_s: float) -> Dict[str, Dict[str, Any]]:
    """The use of each clock from `start_s` to `end_s`, by channel, if it was read and the mode has its value.

    `set_khz` is the value in the mode as read back; `residency` that of `frequency_residency`, edges as text; `samples`
    the number of readings; `off` how many of them differ from `set_khz` by the 95 % rule (C3); `source` is from the
    telemetry's notes, because `scaling_cur_freq` is only the requested clock.
    """
    used: Dict[str, Dict[str, Any]] = {}
    near = percent_to_share(SET_PERCENT)
    for channel, clock in telemetry.series.items():
        set_khz = next(
            (getattr(mode, name) for name, pattern in _CHANNELS.items() if re.fullmatch(pattern, channel)), UNKNOWN_KHZ
        )
        readings = between(clock, start_s, end_s).values
        if set_khz == UNKNOWN_KHZ or not readings:
            continue
        residency = frequency_residency(clock, set_khz, start_s, end_s)
        # The paper gives a lower bound (2,262 MHz count as 2,265 MHz). The upper bound is as far above, so that a clock
        # that was not lowered is not mistaken for a low one.
        off = sum(not near * set_khz <= reading <= (2 - near) * set_khz for reading in readings)
        used[channel] = {
            "set_khz": set_khz,
            "residency": {f"{edge:g}": share for edge, share in residency.items()},
            "samples": len(readings),
            "off": off,
            **({"source": telemetry.notes[channel]} if channel in telemetry.notes else {}),
        }
    return used


def frequency_residency(
    clock: Series, max_khz: float, start_s: float = -math.inf, end_s: float = math.inf
) -> Dict[float, float]:
    """Share of the time by share of `max_khz`, the lower edge of a bin (0, 0.05, ... 0.9; 1 from `SET_PERCENT` on).

    A sample holds until the next; time before the first and after the last does not count. Edges ascend, without empty
    bins. Empty if no time is covered.
    """
    times_s: Dict[float, float] = {}
    for time_s, khz, next_s in zip(clock.times_s, clock.values, clock.times_s[1:]):
        seconds = min(next_s, end_s) - max(time_s, start_s)
        if seconds > 0:
            percent = 100 * khz / max_khz
            is_set = percent >= SET_PERCENT
            edge = 1.0 if is_set else percent_to_share(percent // BIN_PERCENT * BIN_PERCENT)
            times_s[edge] = times_s.get(edge, 0.0) + seconds
    covered_s = sum(times_s.values())
    return {edge: times_s[edge] / covered_s for edge in sorted(times_s)}
