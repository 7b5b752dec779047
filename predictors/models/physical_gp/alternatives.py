"""What a board of no prior may have beyond the physical form: alternatives that the evidence of its rows weighs.

The form and its prior were learned from networks on a few boards, whose power was sampled while they trained. Elsewhere
power may depart further from the form. A program may overlap its parts less than any network does, or draw less: then
the prior is too narrow. Power may be an average over pauses too, in which the GPU is off, as where samples span several
short runs: a faster mode then has a smaller share of busy time.

Single clocks may have values of their own. The form has a power law of the memory clock, and voltages that rise
smoothly with the clock. A real board has tables: timings for each clock of its memory, which shift latencies by up to
45 %, not always downwards (arXiv 2606.16106), and a voltage for each CPU and GPU clock. So the traffic M, and the
power of memory, GPU and CPU, have a factor of their own at each clock. The supply of the whole chip may have steps
too: it follows the memory clock on a Tegra, and its regulators lose more or less with each voltage. So the total
power may have a factor at each clock as well. Libraries choose kernels by the batch size, so that a smaller batch may
take longer than a greater one: the time may have a factor at each batch size. The logarithm of a factor is normal
around 0, independent from value to value. It acts on log time and log power in proportion to the share that the part
has in them:

    log T += (d log T / d log M) e_mem + e_batch
    log power += share_mem u_mem + share_gpu u_gpu + share_cpu u_cpu + w_mem + w_gpu + w_cpu

Rows with the same clock or batch size have the same value, so the values are part of the covariance of the residuals.

Inference may leave power as it is, however long the GPU waits, and its time may have a floor at small batch sizes that
follows the memory clock, or no clock: then single parameters have a prior of their own.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from predictors.models.physical_gp.response import PARAMETERS, Features, ResponseModel, by_name, traffic_share
from predictors.settings import Settings

AMPLITUDE = (0.03, 0.04)
"""Standard deviation of the smooth part of log time and log power. Set by hand on the measured tables of an Orin AGX;
amplitudes of 0.05 change errors by less than 0.3 points."""

NOISE = (0.018, 0.016)
"""Standard deviation of the noise of log time and log power."""


class Alternative(NamedTuple):
    """One belief about a board; by default, that the form and its prior hold."""

    # standard deviations of the free values e_mem, e_batch; u_mem, u_gpu, u_cpu; w_mem, w_gpu, w_cpu
    free_sd: Tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    smooth_sd: Tuple[float, float] = AMPLITUDE  # standard deviations of the smooth part of log time and log power
    noise_sd: Tuple[float, float] = NOISE  # likewise of the noise
    pause: float = 0.0  # as of `power_w`, relative to the geometric mean time of the rows
    prior_width: float = 1.0  # factor on the standard deviations of the prior
    # parameters with a prior of their own: name, mean and standard deviation, as of rows of mean log time 0
    own_prior: Tuple[Tuple[str, float, float], ...] = ()


class Alternatives(NamedTuple):
    """Alternatives, s of them, as arrays; the fields are those of `Alternative`."""

    free_sd: np.ndarray  # shape (s, 8)
    smooth_sd: np.ndarray  # (s, 2)
    noise_sd: np.ndarray  # (s, 2)
    pause: np.ndarray  # (s,)
    prior_width: np.ndarray  # (s,)
    own_prior: np.ndarray  # mean and standard deviation of each parameter, (s, 2, d); NaN where the prior holds


def stack(alternatives: Sequence[Alternative]) -> Alternatives:
    *columns, own_priors = zip(*alternatives)
    own = np.full((len(alternatives), 2, len(PARAMETERS)), np.nan)
    for place, own_prior in enumerate(own_priors):
        for name, mean, sd in own_prior:
            own[place, :, PARAMETERS.index(name)] = mean, sd
    return Alternatives(*map(np.array, (*columns, own)))


FORM_ALONE = stack([Alternative()])
"""On the boards of a prior the form was seen to hold: there free values made the power of ten modes 7 % less exact, and
power further from the form changes mean errors by less than 0.1 points."""

_OWN_CLOCKS = Alternative(free_sd=(0.1, 0.0, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0))
_STRAY_POWER = (AMPLITUDE[0], 6 * AMPLITUDE[1])

OTHER_BOARDS = (
    _OWN_CLOCKS,
    _OWN_CLOCKS._replace(free_sd=(0.1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)),  # steps of all power
    _OWN_CLOCKS._replace(smooth_sd=_STRAY_POWER),
    _OWN_CLOCKS._replace(smooth_sd=_STRAY_POWER, pause=0.5),
    _OWN_CLOCKS._replace(smooth_sd=_STRAY_POWER, pause=2.0),
    _OWN_CLOCKS._replace(prior_width=2.0),
)
"""Set by hand on made-up boards, some of which average power over pauses or windows: there the power errors of 10 and
50 modes fall by about a third. On the measured tables, each under a prior without its board, errors change by at most
0.2 points in the mean over the tables from 5 modes on; with one mode, the power of two tables is 1 point less exact."""

FURTHER_ODDS = 0.1
"""Of each alternative after the first, before the first profile: no measured training needs one. With even odds of the
second alone, the power of three and five modes of two of them was up to 1 point less exact."""

_STEADY_POWER = (("gpu_idle", 1.8, 0.8), ("gpu_busy", -2.0, 0.5), ("mem_busy", 0.0, 0.5), ("core_busy", -3.0, 0.5))
_MEMORY_FLOOR = (("cpu_slope", 0.1, 0.1), ("cpu_memory_slope", 0.7, 0.2))
_FIXED_FLOOR = (("constant", -1.0, 1.0),)
INFERENCE = (
    _OWN_CLOCKS._replace(own_prior=_STEADY_POWER),
    _OWN_CLOCKS._replace(own_prior=(*_STEADY_POWER, *_MEMORY_FLOOR)),
    _OWN_CLOCKS._replace(own_prior=(*_STEADY_POWER, *_FIXED_FLOOR)),
)
"""Further ones in inference: power that waiting does not lower, alone and with a floor of the time that follows the
memory clock, as where weights are read whatever the batch size, or no clock. Set by hand on the 20 tables of a TX2:
there the mean errors of 3, 5 and 10 modes fall from 17.3, 11.5 and 7.9 % of time to 13.8, 10.1 and 7.6 %, and of power
from 7.6, 4.0 and 3.0 % to 5.9, 3.4 and 2.9 %; on ten other draws of modes by at least two thirds as much. On eight
tables, under priors without their board, the mean errors of time and power change by at most 0.1 points from 5 modes
on, that of ResNet-18 on an Orin AGX from 11.1 to 12.4 % of time with 5; with 3, power is 0.4 points less exact. In
training they made the time of 3 modes of an Orin Nano 2 points less exact.

