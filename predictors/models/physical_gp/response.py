"""The physical form: time and power of a minibatch as functions of a power mode and a vector of parameters.

With cores n, clocks f relative to `UNIT_MODE`, batch size b relative to `UNIT_BATCH` and t = 1 for inference, else 0:

    G  = exp(gpu + b' batch_compute + t inference_compute) / f_gpu^gpu_slope       arithmetic
    M  = exp(memory + ...the same...) / f_mem^memory_slope                         traffic
    c  = (f_cpu n f_cpu / (n f_cpu + exp(background)))^-cpu_slope f_mem^-cpu_memory_slope     a core, less the system
    h  = 1 + (exp(crowd) / n)^exp(crowd_slope)                                     processes that share cores
    L  = exp(launch + ...) c h^crowd_main      kernel launches
    P  = exp(prepare + ...) c h                preparing the next minibatch
    S  = exp(serial + ...) c h^crowd_main      work of the main process that nothing hides
    T  = S + exp(constant) + ((G^q + M^q)^(p/q) + L^p + P^p)^(1/p)

    power = exp(scale) (exp(base) + exp(mem_idle) f_mem^exp(mem_power) + exp(mem_busy) f_mem M/T
                        + (exp(core_idle) n + exp(cluster) + exp(core_busy) (L + P + S)/T) v(f_cpu, 4)
                        + (exp(gpu_idle) + exp(gpu_busy + ...) (G/T + exp(gpu_traffic) M/T)) v(f_gpu, 3))
    v(f, k) = w f + (1 - w) f^k      constant voltage below, rising above; logit w = cpu_voltage, gpu_voltage

b' is log b, p = exp(overlap), q = exp(traffic_overlap). Time is relative to an arbitrary unit, power in W. The smooth
maxima and the split by component follow the roofline view of a training step; the utilisations are shares of T.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from predictors.models.base import DEFAULT_BATCH_SIZE, Inputs

PARAMETERS = (
    *("gpu", "memory", "launch", "prepare", "serial", "constant"),
    *("gpu_slope", "memory_slope", "cpu_slope", "cpu_memory_slope", "background"),
    *("crowd", "crowd_slope", "crowd_main", "traffic_overlap", "overlap"),
    *("scale", "base", "mem_idle", "mem_power", "mem_busy", "core_idle", "cluster", "core_busy", "cpu_voltage"),
    *("gpu_idle", "gpu_busy", "gpu_traffic", "gpu_voltage"),
    *("batch_compute", "batch_launch", "batch_cpu", "batch_power"),
    *("inference_compute", "inference_launch", "inference_cpu", "inference_power"),
)
TIME_SCALES = PARAMETERS[:6]  # carry the unit of time: adding the same to all multiplies the time

UNIT_MODE = np.array([1.0, 2.0e6, 1.0e6, 3.0e6])
UNIT_BATCH = float(DEFAULT_BATCH_SIZE)

_STEP = 1e-4  # of the forward differences


class Features(NamedTuple):
    """Checked rows as the formulas want them, each of shape (n,)."""

    cores: np.ndarray  # logarithm of the core count
    cpu: np.ndarray  # logarithm of the relative CPU clock
    gpu: np.ndarray  # the same of the GPU
    memory: np.ndarray  # the same of the memory
    batch: np.ndarray  # logarithm of the relative batch size
    inference: np.ndarray  # 1 for inference, 0 for training


class ComponentTimes(NamedTuple):
    """The whole time and what its components would take alone, in the unit of the parameters."""

    total: np.ndarray
    gpu: np.ndarray
    memory: np.ndarray
    cpu: np.ndarray


def features(rows: Inputs) -> Features:
    """Logarithms of what is asked, relative to `UNIT_MODE` and `UNIT_BATCH`."""
    logs = np.log(rows.modes / UNIT_MODE)
    return Features(*logs.T, np.log(rows.batch_size / UNIT_BATCH), rows.inference.astype(float))


def minibatch_times(values: Dict[str, np.ndarray], at: Features) -> ComponentTimes:
    """T and its components of the formulas above."""
    v = values
    compute = v["batch_compute"] * at.batch + v["inference_compute"] * at.inference
    gpu = v["gpu"] + compute - v["gpu_slope"] * at.gpu
    memory = v["memory"] + compute - v["memory_slope"] * at.memory
    left = at.cpu - np.logaddexp(0, v["background"] - at.cores - at.cpu)
    core = -v["cpu_slope"] * left - v["cpu_memory_slope"] * at.memory
    crowd = np.logaddexp(0, np.exp(v["crowd_slope"]) * (v["crowd"] - at.cores))
    host = core + v["batch_cpu"] * at.batch + v["inference_cpu"] * at.inference
    main = v["crowd_main"] * crowd
    launch = v["launch"] + core + v["batch_launch"] * at.batch + v["inference_launch"] * at.inference + main
    prepare = v["prepare"] + host + crowd
    serial = np.exp(v["serial"] + host + main)
    both = _smooth_maximum(np.exp(v["traffic_overlap"]), gpu, memory)
    hidden = _smooth_maximum(np.exp(v["overlap"]), both, launch, prepare)
    total = serial + np.exp(v["constant"]) + np.exp(hidden)
    return ComponentTimes(total, np.exp(gpu), np.exp(memory), np.exp(launch) + np.exp(prepare) + serial)


def power_w(
    values: Dict[str, np.ndarray], at: Features, times: ComponentTimes, total: Optional[np.ndarray] = None
) -> np.ndarray:
    """Power of the formulas above; `total` is what a minibatch takes where it is known better than `times.total`."""
    v = values
    total = times.total if total is None else total
    clock = np.exp(at.memory)
    memory = (
        np.exp(v["mem_idle"] + np.exp(v["mem_power"]) * at.memory)
        + np.exp(v["mem_busy"]) * clock * times.memory / total
    )
    cores = np.exp(v["core_idle"] + at.cores) + np.exp(v["cluster"]) + np.exp(v["core_busy"]) * times.cpu / total
    active = (times.gpu + np.exp(v["gpu_traffic"]) * times.memory) / total
    effort = v["gpu_busy"] + v["batch_power"] * at.batch + v["inference_power"] * at.inference
    gpu = np.exp(v["gpu_idle"]) + np.exp(effort) * active
    watts = np.exp(v["base"]) + memory
    watts = watts + cores * _switching(at.cpu, v["cpu_voltage"], 4.0) + gpu * _switching(at.gpu, v["gpu_voltage"], 3.0)
    return np.exp(v["scale"]) * watts


def by_name(theta: np.ndarray) -> Dict[str, np.ndarray]:
    """Parameters of shape (..., d) as a dictionary of arrays (..., 1), ready to meet rows of shape (n,)."""
    return {name: theta[..., place, None] for place, name in enumerate(PARAMETERS)}


def log_response(theta: np.ndarray, at: Features, log_time: Optional[np.ndarray] = None) -> np.ndarray:
    """Logarithms of time and power side by side, shape (..., 2n), at parameters (..., d).

    `log_time` are measured times in the unit of the parameters, for the utilisations in the power.
    """
    values = by_name(theta)
    times = minibatch_times(values, at)
    total = None if log_time is None else np.exp(log_time)
    return np.concatenate([np.log(times.total), np.log(power_w(values, at, times, total))], axis=-1)


def linearised(
    theta: np.ndarray, at: Features, free: np.ndarray, log_time: Optional[np.ndarray] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """`log_response` at s parameter vectors, (s, 2n), and its derivatives by the parameters `free`, (s, 2n, f)."""
    steps = np.zeros((len(free) + 1, theta.shape[-1]))
    steps[np.arange(1, len(free) + 1), free] = _STEP
    values = log_response(theta[:, None, :] + steps, at, log_time)
    middle = values[:, 0]
    return middle, np.swapaxes(values[:, 1:] - middle[:, None], 1, 2) / _STEP


def _smooth_maximum(sharpness: np.ndarray, *logs: np.ndarray) -> np.ndarray:
    """The logarithm of (x^p + y^p + ...)^(1/p), of the logarithms of x, y, ..."""
    total = sharpness * logs[0]
    for one in logs[1:]:
        total = np.logaddexp(total, sharpness * one)
    return total / sharpness


def _switching(log_clock: np.ndarray, logit: np.ndarray, exponent: float) -> np.ndarray:
    share = 1 / (1 + np.exp(-logit))
    return share * np.exp(log_clock) + (1 - share) * np.exp(exponent * log_clock)
