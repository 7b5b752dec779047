"""What a simulated board is asked to do, and what it answers."""

from __future__ import annotations

import dataclasses
from typing import Dict, NamedTuple

import numpy as np


class Load(NamedTuple):
    """How a workload is run.

    Attributes:
        batch_size: samples per minibatch.
        workers: `num_workers` of the DataLoader.
        storage: medium that the data set lies on: `ssd`, `sd`, `hdd`, `emmc`.
        cached_share: share of the data set that the page cache holds, 0 to 1; the rest is read from the medium.
        task: `training` or `inference`.
        clocks: `static` (DVFS off) or `dvfs`.
    """

    batch_size: int = 16
    workers: int = 4
    storage: str = "ssd"
    cached_share: float = 1.0
    task: str = "training"
    clocks: str = "static"


@dataclasses.dataclass(frozen=True)
class Response:
    """The steady state of a board under a load in n power modes; every array has shape (n,).

    Attributes:
        fetch_ms: reading one minibatch from storage, by all workers together.
        preprocess_ms: decoding and transforming one minibatch, by all workers together.
        stall_ms: the visible wait for a minibatch.
        compute_ms: kernel launches, forward, backward and optimiser step.
        overhead_ms: what the framework adds.
        minibatch_time_ms: stall + compute + overhead.
        power_mw: module power.
        rails_mw: the parts of `power_mw`: `base`, `cpu`, `gpu`, `memory`.
        cpu_utilisation: share of the active cores' time that is used, 0 to 1.
        gpu_utilisation: share of time that the GPU computes, 0 to 1.
    """

    fetch_ms: np.ndarray
    preprocess_ms: np.ndarray
    stall_ms: np.ndarray
    compute_ms: np.ndarray
    overhead_ms: np.ndarray
    minibatch_time_ms: np.ndarray
    power_mw: np.ndarray
    rails_mw: Dict[str, np.ndarray]
    cpu_utilisation: np.ndarray
    gpu_utilisation: np.ndarray
