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

Where power is an average over more than the minibatches, sqrt(T^2 + pause^2) takes the place of T in the power: between
T + pause, as with a pause after each minibatch, and the greater of both, as with a window of fixed length. The GPU's
idle power then counts for the share T of it only.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from predictors.settings import DEFAULT_BATCH_SIZE, Settings

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

NO_PAUSE = np.zeros(1)

ALL_ROWS = slice(None)

_MANY_ROWS = 128

_CPU_RISE, _GPU_RISE = 4.0, 3.0  # exponents of the clock in the range in which the voltage rises with it


class Features(NamedTuple):
    """Validated rows as the formulas take them, each of shape (n,)."""

    cores: np.ndarray  # logarithm of the core count
    cpu: np.ndarray  # logarithm of the relative CPU clock
    gpu: np.ndarray  # the same of the GPU
    memory: np.ndarray  # the same of the memory
    batch: np.ndarray  # logarithm of the relative batch size
    inference: np.ndarray  # 1 for inference, 0 for training


class HostTimes(NamedTuple):
    """Logarithms of the components that cores, CPU clock and memory clock decide."""

    launch: np.ndarray  # L
    prepare: np.ndarray  # P
    serial: np.ndarray  # S
    left: np.ndarray  # the clock that the system leaves to a core
    crowd: np.ndarray  # h


class GpuTimes(NamedTuple):
    """Logarithms of the components that GPU clock and memory clock decide."""

    gpu: np.ndarray  # G
    memory: np.ndarray  # M
    device: np.ndarray  # (G^q + M^q)^(1/q)


class Times(NamedTuple):
    """Logarithms of T and of its last term, in the unit of the parameters."""

    total: np.ndarray
    hidden: np.ndarray


class Watts(NamedTuple):
    """The total power, and its parts before scaling."""

    total: np.ndarray
    mem_idle: np.ndarray
    mem_busy: np.ndarray
    cores: np.ndarray  # before the voltage, as the next four are
    core_busy: np.ndarray
    gpu: np.ndarray
    gpu_compute: np.ndarray
    gpu_traffic: np.ndarray
    cpu_voltage: np.ndarray  # v
    gpu_voltage: np.ndarray
    duty: np.ndarray  # the share of the minibatch in the time that power is averaged over


def features(rows: Settings) -> Features:
    """Logarithms of the inputs, relative to `UNIT_MODE` and `UNIT_BATCH`."""
    cores, cpu, gpu, memory = contiguous_columns(np.log(rows.modes / UNIT_MODE))
    return Features(cores, cpu, gpu, memory, np.log(rows.batch_size / UNIT_BATCH), rows.inference.astype(float))


def contiguous_columns(table: np.ndarray) -> np.ndarray:
    """The columns of a table (n, c) as the rows of an array (c, n).

    In NumPy 1.24 with AVX-512, where an array with a stride lies in memory decides how `exp` and `log` of it round: the
    last digits of the same fit would change by chance.
    """
    return np.ascontiguousarray(table.T)


