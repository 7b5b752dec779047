"""Medians of noisy, autocorrelated times: their intervals, their ratio, and whether it is noise.

Minibatch times of one run depend on each other (a slow disk or a busy neighbour slows several in a row), and runs
differ by more than their minibatches do (memory layout, clocks, temperature). So the noise of a median is found by a
hierarchical bootstrap: runs are drawn first [2, sec. 3.8], then moving blocks of neighbouring minibatches inside each
drawn run [3]. The spread of the drawn medians is the standard error; an interval is as many standard errors wide as
Student's t says for the number of runs [1, ch. 12], because few runs tell little about how much runs differ.

A side with a single run shows nothing of the noise between runs. It borrows the spread of the other side's runs; where
that is a single run too, the result covers the noise within a run only, and `Comparison.between_runs` says so.

Logarithms of times are used throughout: a ratio of times is a difference of logarithms.

References:
    [1] B. Efron, R. Tibshirani: An Introduction to the Bootstrap. Chapman & Hall, 1993.
    [2] A. Davison, D. Hinkley: Bootstrap Methods and their Application. Cambridge University Press, 1997.
    [3] H. Kuensch: The jackknife and the bootstrap for general stationary observations. Ann. Statist. 17(3), 1989.
    [4] P. Hall, J. Horowitz, B.-Y. Jing: On blocking rules for the bootstrap with dependent data. Biometrika 82, 1995.
    [5] B. Welch: The generalization of "Student's" problem when several different population variances are involved.
        Biometrika 34, 1947.
    [6] S. Holm: A simple sequentially rejective multiple test procedure. Scand. J. Statist. 6(2), 1979.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Sequence, Tuple

import numpy as np

RESAMPLES = 1000  # a standard error needs 200 [1, ch. 6]; more makes a verdict depend less on the seed
CONFIDENCE = 0.95
_CHUNK_VALUES = 2_000_000  # drawn values held in memory at once

Runs = Sequence[Sequence[float]]
"""One series of positive times for each run."""


class Estimate(NamedTuple):
    """A median with its interval, in the unit of what it was taken from."""

    median: float
    low: float
    high: float


class Comparison(NamedTuple):
    """The ratio of two medians, after / before.

    Attributes:
        ratio: above 1 where after is slower.
        low: lower end of its interval.
        high: upper end of its interval.
        p_slower: how likely noise alone gives such a ratio or a greater one.
        p_faster: how likely noise alone gives such a ratio or a smaller one.
        between_runs: whether the noise between runs is in; without it two runs of the same code may seem to differ.
    """

    ratio: float
    low: float
    high: float
    p_slower: float
    p_faster: float
    between_runs: bool


class RunError(NamedTuple):
    """The standard error of the logarithm of a run's median, and the degrees of freedom behind it."""

    error: float
    freedom: int


class _Side(NamedTuple):
    """One side: its median, the standard error of the median's logarithm, and the degrees of freedom behind that."""

    median: float
    error: float
    freedom: int


def median_estimate(runs: Runs, confidence: float = CONFIDENCE, seed: int = 0) -> Estimate:
    """The median over the times of all runs, with its interval."""
    side = _side(runs, [], np.random.default_rng(seed))
    reach = math.exp(_student(side.freedom).ppf(0.5 + confidence / 2) * side.error)
    return Estimate(side.median, side.median / reach, side.median * reach)


def compare_medians(before: Runs, after: Runs, confidence: float = CONFIDENCE, seed: int = 0) -> Comparison:
    """The ratio of the medians of two sides with its interval and one-sided p-values; freedom by Welch [5].

    Args:
        before: the times of each run of one side, in any unit.
        after: those of the other side, in the same unit.
        confidence: of the two-sided interval.
        seed: of the bootstrap; the same data and seed give the same result.
    """
    generator = np.random.default_rng(seed)
    first, second = _side(before, after, generator), _side(after, before, generator)
    ratio = second.median / first.median
    error = math.hypot(first.error, second.error)
    freedom = _welch_freedom(first, second)
    reach = math.exp(_student(freedom).ppf(0.5 + confidence / 2) * error)
    return Comparison(
        ratio=ratio,
        low=ratio / reach,
        high=ratio * reach,
        p_slower=_p_value(math.log(ratio), error, freedom),
        p_faster=_p_value(-math.log(ratio), error, freedom),
        between_runs=len(before) > 1 or len(after) > 1,
    )


