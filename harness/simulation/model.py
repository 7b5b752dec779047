"""The physical model of a board: minibatch time and module power of a workload in many power modes at once.

The terms at the end are formulas on plain numbers or arrays, times in ms, powers in mW.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, NamedTuple, Optional, Tuple, Union

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.core.units import MS_PER_S
from harness.simulation.parameters import BoardParameters, PhysicsParameters, WorkloadParameters, load_physics


class Load(NamedTuple):
    batch_size: int = 16  # samples per minibatch
    workers: int = 4  # `num_workers` of the DataLoader
    storage: str = "ssd"  # medium that the data set lies on: `ssd`, `sd`, `hdd`, `emmc`
    # share of the data set that the page cache holds, 0 to 1; the rest is read from the medium
    cached_share: float = 1.0
    task: str = "training"  # `training` or `inference`
    clocks: str = "static"  # `static` (DVFS off) or `dvfs`


@dataclasses.dataclass(frozen=True)
class Response:
    """The steady state of a board under a load in n power modes; every array has shape (n,)."""

    fetch_ms: np.ndarray  # reading one minibatch from storage, by all workers together
    preprocess_ms: np.ndarray  # decoding and transforming one minibatch, by all workers together
    stall_ms: np.ndarray  # the visible wait for a minibatch
    compute_ms: np.ndarray  # kernel launches, forward, backward and optimiser step
    overhead_ms: np.ndarray  # what the framework adds
    minibatch_time_ms: np.ndarray  # stall + compute + overhead
    power_mw: np.ndarray  # module power
    rails_mw: Dict[str, np.ndarray]  # the parts of `power_mw`: `base`, `cpu`, `gpu`, `memory`
    cpu_utilisation: np.ndarray  # share of the active cores' time that is used, 0 to 1
    gpu_utilisation: np.ndarray  # share of time that the GPU computes, 0 to 1


BYTES_PER_MB = 1e6


def simulate(
    board: BoardParameters,
    workload: WorkloadParameters,
    modes: np.ndarray,
    load: Load,
    *,
    tpc_share: float = 1.0,
    instance: int = 0,
    rough: bool = True,
    physics: Optional[PhysicsParameters] = None,
    limit_mw: Optional[float] = None,
) -> Response:
    """The steady state of a board in some power modes.

    `modes` has shape (n, 4), as `PowerMode`; presets gate some of the GPU's clusters (`tpc_share`); instance 0 is the
    board that the parameters were fitted to; `rough` adds the deviations that a real board shows. `limit_mw` is the
    power limit of a discrete GPU, by default its greatest.
    """
    physics = load_physics() if physics is None else physics
    modes = board.with_clocks(modes)
    _check(board, modes, load, tpc_share)
    modes = limited_modes(board, workload, modes, load.task, limit_mw, physics)
    response = _steady(board, workload, modes, load, tpc_share, physics)
    if load.clocks == "dvfs":
        lowered = dvfs_modes(board, modes, response, physics)
        response = _steady(board, workload, lowered, load, tpc_share, physics)
    time_factor: Union[float, np.ndarray]
    power_factor: Union[float, np.ndarray]
    time_factor, power_factor = instance_factors(board, instance)
    if rough:
        seed = f"{board.name} {workload.name} {load.task}"
        time_factor = time_factor * deviations(board.time_roughness, f"{seed} time", modes)
        power_factor = power_factor * deviations(board.power_roughness, f"{seed} power", modes)
    times = ("fetch_ms", "preprocess_ms", "stall_ms", "compute_ms", "overhead_ms", "minibatch_time_ms")
    return dataclasses.replace(
        response,
        **{name: getattr(response, name) * time_factor for name in times},
        power_mw=response.power_mw * power_factor,
        rails_mw={rail: power * power_factor for rail, power in response.rails_mw.items()},
    )


PAPERS_INSTANCES = 5  # boards of a type that 004 compares, d1 to d5 (sec. 5.4)


def instance_factors(board: BoardParameters, instance: int) -> Tuple[float, float]:
    """By how much a copy of a board is slower and draws more than the one that was fitted (instance 0).

    As 004 finds its five (sec. 5.4.2): nearly the same, but for few that under-perform, here from instance 3 on, d4.
    Further copies are five by five like the first.
    """
    if instance == 0:
        return 1.0, 1.0
    random = np.random.Generator(np.random.PCG64([instance, *board.name.encode()]))
    time, power = random.standard_normal(2)
    is_slow = 3 <= instance % PAPERS_INSTANCES < 3 + board.slow_instances
    slower = 1.0 + board.slow_share if is_slow else 1.0
    return slower * float(np.exp(board.time_spread * time)), float(np.exp(board.power_spread * power))


def repetition_factors(board: BoardParameters, random: np.random.Generator, count: int) -> np.ndarray:
    """By how much each of some profiles is slower, and draws more, than others of the same board; shape (2, count)."""
    return np.exp(np.array([[board.time_noise], [board.power_noise]]) * random.standard_normal((2, count)))


def _check(board: BoardParameters, modes: np.ndarray, load: Load, tpc_share: float) -> None:
    for name, supported in (
        ("task", ("training", "inference")),
        ("clocks", ("static", "dvfs")),
        ("storage", ("ssd", "sd", "hdd", "emmc")),
    ):
        if getattr(load, name) not in supported:
            what = f"{name} {getattr(load, name)!r} is not simulated"
            raise InvalidValueError(what, available_hint(getattr(load, name), supported))
    if load.batch_size < 1 or load.workers < 0 or not 0.0 <= load.cached_share <= 1.0:
        expected = "expected batch size 1 or more, workers 0 or more, cached share 0 to 1"
        raise InvalidValueError(f"{load} is not a valid load", expected)
    if not 0.0 < tpc_share <= 1.0:
        raise InvalidValueError(f"tpc_share is {tpc_share}, expected more than 0 and at most 1")
    if not (modes > 0).all():
        raise InvalidValueError(f"a power mode of {board.name} has a value that is not above 0")


FORWARD_SHARE = 1.0 / 3.0  # of training's operations; on a GPU, whose small kernels wait, it takes a larger share


def kernels_ms(
    board: BoardParameters,
    workload: WorkloadParameters,
    lanes: Any,
    khz: Any,
    mem_khz: Any,
    load: Load,
    physics: PhysicsParameters,
) -> Tuple[Any, Any, Any]:
    """Time of a minibatch's kernels, their arithmetic, their traffic; `lanes` do a multiply-add a cycle of `khz`."""
    work = 3.0 * workload.flops_forward * workload.gpu_work
    if load.task == "inference":
        share = FORWARD_SHARE if board.cpu_lanes else physics.inference_work
        work *= share * workload.inference_factor * load.batch_size**workload.inference_growth
        steady_bytes, sharpness = 0.0, physics.gpu_sharpness
    else:
        work *= load.batch_size
        steady_bytes, sharpness = workload.minibatch_bytes, physics.gpu_sharpness * workload.gpu_overlap
    arithmetic = arithmetic_ms(work, lanes, khz, board.flop_efficiency)
    transfer = transfer_ms(
        work * physics.bytes_per_flop * workload.traffic + steady_bytes,
        board.spec.memory.bandwidth_bytes_per_s,
        mem_khz / board.greatest.mem_khz,
        board.bandwidth_efficiency,
    )
    return smooth_maximum(arithmetic, transfer, sharpness), arithmetic, transfer


