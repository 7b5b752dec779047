"""Roughness: the fixed deviations of a real board from a smooth model, so that predictors find neither too easy.

What a good fit leaves of measured tables has structure: modes that share two of their settings deviate alike. So a part
of the deviation belongs to each of some pairs of settings, and a part to the mode alone. Each part is a function of a
seed and of the settings' values: a mode deviates alike whatever else is simulated with it, and two workloads deviate
differently.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Tuple

import numpy as np

CORES, CPU, GPU, MEMORY = range(4)

SHARES: Dict[Tuple[int, ...], float] = {
    (CORES, CPU): 0.3,
    (GPU, MEMORY): 0.25,
    (CPU, MEMORY): 0.1,
    (CPU, GPU): 0.1,
    (CORES, CPU, GPU, MEMORY): 0.25,
}
"""Share of the variance of the deviation that each combination of settings has."""

_MIXER = np.uint64(0x9E3779B97F4A7C15)


def deviations(size: float, seed: str, modes: np.ndarray) -> np.ndarray:
    """Factors around 1 by which a board deviates in some power modes.

    Args:
        size: standard deviation of their logarithm.
        seed: of what deviates: board, workload, quantity.
        modes: power modes, shape (n, 4).

    Returns:
        Shape (n,), the same for the same mode and seed.
    """
    settings = np.asarray(modes).astype(np.uint64)
    total = np.zeros(len(settings))
    for columns, share in SHARES.items():
        key = int.from_bytes(hashlib.sha256(repr((seed, columns)).encode()).digest()[:8], "big")
        total += np.sqrt(share) * _normal(np.uint64(key), settings[:, list(columns)])
    return np.exp(size * total)


def _normal(key: np.uint64, values: np.ndarray) -> np.ndarray:
    """Standard normal numbers that are functions of a key and of each row's values (sum of uniform ones)."""
    state = np.full(len(values), key, dtype=np.uint64)
    for column in values.T:
        state = _mixed(state ^ _mixed(column))
    total = np.zeros(len(values))
    for _ in range(12):  # twelve uniform numbers less six: mean 0, variance 1, and no tail beyond 6
        state = _mixed(state)
        total += state.astype(float) / 2.0**64
    return total - 6.0


def _mixed(state: np.ndarray) -> np.ndarray:
    """The splitmix64 step: spreads every bit of its input over the output."""
    with np.errstate(over="ignore"):
        state = state + _MIXER
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
