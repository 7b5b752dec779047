"""Fit simulated GPUs with a power limit to measured tables: `python -m tools.gpu_fit` prints the values of their files.

The tables have networks under power limits (`jetwatt.load_table`): BERT on SQuAD is one of the suite's workloads,
ResNet-50 is scaled from the nearest of them. How time and power follow the limit is fitted to both. How long a sample
takes is not: one number (`flop_efficiency`) is fitted to the geometric mean of their deviations.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence

import msgspec
import numpy as np

from harness.core.measured_tables import load_table
from harness.simulation.model import Load, simulate
from harness.simulation.parameters import (
    WorkloadParameters,
    load_board_parameters,
    load_workload_parameters,
    scaled_workload,
)

WORKERS = 8  # enough that no network waits for its data
TIME_SD, POWER_SD, SCALE_SD = 0.05, 0.03, 0.01
LEAST_SIZE = 32  # batches of ResNet-50; smaller ones depend on the host, of which the tables have nothing

STARTS: Dict[str, Dict[str, float]] = {
    "v100": {"base_mw": 22_000, "gpu_mw": 170_000, "gpu_curve": 3, "traffic_mw": 30_000, "limited_khz": 345_000},
    "a40": {"base_mw": 66_000, "gpu_mw": 170_000, "gpu_curve": 6, "traffic_mw": 10_000, "limited_khz": 370_000},
}
"""Centres of the priors. `base_mw` is what NCF, which hardly uses the GPU, leaves beside idle GPU and memory."""

SHARED = {"flop_efficiency": 0.5, "gpu_voltage": 0.6, "gpu_stalled": 0.2}
SPREADS = {
    "flop_efficiency": 1.0, "base_mw": 0.02, "gpu_mw": 0.5, "gpu_voltage": 0.4, "gpu_curve": 0.7, "traffic_mw": 0.7,
    "limited_khz": 0.3, "gpu_stalled": 0.7,
}  # fmt: skip
"""Standard deviations of the logarithms."""

MOST = {"gpu_voltage": 0.95, "gpu_stalled": 0.95}


class Row(NamedTuple):
    """A profile of a table, and the simulated workload that is compared with it."""

    network: str
    workload: WorkloadParameters
    batch_size: int
    limit_mw: float
    time_ms: float
    power_mw: float


def resnet50() -> WorkloadParameters:
    """ResNet-50 on ImageNet, by its counts; its kernels are those of the nearest of the suite's networks."""
    resnet18 = load_workload_parameters("resnet18-imagenet")
    scaled, _ = scaled_workload(
        "resnet50-imagenet",
        samples=int(resnet18.samples),
        files=int(resnet18.samples),
        dataset_bytes=resnet18.dataset_bytes,
        input_bytes=resnet18.input_bytes,
        flops_forward=8.18e9,
        kernels_forward=175,
        parameters=25.56e6,
    )
    return scaled


def rows_of(gpu: str) -> List[Row]:
    networks = {"bert-base-uncased-squad": load_workload_parameters("bert-squad"), "resnet50-imagenet": resnet50()}
    table = load_table(f"zeus-{gpu}")
    rows = []
    for network, workload in networks.items():
        for row in table[table["workload"] == network].itertuples():
            if network.startswith("bert") or row.batch_size >= LEAST_SIZE:
                own = (row.batch_size, row.power_limit_mw, row.minibatch_time_ms, row.power_mw)
                rows.append(Row(network, workload, *own))
    return rows


def deviations(gpu: str, rows: Sequence[Row], **values: float) -> np.ndarray:
    """Logarithms of simulated over measured time and power, shape (n, 2); `values` replace some of the board's file."""
    board = load_board_parameters(gpu)
    board = msgspec.structs.replace(board, **values) if values else board
    mode = np.array([board.greatest])
    ratios = []
    for row in rows:
        response = simulate(
            board, row.workload, mode, Load(row.batch_size, WORKERS), rough=False, limit_mw=row.limit_mw
        )
        ratios.append((response.minibatch_time_ms[0] / row.time_ms, response.power_mw[0] / row.power_mw))
    return np.log(ratios)


def without_scale(logarithms: np.ndarray, rows: Sequence[Row]) -> np.ndarray:
    """Deviations with the mean of each network's times taken off: how time follows the limit and the batch size."""
    logarithms = logarithms.copy()
    networks = np.array([row.network for row in rows])
    for network in np.unique(networks):
        logarithms[networks == network, 0] -= logarithms[networks == network, 0].mean()
    return logarithms


def fit(gpu: str) -> Dict[str, float]:
    """The most likely values of a board's file."""
    from scipy.optimize import least_squares

    rows, start = rows_of(gpu), {**SHARED, **STARTS[gpu]}
    networks = np.array([row.network for row in rows])
    spreads = np.array([SPREADS[name] for name in start])

    def values_at(distances: np.ndarray) -> Dict[str, float]:
        moved = zip(start, np.array(list(start.values())) * np.exp(distances * spreads))
        return {name: min(value, MOST.get(name, np.inf)) for name, value in moved}

    def residuals(distances: np.ndarray) -> np.ndarray:
        logarithms = deviations(gpu, rows, **values_at(distances))
        shape = without_scale(logarithms, rows) / (TIME_SD, POWER_SD)
        scale = np.mean([logarithms[networks == network, 0].mean() for network in np.unique(networks)])
        return np.concatenate([shape.ravel(), distances, [scale / SCALE_SD]])

    best = least_squares(residuals, np.zeros(len(start)), loss="soft_l1", diff_step=1e-3, max_nfev=40)
    return values_at(best.x)


def main() -> None:
    for gpu in STARTS:
        values = {name: float(f"{value:.4g}") for name, value in fit(gpu).items()}
        print(gpu, values)
        rows = rows_of(gpu)
        logarithms = deviations(gpu, rows, **values)
        shape = without_scale(logarithms, rows)
        for network in dict.fromkeys(row.network for row in rows):
            own = np.array([row.network == network for row in rows])
            scale = np.expm1(logarithms[own, 0].mean())
            time, power = np.abs(np.expm1(shape[own])).mean(axis=0)
            print(f"  {network}: times {scale:+.0%}, and {time:.1%} around that; power {power:.1%}")


if __name__ == "__main__":
    main()