def _steady(
    board: BoardParameters,
    workload: WorkloadParameters,
    modes: np.ndarray,
    load: Load,
    tpc_share: float,
    physics: PhysicsParameters,
) -> Response:
    cores, cpu_khz, gpu_khz, mem_khz = modes.T
    cores = np.minimum(cores, board.spec.cpu_cores)
    cpu_trains = board.cpu_lanes > 0
    lanes = cores * board.cpu_lanes if cpu_trains else board.spec.gpu.cuda_cores * tpc_share
    khz = cpu_khz if cpu_trains else gpu_khz
    kernels, arithmetic, transfer = kernels_ms(board, workload, lanes, khz, mem_khz, load, physics)

    def cpu(cycles: float, memory_cycles: float) -> np.ndarray:
        return cpu_ms(cycles, cpu_khz, mem_khz, board.cpu_speed, memory_cycles * board.memory_wait)

    # CPU cycles of one minibatch: launching its kernels, the main process' handing it to the GPU, and preparing it
    copying = physics.main_cycles_per_byte * workload.input_bytes * load.batch_size
    if load.task == "inference":
        launch_cycles = workload.forward_launches * physics.launch_cycles * physics.inference_launches
        launch_cycles += physics.main_cycles * workload.main_work
        launch_cycles += physics.inference_waits * workload.preprocess_cycles
        main_cycles = copying * physics.inference_copying
        preprocess_cycles, read_bytes, fixed_ms = 0.0, 0.0, 0.0
        launch_sharpness, activity = physics.inference_sharpness, physics.inference_gpu_power
    else:
        launch_cycles = workload.launches * physics.launch_cycles * workload.launch_work
        main_cycles = (physics.main_cycles + copying) * workload.main_work
        preprocess_cycles = workload.preprocess_cycles * load.batch_size
        sample_bytes = workload.bytes_per_sample * workload.small_file_share
        read_bytes = (1.0 - load.cached_share) * load.batch_size * sample_bytes
        fixed_ms, launch_sharpness, activity = workload.fixed_ms, physics.launch_sharpness, 1.0

    processes = load.workers + 1.0 + physics.other_processes
    background_khz = physics.background_khz / board.cpu_speed
    share = core_share(cores, processes, background_khz, cpu_khz, physics.core_sharpness)
    crowded = 1.0 + physics.contention * (1.0 / share - 1.0)

    launch = cpu(launch_cycles, physics.memory_cycles) * crowded
    compute = kernels + launch if cpu_trains else smooth_maximum(kernels, launch, launch_sharpness)
    residual = cpu(main_cycles, physics.loading_memory_cycles) * crowded
    preparing = cpu(preprocess_cycles, physics.loading_memory_cycles)
    ms_per_mb = getattr(board, f"{load.storage}_ms_per_mb")
    fetch_ms = read_bytes / BYTES_PER_MB * ms_per_mb / max(load.workers, 1) ** physics.read_ahead
    fetch = np.full(len(modes), fetch_ms)
    if load.workers == 0:
        preprocess = preparing * crowded
        stall = fetch + preprocess + residual
    else:
        preprocess = preparing / share / worker_speedup(load.workers, physics.serial_share)
        if cpu_trains:  # the workers' cycles are taken from the kernels
            compute = compute + preparing / cores
        busy = compute + residual
        stall = smooth_maximum(busy, fetch + preprocess, physics.pipeline_sharpness) - compute
    overhead = physics.overhead_share * (compute + stall) + fixed_ms
    total = compute + stall + overhead

    gpu_utilisation = np.zeros(len(modes)) if cpu_trains else np.minimum(kernels / total, 1.0)
    # The main process spins while it waits for the GPU, so one core is always in use; kernels on the CPU use all.
    used_ms = total + (preparing if load.workers else 0.0) + (kernels * (cores - 1.0) if cpu_trains else 0.0)
    cpu_utilisation = np.minimum(used_ms / (cores * total), 1.0)

    cpu_mw, gpu_mw = busy_mw(board, modes, tpc_share)
    arithmetic_share = np.minimum(arithmetic / total, 1.0)
    gpu_work = arithmetic_share + board.gpu_stalled * np.maximum(gpu_utilisation - arithmetic_share, 0.0)
    traffic_share = np.minimum(transfer / total, 1.0)
    rails_mw = {
        "base": np.full(len(modes), board.base_mw),
        "cpu": cpu_mw * (board.cpu_idle + (1.0 - board.cpu_idle) * cpu_utilisation),
        "gpu": gpu_mw * (board.gpu_idle + (1.0 - board.gpu_idle) * workload.gpu_activity * activity * gpu_work),
        "memory": mem_khz / board.greatest.mem_khz * (board.mem_mw + board.traffic_mw * traffic_share),
    }
    return Response(
        fetch_ms=fetch,
        preprocess_ms=preprocess,
        stall_ms=stall,
        compute_ms=compute,
        overhead_ms=overhead,
        minibatch_time_ms=total,
        power_mw=rails_mw["base"] + rails_mw["cpu"] + rails_mw["gpu"] + rails_mw["memory"],
        rails_mw=rails_mw,
        cpu_utilisation=cpu_utilisation,
        gpu_utilisation=gpu_utilisation,
    )


