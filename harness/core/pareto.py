"""The Pareto front of two figures to minimise: time, and a cost such as power or energy."""

from __future__ import annotations

import numpy as np

from harness.core.errors import InvalidValueError


def pareto_front(times: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Indices of the non-dominated points, by ascending cost (001 sec. 1.3, 004 sec. 5.6).

    Of equal points the first is on the front; points with a NaN are ignored.
    """
    times, costs = np.asarray(times, dtype=float), np.asarray(costs, dtype=float)
    if times.ndim != 1 or times.shape != costs.shape:
        raise InvalidValueError(f"a front needs two figures of each mode, got shapes {times.shape} and {costs.shape}")
    points = np.flatnonzero(~(np.isnan(costs) | np.isnan(times)))
    order = points[np.lexsort((times[points], costs[points]))]
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], times[order]]))[:-1]
    is_first = np.arange(len(order)) == 0  # infinity is not lower than infinity, yet the first point is on the front
    return order[(times[order] < least_before) | is_first]
