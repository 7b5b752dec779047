"""Is it the side, or the run? Whole runs are dealt to both sides anew, in every way or in many.

On a machine that others share, runs differ by more than the minibatches of one, all cases of a run together, and mostly
one way: something else slowed them. Where there are enough runs no model of that noise is needed. If the side made no
difference, every way of dealing the runs to both sides was as likely as the one that happened [1]: p is the share of
the ways that set the sides as far apart. The interval holds the ratios that would not be refuted so.

References:
    [1] E. Edgington, P. Onghena: Randomization Tests, 4th ed. Chapman & Hall, 2007.
"""

from __future__ import annotations

import itertools
import math
from typing import Callable

import numpy as np

from harness.stats.intervals import CONFIDENCE
from harness.stats.noise import Change

FEWEST_RUNS = 4
"""On each side: of three there are 20 ways to deal, and none can be rarer than one in ten."""

WAYS = 2000
"""How many are drawn where there are more: p is then good to half a percent where it matters, at 5 %."""

_HALVINGS = 14  # of a search for an end of the interval: to a thousandth of its width
_EQUAL = 1e-12  # effects that differ by rounding alone
_FURTHEST = math.log(1000)  # from the effect: where many runs are equal, no shift at all is refuted

FAST_MINIBATCHES, FAST_RUNS = 0.1, 0.25
"""What stands for a side: this quantile of the minibatches of each run, then this one over its runs.

Of 30 runs on a machine that others share, ten on each side, the ratio of six cases had a standard error of 1.5 %; that
of medians had 3.3 %. 5 % were found in 80 % of such comparisons, and a difference of equal sides in 5 %.
"""


def randomised_change(before: np.ndarray, after: np.ndarray, confidence: float = CONFIDENCE) -> Change:
    """The ratio of two sides, as the geometric mean over cases, by a randomisation test of whole runs.

    Args:
        before: the logarithms of one figure of each run and case, shape (runs, cases).
        after: those of the other side, shape (other runs, cases).
        confidence: of the two-sided interval.
    """
    both = np.concatenate([before, after])
    ways = _ways(len(before), len(after))
    effect = float(_effects(both, ways[:1], len(before))[0])

    def p_value(shift: float) -> float:
        shifted = both.copy()
        shifted[len(before) :] -= shift
        effects = _effects(shifted, ways, len(before))
        return float(np.mean(np.abs(effects) >= abs(effect - shift) - _EQUAL))

    low, high = (_end(p_value, effect, way, float(np.ptp(both, axis=0).max()), 1 - confidence) for way in (-1, 1))
    return Change(math.exp(effect), math.exp(low), math.exp(high), p_value(0.0))


def _ways(first: int, second: int) -> np.ndarray:
    """Ways to deal the runs, each a row of their places, the first side's before the rest; as they are comes first."""
    places = range(first + second)
    if math.factorial(first + second) // (math.factorial(first) * math.factorial(second)) <= WAYS:
        chosen = [list(way) for way in itertools.combinations(places, first)]
        return np.array([[*way, *(place for place in places if place not in way)] for way in chosen])
    generator = np.random.default_rng(0)
    drawn = [generator.permutation(first + second) for _ in range(WAYS - 1)]
    return np.array([np.arange(first + second), *drawn])


def _effects(both: np.ndarray, ways: np.ndarray, first: int) -> np.ndarray:
    """Second side less first for each way, as the mean over cases."""
    sides = (both[ways[:, :first]], both[ways[:, first:]])  # ways x runs x cases
    of_first, of_second = (np.quantile(side, FAST_RUNS, axis=1).mean(axis=-1) for side in sides)
    return of_second - of_first


def _end(p_value: Callable[[float], float], effect: float, way: int, spread: float, alpha: float) -> float:
    """Where, from the effect up or down, shifts begin to be refuted; `_FURTHEST` from it at most."""
    inside, reach = 0.0, max(spread, _EQUAL)
    while p_value(effect + way * reach) > alpha:
        if reach >= _FURTHEST:
            return effect + way * _FURTHEST
        inside, reach = reach, 2 * reach
    for _ in range(_HALVINGS):
        middle = (inside + reach) / 2
        inside, reach = (middle, reach) if p_value(effect + way * middle) > alpha else (inside, middle)
    return effect + way * reach