def paired_ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median ratio after / before of pairs measured next to each other, so that what drifts slowly cancels out.

    The interval is the sign test's: order statistics between which the median lies whatever the ratios' distribution.

    Args:
        before: one positive figure for each pair.
        after: the other, in the same order.
        confidence: at least this much, of the two-sided interval; with 5 pairs or less, all of the range has to do.
    """
    from scipy import stats

    ratios = np.sort(np.asarray(after, dtype=float) / np.asarray(before, dtype=float))
    outside = max(0, int(stats.binom.ppf((1 - confidence) / 2, len(ratios), 0.5)) - 1)
    return Estimate(float(np.median(ratios)), float(ratios[outside]), float(ratios[len(ratios) - 1 - outside]))


def run_error(times: Sequence[float], seed: int = 0) -> RunError:
    """How far the median of one run may be off by the noise within the run, from moving blocks of its minibatches."""
    draws = _draw_medians([np.log(np.asarray(times, dtype=float))], np.random.default_rng(seed))
    return RunError(_spread(draws), _blocks_freedom(times))


def block_medians(times: Sequence[float]) -> List[float]:
    """Medians of neighbouring minibatches, `block_length` of them each: nearly independent of each other."""
    block = block_length(len(times))
    return [float(np.median(times[start : start + block])) for start in range(0, len(times) - block + 1, block)]


def holm(p_values: Sequence[float]) -> List[float]:
    """P-values adjusted for how many tests were made, in the order given (Holm's step-down method [6])."""
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted


def block_length(count: int) -> int:
    """Neighbouring minibatches that are drawn together: the cube root of their number, rounded up [4]."""
    return next(length for length in range(1, count + 1) if length**3 >= count)


def _side(runs: Runs, others: Runs, generator: np.random.Generator) -> _Side:
    logs = [np.log(np.asarray(run, dtype=float)) for run in runs]
    draws = _draw_medians(logs, generator)
    error = _spread(draws)
    freedom = len(runs) - 1
    if len(runs) == 1 and len(others) > 1:
        error = math.hypot(error, float(np.std([np.log(np.median(run)) for run in others], ddof=1)))
        freedom = len(others) - 1
    elif len(runs) == 1:
        freedom = _blocks_freedom(runs[0])
    return _Side(float(np.median(np.concatenate(runs))), error, freedom)


def _spread(draws: np.ndarray) -> float:
    """The standard deviation; of equal draws 0 and not the rounding error of their mean."""
    return float(np.std(draws, ddof=1)) if np.ptp(draws) > 0 else 0.0


def _blocks_freedom(times: Sequence[float]) -> int:
    return max(1, len(times) // block_length(len(times)) - 1)


def _draw_medians(runs: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """Medians of resampled sides: as many runs as there are, each made of as many of its own minibatches as it has."""
    chunk = max(1, _CHUNK_VALUES // sum(map(len, runs)))
    medians: List[float] = []
    while len(medians) < RESAMPLES:
        count = min(chunk, RESAMPLES - len(medians))
        if len({len(run) for run in runs}) == 1:
            medians.extend(_draw_equal(np.stack(runs), count, generator))
        else:
            medians.extend(_draw_one(runs, generator) for _ in range(count))
    return np.array(medians)


def _draw_equal(runs: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Many draws at once from runs of equal length, an array of shape (runs, minibatches)."""
    drawn = generator.integers(len(runs), size=(count, len(runs)))
    places = _block_places(runs.shape[1], drawn.shape, generator)
    return np.median(runs[drawn[..., None], places].reshape(count, -1), axis=1)


def _draw_one(runs: Sequence[np.ndarray], generator: np.random.Generator) -> float:
    drawn = [runs[place] for place in generator.integers(len(runs), size=len(runs))]
    return float(np.median(np.concatenate([run[_block_places(len(run), (), generator)] for run in drawn])))


def _block_places(length: int, shape: Tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Places in a series of that length, drawn as moving blocks; an array of shape (*shape, length)."""
    block = block_length(length)
    starts = generator.integers(length - block + 1, size=(*shape, -(-length // block)))
    places = starts[..., None] + np.arange(block)
    return places.reshape(*shape, -1)[..., :length]


def _welch_freedom(first: _Side, second: _Side) -> int:
    """Degrees of freedom of a difference, rounded."""
    variance = first.error**2 + second.error**2
    if variance == 0.0:
        return first.freedom + second.freedom
    parts = [(side.error**2 / variance) ** 2 / side.freedom for side in (first, second)]
    return round(1.0 / sum(parts))


def _p_value(effect: float, error: float, freedom: int) -> float:
    """One-sided: the probability that noise of that standard error exceeds the effect."""
    if error == 0.0:
        return 0.5 if effect == 0.0 else float(effect < 0.0)
    return float(_student(freedom).sf(effect / error))


def _student(freedom: int) -> Any:
    """Student's t distribution."""
    from scipy import stats

    return stats.t(freedom)
