"""What single clocks do beyond the physical form: free values for each clock of a board that no prior knows.

The form has a power law of the memory clock, and voltages that rise smoothly with the clock. A real board has tables:
timings for each clock of its memory, which shift latencies by up to 45 %, not always downwards (arXiv 2606.16106), and
a voltage for each CPU and GPU clock. So the traffic M, and the power of memory, GPU and CPU, have a factor of their own
at each clock. The supply of the whole chip may have steps too: it follows the memory clock on a Tegra, and its
regulators lose more or less with each voltage. So the total power may have a factor at each clock as well. The
logarithm of a factor is normal around 0, independent from clock to clock. It acts on log time and log power in
proportion to the share that the part has in them:

    log T += (d log T / d log M) e_mem
    log power += share_mem u_mem + share_gpu u_gpu + share_cpu u_cpu + w_mem + w_gpu + w_cpu

Rows with the same clock have the same value, so the values are part of the covariance of the residuals. How far they
spread is not known before the first profile (`alternatives.py`).
"""

from __future__ import annotations

import numpy as np

from predictors.models.physical_gp.alternatives import Alternatives
from predictors.models.physical_gp.response import Features, by_name, minibatch_times, power_w, traffic_share

_OF_TIME = 1  # the first of them acts on time, the others on power
_CLOCKS = ("memory", "memory", "gpu", "cpu", "memory", "gpu", "cpu")  # the features whose values they belong to


def clock_effects(alternatives: Alternatives, theta: np.ndarray, at: Features) -> np.ndarray:
    """Standard deviation of log time or log power by each free value, shape (s, 7, n).

    At the s parameter vectors `theta`, (s, d), under an alternative each.
    """
    values = by_name(theta)
    times = minibatch_times(values, at)
    watts = power_w(values, at, times, pause=alternatives.pause)
    whole = np.exp(values["scale"]) / watts.total
    shares = (
        traffic_share(values, times),
        whole * (watts.mem_idle + watts.mem_busy),
        whole * watts.gpu * watts.gpu_voltage,
        whole * watts.cores * watts.cpu_voltage,
        *[np.ones_like(whole)] * 3,  # of all power
    )
    return alternatives.free_sd[:, :, None] * np.stack(shares, axis=1)


def clock_covariance(rows: Features, other: Features, effects: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Covariance of n rows with m other rows, for log time and log power: shape (s, 2, n, m).

    `effects` and `others` are the `clock_effects` of either, shapes (s, 7, n) and (s, 7, m).
    """
    covariance = np.zeros((len(effects), 2, effects.shape[2], others.shape[2]))
    for place, name in enumerate(_CLOCKS):
        if not effects[:, place].any():
            continue
        of_figure = covariance[:, int(place >= _OF_TIME)]
        clocks, other_clocks = getattr(rows, name), getattr(other, name)
        for clock in np.intersect1d(clocks, other_clocks):
            here, there = np.flatnonzero(clocks == clock), np.flatnonzero(other_clocks == clock)
            together = np.einsum("sn,sm->snm", effects[:, place][:, here], others[:, place][:, there])
            of_figure[:, here[:, None], there] += together
    return covariance


def clock_variance(effects: np.ndarray) -> np.ndarray:
    """The diagonal of `clock_covariance` of rows with themselves, shape (s, 2, n)."""
    squares = effects**2
    return np.stack([squares[:, :_OF_TIME].sum(1), squares[:, _OF_TIME:].sum(1)], axis=1)
