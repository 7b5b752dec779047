"""Parameters of the physical model: of all boards, of a board, of a workload; read from TOML, each with its origin."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import msgspec
import numpy as np

from harness.core.boards import BoardSpec, load_board
from harness.core.cases import INSTANCE_MARK
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.terminal import available_hint

_HERE = Path(__file__).parent
PHYSICS_FILE = _HERE / "physics.toml"
BOARD_FILES: Dict[str, Path] = {path.stem: path for path in sorted((_HERE / "boards").glob("*.toml"))}
WORKLOAD_FILES: Dict[str, Path] = {path.stem: path for path in sorted((_HERE / "workloads").glob("*.toml"))}

SIMULATED_BOARDS: Tuple[str, ...] = tuple(BOARD_FILES)  # the boards that have parameters
SIMULATED_WORKLOADS: Tuple[str, ...] = tuple(WORKLOAD_FILES)
"""The workloads that have parameters: all of the corpus schema."""


class ParameterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Union[int, float, str]
    origin: str
    # of a free value: the middle of its log-normal prior, and the standard deviation of its logarithm
    prior: Optional[float] = None
    spread: Optional[float] = None
    # of one that follows from the same entry of another file: whose, and by what factor
    same_as: Optional[str] = None
    times: float = 1.0


class PhysicsParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gpu_sharpness: float  # of the smooth maximum of arithmetic and memory traffic
    launch_sharpness: float  # of the smooth maximum of GPU and kernel launches
    pipeline_sharpness: float  # of the smooth maximum of compute and the supply of minibatches by workers
    core_sharpness: float  # of the limit of processes by cores
    bytes_per_flop: float  # memory traffic of a kernel per operation that it is worth
    launch_cycles: float  # CPU cycles of launching one kernel from PyTorch
    memory_cycles: float  # memory cycles waited for per CPU cycle
    loading_memory_cycles: float  # the same for fetching and pre-processing
    other_processes: float  # busy processes beside the main one and the workers: threads of theirs, telemetry, system
    background_khz: float  # cycles per ms that they take off all cores together
    contention: float  # growth of the launch time per process without its own core
    serial_share: float  # share of the loading that more workers do not speed up
    read_ahead: float  # exponent of the workers in the time that they read a medium together
    main_cycles: float  # CPU cycles of the main process per minibatch: taking it from the queue, bookkeeping
    main_cycles_per_byte: float  # the same per byte of a minibatch of inputs: collating, copying to the GPU
    overhead_share: float  # framework overhead over stall and compute
    inference_work: float  # GPU work of inference over that of training, per sample
    inference_launches: float  # CPU cycles of a launch over `launch_cycles`: nothing is kept for going back
    inference_sharpness: float  # as `launch_sharpness`, of inference, which waits for each result
    inference_waits: float  # samples whose preparation an inference minibatch waits for, regardless of its size
    inference_copying: float  # cycles per byte of a minibatch of inputs over `main_cycles_per_byte`
    inference_gpu_power: float  # dynamic GPU power of inference over that of training
    dvfs_gpu_utilisation: float  # utilisation that the GPU's governor steers to
    dvfs_cpu_share: float  # clock that the CPU's governor keeps of the greatest one where a core is hardly used


class BoardParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    spec: BoardSpec
    cpu_speed: float  # work of a core per cycle over that of a Cortex-A78AE
    memory_wait: float  # memory cycles that CPU work waits for over those of an AGX Orin
    flop_efficiency: float  # share of the arithmetic peak that training convolutions reach
    bandwidth_efficiency: float  # share of the memory's peak that the GPU reaches
    base_mw: float  # power that no clock changes
    cpu_mw: float  # all cores busy at the greatest clock
    cpu_idle: float  # share of it that clocked, idle cores draw
    cpu_voltage: float  # voltage at no clock at all over that at the greatest
    cpu_curve: float  # exponent of the clock in the voltage
    gpu_mw: float  # GPU busy at the greatest clock
    gpu_idle: float  # share of it that the clocked, idle GPU draws
    gpu_stalled: float  # share of the rest that it draws while it waits for memory
    gpu_voltage: float  # voltage at no clock at all over that at the greatest
    gpu_curve: float  # exponent of the clock in the voltage
    mem_mw: float  # memory and its controller at the greatest clock without traffic
    traffic_mw: float  # what full traffic adds to it
    system_bytes: float  # RAM that system and CUDA context hold
    worker_bytes: float  # RAM that each loading process holds
    ssd_ms_per_mb: float  # reading small files in random order
    sd_ms_per_mb: float  # reading small files in random order
    hdd_ms_per_mb: float  # reading small files in random order
    emmc_ms_per_mb: float  # reading small files in random order
    idle_logging_mw: float  # what telemetry adds to an idle board
    idle_dvfs_share: float  # share of the clock-dependent idle power that is left with DVFS on
    wol_mw: float  # suspended, waiting for a network packet; 0 if the board cannot
    carrier_mw: float  # what the carrier board and the adapter add to module power at the socket
    time_spread: float  # relative deviation between instances that perform alike (standard deviation)
    slow_instances: int  # how many of five under-perform
    slow_share: float  # by what share of the time they do
    power_spread: float  # relative deviation between instances of the board (standard deviation)
    time_noise: float  # relative deviation between repetitions on one instance (standard deviation)
    power_noise: float  # relative deviation between repetitions on one instance (standard deviation)
    time_roughness: float  # of `model.deviations`
    power_roughness: float  # of `model.deviations`
    limited_khz: float = 0.0  # GPU clock below which no power limit brings it; 0 if the GPU has no power limit
    cpu_lanes: float = 0.0  # multiply-adds (fp32) per core and cycle where the CPU trains; 0 where the GPU does

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def greatest(self) -> PowerMode:
        """With the data sheet's memory clock if a mode does not set it; the clock of an unused GPU is 1."""
        clocks, memory = self.spec.clocks, self.spec.memory
        sheet_khz = round(memory.bandwidth_bytes_per_s / (memory.bus_bits // 8 * 2 * 1000))
        return PowerMode(
            self.spec.cpu_cores, clocks.cpu_khz[-1], clocks.gpu_khz[-1] or 1, clocks.mem_khz[-1] or sheet_khz
        )

    def with_clocks(self, modes: np.ndarray) -> np.ndarray:
        """Modes, shape (n, 4), in which a clock that the board's modes do not set is the one that it has."""
        clocks = self.spec.clocks
        is_set = np.array([True, True, clocks.gpu_khz[-1] > UNKNOWN_KHZ, clocks.mem_khz[-1] > UNKNOWN_KHZ])
        return np.where(is_set, np.asarray(modes, dtype=float).reshape(-1, 4), self.greatest)


class WorkloadParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # as in the corpus
    samples: float  # of its data set
    dataset_bytes: float  # on the medium
    small_file_share: float  # of these bytes, in random order; the rest lies in a few large files, read at once
    input_bytes: float  # of one sample as it goes to the GPU
    flops_forward: float  # floating-point operations of one sample's forward pass, 2 per multiply-add
    launches: float  # kernels that one training minibatch launches
    forward_launches: float  # kernels that one forward pass launches
    # operations that the training of a sample is worth on the GPU, over three times `flops_forward`: more than 1 where
    # kernels reach less of the peak than ResNet's convolutions; less with tensor cores
    gpu_work: float
    traffic: float  # memory traffic over that of `bytes_per_flop`
    gpu_overlap: float  # of `gpu_sharpness` in training: little where computing and moving data take turns
    fixed_ms: float  # time of a training minibatch that no clock changes
    minibatch_bytes: float  # memory traffic of a training minibatch regardless of its size: weights, optimiser
    launch_work: float  # CPU cycles of a launch over `launch_cycles`
    preprocess_cycles: float  # CPU cycles of decoding and transforming one sample
    main_work: float  # cycles of the main process over those of `main_cycles`
    gpu_activity: float  # dynamic power of the GPU at work, over that of ResNet's convolutions
    model_bytes: float  # RAM that the training process holds beside the CUDA context
    default_workers: int  # workers that the papers ran it with
    inference_factor: float  # GPU work of its inference over `inference_work` of that of its training
    inference_growth: float  # exponent of the batch size in that work: 0 where it takes as long regardless of its size

    @property
    def bytes_per_sample(self) -> float:
        return self.dataset_bytes / self.samples


@functools.lru_cache(maxsize=None)
def load_physics() -> PhysicsParameters:
    return typed(_values(PHYSICS_FILE), PhysicsParameters, str(PHYSICS_FILE))


def board_and_instance(text: str) -> Tuple[str, int]:
    """The simulated board and the copy of it that `BOARD` or `BOARD@INSTANCE` names; `BOARD` alone is copy 0."""
    board, mark, instance = text.partition(INSTANCE_MARK)
    if mark and not instance.isdecimal():
        raise InvalidValueError(f"{text}: instance {instance!r} is not a number", f"write it like {board}@1")
    return board, int(instance or 0)


@functools.lru_cache(maxsize=None)
def load_board_parameters(name: str) -> BoardParameters:
    path = _find(name, BOARD_FILES, "board")
    values = _values(path)
    values["spec"] = load_board(name, values.pop("variant", ""))
    return typed(values, BoardParameters, str(path))


@functools.lru_cache(maxsize=None)
def load_workload_parameters(name: str) -> WorkloadParameters:
    path = _find(name, WORKLOAD_FILES, "workload")
    return typed({**_values(path), "name": name}, WorkloadParameters, str(path))


def read_entries(path: Path) -> Dict[str, ParameterEntry]:
    return typed(read_toml(path), Dict[str, ParameterEntry], str(path))


def _values(path: Path) -> Dict[str, Any]:
    return {key: entry.value for key, entry in read_entries(path).items()}


TRAFFIC_PER_PARAMETER = 32.0
"""Memory traffic in bytes per network parameter and training minibatch: 28 to 52 for the reference workloads."""

LAUNCHES_PER_FORWARD = 4.0
"""Kernels of a training minibatch per kernel of its forward pass: the reference workloads have 3.75 to 5."""

CYCLES_PER_INPUT_BYTE = 20.0
"""CPU cycles of loading per byte of a sample: 6 to 64 for the reference workloads, more only of BERT's tokens."""


def scaled_workload(
    name: str,
    *,
    samples: int,
    files: int,
    dataset_bytes: float,
    input_bytes: float,
    flops_forward: float,
    kernels_forward: float,
    parameters: float,
) -> Tuple[WorkloadParameters, str]:
    """Parameters of a workload without measurements, and the name of the reference workload they are scaled from.

    The reference is the workload with the most similar kernels: its kernel efficiency is kept, its counts are replaced.
    Each reference workload, left out, is predicted within a factor of 2.2 in time and power (median over modes).
    """
    traffic, launches = parameters * TRAFFIC_PER_PARAMETER, kernels_forward * LAUNCHES_PER_FORWARD

    def distance(reference: WorkloadParameters) -> float:
        work = flops_forward / kernels_forward * reference.forward_launches / reference.flops_forward
        return abs(math.log(work)) + abs(math.log(traffic / launches * reference.launches / reference.minibatch_bytes))

    nearest = min((load_workload_parameters(reference) for reference in SIMULATED_WORKLOADS), key=distance)
    counted = {
        "samples": float(samples),
        "dataset_bytes": dataset_bytes,
        "small_file_share": min(files / samples, 1.0),
        "input_bytes": input_bytes,
        "flops_forward": flops_forward,
        "launches": launches,
        "forward_launches": kernels_forward,
        "minibatch_bytes": traffic,
        "preprocess_cycles": input_bytes * CYCLES_PER_INPUT_BYTE,
        "fixed_ms": 0.0,
        "main_work": 1.0,
        "inference_factor": 1.0,
        "inference_growth": 1.0,
        "default_workers": 4,
    }
    return msgspec.structs.replace(nearest, name=name, **counted), nearest.name


def _find(name: str, files: Mapping[str, Path], kind: str) -> Path:
    if name not in files:
        raise UnknownNameError(f"{kind} {name!r} is not simulated", available_hint(name, files))
    return files[name]
