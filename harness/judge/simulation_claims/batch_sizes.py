"""Claims about minibatch sizes (004 sec. 5.3)."""

from __future__ import annotations

import numpy as np

from harness.judge.simulation_claims.claim import CIFAR, LENET, MOBILENET, XAVIER, Claims, Finding, listed, value
from tools.quantities import Boards

CLAIMS = Claims()

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WORKLOADS = (LENET, MOBILENET, CIFAR)


def _series(boards: Boards, metric: str, workload: str) -> np.ndarray:
    return np.array([value(boards, metric, XAVIER, workload, batch_size=size) for size in SIZES])


@CLAIMS.of("F977")
def compute_per_epoch_falls_with_the_batch_size(boards: Boards) -> Finding:
    """Each doubling from 1 to 128 samples lowers an epoch's compute time, or leaves it within 1 %; in all by 20 %."""
    all_series = [_series(boards, "compute_time", workload) for workload in WORKLOADS]
    greatest = [float((series[1:] / series[:-1]).max()) for series in all_series]
    totals = [float(series[-1] / series[0]) for series in all_series]
    holds = max(greatest) < 1.01 and max(totals) <= 0.8
    return Finding(holds, f"greatest ratio of a doubling {listed(greatest, '.4g')}; of all {listed(totals)}")


@CLAIMS.of("F978")
def gains_level_off_at_sixteen(boards: Boards) -> Finding:
    """Beyond 16 samples the epoch's compute time falls by less than 12 % in all, for ResNet on CIFAR and MobileNet."""
    gains = []
    for workload in (CIFAR, MOBILENET):
        series = _series(boards, "compute_time", workload)
        gains.append(1.0 - float(series[-1] / series[SIZES.index(16)]))
    return Finding(max(gains) < 0.12, f"gain from 16 to 128: {listed(gains)}")


@CLAIMS.of("F982")
def stall_per_minibatch_rises_with_the_batch_size(boards: Boards) -> Finding:
    """From 1 to 128 samples, each doubling raises the stall of a minibatch, for all three workloads."""
    steps = [_series(boards, "minibatch_stall", workload) for workload in WORKLOADS]
    least = [float((series[1:] / series[:-1]).min()) for series in steps]
    return Finding(min(least) > 1.0, f"least ratio of a doubling {listed(least, '.4g')}")


@CLAIMS.of("F983")
def stall_per_epoch_falls_with_the_batch_size(boards: Boards) -> Finding:
    """From 1 to 128 samples, each doubling lowers the stall of an epoch, for all three workloads."""
    steps = [_series(boards, "stall_time", workload) for workload in WORKLOADS]
    greatest = [float((series[1:] / series[:-1]).max()) for series in steps]
    return Finding(max(greatest) < 1.0, f"greatest ratio of a doubling {listed(greatest, '.4g')}")


@CLAIMS.of("F984")
def lenet_is_bound_by_stalls_and_the_others_by_compute(boards: Boards) -> Finding:
    """At 128 samples LeNet stalls longer than it computes; the others compute 5 times as long as they stall."""
    ratios = [
        value(boards, "stall_time", XAVIER, workload, batch_size=128)
        / value(boards, "compute_time", XAVIER, workload, batch_size=128)
        for workload in WORKLOADS
    ]
    return Finding(ratios[0] > 1.0 and max(ratios[1:]) <= 0.2, f"stall over compute {listed(ratios)}")