Times that do not follow the clock of the GPU, of the memory or of either (slopes of 0) were tried instead: they brought
17.0, 11.1 and 8.0 %, and changed single tables by up to 4.7 points either way."""

OWN_BATCH_SIZES, SCATTERED_TIMES = 0.2, 0.1
"""Standard deviations of e_batch, and of the noise of log time, in further ones of inference with several batch sizes:
those of `INFERENCE` with times of their own at each size, alone and with times that scatter from run to run, as those
of programs of a fraction of a millisecond do. On the 20 tables of the TX2 the mean errors of time of 3, 5 and 10 modes
change from 13.8, 10.1 and 7.6 % to 13.5, 9.6 and 7.1 %, and with both to 13.6, 9.3 and 6.7 %; those of power from 5.9,
3.4 and 2.9 % to 5.0, 3.3 and 2.9 %. On ten other draws of modes they fall as well, but for the time of 3 modes. Noise
of 0.07 or 0.15 changes means by less than 0.1 points. What they do in training was not measured."""

MANY_CLOCKS, MANY_ROWS = 5, 10
STRAY_TRAFFIC = (
    _OWN_CLOCKS._replace(free_sd=(0.5, 0.0, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)),
    _OWN_CLOCKS._replace(free_sd=(0.5, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)),
)
"""Further ones with so many memory clocks and rows, or more: such a board reaches far down, where the latency of a
clock may be off the power law by a factor, and its two parameters cannot follow. Fewer rows cannot show it, and lost
precision."""


def of_other_board(rows: Settings) -> Alternatives:
    """The alternatives of a board of no prior with these profiled settings."""
    mem_khz = rows.modes[:, 3]
    chosen = list(OTHER_BOARDS)
    if len(np.unique(mem_khz)) >= MANY_CLOCKS and len(mem_khz) >= MANY_ROWS:
        chosen += STRAY_TRAFFIC
    if rows.inference.all():
        chosen += INFERENCE
        if np.ptp(rows.batch_size):
            chosen += of_several_batch_sizes()
    return stack(chosen)


def of_several_batch_sizes() -> List[Alternative]:
    """The further alternatives of inference with several batch sizes."""
    own_sizes = [each._replace(free_sd=(each.free_sd[0], OWN_BATCH_SIZES, *each.free_sd[2:])) for each in INFERENCE]
    scattered = [each._replace(noise_sd=(SCATTERED_TIMES, NOISE[1])) for each in own_sizes]
    return own_sizes + scattered


_OF_TIME = 2  # so many of them act on time, the others on power
_FEATURES = ("memory", "batch", "memory", "gpu", "cpu", "memory", "gpu", "cpu")  # whose values they belong to


def free_effects(alternatives: Alternatives, theta: np.ndarray, at: Features) -> np.ndarray:
    """Standard deviation of log time or log power by each free value, shape (s, 8, n).

    At the s parameter vectors `theta`, (s, d), under an alternative each.
    """
    response = ResponseModel(by_name(theta), at)
    times = response.times()
    watts = response.watts(times, pause=alternatives.pause)
    whole = np.exp(response.values["scale"]) / watts.total
    shares = (
        traffic_share(response, times),
        np.ones_like(whole),  # of all time
        whole * (watts.mem_idle + watts.mem_busy),
        whole * watts.gpu * watts.gpu_voltage,
        whole * watts.cores * watts.cpu_voltage,
        *[np.ones_like(whole)] * 3,  # of all power
    )
    return alternatives.free_sd[:, :, None] * np.stack(shares, axis=1)


def free_covariance(rows: Features, other: Features, effects: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Covariance of n rows with m other rows, for log time and log power: shape (s, 2, n, m).

    `effects` and `others` are the `free_effects` of either, shapes (s, 8, n) and (s, 8, m).
    """
    covariance = np.zeros((len(effects), 2, effects.shape[2], others.shape[2]))
    for place, name in enumerate(_FEATURES):
        if not effects[:, place].any():
            continue
        of_figure = covariance[:, int(place >= _OF_TIME)]
        values, other_values = getattr(rows, name), getattr(other, name)
        for value in np.intersect1d(values, other_values):
            here, there = np.flatnonzero(values == value), np.flatnonzero(other_values == value)
            together = np.einsum("sn,sm->snm", effects[:, place][:, here], others[:, place][:, there])
            of_figure[:, here[:, None], there] += together
    return covariance


def free_variance(effects: np.ndarray) -> np.ndarray:
    """The diagonal of `free_covariance` of rows with themselves, shape (s, 2, n)."""
    squares = effects**2
    return np.stack([squares[:, :_OF_TIME].sum(1), squares[:, _OF_TIME:].sum(1)], axis=1)
