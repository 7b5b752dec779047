"""Claims about the whole grid of power modes and about predicting it (001; 004 sec. 5.7)."""

from __future__ import annotations

from typing import Dict

import numpy as np

from harness.core.units import MS_PER_S, S_PER_HOUR, S_PER_MINUTE, mw_to_w
from harness.judge.simulation_claims.claim import (
    CIFAR,
    LENET,
    MOBILENET,
    ORIN,
    PROFILED,
    RESNET,
    XAVIER,
    Claims,
    Finding,
    listed,
    percent,
    value,
    values,
)
from tools.quantities import Boards, find_modes

CLAIMS = Claims()

GRID = "grid:paper"
BUDGETS_W = range(17, 51)
"""001 sec. 5.2."""

DRAWN = 50
DRAWS = 10


def _grids(boards: Boards, metric: str) -> Dict[str, np.ndarray]:
    return {
        workload: values(boards, metric, device, workload, GRID, workers=workers)
        for device, workload, workers in PROFILED
    }


@CLAIMS.of("F417")
def resnet_has_the_widest_range_of_power(boards: Boards) -> Finding:
    """Over the grid on Orin AGX, ResNet's power spans a greater ratio than MobileNet's and YOLO's."""
    ratios = {workload: float(power.max() / power.min()) for workload, power in _grids(boards, "power").items()}
    return Finding(max(ratios, key=lambda name: ratios[name]) == RESNET, f"greatest over least power: {listed(ratios)}")


@CLAIMS.of("F507")
def maxn_is_fastest_on_orin(boards: Boards) -> Finding:
    """On Orin AGX, MAXN is within 5 % of the shortest minibatch of the grid, for three workloads."""
    found = [
        value(boards, "minibatch_time", device, workload, workers=workers)
        / float(values(boards, "minibatch_time", device, workload, GRID, workers=workers).min())
        - 1.0
        for device, workload, workers in PROFILED
    ]
    return Finding(max(found) <= 0.05, f"MAXN over the shortest {listed(found)}")


@CLAIMS.of("F542")
def maxn_breaks_most_budgets(boards: Boards) -> Finding:
    """On Orin AGX, MAXN draws more than at least 20 % of the budgets of 17 to 50 W, for three workloads."""
    powers = [mw_to_w(value(boards, "power", device, w, workers=workers)) for device, w, workers in PROFILED]
    shares = [sum(power > budget for budget in BUDGETS_W) / len(BUDGETS_W) for power in powers]
    return Finding(min(shares) >= 0.20, f"budgets broken {listed(shares)}")


@CLAIMS.of("F515")
def random_modes_meet_budgets_but_cost_time(boards: Boards) -> Finding:
    """Choosing the best of 50 random modes breaks no budget, but costs time.

    Over 34 budgets the median penalty is 5 to 35 % for three workloads on Orin AGX (F543: 12 to 28 %).
    """
    times, powers = _grids(boards, "minibatch_time"), _grids(boards, "power")
    penalties = [_penalty(times[workload], mw_to_w(powers[workload])) for workload in times]
    return Finding(all(0.05 <= penalty <= 0.35 for penalty in penalties), f"median penalties {listed(penalties)}")


def _penalty(times: np.ndarray, powers_w: np.ndarray) -> float:
    """Median over budgets and draws of the time of the best drawn mode over that of the best one, less one."""
    found = []
    for seed in range(DRAWS):
        drawn = np.random.Generator(np.random.PCG64(seed)).choice(len(times), DRAWN, replace=False)
        for budget in BUDGETS_W:
            mine, all_ = times[drawn][powers_w[drawn] <= budget], times[powers_w <= budget]
            if len(mine):
                found.append(float(mine.min() / all_.min() - 1.0))
    return float(np.median(found))


@CLAIMS.of("F364")
def a_linear_model_of_time_is_inaccurate(boards: Boards) -> Finding:
    """Linear regression of minibatch time on cores and clocks is inaccurate.

    Fitted to the whole grid of Orin AGX it errs by 15 % or more on average for ResNet, MobileNet and YOLO.
    """
    found = []
    for device, workload, workers in PROFILED:
        modes = find_modes(device, GRID).table
        found.append(_linear_error(modes, values(boards, "minibatch_time", device, workload, GRID, workers=workers)))
    return Finding(min(found) >= 0.15, f"mean absolute errors {listed(found)}")


def _linear_error(modes: np.ndarray, times: np.ndarray) -> float:
    inputs = np.column_stack([np.ones(len(modes)), modes / modes.max(axis=0)])
    expected = inputs @ np.linalg.lstsq(inputs, times, rcond=None)[0]
    return float(np.mean(np.abs(expected / times - 1.0)))


@CLAIMS.of("F1177")
def four_modes_predict_lenet_worst(boards: Boards) -> Finding:
    """A linear regression fitted to epochs in modes e, f, i and j errs most on LeNet over modes a to j of AGX."""
    errors = {}
    known, all_ = (find_modes(XAVIER, ",".join(letters)).table for letters in ("efij", "abcdefghij"))
    scale = all_.max(axis=0)
    for workload in (LENET, MOBILENET, CIFAR):
        inputs = np.column_stack([known / scale, np.ones(len(known))])
        times = values(boards, "epoch_time", XAVIER, workload, "e,f,i,j")
        weights = np.linalg.lstsq(inputs, times, rcond=None)[0]
        true = values(boards, "epoch_time", XAVIER, workload, ",".join("abcdefghij"))
        expected = np.column_stack([all_ / scale, np.ones(len(all_))]) @ weights
        errors[workload] = float(np.mean(np.abs(expected / true - 1.0)))
    return Finding(max(errors, key=lambda name: errors[name]) == LENET, f"mean absolute errors: {listed(errors)}")


@CLAIMS.of("F195", "F1206")
def profiling_fifty_modes_takes_tens_of_minutes(boards: Boards) -> Finding:
    """Profiling 50 random modes takes 8 to 60 minutes on Orin AGX, for three workloads."""
    minutes = [
        value(boards, "profiling_time", device, workload, f"{DRAWN} of {GRID}", workers=workers)
        / MS_PER_S
        / S_PER_MINUTE
        for device, workload, workers in PROFILED
    ]
    return Finding(all(8.0 <= minute <= 60.0 for minute in minutes), f"minutes {listed(minutes)}")


@CLAIMS.of("F346")
def minibatches_hardly_vary(boards: Boards) -> Finding:
    """Repetitions on a board deviate by at most 2 % in time and power (standard deviation), on every board."""
    noise = [max(board.time_noise, board.power_noise) for board in boards.parameters.boards.values()]
    return Finding(max(noise) <= 0.02, f"greatest deviation {percent(max(noise))}")


@CLAIMS.of("F427", "F1190")
def training_to_convergence_takes_hours(boards: Boards) -> Finding:
    """At MAXN on Orin AGX, 120 epochs of ResNet take 4 to 10 hours (001 sec. 1.4: 6)."""
    hours = 120.0 * value(boards, "epoch_time", ORIN, RESNET) / MS_PER_S / S_PER_HOUR
    return Finding(4.0 <= hours <= 10.0, f"{hours:.3g} h")
