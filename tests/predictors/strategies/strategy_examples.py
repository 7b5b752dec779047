"""Tables to try strategies on, whose time and power follow the clocks, and a predictor of known quality."""

from __future__ import annotations

import itertools
from typing import Sequence

import numpy as np

from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.profiles import Profiles
from predictors.settings import Settings
from predictors.strategies.closed_loop import ClosedLoop
from predictors.strategies.protocol import History

CORES = (2, 4, 8, 12)
CPU_KHZ = (400_000, 800_000, 1_200_000, 1_600_000, 2_200_000)
GPU_KHZ = (100_000, 300_000, 500_000, 700_000, 900_000, 1_100_000, 1_300_000)
MEM_KHZ = (200_000, 600_000, 2_100_000, 3_200_000)


def example_table(batch_sizes: Sequence[int] = (16,), task: str = "training", roughness: float = 0.0) -> Profiles:
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
    return Profiles.at(
        Settings.of(rows[:, :4], rows[:, 4], task),
        time_ms,
        1e3 * watts * np.exp(deviation[1]),
        device="example-board",
        workload="example",
        provenance="simulated",
    )


ROUGH_TABLE = example_table(roughness=0.03)


class NearlyRight(Predictor):
    """Knows the table but for a normal error of log time and log power that it is honest about."""

    name = "nearly-right"

    def __init__(self, table=ROUGH_TABLE, log_sd: float = 0.05, claimed: float = 1.0, seed: int = 0) -> None:
        self.table, self.log_sd, self.claimed, self.seed = table, log_sd, claimed, seed

    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        self.fitted_ = len(time_ms)

    def _infer(self, rows: Settings) -> Forecast:
        error = np.random.default_rng(self.seed).normal(size=(2, len(rows.modes))) * self.log_sd
        sd = np.full(len(rows.modes), self.claimed * self.log_sd)
        return Forecast.of_medians(
            rows, self.table.time_ms * np.exp(error[0]), self.table.power_mw * np.exp(error[1]), sd, sd
        )


def middle_modes(history, count):
    return np.linspace(0, len(ROUGH_TABLE) - 1, count).astype(int)


def closed_loop(seed=0, **options):
    return ClosedLoop(lambda: NearlyRight(seed=seed), middle_modes, **options)


def beside(training, inference, profiles=30, report=lambda line: None):
    """Histories of two profilers that share so many profiles."""
    history = History(training, profiles, report)
    return history, History(inference, profiles, report, beside=history)