class ResponseModel:
    """Time and power of rows at parameter vectors of `by_name`, by the formulas above.

    Rows of a grid of power modes have most settings in common: what the settings of the host decide, and what those of
    GPU and memory decide, is computed once for each of them.
    """

    def __init__(self, values: Dict[str, np.ndarray], at: Features) -> None:
        self.values = values
        self._host, self._of_host = _distinct(at, (at.cores, at.cpu, at.memory, at.batch, at.inference))
        self._gpu, self._of_gpu = _distinct(at, (at.gpu, at.memory, at.batch, at.inference))
        self._host_times = _host_times(values, self._host)
        self._gpu_times = _gpu_times(values, self._gpu)

    @cached_property
    def host_times(self) -> HostTimes:
        return HostTimes(*(part[..., self._of_host] for part in self._host_times))

    @cached_property
    def gpu_times(self) -> GpuTimes:
        return GpuTimes(*(part[..., self._of_gpu] for part in self._gpu_times))

    def times(self, rows: slice = ALL_ROWS) -> Times:
        """T and the part of it that is hidden behind each other."""
        of_host, of_gpu = self._of_host[rows], self._of_gpu[rows]
        device, launch, prepare, shown = self._times_of_settings
        hidden = np.logaddexp(np.logaddexp(device[..., of_gpu], launch[..., of_host]), prepare[..., of_host])
        hidden = hidden / np.exp(self.values["overlap"])
        return Times(np.log(shown[..., of_host] + np.exp(hidden)), hidden)

    def watts(
        self,
        times: Times,
        log_time: Optional[np.ndarray] = None,
        pause: np.ndarray = NO_PAUSE,
        rows: slice = ALL_ROWS,
    ) -> Watts:
        """Power; `log_time` is the measured time of a minibatch, if any, instead of `times.total`.

        `pause` is that of the formulas, 0 where power is an average over minibatches alone; one for each parameter
        vector, shape (...).
        """
        log_time = times.total if log_time is None else log_time
        share, duty = np.exp(-log_time), np.ones(1)
        if pause.any():
            duty = 1 / np.hypot(1, pause[..., None] * share)
            share = share * duty
        of_cores, of_work, cpu_voltage = (part[..., self._of_host[rows]] for part in self._power_of_host)
        static, mem_idle, of_memory, of_compute, of_traffic, gpu_voltage = (
            part[..., self._of_gpu[rows]] for part in self._power_of_gpu
        )
        core_busy = of_work * share
        cores = of_cores + core_busy
        mem_busy, gpu_compute, gpu_traffic = of_memory * share, of_compute * share, of_traffic * share
        gpu = np.exp(self.values["gpu_idle"]) * duty + gpu_compute + gpu_traffic
        total = np.exp(self.values["scale"]) * (static + mem_busy + cores * cpu_voltage + gpu * gpu_voltage)
        parts = (mem_idle, mem_busy, cores, core_busy, gpu, gpu_compute, gpu_traffic)
        return Watts(total, *parts, cpu_voltage, gpu_voltage, duty)

    @cached_property
    def _times_of_settings(self) -> Tuple[np.ndarray, ...]:
        """The terms of T: (G^q + M^q)^(p/q), L^p and P^p as logarithms, and what nothing hides."""
        sharpness = np.exp(self.values["overlap"])
        hidden = (self._gpu_times.device, self._host_times.launch, self._host_times.prepare)
        shown = np.exp(self._host_times.serial) + np.exp(self.values["constant"])
        return (*(sharpness * part for part in hidden), shown)

    @cached_property
    def _power_of_host(self) -> Tuple[np.ndarray, ...]:
        """Of the cores: power without work, power of work times T, and what the voltage makes of both."""
        v, at = self.values, self._host
        launch, prepare, serial = (np.exp(part) for part in self._host_times[:3])
        idle = np.exp(v["core_idle"] + at.cores) + np.exp(v["cluster"])
        return (
            idle,
            np.exp(v["core_busy"]) * (launch + prepare + serial),
            _switching(at.cpu, v["cpu_voltage"], _CPU_RISE),
        )

    @cached_property
    def _power_of_gpu(self) -> Tuple[np.ndarray, ...]:
        """Power without work, of all and of the memory; power times T of the memory, of arithmetic and of traffic.

        Last, what the voltage makes of the GPU's.
        """
        v, at, times = self.values, self._gpu, self._gpu_times
        mem_idle = np.exp(v["mem_idle"] + np.exp(v["mem_power"]) * at.memory)
        of_memory = np.exp(v["mem_busy"] + at.memory + times.memory)
        effort = v["gpu_busy"] + v["batch_power"] * at.batch + v["inference_power"] * at.inference
        of_compute, of_traffic = np.exp(effort + times.gpu), np.exp(effort + v["gpu_traffic"] + times.memory)
        voltage = _switching(at.gpu, v["gpu_voltage"], _GPU_RISE)
        return np.exp(v["base"]) + mem_idle, mem_idle, of_memory, of_compute, of_traffic, voltage


