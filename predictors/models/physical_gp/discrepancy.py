"""What the physical form leaves over: a smooth Gaussian process over the logarithms of the settings, and noise."""

from __future__ import annotations

import numpy as np

from predictors.models.physical_gp.response import Features

# Set by hand on the measured tables of an Orin AGX; lengths of 0.6 or 1.6 times that, or amplitudes of 0.05, change
# errors by less than 0.3 points.
LENGTHS = np.array([1.0, 1.0, 1.0, 1.5, 1.5, 1.0])
"""How far, in natural logarithms, cores, CPU, GPU, memory and batch size reach; and training from inference."""
AMPLITUDE = (0.03, 0.04)
"""Standard deviation of the smooth part of log time and log power."""
NOISE = (0.018, 0.016)
"""Standard deviation of the noise of log time and log power."""


def correlation(one: Features, other: Features) -> np.ndarray:
    """Matern 3/2 correlation of rows n with rows m, shape (n, m): (1 + r) exp(-r), r the scaled distance."""
    a, b = np.column_stack(one) / LENGTHS, np.column_stack(other) / LENGTHS
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return (1 + distance) * np.exp(-distance)