def busy_mw(board: BoardParameters, modes: np.ndarray, tpc_share: float = 1.0) -> Tuple[np.ndarray, np.ndarray]:
    """Power of a CPU and of a GPU that are fully used, each of shape (n,), in modes (n, 4)."""
    most = board.greatest
    active = np.minimum(modes[:, 0], most.cpu_cores) / most.cpu_cores
    return (
        board.cpu_mw * active * switching(modes[:, 1], most.cpu_khz, board.cpu_voltage, board.cpu_curve),
        board.gpu_mw * tpc_share * switching(modes[:, 2], most.gpu_khz, board.gpu_voltage, board.gpu_curve),
    )


def limited_modes(
    board: BoardParameters,
    workload: WorkloadParameters,
    modes: np.ndarray,
    task: str,
    limit_mw: Optional[float],
    physics: PhysicsParameters,
) -> np.ndarray:
    """Modes, shape (n, 4), with the GPU clocks that a power limit leaves; the modes themselves if the GPU has no limit.

    The clock falls until the card draws what the limit allows while the GPU computes and memory has full traffic, but
    not below `limited_khz`. Phases in which the GPU waits draw less, so that mean power is below the limit.
    """
    if not board.spec.power_limits_mw:
        return modes
    limit_mw = board.spec.power_limits_mw[-1] if limit_mw is None else limit_mw
    most_khz = board.greatest.gpu_khz
    khz = np.linspace(board.limited_khz, most_khz, 500)
    activity = physics.inference_gpu_power if task == "inference" else 1.0
    busy = board.gpu_idle + (1.0 - board.gpu_idle) * workload.gpu_activity * activity
    computing_mw = board.gpu_mw * switching(khz, most_khz, board.gpu_voltage, board.gpu_curve) * busy
    memory_mw = modes[:, 3] / board.greatest.mem_khz * (board.mem_mw + board.traffic_mw)
    limited = modes.copy()
    limited[:, 2] = np.minimum(modes[:, 2], np.interp(limit_mw - board.base_mw - memory_mw, computing_mw, khz))
    return limited


