"""What is believed of the parameters before a workload was profiled: from other workloads, on this board and any."""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence, Tuple

import numpy as np

from predictors.models.physical_gp.response import PARAMETERS


class Belief(NamedTuple):
    """A normal belief about each parameter, independent; arrays of shape (d,)."""

    mean: np.ndarray
    sd: np.ndarray


# name: mean, sd between workloads of a board, sd between boards.
# Mean and first sd: expectation-maximisation over the measured tables behind 001 (Orin AGX: training of ResNet-18,
# YOLOv8n and an LSTM, inference of the first two at batch sizes 1 to 64), where leaving one network out changes little.
# The sds of the six scales are widened by half, since those are three networks only; `crowd_slope` and the sds between
# boards, of which only one was measured, are set by hand.
_HYPER: Dict[str, Tuple[float, float, float]] = {
    "gpu": (-1.17, 0.80, 0.20),
    "memory": (-1.30, 0.86, 0.20),
    "launch": (-1.74, 0.82, 0.20),
    "prepare": (-3.49, 1.61, 0.20),
    "serial": (-2.91, 1.24, 0.20),
    "constant": (-4.29, 1.82, 0.20),
    "gpu_slope": (1.02, 0.02, 0.02),
    "memory_slope": (0.99, 0.02, 0.03),
    "cpu_slope": (0.85, 0.07, 0.05),
    "cpu_memory_slope": (0.09, 0.04, 0.03),
    "background": (-2.14, 0.43, 0.50),
    "crowd": (1.68, 0.56, 0.30),
    "crowd_slope": (0.70, 0.50, 0.10),
    "crowd_main": (0.07, 0.14, 0.10),
    "traffic_overlap": (1.20, 0.23, 0.10),
    "overlap": (1.77, 0.48, 0.10),
    "scale": (0.00, 0.02, 0.70),
    "base": (2.47, 0.04, 0.40),
    "mem_idle": (0.49, 0.09, 0.60),
    "mem_power": (0.53, 0.23, 0.30),
    "mem_busy": (3.02, 0.41, 0.50),
    "core_idle": (-2.33, 0.21, 0.60),
    "cluster": (-0.59, 0.70, 0.60),
    "core_busy": (0.23, 1.08, 0.50),
    "cpu_voltage": (-0.69, 0.84, 0.80),
    "gpu_idle": (-0.07, 0.61, 0.50),
    "gpu_busy": (1.41, 0.44, 0.50),
    "gpu_traffic": (-1.00, 0.66, 0.30),
    "gpu_voltage": (-1.38, 0.49, 0.80),
    "batch_compute": (0.92, 0.08, 0.00),
    "batch_launch": (0.11, 0.09, 0.00),
    "batch_cpu": (0.97, 0.12, 0.00),
    "batch_power": (0.12, 0.10, 0.00),
    "inference_compute": (-0.83, 0.26, 0.00),
    "inference_launch": (-1.10, 0.36, 0.00),
    "inference_cpu": (-0.53, 0.46, 0.00),
    "inference_power": (-0.09, 0.20, 0.00),
}
_MEAN, _WORKLOADS, _BOARDS = np.array([_HYPER[name] for name in PARAMETERS]).T


def any_board() -> Belief:
    """Of a workload and a board that nothing is known of."""
    return Belief(_MEAN.copy(), np.hypot(_WORKLOADS, _BOARDS))


def same_board(references: Sequence[Belief]) -> Belief:
    """Of a workload on a board on which others were profiled.

    A parameter of a workload is that of its board, N(mean, boards^2), plus N(0, workloads^2): the board's is learned
    from the references, the workload's own part stays open.

    Args:
        references: what was learned of each.
    """
    precision = 1 / np.maximum(_BOARDS, 1e-6) ** 2
    total = precision * _MEAN
    for reference in references:
        weight = 1 / (_WORKLOADS**2 + reference.sd**2)
        precision = precision + weight
        total = total + weight * reference.mean
    return Belief(total / precision, np.sqrt(_WORKLOADS**2 + 1 / precision))
