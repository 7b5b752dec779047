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
spread is not known before the first profile: the evidence of the rows weighs alternatives.
"""

from __future__ import annotations

import numpy as np

from predictors.models.physical_gp.response import Features, by_name, minibatch_times, power_w, traffic_share

_PARTS_ALONE = (0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)
_STEPS_OF_ALL = (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
_STRAY_TRAFFIC = (0.5, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)
_STRAY_TRAFFIC_AND_STEPS = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)

FREE_SD = np.array([_PARTS_ALONE, _STEPS_OF_ALL])
"""Alternative standard deviations of e_mem; u_mem, u_gpu, u_cpu; w_mem, w_gpu, w_cpu, shape (a, 7)."""

FURTHER_ODDS = 0.1
"""Of each alternative after the first, before the first profile: no board of the measured tables is such a board. With
even odds the power of three and five modes of two of them was up to 1 point less exact."""

MANY_CLOCKS, MANY_ROWS = 5, 10
FREE_SD_OF_MANY = np.array([_PARTS_ALONE, _STEPS_OF_ALL, _STRAY_TRAFFIC, _STRAY_TRAFFIC_AND_STEPS])
"""With so many memory clocks or more: such a board reaches far down, where the latency of a clock may be off the power
law by a factor, and its two parameters cannot follow. Fewer rows cannot show it, and lost precision."""

FORM_ALONE = np.zeros((1, len(_PARTS_ALONE)))
"""On the boards of a prior the form was seen to hold: there free values made the power of ten modes 7 % less exact."""

_OF_TIME = 1  # the first of them acts on time, the others on power
_CLOCKS = ("memory", "memory", "gpu", "cpu", "memory", "gpu", "cpu")  # the features whose values they belong to


def free_sd_for(mem_khz: np.ndarray) -> np.ndarray:
    """Alternative standard deviations of the free values on a board of no prior, shape (a, 7).

    `mem_khz` are the memory clocks of its profiles.
    """
    has_many = len(np.unique(mem_khz)) >= MANY_CLOCKS and len(mem_khz) >= MANY_ROWS
    return FREE_SD_OF_MANY if has_many else FREE_SD


def clock_effects(free_sd: np.ndarray, theta: np.ndarray, at: Features) -> np.ndarray:
    """Standard deviation of log time or log power by each free value, at parameters (s, d): shape (s, 7, n).

    `free_sd` are those of the values, shape (s, 7).
    """
    values = by_name(theta)
    times = minibatch_times(values, at)
    watts = power_w(values, at, times)
    whole = np.exp(values["scale"]) / watts.total
    shares = (
        traffic_share(values, times),
        whole * (watts.mem_idle + watts.mem_busy),
        whole * watts.gpu * watts.gpu_voltage,
        whole * watts.cores * watts.cpu_voltage,
        *[np.ones_like(whole)] * 3,  # of all power
    )
    return free_sd[:, :, None] * np.stack(shares, axis=1)


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
