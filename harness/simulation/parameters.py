"""Parameters of the physical model: of all boards, of a board, of a workload; read from TOML, each with its origin."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple, Type, TypeVar

from harness.core.boards import load_board as load_spec
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.files import read_toml

_HERE = Path(__file__).parent
PHYSICS_FILE = _HERE / "physics.toml"
BOARD_FILES: Dict[str, Path] = {path.stem: path for path in sorted((_HERE / "boards").glob("*.toml"))}
WORKLOAD_FILES: Dict[str, Path] = {path.stem: path for path in sorted((_HERE / "workloads").glob("*.toml"))}

SIMULATED_BOARDS: Tuple[str, ...] = tuple(BOARD_FILES)
"""The boards that have parameters."""

SIMULATED_WORKLOADS: Tuple[str, ...] = tuple(WORKLOAD_FILES)
"""The workloads that have parameters: all of the corpus schema."""

P = TypeVar("P", "PhysicsParameters", "BoardParameters", "WorkloadParameters")


@dataclasses.dataclass(frozen=True)
class PhysicsParameters:
    """What is the same on all boards and for all workloads.

    Attributes:
        gpu_sharpness: of the smooth maximum of arithmetic and memory traffic.
        launch_sharpness: of the smooth maximum of GPU and kernel launches.
        pipeline_sharpness: of the smooth maximum of compute and the supply of minibatches by workers.
        core_sharpness: of the limit of processes by cores.
        bytes_per_flop: memory traffic of a kernel per operation that it is worth.
        launch_cycles: CPU cycles of launching one kernel from PyTorch.
        memory_cycles: memory cycles waited for per CPU cycle.
        loading_memory_cycles: the same for fetching and pre-processing.
        other_processes: busy processes beside the main one and the workers: threads of theirs, telemetry, system.
        background_khz: cycles per ms that they take off all cores together.
        contention: growth of the launch time per process that has no core of its own.
        serial_share: share of the loading that more workers do not speed up.
        read_ahead: exponent of the workers in the time that they read a medium together.
        main_cycles: CPU cycles of the main process per minibatch: taking it from the queue, bookkeeping.
        main_cycles_per_byte: the same per byte of a minibatch of inputs: collating, copying to the GPU.
        overhead_share: framework overhead over stall and compute.
        inference_work: GPU work of inference over that of training, per sample.
        inference_launches: CPU cycles of a launch in inference over `launch_cycles`: nothing is kept for going back.
        inference_sharpness: as `launch_sharpness`, of inference, which waits for each result.
        inference_cycles: CPU cycles per minibatch of an inference loop beside launches.
        inference_sample_cycles: CPU cycles per sample of an inference loop.
        inference_gpu_power: dynamic GPU power of inference over that of training.
        dvfs_gpu_utilisation: utilisation that the GPU's governor steers to.
        dvfs_cpu_share: clock that the CPU's governor keeps of the greatest one where a core is hardly used.
    """

    gpu_sharpness: float
    launch_sharpness: float
    pipeline_sharpness: float
    core_sharpness: float
    bytes_per_flop: float
    launch_cycles: float
    memory_cycles: float
    loading_memory_cycles: float
    other_processes: float
    background_khz: float
    contention: float
    serial_share: float
    read_ahead: float
    main_cycles: float
    main_cycles_per_byte: float
    overhead_share: float
    inference_work: float
    inference_launches: float
    inference_sharpness: float
    inference_cycles: float
    inference_sample_cycles: float
    inference_gpu_power: float
    dvfs_gpu_utilisation: float
    dvfs_cpu_share: float


@dataclasses.dataclass(frozen=True)
class BoardParameters:
    """A board; the first block is of its spec in `harness/core/boards`.

    Attributes:
        name: as in the corpus.
        cpu_cores, cpu_khz, gpu_khz, mem_khz: the greatest ones.
        least_gpu_khz: the lowest GPU clock.
        cuda_cores: those that the module has.
        bandwidth_bytes_per_s: peak, at the greatest memory clock.
        ram_bytes: main memory.
        storage: media that it can have.
        cpu_speed: work of a core per cycle over that of a Cortex-A78AE.
        memory_wait: memory cycles that CPU work waits for over those of an AGX Orin.
        flop_efficiency: share of the arithmetic peak that training convolutions reach.
        bandwidth_efficiency: share of the memory's peak that the GPU reaches.
        base_mw: power that no clock changes.
        cpu_mw: all cores busy at the greatest clock.
        cpu_idle: share of it that clocked, idle cores draw.
        cpu_voltage, gpu_voltage: voltage at no clock at all over that at the greatest.
        cpu_curve, gpu_curve: exponent of the clock in the voltage.
        gpu_mw: GPU busy at the greatest clock.
        gpu_idle: share of it that the clocked, idle GPU draws.
        gpu_stalled: share of the rest that it draws while it waits for memory.
        mem_mw: memory and its controller at the greatest clock without traffic.
        traffic_mw: what full traffic adds to it.
        system_bytes: RAM that system and CUDA context hold.
        worker_bytes: RAM that each loading process holds.
        ssd_ms_per_mb, sd_ms_per_mb, hdd_ms_per_mb, emmc_ms_per_mb: reading small files in random order.
        idle_logging_mw: what telemetry adds to an idle board.
        idle_dvfs_share: share of the clock-dependent idle power that is left with DVFS on.
        wol_mw: suspended, waiting for a network packet; 0 where the board cannot.
        carrier_mw: what the carrier board and the adapter add to module power at the socket.
        time_spread, power_spread: relative deviation between instances of the board (standard deviation).
        time_noise, power_noise: relative deviation between repetitions on one instance (standard deviation).
        time_roughness, power_roughness: of `harness/simulation/roughness.py`.
    """

    name: str
    cpu_cores: int
    cpu_khz: int
    gpu_khz: int
    mem_khz: int
    least_gpu_khz: int
    cuda_cores: int
    bandwidth_bytes_per_s: float
    ram_bytes: float
    storage: Tuple[str, ...]
    cpu_speed: float
    memory_wait: float
    flop_efficiency: float
    bandwidth_efficiency: float
    base_mw: float
    cpu_mw: float
    cpu_idle: float
    cpu_voltage: float
    cpu_curve: float
    gpu_mw: float
    gpu_idle: float
    gpu_stalled: float
    gpu_voltage: float
    gpu_curve: float
    mem_mw: float
    traffic_mw: float
    system_bytes: float
    worker_bytes: float
    ssd_ms_per_mb: float
    sd_ms_per_mb: float
    hdd_ms_per_mb: float
    emmc_ms_per_mb: float
    idle_logging_mw: float
    idle_dvfs_share: float
    wol_mw: float
    carrier_mw: float
    time_spread: float
    power_spread: float
    time_noise: float
    power_noise: float
    time_roughness: float
    power_roughness: float


@dataclasses.dataclass(frozen=True)
class WorkloadParameters:
    """A workload.

    Attributes:
        name: as in the corpus.
        samples: of its data set.
        dataset_bytes: on the medium.
        small_file_share: share of these bytes that is read as small files in random order; the rest lies in a few large
            files, which are read at once.
        input_bytes: of one sample as it goes to the GPU.
        flops_forward: floating-point operations of one sample's forward pass, 2 per multiply-add.
        launches: kernels that one training minibatch launches.
        forward_launches: kernels that one forward pass launches.
        gpu_work: operations that the training of a sample is worth on the GPU, over three times `flops_forward`:
            more than 1 where kernels reach less of the peak than ResNet's convolutions, or where a forward pass
            is only a part of the work; less with tensor cores.
        traffic: memory traffic over that of `bytes_per_flop`.
        gpu_overlap: sharpness of the smooth maximum of arithmetic and traffic in training, over `gpu_sharpness`: little
            where kernels that compute and kernels that move data take turns.
        fixed_ms: time of a training minibatch that no clock changes.
        minibatch_bytes: memory traffic of a training minibatch that does not grow with its size: weights, optimiser.
        launch_work: CPU cycles of a launch over `launch_cycles`.
        preprocess_cycles: CPU cycles of decoding and transforming one sample.
        main_work: cycles of the main process over those of `main_cycles`.
        gpu_activity: dynamic power of the GPU at work, over that of ResNet's convolutions.
        model_bytes: RAM that the training process holds beside the CUDA context.
        default_workers: workers that the papers ran it with.
        inference_factor: GPU work of its inference over `inference_work` of that of its training.
    """

    name: str
    samples: float
    dataset_bytes: float
    small_file_share: float
    input_bytes: float
    flops_forward: float
    launches: float
    forward_launches: float
    gpu_work: float
    traffic: float
    gpu_overlap: float
    fixed_ms: float
    minibatch_bytes: float
    launch_work: float
    preprocess_cycles: float
    main_work: float
    gpu_activity: float
    model_bytes: float
    default_workers: int
    inference_factor: float

    @property
    def bytes_per_sample(self) -> float:
        """Bytes of one sample on the medium."""
        return self.dataset_bytes / self.samples


@functools.lru_cache(maxsize=None)
def load_physics() -> PhysicsParameters:
    """What is the same on all boards.

    Raises:
        InvalidValueError: its file is wrong; names file and key.
    """
    return _parse(PhysicsParameters, PHYSICS_FILE, {})


@functools.lru_cache(maxsize=None)
def load_board(name: str) -> BoardParameters:
    """The parameters of a board.

    Raises:
        UnknownNameError: there are none of it; lists the boards that have some.
        InvalidValueError: its file is wrong; names file and key.
    """
    path = _find(name, BOARD_FILES, "board")
    spec = load_spec(name, str(_values(path, read_toml(path)).get("variant", "")))
    clocks = spec.clocks
    return _parse(
        BoardParameters,
        path,
        {
            "name": name,
            "cpu_cores": sum(len(cluster.cores) for cluster in spec.cpu.clusters),
            "cpu_khz": clocks.cpu_khz[-1],
            "gpu_khz": clocks.gpu_khz[-1],
            "mem_khz": clocks.mem_khz[-1],
            "least_gpu_khz": clocks.gpu_khz[0],
            "cuda_cores": spec.gpu.cuda_cores,
            "bandwidth_bytes_per_s": float(spec.memory.bandwidth_bytes_per_s),
            "ram_bytes": float(spec.memory.bytes),
            "storage": spec.storage,
        },
    )


@functools.lru_cache(maxsize=None)
def load_workload(name: str) -> WorkloadParameters:
    """The parameters of a workload.

    Raises:
        UnknownNameError: there are none of it; lists the workloads that have some.
        InvalidValueError: its file is wrong; names file and key.
    """
    return _parse(WorkloadParameters, _find(name, WORKLOAD_FILES, "workload"), {"name": name})


def _find(name: str, files: Mapping[str, Path], kind: str) -> Path:
    if name not in files:
        raise UnknownNameError(f"{kind} {name!r} is not simulated", f"there are {', '.join(files)}")
    return files[name]


def _values(path: Path, content: Mapping[str, Any]) -> Dict[str, Any]:
    """The values of a parameter file; each entry is a table that also says where its value comes from."""
    for key, entry in content.items():
        if not isinstance(entry, dict) or "value" not in entry or not entry.get("origin"):
            raise InvalidValueError(f"{path}: {key} has no value with its origin", 'write { value = 1.0, origin = "" }')
    return {key: entry["value"] for key, entry in content.items()}


def _parse(kind: Type[P], path: Path, known: Mapping[str, Any]) -> P:
    values = _values(path, read_toml(path))
    values.pop("variant", None)
    names = {field.name for field in dataclasses.fields(kind)}
    missing, strange = sorted(names - set(values) - set(known)), sorted(set(values) - names | set(values) & set(known))
    if missing or strange:
        raise InvalidValueError(f"{path}: missing {', '.join(missing) or '-'}; unexpected {', '.join(strange) or '-'}")
    for key, value in values.items():
        if not isinstance(value, (int, float)) or value < 0:
            raise InvalidValueError(f"{path}: {key} is {value!r}, expected a number, 0 or more")
    return kind(**known, **values)
