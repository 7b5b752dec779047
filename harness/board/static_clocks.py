"""When a clock counts as static although the readings are not all the same."""

from __future__ import annotations

from typing import Sequence

STATIC_SHARE = 0.95
"""SIGMETRICS sec. 5.5 fn 2: readings from 95 % of the expected clock on count as the expected one."""


def counts_as(reading_khz: float, set_khz: float) -> bool:
    """Whether a reading is taken for the clock that was set.

    Args:
        reading_khz: what was read.
        set_khz: what was set, above 0.

    The paper gives a lower bound (2,262 MHz are taken for 2,265 MHz); the upper one lies as far above, so that a clock
    that was not lowered is not taken for a low one.
    """
    return STATIC_SHARE * set_khz <= reading_khz <= (2 - STATIC_SHARE) * set_khz


def is_static(readings_khz: Sequence[float], set_khz: float) -> bool:
    """Whether every reading counts as the clock that was set; no reading is no evidence, and counts as not static.

    Args:
        readings_khz: samples of the clock.
        set_khz: what was set, above 0.
    """
    return bool(readings_khz) and all(counts_as(reading, set_khz) for reading in readings_khz)
