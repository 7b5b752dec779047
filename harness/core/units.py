"""Unit conversions, all of them. Inside the suite: kHz, mW, ms, bytes; energy in mWh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, TypeVar

from harness.core.errors import InvalidValueError

if TYPE_CHECKING:
    import numpy as np

KHZ_PER_MHZ = 1_000
HZ_PER_KHZ = 1_000
MS_PER_S = 1_000.0
S_PER_MINUTE = 60.0
S_PER_HOUR = 3_600.0
S_PER_DAY = 86_400.0
MW_PER_W = 1_000.0
MWH_PER_WH = 1_000.0
BYTES_PER_MB = 10**6
BYTES_PER_MIB = 2**20
BYTES_PER_GIB = 2**30
BYTES_PER_SECTOR = 512  # /proc/diskstats counts in 512-byte sectors regardless of the device's own sector size

UNIT_FACTORS = {
    "Hz": ("kHz", 1e-3), "kHz": ("kHz", 1.0), "MHz": ("kHz", 1e3), "GHz": ("kHz", 1e6),
    "ns": ("ms", 1e-6), "us": ("ms", 1e-3), "ms": ("ms", 1.0), "s": ("ms", 1e3),
    "uW": ("mW", 1e-3), "mW": ("mW", 1.0), "W": ("mW", 1e3),
}  # fmt: skip
"""The unit of the suite that a unit of a foreign table is converted to, and the factor."""

UNIT_SPELLINGS = {
    **{unit.lower(): unit for unit in UNIT_FACTORS},
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "usecs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("nsec", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("watt", "watts"), "W"),
    **dict.fromkeys(("milliwatt", "milliwatts"), "mW"),
    **dict.fromkeys(("microwatt", "microwatts"), "uW"),
    **{f"{prefix}hertz": f"{short}Hz" for prefix, short in (("", ""), ("kilo", "k"), ("mega", "M"), ("giga", "G"))},
}
"""Units by their spellings in lower case."""


Quantity = TypeVar("Quantity", float, "np.ndarray")  # a number, or an array of them


def _times(factor: float) -> Callable[[Quantity], Quantity]:
    return lambda value: value * factor


def _over(divisor: float) -> Callable[[Quantity], Quantity]:
    return lambda value: value / divisor


khz_to_mhz = _over(KHZ_PER_MHZ)
khz_to_hz = _times(float(HZ_PER_KHZ))
s_to_ms = _times(MS_PER_S)
s_to_minutes = _over(S_PER_MINUTE)
s_to_hours = _over(S_PER_HOUR)
s_to_days = _over(S_PER_DAY)
ms_to_s = _over(MS_PER_S)
mw_to_w = _over(MW_PER_W)
w_to_mw = _times(MW_PER_W)
uw_to_mw = _over(1_000.0)  # the power unit of hwmon
mws_to_mwh = _over(S_PER_HOUR)
mwh_to_wh = _over(MWH_PER_WH)
mws_to_j = _over(MW_PER_W)
millidegree_to_celsius = _over(1_000.0)
percent_to_share = _over(100.0)
permille_to_share = _over(1_000.0)
share_to_percent = _times(100.0)
bytes_to_mb = _over(BYTES_PER_MB)
bytes_to_mib = _over(BYTES_PER_MIB)
mib_to_bytes = _times(BYTES_PER_MIB)


_DURATION = re.compile(r"(?:(?P<hours>[\d.]+)h)?(?:(?P<minutes>[\d.]+)min)?(?:(?P<seconds>[\d.]+)s)?")


def parse_duration(text: str) -> float:
    """Seconds of `5min`, `300s`, `1h30min` or `1.5h`; `InvalidValueError` of anything else, and of no time at all."""
    match = _DURATION.fullmatch(text.strip().replace(" ", ""))
    try:
        hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    except ValueError:  # two points in a number
        hours = minutes = seconds = 0.0
    total_s = hours * S_PER_HOUR + minutes * S_PER_MINUTE + seconds
    if not total_s > 0:
        raise InvalidValueError(f"{text!r} is not a duration", "a number above 0 with its unit: 5min, 300s, 1h30min")
    return total_s


def mhz_to_khz(mhz: float) -> int:
    return round(mhz * KHZ_PER_MHZ)


def hz_to_khz(hz: float) -> int:
    return round(hz / HZ_PER_KHZ)


def mwh_to_j(mwh: float) -> float:
    return mws_to_j(mwh * S_PER_HOUR)


def uj_per_s_to_mw(microjoule: float, seconds: float) -> float:
    return microjoule / seconds / 1_000.0


def mv_ma_to_mw(millivolt: float, milliampere: float) -> float:
    return millivolt * milliampere / 1_000.0


def uv_uohm_to_ma(microvolt: float, microohm: float) -> float:
    return 1_000.0 * microvolt / microohm


def kib_to_bytes(kib: float) -> int:
    """Of kibibytes, which `/proc/meminfo` calls kB."""
    return round(kib * 1024)


def mb_to_bytes(mb: float) -> int:
    return round(mb * BYTES_PER_MB)
