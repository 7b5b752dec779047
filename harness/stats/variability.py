"""How much repetitions differ: on one device over time, and between devices of a type (M14; 004 sec. 5.4)."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import numpy as np


class Variability(NamedTuple):
    """The spread of repeated figures."""

    median: float  # of them
    deviation: float  # the greatest distance from the median as a share of it (004 sec. 5.4.1).
    interquartile: float  # third less first quartile, as a share of the median (the boxes of 004 Fig. 5).
    coefficient: Optional[float]  # standard deviation over mean (002 sec. II.4); None of a single figure.
    coefficient_low: Optional[float]  # its 95 % interval, for a normal distribution; None likewise
    coefficient_high: Optional[float]
    # slope of a line through them over time, as a share of the median per hour; None without times
    trend_per_h: Optional[float]
    count: int  # how many there are


def variability(
    values: Sequence[float], times_h: Optional[Sequence[float]] = None, confidence: float = 0.95
) -> Optional[Variability]:
    """The spread of repeated figures, such as the epoch times of a night; None where there are none."""
    found = np.asarray(values, dtype=float)
    if len(found) == 0:
        return None
    first, median, third = np.percentile(found, [25, 50, 75])
    coefficient, low, high, trend = None, None, None, None
    if len(found) > 1:
        from scipy import stats

        freedom = len(found) - 1
        coefficient = float(np.std(found, ddof=1) / np.mean(found))
        quantiles = stats.chi2.ppf([0.5 + confidence / 2, 0.5 - confidence / 2], freedom)
        low, high = (float(coefficient * np.sqrt(freedom / quantile)) for quantile in quantiles)
        if times_h is not None and np.ptp(times_h) > 0:
            trend = float(np.polyfit(np.asarray(times_h, dtype=float), found / median, 1)[0])
    return Variability(
        float(median),
        float(np.max(np.abs(found - median)) / median),
        float((third - first) / median),
        coefficient,
        low,
        high,
        trend,
        len(found),
    )


def between(medians: Sequence[float]) -> Optional[float]:
    """Between devices of a type: greatest over least median less one (004 sec. 5.4.2); None of less than two."""
    return max(medians) / min(medians) - 1.0 if len(medians) > 1 else None
