"""The ratio of two sides with the noise between runs: learned from the runs that there are, from a known one on.

Two runs of the same case differ by more than their minibatches tell. How much is learned from all cases of a comparison
together and then, for each case, from its own runs: the variance of a case is the mean of what is known in general and
of what its runs show, weighted by their degrees of freedom (moderated variances [1]). What is known before any run is
`RUN_TO_RUN`, worth `PRIOR_FREEDOM` runs. So one run on each side has an honest interval too.

Where each side has one run only and nothing but the run may differ, the scatter of the cases' ratios around their
median tells of that noise. It can raise what is known and not lower it: what all cases have in common is not in it.

References:
    [1] G. Smyth: Linear models and empirical Bayes methods for assessing differential expression in microarray
        experiments. Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
    [2] C. Croux, P. Rousseeuw: Time-efficient algorithms for two highly robust estimators of scale. In: Computational
        Statistics, 1992.
    [3] S. Stouffer et al.: The American Soldier, vol. 1. Princeton University Press, 1949.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.stats.intervals import CONFIDENCE, RunError, Runs, block_medians, run_error

RUN_TO_RUN = 0.01
"""Standard deviation of a case's median between runs before any was seen.

Epoch times of 15 h on a board deviate by 1 % at most (004 sec. 5.4.1); medians of tens of minibatches, on machines of
every kind, by more than those: their greatest deviation is taken for the usual one here.
"""

PRIOR_FREEDOM = 4
"""How many runs that knowledge is worth: few, so that a machine which is noisier or calmer soon shows it."""

FEWEST_RATIOS = 4
"""Fewer cases say nothing reliable of their scatter."""

FEWEST_ORDERS = 1000
"""In how many ways the values of both sides must be able to fall before ranks can tell anything."""

_NORMAL_DEVIATION = 1.4826  # a normal distribution's standard deviation / its median absolute deviation


class Change(NamedTuple):
    """After / before of one figure, with what it may be off by.

    Attributes:
        ratio: of medians; for several cases the geometric mean of theirs.
        low: lower end of its interval.
        high: upper end of its interval.
        p_value: how likely noise alone moves it as far as this, either way.
    """

    ratio: float
    low: float
    high: float
    p_value: float


class NoisyChange(NamedTuple):
    """A change with the noise that it is judged by.

    Attributes:
        change: the change.
        within: standard error of its logarithm by the noise within runs.
        between: the same by the noise between runs.
        least_between: the part of `between` that other cases of the same runs may share.
    """

    change: Change
    within: RunError
    between: RunError
    least_between: float


def learn_noise(cases: Sequence[Tuple[Runs, Runs]], same_question: bool) -> float:
    """The standard deviation of a run's logarithmic median between runs, from all cases of a comparison.

    Args:
        cases: the runs of each side of each case.
        same_question: whether nothing but the run may differ, so that cases may be taken to change alike.
    """
    squares, freedom = PRIOR_FREEDOM * RUN_TO_RUN**2, float(PRIOR_FREEDOM)
    for side in (side for case in cases for side in case):
        logs = _log_medians(side)
        squares += float(np.sum((logs - logs.mean()) ** 2))
        freedom += len(logs) - 1
    known = squares / freedom
    single = [float(_log_ratio(*case)) for case in cases if len(case[0]) == len(case[1]) == 1]
    if not same_question or len(single) < max(FEWEST_RATIOS, freedom - PRIOR_FREEDOM):
        return math.sqrt(known)
    deviation = _deviation(single)
    squares += (len(single) - 1) * deviation**2 / 2  # a ratio has the noise of two runs
    return math.sqrt(max(known, squares / (freedom + len(single) - 1)))


def compare_runs(before: Runs, after: Runs, noise: float, confidence: float = CONFIDENCE) -> NoisyChange:
    """The ratio of the medians of two sides.

    Args:
        before: the values of each run of one side, in any unit; a run may be a single value.
        after: those of the other side.
        noise: what `learn_noise` found.
        confidence: of the two-sided interval.
    """
    counts = (len(before), len(after))
    own = [_log_medians(side) for side in (before, after)]
    squares = sum(float(np.sum((logs - logs.mean()) ** 2)) for logs in own)
    freedom = PRIOR_FREEDOM + sum(counts) - 2
    errors = [[run_error(run) for run in side] for side in (before, after)]
    # Medians of several runs show the noise within them too, so what is expected of them has it; of one, it is added.
    several = [error.error**2 for side in errors for error in side if len(side) > 1]
    expected = noise**2 + (sum(several) / len(several) if several else 0.0)
    per_run = math.sqrt((PRIOR_FREEDOM * expected + squares) / freedom)
    share = math.sqrt(1 / counts[0] + 1 / counts[1])
    within = _sum_of([side[0] for side in errors if len(side) == 1])
    between = RunError(per_run * share, freedom)
    shared = min(between.error, RUN_TO_RUN * share)
    return _change(_log_ratio(before, after), within, between, shared, confidence)


def mean_change(
    changes: Sequence[NoisyChange], before: np.ndarray, after: np.ndarray, confidence: float = CONFIDENCE
) -> NoisyChange:
    """The geometric mean of the ratios of several cases.

    Noise within runs averages out. Of that between runs some does not: a run of a busy machine is slow in all its
    cases, and a machine drifts between one side and the other. How much runs share is learned from the means of runs
    over their cases; what is known of it before is `RUN_TO_RUN`, and that the rest of each case's noise is its own.

    Args:
        changes: of each case.
        before: the logarithm of the median of each run and case, shape (runs that have all cases, cases).
        after: those of the other side.
        confidence: of the two-sided interval.
    """
    count = len(changes)
    if count == 1:
        return changes[0]
    log_ratio = float(np.mean([math.log(each.change.ratio) for each in changes]))
    within = _sum_of([RunError(each.within.error / count, each.within.freedom) for each in changes])
    own = sum(each.between.error**2 - each.least_between**2 for each in changes) / count**2
    shared = math.sqrt(sum(each.least_between**2 for each in changes) / count)
    known = max(own, 0.0) + shared**2
    freedom = min(each.between.freedom for each in changes)
    runs = len(before) + len(after)
    if min(len(before), len(after)) > 1:
        squares = sum(float(np.sum((side.mean(axis=1) - side.mean()) ** 2)) for side in (before, after))
        share = 1 / len(before) + 1 / len(after)
        # Where runs share more than was known, what was known would draw the figure down: then they speak alone.
        shown, moderated = squares / (runs - 2), (PRIOR_FREEDOM * known / share + squares) / (PRIOR_FREEDOM + runs - 2)
        known, freedom = share * max(shown, moderated), PRIOR_FREEDOM + runs - 2
    return _change(log_ratio, within, RunError(math.sqrt(known), freedom), shared, confidence)


def rank_test(before: Runs, after: Runs) -> Optional[float]:
    """The p-value of a rank-sum test of blocks of minibatches, two-sided; None with too few of them for ranks to tell.

    Blocks, because neighbouring minibatches depend on each other. It asks whether one side's times lie above the
    other's as a whole, and knows nothing of the noise between runs: it must agree with the interval, not replace it.
    """
    from scipy import stats

    first, second = ([value for run in side for value in block_medians(run)] for side in (before, after))
    if math.log(FEWEST_ORDERS) > _log_orders(len(first), len(second)):
        return None
    return float(stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation that the median absolute deviation tells of, which a few changed cases do not move."""
    of_few = len(values) / (len(values) - 0.8)  # a few values lie closer to their own median than to the true one [2]
    return of_few * _NORMAL_DEVIATION * float(np.median(np.abs(np.array(values) - np.median(values))))


