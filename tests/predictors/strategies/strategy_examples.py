"""Tables to try strategies on: every mode of a small grid, with time and power that follow the clocks."""

from __future__ import annotations

import itertools
from typing import Sequence

import numpy as np

from predictors.tables import Table

CORES = (2, 4, 8, 12)
CPU_KHZ = (400_000, 800_000, 1_200_000, 1_600_000, 2_200_000)
GPU_KHZ = (100_000, 300_000, 500_000, 700_000, 900_000, 1_100_000, 1_300_000)
MEM_KHZ = (200_000, 600_000, 2_100_000, 3_200_000)


def example_table(batch_sizes: Sequence[int] = (16,), task: str = "training", roughness: float = 0.0) -> Table:
    """A table over the whole grid.

    Args:
        batch_sizes: each mode is there once with each.
        task: of all rows.
        roughness: standard deviation of a fixed deviation of log time and log power from the smooth formula.
    """
    rows = np.array(
        [(*mode, batch) for mode in itertools.product(CORES, CPU_KHZ, GPU_KHZ, MEM_KHZ) for batch in batch_sizes]
    )
    cores, cpu, gpu, mem, batch = rows.T.astype(float)
    deviation = np.random.default_rng(5).normal(size=(2, len(rows))) * roughness
    gpu_ms, cpu_ms, mem_ms = 4e6 * batch / gpu, 5e7 / cpu * (1 + 2 / cores), 1.5e6 * batch / mem
    time_ms = (gpu_ms**4 + cpu_ms**4 + mem_ms**4) ** 0.25 * np.exp(deviation[0])
    watts = (
        9 + cores * (cpu / 2.2e6) ** 2 + 22 * (gpu / 1.3e6) ** 1.8 * np.minimum(gpu_ms / time_ms, 1) + 6 * mem / 3.2e6
    )
    return Table(
        "example-board",
        "example",
        task,
        "simulated",
        modes=rows[:, :4],
        batch_size=rows[:, 4],
        time_ms=time_ms,
        power_mw=1e3 * watts * np.exp(deviation[1]),
    )