def _distinct(at: Features, columns: Sequence[np.ndarray]) -> Tuple[Features, np.ndarray]:
    """Rows with distinct values in some columns, and which of them each row is equal to.

    Few rows are taken as they are: to look for equal ones costs more than it saves.
    """
    if len(at.cores) < _MANY_ROWS:
        return at, np.arange(len(at.cores))
    number = np.zeros(len(at.cores), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        number = np.unique(number * len(values) + place, return_inverse=True)[1]
    first = np.unique(number, return_index=True)[1]
    return Features(*(column[first] for column in at)), number


def _host_times(v: Dict[str, np.ndarray], at: Features) -> HostTimes:
    left = at.cpu - np.logaddexp(0, v["background"] - at.cores - at.cpu)
    core = -v["cpu_slope"] * left - v["cpu_memory_slope"] * at.memory
    crowd = np.logaddexp(0, np.exp(v["crowd_slope"]) * (v["crowd"] - at.cores))
    host = core + v["batch_cpu"] * at.batch + v["inference_cpu"] * at.inference
    main = v["crowd_main"] * crowd
    launch = v["launch"] + core + v["batch_launch"] * at.batch + v["inference_launch"] * at.inference + main
    return HostTimes(launch, v["prepare"] + host + crowd, v["serial"] + host + main, left, crowd)


def _gpu_times(v: Dict[str, np.ndarray], at: Features) -> GpuTimes:
    compute = v["batch_compute"] * at.batch + v["inference_compute"] * at.inference
    gpu = v["gpu"] + compute - v["gpu_slope"] * at.gpu
    memory = v["memory"] + compute - v["memory_slope"] * at.memory
    sharpness = np.exp(v["traffic_overlap"])
    return GpuTimes(gpu, memory, np.logaddexp(sharpness * gpu, sharpness * memory) / sharpness)


def traffic_share(response: ResponseModel, times: Times) -> np.ndarray:
    """The derivative of log T by log M: the share of the time that waits for memory."""
    gpu = response.gpu_times
    in_device = np.exp(response.values["traffic_overlap"]) * (gpu.memory - gpu.device)
    in_hidden = np.exp(response.values["overlap"]) * (gpu.device - times.hidden)
    return np.exp(times.hidden - times.total + in_hidden + in_device)


def by_name(theta: np.ndarray, names: Sequence[str] = PARAMETERS) -> Dict[str, np.ndarray]:
    """Parameters of shape (..., d) as a dictionary of arrays (..., 1), to broadcast against rows of shape (n,).

    The arrays are contiguous, for the reason of `contiguous_columns`.
    """
    return {name: theta[..., place, None].copy() for place, name in enumerate(names)}


def log_response(
    theta: np.ndarray, at: Features, log_time: Optional[np.ndarray] = None, pause: np.ndarray = NO_PAUSE
) -> np.ndarray:
    """Logarithms of time and power side by side, shape (..., 2n), at parameters (..., d).

    `log_time` are measured times in the unit of the parameters, for the utilisations in the power; `pause` is that of
    `ResponseModel.watts`.
    """
    response = ResponseModel(by_name(theta), at)
    times = response.times()
    return np.concatenate([times.total, np.log(response.watts(times, log_time, pause).total)], axis=-1)


def linearised(
    theta: np.ndarray,
    at: Features,
    free: np.ndarray,
    log_time: Optional[np.ndarray] = None,
    pause: np.ndarray = NO_PAUSE,
) -> Tuple[np.ndarray, np.ndarray]:
    """`log_response` at s parameter vectors, (s, 2n), and its derivatives by the parameters `free`, (s, 2n, f)."""
    response = ResponseModel(by_name(theta), at)
    times = response.times()
    watts = response.watts(times, log_time, pause)
    by_time = _by_time(response, at, times)
    by_power = _by_power(response, at, watts)
    if log_time is None:
        busy = by_power["mem_busy"] + by_power["core_busy"] + by_power["gpu_busy"]
        running = np.square(watts.duty)
        waiting = by_power["gpu_idle"] * (1 - running) - busy * running
        for name, slope in by_time.items():
            by_power[name] = by_power.get(name, 0.0) + waiting * slope
    jacobian = np.zeros((len(theta), 2, len(at.cores), len(free)))
    for column, place in enumerate(free):
        for what, slopes in enumerate((by_time, by_power)):
            jacobian[:, what, :, column] = slopes.get(PARAMETERS[place], 0.0)
    return np.concatenate([times.total, np.log(watts.total)], axis=-1), jacobian.reshape(len(theta), -1, len(free))


def _by_time(response: ResponseModel, at: Features, times: Times) -> Dict[str, np.ndarray]:
    """Derivatives of log T by the parameters that it depends on."""
    v, host, gpu_times = response.values, response.host_times, response.gpu_times
    shown = np.exp(times.hidden - times.total)
    sharpness, sharpness_of_device = np.exp(v["overlap"]), np.exp(v["traffic_overlap"])
    device, launch, prepare = (
        np.exp(sharpness * (part - times.hidden)) for part in (gpu_times.device, host.launch, host.prepare)
    )
    gpu, memory = (
        np.exp(sharpness_of_device * (part - gpu_times.device)) for part in (gpu_times.gpu, gpu_times.memory)
    )
    spread_of_device = gpu * gpu_times.gpu + memory * gpu_times.memory - gpu_times.device
    spread = device * gpu_times.device + launch * host.launch + prepare * host.prepare - times.hidden
    parts = (shown * device * gpu, shown * device * memory, shown * launch, shown * prepare)
    return {
        **_by_parts(v, at, host, *parts, np.exp(host.serial - times.total)),
        "constant": np.exp(v["constant"] - times.total),
        "traffic_overlap": shown * device * spread_of_device,
        "overlap": shown * spread,
    }


def _by_power(response: ResponseModel, at: Features, watts: Watts) -> Dict[str, np.ndarray]:
    """Derivatives of log power by all parameters, with T fixed."""
    v, of_host = response.values, response.host_times
    whole = np.exp(v["scale"]) / watts.total
    cores, gpu = whole * watts.cpu_voltage, whole * watts.gpu_voltage
    mem_busy, traffic, compute = whole * watts.mem_busy, gpu * watts.gpu_traffic, gpu * watts.gpu_compute
    host = [np.exp(part) for part in (of_host.launch, of_host.prepare, of_host.serial)]
    share = cores * watts.core_busy / sum(host)
    parts = (share * part for part in host)
    mem_idle, busy = whole * watts.mem_idle, compute + traffic
    return {
        **_by_parts(v, at, of_host, compute, mem_busy + traffic, *parts),
        "scale": np.ones_like(whole),
        "base": whole * np.exp(v["base"]),
        "mem_idle": mem_idle,
        "mem_power": mem_idle * np.exp(v["mem_power"]) * at.memory,
        "mem_busy": mem_busy,
        "core_idle": cores * np.exp(v["core_idle"] + at.cores),
        "cluster": cores * np.exp(v["cluster"]),
        "core_busy": cores * watts.core_busy,
        "cpu_voltage": whole * watts.cores * _switching_slope(at.cpu, v["cpu_voltage"], _CPU_RISE),
        "gpu_idle": gpu * np.exp(v["gpu_idle"]) * watts.duty,
        "gpu_busy": busy,
        "gpu_traffic": traffic,
        "gpu_voltage": whole * watts.gpu * _switching_slope(at.gpu, v["gpu_voltage"], _GPU_RISE),
        "batch_power": busy * at.batch,
        "inference_power": busy * at.inference,
    }


def _by_parts(
    v: Dict[str, np.ndarray],
    at: Features,
    of_host: HostTimes,
    gpu: np.ndarray,
    memory: np.ndarray,
    launch: np.ndarray,
    prepare: np.ndarray,
    serial: np.ndarray,
) -> Dict[str, np.ndarray]:
    """Derivatives by the parameters of the components, given the derivatives by log G, M, L, P and S."""
    host, main = launch + prepare + serial, launch + serial
    crowded = (v["crowd_main"] * main + prepare) * -np.expm1(-of_host.crowd)
    sharpness = np.exp(v["crowd_slope"])
    return {
        **dict(zip(TIME_SCALES, (gpu, memory, launch, prepare, serial))),
        "gpu_slope": -gpu * at.gpu,
        "memory_slope": -memory * at.memory,
        "cpu_slope": -host * of_host.left,
        "cpu_memory_slope": -host * at.memory,
        "background": host * v["cpu_slope"] * -np.expm1(of_host.left - at.cpu),
        "crowd": crowded * sharpness,
        "crowd_slope": crowded * sharpness * (v["crowd"] - at.cores),
        "crowd_main": main * of_host.crowd,
        "batch_compute": (gpu + memory) * at.batch,
        "batch_launch": launch * at.batch,
        "batch_cpu": (prepare + serial) * at.batch,
        "inference_compute": (gpu + memory) * at.inference,
        "inference_launch": launch * at.inference,
        "inference_cpu": (prepare + serial) * at.inference,
    }


def _switching(log_clock: np.ndarray, logit: np.ndarray, exponent: float) -> np.ndarray:
    share = 1 / (1 + np.exp(-logit))
    return share * np.exp(log_clock) + (1 - share) * np.exp(exponent * log_clock)


def _switching_slope(log_clock: np.ndarray, logit: np.ndarray, exponent: float) -> np.ndarray:
    """The derivative of `_switching` by the logit."""
    share = 1 / (1 + np.exp(-logit))
    return share * (1 - share) * (np.exp(log_clock) - np.exp(exponent * log_clock))