def combined_ranks(changes: Sequence[Change], p_values: Sequence[Optional[float]]) -> Optional[float]:
    """The rank tests of several cases as one (Stouffer's sum of normal deviates [3]); None where none was made.

    Args:
        changes: of each case; its sign is that of the ratio.
        p_values: what `rank_test` found for each.
    """
    from scipy import stats

    deviates = [
        math.copysign(float(stats.norm.isf(p_value / 2)), math.log(change.ratio))
        for change, p_value in zip(changes, p_values)
        if p_value is not None
    ]
    if not deviates:
        return None
    return 2 * float(stats.norm.sf(abs(sum(deviates)) / math.sqrt(len(deviates))))


def _log_orders(first: int, second: int) -> float:
    """The logarithm of (first + second)! / (first! second!)."""
    return math.lgamma(first + second + 1) - math.lgamma(first + 1) - math.lgamma(second + 1)


def _log_medians(runs: Runs) -> np.ndarray:
    return np.log([float(np.median(run)) for run in runs])


def _log_ratio(before: Runs, after: Runs) -> float:
    first, second = (float(np.median(np.concatenate([np.asarray(run) for run in side]))) for side in (before, after))
    return math.log(second / first)


def _change(log_ratio: float, within: RunError, between: RunError, shared: float, confidence: float) -> NoisyChange:
    from scipy import stats

    total = _sum_of([within, between])
    student = stats.t(total.freedom)
    reach = math.exp(float(student.ppf(0.5 + confidence / 2)) * total.error)
    ratio = math.exp(log_ratio)
    p_value = 2 * float(student.sf(abs(log_ratio) / total.error))
    return NoisyChange(Change(ratio, ratio / reach, ratio * reach, p_value), within, between, shared)


def _sum_of(errors: Sequence[RunError]) -> RunError:
    """The error of a sum of independent noises, with Welch's degrees of freedom."""
    variance = sum(each.error**2 for each in errors)
    if variance == 0.0:
        return RunError(0.0, max(1, sum(each.freedom for each in errors)))
    parts = sum((each.error**2 / variance) ** 2 / each.freedom for each in errors)
    return RunError(math.sqrt(variance), max(1, round(1 / parts)))
