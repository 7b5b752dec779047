"""Statistics over power modes, as `harness.judge.statistics.over_modes` takes them: functions of modes and arrays."""

from __future__ import annotations

import math
from typing import Callable, Optional

import numpy as np

from harness.core.cases import DEFAULT_MINIBATCHES
from harness.core.mode_texts import MAXN
from harness.core.pareto import pareto_front
from harness.core.units import S_PER_MINUTE, ms_to_s, w_to_mw
from harness.judge.statistics import ProfiledModes

BUDGETS_W = np.arange(17, 51)  # 001 sec. 5.2
SETTLING_S = 2.5  # of the power, after a change of mode (001 sec. 2.5: 2 to 3 s)
PROFILED = 50
FOUR_MODES = "efij"  # to which 004 sec. 5.7 fits its linear model


def greatest_over_least(modes: ProfiledModes, values: np.ndarray) -> float:
    return float(values.max() / values.min())


def share_saved(modes: ProfiledModes, values: np.ndarray) -> float:
    """The difference of the least value to the greatest one, as a share."""
    return float(1.0 - values.min() / values.max())


def points_on_front(modes: ProfiledModes, first: np.ndarray, second: np.ndarray) -> float:
    """How many modes are on the front of two quantities."""
    return float(len(pareto_front(first, second)))


def first_mode_on_front(modes: ProfiledModes, first: np.ndarray, second: np.ndarray) -> float:
    """1 where the first of the modes is on the front, 0 where not."""
    return float(0 in pareto_front(first, second))


def best_of_both_over_maxn(modes: ProfiledModes, times: np.ndarray, energies: np.ndarray) -> float:
    """Of the mode that comes closest to MAXN (g) or beats it in both quantities, the worse of its two ratios."""
    place = modes.names.index("g")
    worse = np.maximum(times / times[place], energies / energies[place])
    return float(np.delete(worse, place).min())


def best_at_greatest_cpu_clock(modes: ProfiledModes, values: np.ndarray) -> float:
    """The least value at the greatest CPU clock over the least of all."""
    return float(values[modes.cpu_khz == modes.cpu_khz.max()].min() / values.min())


def slowest_at_fast_cpu_over_fastest_at_slow(modes: ProfiledModes, times: np.ndarray) -> float:
    """The slowest power mode at the greatest CPU clock over the fastest at 1,200 MHz or less."""
    return float(times[modes.cpu_khz == modes.cpu_khz.max()].max() / times[modes.cpu_khz <= 1_200_000].min())


def maxn_penalty(modes: ProfiledModes, times: np.ndarray, powers: np.ndarray) -> float:
    """What MAXN takes longer than the best mode within a budget (Q1), on average over budgets that some mode meets."""
    best = np.where(powers <= w_to_mw(BUDGETS_W)[:, None], times, np.inf).min(axis=1)
    at_maxn = times[np.array(modes.names) == MAXN]
    return float(np.mean(at_maxn / best[np.isfinite(best)] - 1.0)) if len(at_maxn) else math.nan


def minutes_of_fifty_profiles(modes: ProfiledModes, times: np.ndarray) -> float:
    """Of 50 random ones of the modes: each settles, trains a minibatch that does not count, and 40 that do."""
    return float(PROFILED * np.mean(SETTLING_S + ms_to_s((1 + DEFAULT_MINIBATCHES) * times)) / S_PER_MINUTE)


def error_of_linear_model(
    modes: ProfiledModes,
    times: np.ndarray,
    fitted_to: Optional[str] = None,
    statistic: Callable[[np.ndarray], np.floating] = np.mean,
) -> float:
    """A statistic of absolute errors, of a linear regression on cores and clocks fitted to some modes or all."""
    inputs = np.column_stack([modes.settings / modes.settings.max(axis=0), np.ones(len(times))])
    is_fitted = np.array([fitted_to is None or name in fitted_to for name in modes.names])
    weights = np.linalg.lstsq(inputs[is_fitted], times[is_fitted], rcond=None)[0]
    return float(statistic(np.abs(inputs @ weights / times - 1.0)))


def error_of_model_of_four_modes(modes: ProfiledModes, times: np.ndarray) -> float:
    """The mean error of a linear regression fitted to four modes."""
    return error_of_linear_model(modes, times, FOUR_MODES)


def share_predicted_within_a_tenth(modes: ProfiledModes, times: np.ndarray) -> float:
    """Of the predictions by that regression, the share that errs by less than 10 %."""
    return error_of_linear_model(modes, times, FOUR_MODES, lambda errors: np.mean(errors < 0.1))
