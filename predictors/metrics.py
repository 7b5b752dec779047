"""How far predictions are off, and what profiling for them costs: the papers' figures as pure functions."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import numpy as np

from harness.core.units import ms_to_s, share_to_percent

MINIBATCHES = 40
"""Minibatches that one profile times (001 sec. 2.5)."""

SETTLING_S = 3.0
"""How long power takes to settle after a change of mode: 001 sec. 2.5 says 2-3 s."""


class Spread(NamedTuple):
    """A median over repeats and its quartiles."""

    median: float
    q1: float
    q3: float


def mape(observed: np.ndarray, predicted: np.ndarray) -> Optional[float]:
    """Mean absolute percentage error (001 sec. 4), in %.

    Args:
        observed: what was measured, shape (n,), above 0.
        predicted: what was predicted, shape (n,).

    Returns:
        None where there is nothing to compare, or where the predictor does not answer: a prediction is not finite.
    """
    observed, predicted = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if len(observed) == 0 or not np.isfinite(predicted).all():
        return None
    return float(share_to_percent(np.mean(np.abs(predicted - observed) / observed)))


def coverage(observed: np.ndarray, low: np.ndarray, high: np.ndarray) -> Optional[float]:
    """How many of the observed values lie within their interval, in %; None as in `mape`."""
    if len(observed) == 0 or np.isnan(low).any() or np.isnan(high).any():
        return None
    return float(share_to_percent(np.mean((low <= observed) & (observed <= high))))


def profiling_seconds(time_ms: np.ndarray) -> float:
    """What profiling modes takes, in s: for each, settling, a first minibatch that is discarded, and 40 that count.

    The sum over modes of 3 s + 41 x minibatch time. For ResNet-18 on the 4,368 modes of an Orin AGX it gives 16.6 s a
    mode on average; the 13.4 s of 001 sec. 3 (16.3 h) are those of 40 minibatches alone.

    Args:
        time_ms: minibatch times of the profiled modes, any shape.
    """
    times = np.asarray(time_ms, dtype=float)
    return float(SETTLING_S * times.size + (1 + MINIBATCHES) * ms_to_s(times.sum()))


def spread(values: Sequence[Optional[float]]) -> Optional[Spread]:
    """Median and quartiles over repeats (001 sec. 4); None where a repeat has no figure, or there is none."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    q1, median, q3 = np.percentile(known, (25, 50, 75))
    return Spread(float(median), float(q1), float(q3))
