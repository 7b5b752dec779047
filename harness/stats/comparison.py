"""Ratios of two sides with p-values: by a model of the noise, by ranks, or by permuting runs.

`compare_runs` adds the noise between runs, estimated from all cases of a comparison and then from the case itself, to
the noise within them (Welch's test on logarithms). `rank_test` tests blocks of minibatches, regardless of runs.
`randomised_change` needs no model of the noise, but several runs: on a shared machine, runs differ by more than the
minibatches of one run, in all of their cases together, and mostly in one direction. If the side makes no difference,
all assignments of runs to the two sides are equally likely [1].

References:
    [1] E. Edgington, P. Onghena: Randomization Tests, 4th ed. Chapman & Hall, 2007.
    [2] C. Croux, P. Rousseeuw: Time-efficient algorithms for two highly robust estimators of scale. In: Computational
        Statistics, 1992.
    [3] S. Stouffer et al.: The American Soldier, vol. 1. Princeton University Press, 1949.
    [4] S. Holm: A simple sequentially rejective multiple test procedure. Scand. J. Statist. 6(2), 1979.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.units import share_to_percent
from harness.stats.estimates import CONFIDENCE, Estimate, block_medians, geometric_mean, series_median, welch_dof
from harness.stats.noise import RunNoise, learn

Runs = Sequence[Sequence[float]]  # one series of positive values for each run; a run may be a single value

CASE_DOF = 4
"""How many runs what all cases teach is worth for a single one: few, so that a noisier or calmer case soon shows it."""

FEWEST_RATIOS = 4  # fewer cases give no reliable estimate of their scatter
FEWEST_ORDERS = 1000  # the least number of orders of both sides' values with which a rank test can be significant
FEWEST_RUNS = 4  # on each side for dealing them anew: of three there are 20 ways, and none can be rarer than one in ten
WAYS = 2000  # how many are drawn where there are more: p is then good to half a percent where it matters, at 5 %

FAST_MINIBATCHES, FAST_RUNS = 0.1, 0.25
"""What represents a side of a permutation: this quantile of each run's minibatches, then this one over its runs. Of ten
runs a side, on a machine that others share, the ratio of six cases then had a standard error of 1.5 %; that of medians
3.3 %."""

_NORMAL_DEVIATION = 1.4826  # a normal distribution's standard deviation / its median absolute deviation
_HALVINGS = 14  # of a search for an end of the interval: to a thousandth of its width
_FURTHEST = math.log(1000)  # from the effect: where many runs are equal, no shift at all is refuted


class Change(NamedTuple):
    """After / before of a figure, with its interval and the probability that noise alone moves it as far."""

    ratio: float
    low: float
    high: float
    p_value: float

    def __str__(self) -> str:
        ratio, low, high = (f"{share_to_percent(value - 1):+.1f}" for value in self[:3])
        return f"{ratio} % ({low} to {high})"


class RunsRatio(NamedTuple):
    """The ratio after / before of one or more cases, with its noise within and between runs."""

    within: Estimate  # the ratio with the noise within runs
    between: float  # standard error of its logarithm by the noise between runs
    between_dof: int  # degrees of freedom behind that
    shared: float  # the part of `between` that other cases of the same runs may share

    @property
    def estimate(self) -> Estimate:
        return self.within.with_noise(self.between, self.between_dof)

    def change(self, confidence: float = CONFIDENCE) -> Change:
        estimate = self.estimate
        return Change(*estimate.interval(confidence), estimate.p_differs())


def learn_noise(cases: Sequence[Sequence[Runs]], same_question: bool, prior_noise: RunNoise) -> RunNoise:
    """The noise of a run's median between runs, from all cases of a comparison: the runs of each side of each.

    With one run a side, and nothing but the run to differ (`same_question`), the scatter of the cases' ratios around
    their median is evidence of it: it can raise the prior `prior_noise`, not lower it, because what all cases have in
    common is not part of it.
    """
    sides = [side for case in cases for side in case]
    noise = learn([[Estimate(float(np.median(run)), 0.0, 1) for run in side] for side in sides], prior_noise)
    alone = [case for case in cases if [len(side) for side in case] == [1, 1]]
    single = [math.log(pooled_median(after) / pooled_median(before)) for before, after in alone]
    if not same_question or len(single) < max(FEWEST_RATIOS, noise.repetitions):
        return noise
    # A normal distribution's deviation from the median absolute one, which a few changed cases do not move. A few
    # values lie closer to their own median than to the true one [2].
    of_few = len(single) / (len(single) - 0.8)
    deviation = of_few * _NORMAL_DEVIATION * float(np.median(np.abs(np.array(single) - np.median(single))))
    dof = noise.dof + len(single) - 1
    scattered = math.sqrt((noise.dof * noise.share**2 + (len(single) - 1) * deviation**2 / 2) / dof)  # two runs' noise
    return noise if scattered <= noise.share else noise._replace(share=scattered)


def compare_runs(before: Runs, after: Runs, noise: RunNoise, prior_noise: RunNoise) -> RunsRatio:
    """The ratio of the medians of two sides, with the noise from `learn_noise` and its prior, `prior_noise`."""
    own, within = _own_noise((before, after), noise)
    share = math.sqrt(1 / len(before) + 1 / len(after))
    value = pooled_median(after) / pooled_median(before)
    between = own.share * share
    return RunsRatio(within._replace(value=value), between, own.dof, min(between, prior_noise.share * share))


def median_of_runs(runs: Runs, prior_noise: RunNoise) -> Estimate:
    """The median over the values of all runs, the noise between runs included."""
    own, within = _own_noise([runs], prior_noise)
    return Estimate(pooled_median(runs), within.error, within.dof).with_noise(own.share / math.sqrt(len(runs)), own.dof)


def _own_noise(sides: Sequence[Runs], noise: RunNoise) -> Tuple[RunNoise, Estimate]:
    """The noise between runs of a case, and within runs alone on their side: that of several is in their medians."""
    medians = [[series_median(run) for run in side] for side in sides]
    several = [each.error**2 for side in medians for each in side if len(side) > 1]
    expected = math.hypot(noise.share, math.sqrt(sum(several) / len(several)) if several else 0.0)
    alone = [(side[0].error, side[0].dof) for side in medians if len(side) == 1]
    within = Estimate(1.0, math.hypot(0.0, *(error for error, _ in alone)), welch_dof(alone) if alone else 1)
    return learn(medians, RunNoise(expected, min(noise.dof, CASE_DOF))), within


def mean_ratio(ratios: Sequence[RunsRatio], before: np.ndarray, after: np.ndarray) -> RunsRatio:
    """The geometric mean of the ratios of several cases.

    Not all noise between runs averages out: a run of a busy machine is slow in all its cases. How much runs share is
    learned from their means over cases; the prior is `RunsRatio.shared`. `before` and `after` hold the logarithm of the
    median of each run and case, shape (runs that have all cases, cases).
    """
    count = len(ratios)
    if count == 1:
        return ratios[0]
    own = sum(max(each.between**2 - each.shared**2, 0.0) for each in ratios) / count**2
    shared = math.sqrt(sum(each.shared**2 for each in ratios) / count)
    variance, dof = own + shared**2, min(each.between_dof for each in ratios)
    if min(len(before), len(after)) > 1:
        share = math.sqrt(1 / len(before) + 1 / len(after))
        means = [[Estimate(math.exp(log), 0.0, 1) for log in side.mean(axis=1)] for side in (before, after)]
        noise = learn(means, RunNoise(math.sqrt(variance) / share, CASE_DOF))
        variance, dof = (noise.share * share) ** 2, noise.dof
    return RunsRatio(geometric_mean([each.within for each in ratios]), math.sqrt(variance), dof, shared)


def pooled_median(runs: Runs) -> float:
    return float(np.median(np.concatenate([np.asarray(run, dtype=float) for run in runs])))


def holm(p_values: Sequence[float]) -> List[float]:
    """P-values adjusted for how many tests were made, in the order given (Holm's step-down method [4])."""
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted


def rank_test(before: Runs, after: Runs) -> Optional[float]:
    """The two-sided p-value of a rank-sum test of blocks of minibatches; None with too few for ranks to tell.

    Blocks are nearly independent. The test ignores the noise between runs: it must agree with the interval, not replace
    it.
    """
    first, second = ([value for run in side for value in block_medians(run)] for side in (before, after))
    if math.comb(len(first) + len(second), len(first)) < FEWEST_ORDERS:
        return None
    if len({*first, *second}) == 1:
        return 1.0  # of equal values SciPy gives 1 or, from 1.18 on, no number
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)


