"""Unit conversions, all of them. Inside the suite: kHz, mW, ms, bytes; energy in mWh."""

from __future__ import annotations

KHZ_PER_MHZ = 1_000
HZ_PER_KHZ = 1_000
MS_PER_S = 1_000.0
S_PER_MINUTE = 60.0
S_PER_HOUR = 3_600.0
MW_PER_W = 1_000.0
MWH_PER_WH = 1_000.0
BYTES_PER_MB = 10**6
BYTES_PER_MIB = 2**20
BYTES_PER_GIB = 2**30
BYTES_PER_SECTOR = 512  # /proc/diskstats counts in 512-byte sectors whatever the device's own sector size


def mhz_to_khz(mhz: float) -> int:
    return round(mhz * KHZ_PER_MHZ)


def khz_to_mhz(khz: float) -> float:
    return khz / KHZ_PER_MHZ


def hz_to_khz(hz: float) -> int:
    return round(hz / HZ_PER_KHZ)


def s_to_ms(seconds: float) -> float:
    return seconds * MS_PER_S


def ms_to_s(ms: float) -> float:
    return ms / MS_PER_S


def mw_to_w(mw: float) -> float:
    return mw / MW_PER_W


def w_to_mw(watt: float) -> float:
    return watt * MW_PER_W


def mws_to_mwh(mws: float) -> float:
    return mws / S_PER_HOUR


def mwh_to_wh(mwh: float) -> float:
    return mwh / MWH_PER_WH


def mwh_to_j(mwh: float) -> float:
    return mws_to_j(mwh * S_PER_HOUR)


def mws_to_j(mws: float) -> float:
    return mws / MW_PER_W


def uj_per_s_to_mw(microjoule: float, seconds: float) -> float:
    return microjoule / seconds / 1_000.0


def millidegree_to_celsius(millidegree: float) -> float:
    return millidegree / 1_000.0


def mv_ma_to_mw(millivolt: float, milliampere: float) -> float:
    return millivolt * milliampere / 1_000.0


def uw_to_mw(microwatt: float) -> float:
    """Microwatt, the power unit of hwmon, to milliwatt."""
    return microwatt / 1_000.0


def percent_to_share(percent: float) -> float:
    return percent / 100.0


def permille_to_share(permille: float) -> float:
    return permille / 1_000.0


def kib_to_bytes(kib: float) -> int:
    """Kibibytes, which `/proc/meminfo` calls kB, to bytes."""
    return round(kib * 1024)


def mb_to_bytes(mb: float) -> int:
    """Megabytes of 10^6 bytes to the nearest whole byte."""
    return round(mb * BYTES_PER_MB)


def bytes_to_mb(count: float) -> float:
    return count / BYTES_PER_MB


def share_to_percent(share: float) -> float:
    return share * 100.0