def dvfs_modes(board: BoardParameters, modes: np.ndarray, response: Response, physics: PhysicsParameters) -> np.ndarray:
    """The clocks that DVFS settles at: GPU by its use, CPU by that of its busiest core, which launches kernels."""
    lowered = modes.copy()
    wanted = np.minimum(response.gpu_utilisation / physics.dvfs_gpu_utilisation, 1.0)
    lowered[:, 2] = np.maximum(modes[:, 2] * wanted, min(board.spec.clocks.gpu_khz[0], modes[:, 2].min()))
    busy = np.maximum(response.cpu_utilisation, 1.0 - response.gpu_utilisation)
    lowered[:, 1] = modes[:, 1] * (physics.dvfs_cpu_share + (1.0 - physics.dvfs_cpu_share) * busy)
    return lowered


def cached_share(
    board: BoardParameters, workload: WorkloadParameters, data_scale: float = 1.0, *, workers: int = 4
) -> float:
    """Share of the data set that RAM holds after a pass over it (SIGMETRICS sec. 5.1.1): 0 to 1."""
    held = board.system_bytes + workload.model_bytes + workers * board.worker_bytes
    left = max(board.spec.ram_bytes - held, 0.0)
    return float(min(left / max(workload.dataset_bytes * data_scale, 1.0), 1.0))


IDLE_STATES = ("logging", "clean", "dvfs", "wol")
"""After a clean start with telemetry; without it; with DVFS on as well; suspended, waiting for a network packet."""


def idle_power_mw(board: BoardParameters, mode: PowerMode, state: str = "logging", *, socket: bool = False) -> float:
    """Power of an idle board; at the socket, carrier board and adapter included, as the papers' meter sees it."""
    states = [name for name in IDLE_STATES if name != "wol" or board.wol_mw > 0]
    if state not in states:
        raise UnknownNameError(f"idle state {state!r} is unknown of {board.name}", f"it has {', '.join(states)}")
    if state == "wol":
        return board.wol_mw  # measured at the socket; the module's sensors are off
    modes = board.with_clocks(np.array([mode]))
    cpu_mw, gpu_mw = busy_mw(board, modes)
    memory_mw = board.mem_mw * modes[0, 3] / board.greatest.mem_khz
    clocked = cpu_mw[0] * board.cpu_idle + gpu_mw[0] * board.gpu_idle + memory_mw
    power = board.base_mw + float(clocked) * (board.idle_dvfs_share if state == "dvfs" else 1.0)
    power += board.idle_logging_mw if state == "logging" else 0.0
    return power + (board.carrier_mw if socket else 0.0)


# Work of the CPU is counted in cycles of a Cortex-A78AE: a kHz is a cycle per ms, so cycles over kHz are ms.