def combined_ranks(ratios: Sequence[float], p_values: Sequence[Optional[float]]) -> Optional[float]:
    """The combined rank tests of several cases, signed by the ratio (Stouffer [3]); None without tests."""
    from scipy.special import ndtr, ndtri

    deviates = [
        math.copysign(-float(ndtri(p_value / 2)), math.log(ratio))
        for ratio, p_value in zip(ratios, p_values)
        if p_value is not None
    ]
    if not deviates:
        return None
    return 2 * float(ndtr(-abs(sum(deviates)) / math.sqrt(len(deviates))))


def randomised_change(before: np.ndarray, after: np.ndarray, confidence: float = CONFIDENCE) -> Change:
    """The ratio of two sides by a permutation test of whole runs; the interval has what it would not refute.

    `before` and `after` hold logarithms, shape (runs, cases); the ratio is the geometric mean over cases.
    """
    both = np.concatenate([before, after])
    of_before, of_after = (np.quantile(side, FAST_RUNS, axis=0).mean() for side in (before, after))
    change = float(of_after - of_before)
    spread = float(np.ptp(both, axis=0).max())

    def p_value(shift: float) -> float:
        return dealt_p_value(before, after - shift)

    low, high = (_end(p_value, change, way, spread, 1 - confidence) for way in (-1, 1))
    return Change(math.exp(change), math.exp(low), math.exp(high), p_value(0.0))


def dealt_p_value(before: np.ndarray, after: np.ndarray) -> float:
    """The p-value of `randomised_change` alone: the share of permutations with at least this difference, either way."""
    from scipy.stats import permutation_test

    both = np.concatenate([before, after])

    def effect(first: np.ndarray, second: np.ndarray, axis: int = -1) -> Any:
        """Second side less first, as the mean over cases, from the places of the runs of each."""
        sides = (np.quantile(both[places.astype(int)], FAST_RUNS, axis=axis - 1) for places in (first, second))
        of_first, of_second = (side.mean(axis=-1) for side in sides)
        return of_second - of_first

    places = np.arange(len(both))
    samples = (places[: len(before)], places[len(before) :])
    return float(permutation_test(samples, effect, vectorized=True, n_resamples=WAYS, random_state=0).pvalue)


def _end(p_value: Any, effect: float, way: int, spread: float, alpha: float) -> float:
    """Where, from the effect up or down, shifts begin to be refuted; `_FURTHEST` from it at most."""
    inside, reach = 0.0, max(spread, 1e-12)
    while p_value(effect + way * reach) > alpha:
        if reach >= _FURTHEST:
            return effect + way * _FURTHEST
        inside, reach = reach, 2 * reach
    for _ in range(_HALVINGS):
        middle = (inside + reach) / 2
        inside, reach = (middle, reach) if p_value(effect + way * middle) > alpha else (inside, middle)
    return effect + way * reach
