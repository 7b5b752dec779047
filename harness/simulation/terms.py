"""The terms of the physical model: each a formula on plain numbers or arrays, times in ms, powers in mW."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Tuple

import numpy as np

from harness.core.units import MS_PER_S

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

SHARES: Dict[Tuple[int, ...], float] = {
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
        state = np.empty((len(SHARES), len(settings)), dtype=np.uint64)
        for row, columns in zip(state, SHARES):
            row[:] = seed_of(repr((seed, columns)))
            for column in columns:
                row[:] = _mixed(row ^ mixed[:, column])
        uniform = np.zeros(state.shape)
        for _ in range(12):  # twelve uniform numbers less six: mean 0, variance 1, and no tail beyond 6
            state = _mixed(state)
            uniform += state.astype(float) / 2.0**64
    total = sum(np.sqrt(share) * (row - 6.0) for share, row in zip(SHARES.values(), uniform))
    return np.exp(size * total)


def _mixed(state: np.ndarray) -> np.ndarray:
    """The splitmix64 step: spreads every bit of its input over the output."""
    state = state + _MIXER
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
