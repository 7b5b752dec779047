"""Predictors that are simple enough to know what they should answer, and tables that they can learn."""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple

import numpy as np

from harness.core.power_modes import PowerModeSpace
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.profiles import Profiles
from predictors.settings import Settings

SPACE = PowerModeSpace((2, 4, 8), (499_200, 1_036_800, 2_201_600), (114_750, 420_750, 1_300_500), (204_000, 3_199_000))
"""54 modes."""


@dataclasses.dataclass(eq=False)
class LogLinear(Predictor):
    """Logarithms of time and power as linear functions of the logarithms of the settings."""

    name = "log-linear"
    least_modes = 2

    ridge: float = 1e-6
    seed: int = 0
    space: Optional[PowerModeSpace] = None
    references: Tuple[Profiles, ...] = ()

    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        design, logs = _design(rows), np.log(np.column_stack([time_ms, power_mw]))
        self.weights_ = np.linalg.solve(design.T @ design + self.ridge * np.eye(design.shape[1]), design.T @ logs)
        self.log_sd_ = float(np.maximum(np.std(logs - design @ self.weights_), 1e-9))

    def _infer(self, rows: Settings) -> Forecast:
        time_ms, power_mw = np.exp(_design(rows) @ self.weights_).T
        return Forecast.of_medians(
            rows, time_ms, power_mw, np.full(len(time_ms), self.log_sd_), np.full(len(time_ms), self.log_sd_)
        )


class Nothing(LogLinear):
    """Knows the power only, as an estimator by the vendor may."""

    name = "nothing-of-time"

    def _infer(self, rows: Settings) -> Forecast:
        prediction = super()._infer(rows)
        unknown = np.full_like(prediction.time_ms, np.nan)
        return Forecast.of_medians(rows, unknown, prediction.power_mw, unknown, prediction.log_power_sd)


def _design(rows: Settings) -> np.ndarray:
    logs = np.log(rows.modes) - np.log([4, 1e6, 4e5, 1e6])
    return np.column_stack([np.ones(len(logs)), logs, np.log(rows.batch_size / 16), rows.inference])


def made_table(workload: str = "lenet-mnist", noise: float = 0.0, seed: int = 0, **changes: str) -> Profiles:
    """Every mode of `SPACE`, time and power by a power law, with noise where asked for."""
    modes = np.array(list(SPACE), dtype=np.int64)
    random = np.random.default_rng(seed)
    cores, cpu, gpu, mem = (modes / modes.max(axis=0)).T
    time_ms = 20 * cores**-0.1 * cpu**-0.4 * gpu**-0.6 * mem**-0.1 * np.exp(noise * random.standard_normal(len(modes)))
    power_mw = 4e4 * cores**0.1 * cpu**0.2 * gpu**0.3 * mem**0.1 * np.exp(noise * random.standard_normal(len(modes)))
    about = {"device": "orin-agx", "provenance": "simulated", **changes}
    return Profiles.at(
        Settings.of(modes, task=about.pop("task", "training")), time_ms, power_mw, workload=workload, **about
    )
