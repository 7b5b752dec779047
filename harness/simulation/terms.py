"""The terms of the physical model: each a formula on plain numbers or arrays, times in ms, powers in mW.

Work of the CPU is counted in cycles of a Cortex-A78AE: a kHz is a cycle per ms, so cycles over kHz are ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.units import MS_PER_S


def smooth_maximum(one: Any, other: Any, sharpness: float) -> Any:
    """What takes as long as the longer of two overlapping activities, and longer where both are alike.

    Args:
        one: 0 or more.
        other: 0 or more.
        sharpness: 1 adds them (nothing overlaps), infinity is the plain maximum.
    """
    longer, shorter = np.maximum(one, other), np.minimum(one, other)
    share = np.divide(shorter, longer, out=np.zeros(np.broadcast(one, other).shape), where=longer > 0)
    return longer * (1.0 + share**sharpness) ** (1.0 / sharpness)


def arithmetic_ms(flops: Any, cuda_cores: float, gpu_khz: Any, efficiency: float) -> Any:
    """Time of the GPU's arithmetic: two operations per core and cycle, of which a share is reached."""
    return flops / (2.0 * cuda_cores * gpu_khz * efficiency)


def transfer_ms(byte_count: Any, bandwidth_bytes_per_s: float, mem_share: Any, efficiency: float) -> Any:
    """Time of the GPU's traffic to memory.

    Args:
        byte_count: bytes read and written.
        bandwidth_bytes_per_s: the data sheet's peak, at the greatest memory clock.
        mem_share: memory clock over the greatest one.
        efficiency: share of the peak that is reached.
    """
    return byte_count * MS_PER_S / (bandwidth_bytes_per_s * mem_share * efficiency)


def cpu_ms(cycles: Any, cpu_khz: Any, mem_khz: Any, speed: float, memory_cycles: float) -> Any:
    """Time that one CPU core needs for some work.

    Args:
        cycles: of a Cortex-A78AE.
        cpu_khz: clock of the core.
        mem_khz: clock of the memory.
        speed: of the core, in work of a Cortex-A78AE at the same clock.
        memory_cycles: memory cycles waited for per CPU cycle; what makes CPU work depend on the memory clock
            (SIGMETRICS 2023 sec. 5.6.7).
    """
    return cycles / speed * (1.0 / cpu_khz + memory_cycles / mem_khz)


def core_share(cores: Any, processes: Any, background_khz: float, cpu_khz: Any, sharpness: float) -> Any:
    """Share of a core that each of some busy processes gets, 0 to 1.

    Args:
        cores: that are on.
        processes: that are busy.
        background_khz: cycles per ms that the system and telemetry take off all cores together, at most half of them.
        cpu_khz: clock of the cores.
        sharpness: of the limit by the cores.
    """
    free = cores - np.minimum(background_khz / cpu_khz, 0.5 * cores)
    return 1.0 / smooth_maximum(1.0, processes / free, sharpness)


def worker_speedup(workers: int, serial_share: float) -> float:
    """How much faster several workers are than one, where a part of the work cannot be shared out (Amdahl)."""
    return 1.0 / (serial_share + (1.0 - serial_share) / workers)


def voltage(khz: Any, greatest_khz: float, floor: float, curve: float) -> Any:
    """Supply voltage of a clock domain over that of its greatest clock, from `floor` at no clock at all.

    Args:
        khz: the clock.
        greatest_khz: the greatest one of the domain.
        floor: voltage that a low clock needs all the same, over that of the greatest.
        curve: exponent of the clock; 1 is a straight line, more stays low for longer.
    """
    return floor + (1.0 - floor) * (khz / greatest_khz) ** curve


def switching(khz: Any, greatest_khz: float, floor: float, curve: float) -> Any:
    """Dynamic power over that of the greatest clock at equal activity: clock times voltage squared."""
    return khz / greatest_khz * voltage(khz, greatest_khz, floor, curve) ** 2
