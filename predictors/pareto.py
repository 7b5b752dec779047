"""Pareto fronts: the modes that no other mode beats in both of two figures, such as power and time."""

from __future__ import annotations

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.units import ms_to_s


def front(cost: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The places that no other place beats, where of both figures less is better.

    001 sec. 1.3, 004 sec. 5.6: sorted by cost, every point is kept whose value is lower than all before it.

    Args:
        cost: what the front is ordered by, shape (n,).
        value: the other figure, shape (n,). A place where one of both is NaN is on no front.

    Returns:
        Places by ascending cost and so by descending value, none equal in both: of such, the first in the input.

    Raises:
        InvalidValueError: the two are not of the same shape (n,).
    """
    cost, value = np.asarray(cost, dtype=float), np.asarray(value, dtype=float)
    if cost.ndim != 1 or cost.shape != value.shape:
        raise InvalidValueError(f"a front needs two figures of each mode, got shapes {cost.shape} and {value.shape}")
    known = np.flatnonzero(~(np.isnan(cost) | np.isnan(value)))
    order = known[np.lexsort((value[known], cost[known]))]
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], value[order]]))[:-1]
    is_first = np.arange(len(order)) == 0  # infinity is not lower than infinity, yet the first point is on the front
    return order[(value[order] < least_before) | is_first]


def time_power_front(time_ms: np.ndarray, power_mw: np.ndarray) -> np.ndarray:
    """The places of the fastest modes at every power, by ascending power; arguments have shape (n,)."""
    return front(power_mw, time_ms)


def time_energy_front(time_ms: np.ndarray, power_mw: np.ndarray) -> np.ndarray:
    """The places of the fastest modes at every energy per minibatch, by ascending energy."""
    return front(energy_mws(time_ms, power_mw), time_ms)


def energy_mws(time_ms: np.ndarray, power_mw: np.ndarray) -> np.ndarray:
    """Energy of a minibatch in mW s (mJ): power x time (001 sec. 1.1)."""
    return ms_to_s(np.asarray(time_ms, dtype=float)) * np.asarray(power_mw, dtype=float)