def smooth_maximum(one: Any, other: Any, sharpness: float) -> Any:
    """Time of two overlapping activities: their sum at sharpness 1 (nothing overlaps), the longer at infinity."""
    longer, shorter = np.maximum(one, other), np.minimum(one, other)
    share = np.divide(shorter, longer, out=np.zeros(np.broadcast(one, other).shape), where=longer > 0)
    return longer * (1.0 + share**sharpness) ** (1.0 / sharpness)


def arithmetic_ms(flops: Any, cuda_cores: float, gpu_khz: Any, efficiency: float) -> Any:
    """Time of the GPU's arithmetic: two operations per core and cycle, of which a share is reached."""
    return flops / (2.0 * cuda_cores * gpu_khz * efficiency)


def transfer_ms(byte_count: Any, bandwidth_bytes_per_s: float, mem_share: Any, efficiency: float) -> Any:
    """Time of the GPU's traffic to memory; at a `mem_share` of 1, the clock's, the bandwidth is the data sheet's."""
    return byte_count * MS_PER_S / (bandwidth_bytes_per_s * mem_share * efficiency)


def cpu_ms(cycles: Any, cpu_khz: Any, mem_khz: Any, speed: float, memory_cycles: float) -> Any:
    """Time of a core for cycles of a Cortex-A78AE, each with waits for memory (SIGMETRICS 2023 sec. 5.6.7)."""
    return cycles / speed * (1.0 / cpu_khz + memory_cycles / mem_khz)


def core_share(cores: Any, processes: Any, background_khz: float, cpu_khz: Any, sharpness: float) -> Any:
    """Share of a core for each busy process, once `background_khz` (cycles per ms; at most half) are taken off all."""
    free = cores - np.minimum(background_khz / cpu_khz, 0.5 * cores)
    return 1.0 / smooth_maximum(1.0, processes / free, sharpness)


def worker_speedup(workers: int, serial_share: float) -> float:
    """How much faster several workers are than one, where a part of the work cannot be shared out (Amdahl)."""
    return 1.0 / (serial_share + (1.0 - serial_share) / workers)


def switching(khz: Any, greatest_khz: float, floor: float, curve: float) -> Any:
    """Dynamic power over that of the greatest clock at equal activity: clock times voltage squared.

    The voltage, over that at the greatest clock, goes from `floor` at no clock at all in a straight line where `curve`
    is 1, and stays low for longer where it is more.
    """
    share = khz / greatest_khz
    return share * (floor + (1.0 - floor) * share**curve) ** 2


# Roughness: the fixed deviations of a real board from a smooth model, so that predictors find neither too easy. What a
# good fit leaves of measured tables has structure: modes that share two of their settings deviate alike. So a part of
# the deviation belongs to each of some pairs of settings, and a part to the mode alone. Each part is a function of a
# seed and of the settings' values: a mode deviates alike whatever else is simulated, and two workloads deviate
# differently.

CORES, CPU, GPU, MEMORY = range(4)

ROUGHNESS_SHARES: Dict[Tuple[int, ...], float] = {
    (CORES, CPU): 0.3,
    (GPU, MEMORY): 0.25,
    (CPU, MEMORY): 0.1,
    (CPU, GPU): 0.1,
    (CORES, CPU, GPU, MEMORY): 0.25,
}
"""Share of the variance of the deviation that each combination of settings has."""

_MIXER = np.uint64(0x9E3779B97F4A7C15)


def seed_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def deviations(size: float, seed: str, modes: np.ndarray) -> np.ndarray:
    """Factors around 1 for modes, shape (n, 4), the same for a mode and seed; `size` is their logarithm's deviation."""
    settings = np.asarray(modes).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mixed(settings)
        state = np.empty((len(ROUGHNESS_SHARES), len(settings)), dtype=np.uint64)
        for row, columns in zip(state, ROUGHNESS_SHARES):
            row[:] = seed_of(repr((seed, columns)))
            for column in columns:
                row[:] = _mixed(row ^ mixed[:, column])
        uniform = np.zeros(state.shape)
        for _ in range(12):  # twelve uniform numbers less six: mean 0, variance 1, and no tail beyond 6
            state = _mixed(state)
            uniform += state.astype(float) / 2.0**64
    total = sum(np.sqrt(share) * (row - 6.0) for share, row in zip(ROUGHNESS_SHARES.values(), uniform))
    return np.exp(size * total)


def _mixed(state: np.ndarray) -> np.ndarray:
    """The splitmix64 step: spreads every bit of its input over the output."""
    state = state + _MIXER
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
