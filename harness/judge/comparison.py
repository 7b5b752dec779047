"""The one comparison: whether a difference of two sides is real, and whether it is larger than the tolerance.

These are two questions. A difference is significant if p < 0.05 after Holm's correction over all cases, or over all
workloads; overall there is one test. p is the larger one of two: of a t-test with the noise within runs (block
bootstrap of the minibatches) and between runs, and of a rank-sum test of blocks of minibatches where there are enough.
The tolerance is what is accepted: a share by which the ratio of medians may differ from 1.

    significant  beyond the tolerance  verdict
    yes          yes                   slower, faster
    yes          no                    slower, within the tolerance of 5 %; faster, ...
    no                                 inconclusive if `doubt_of` gives a reason, else no difference

`compare`, `baseline check`, the fixture `baseline` and, for series of runs, `history` take their verdicts from here.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.terminal import counted
from harness.core.units import share_to_percent
from harness.judge.pairs import Pair, ratios
from harness.judge.quantities import FAST_TIME, GatedQuantity
from harness.judge.tolerances import Tolerance
from harness.stats.comparison import (
    FAST_MINIBATCHES,
    FEWEST_RUNS,
    Change,
    combined_ranks,
    holm,
    mean_ratio,
    pooled_median,
    randomised_change,
    rank_test,
)
from harness.stats.estimates import CONFIDENCE
from harness.stats.noise import POWER_OF_TEST, RunNoise

SAME, INCONCLUSIVE, TOO_FEW = "no difference", "inconclusive", "too few"
"""Verdicts in addition to those of each quantity, such as `slower` and `faster`."""

REFUSED, NOT_RUN, NEW, NOT_MEASURED = "refused", "not run", "not in baseline", "not measured"
"""Verdicts on cases or quantities that were not compared: conditions differ, or only one side has them."""

ALLOW_TO_DIFFER = "--by NAMES allows conditions to differ"
"""The way out for those that were refused."""

CASES, WORKLOADS, OVERALL = "cases", "workloads", "overall"
"""Scope of a verdict: one case, the cases of a workload, or all of them."""

SIGNIFICANCE = 1 - CONFIDENCE
DEFAULT_SHARE = 0.02
"""The tolerance of `compare`, `history` and `bisect-versions`, which look for a cause: a change of 3 % is one to find.

A baseline has the larger tolerances of `QUANTITIES`, because a gate stops work: they state what is accepted.
"""
DEFAULT_TOLERANCE = Tolerance(default=DEFAULT_SHARE)

LEVEL = f"p < {SIGNIFICANCE:.2g} (two-sided, after Holm's correction)"
TEST = (
    f"A difference is significant if {LEVEL}. p is the larger one of two tests: a t-test with the noise within runs"
    " (block bootstrap of the minibatches) and between runs (a prior for the device, updated by repeated runs), and a"
    " rank-sum test of blocks of minibatches where there are enough. A significant difference fails only if the ratio"
    " of medians is beyond the tolerance. Without significance, a verdict is inconclusive if noise may hide a change of"
    " 5 % (of memory 10 %, or the tolerance if that is larger), or if a change beyond the tolerance narrowly missed"
    " significance."
)
"""The test, for help texts."""

DOUBTFUL_CHANGE = "the change is beyond the tolerance, but noise may have caused it"
_MOST_LOG_CHANGE = math.log(2)  # that is detectable; beyond it the noise hides a doubling


class Comparison(NamedTuple):
    """The comparison of one quantity of a case, of the cases of a workload or of all, with its verdict."""

    scope: str  # `CASES`, `WORKLOADS` or `OVERALL`
    name: str  # the case's id, the workload's name, or `overall`
    quantity: GatedQuantity
    status: str  # the verdict: by `verdict_of`, or one of the constants above
    counts: Tuple[int, int] = (0, 0)  # runs of a case on both sides; cases of a workload and overall
    change: Optional[Change] = None  # the ratio; None if it was not compared
    p_value: Optional[float] = None  # after Holm's correction; None if it was not compared
    rank_p: Optional[float] = None  # of the rank-sum tests only, uncorrected; None without a test
    tolerance: Optional[float] = None  # a share; None if it was not compared
    notes: Tuple[str, ...] = ()  # remarks on the verdict, one short sentence each
    pair: Optional[Pair] = None  # of a case
    limit: Optional[float] = None  # of one profile: worse begins beyond it, in the unit of the quantity
    detectable: Optional[float] = None  # share: four of five such comparisons would detect a change this large

    @property
    def figure(self) -> str:
        return self.quantity.name

    @property
    def is_worse(self) -> bool:
        """Whether it is significantly worse, by more than the tolerance."""
        return self.status == self.quantity.worse

    @property
    def is_significant(self) -> Optional[bool]:
        """Whether the difference is real, however small; None if it was not compared."""
        return None if self.p_value is None else self.p_value < SIGNIFICANCE

    @property
    def medians(self) -> Tuple[Optional[float], Optional[float]]:
        """Of all runs of a case on either side, in the unit of the quantity; None for a side without values."""
        sides = (self.pair.before, self.pair.after) if self.pair else (None, None)
        values = [side.series(self.quantity) if side else [] for side in sides]
        before, after = (pooled_median(series) if series else None for series in values)
        return before, after

    @property
    def is_beyond_limit(self) -> bool:
        now = self.medians[1]
        if now is None or self.limit is None:
            return False
        return now > self.limit if self.quantity.more_is_worse else now < self.limit

    @property
    def text(self) -> str:
        """The verdict in one line."""
        status = self.status
        if status == INCONCLUSIVE and self.is_beyond_limit:
            status = f"{self.quantity.worse} than its limit, in doubt"
        text = f"{self.name}: {self.figure}: {status}"
        before, after = self.medians
        if before is not None and after is not None and self.change is not None:
            limit = "" if self.limit is None else f", limit {self.quantity.shown(self.limit)}"
            text += f", {self.quantity.shown(before)} -> {self.quantity.shown(after)}: {self.change}{limit}"
        elif self.change is not None:
            text += f", {self.change}"
        return text + "".join(f"; {note}" for note in self.notes)


class _Subject(NamedTuple):
    """A case, a workload or all cases, for which a verdict is computed."""

    scope: str
    name: str
    counts: Tuple[int, int]
    members: Tuple[Pair, ...]  # none if there are too few values
    pair: Optional[Pair] = None  # of a case


class _Result(NamedTuple):
    """The result of a test: not corrected for the number of tests."""

    change: Change
    p_value: float
    rank_p: Optional[float] = None  # of the rank-sum tests only


_Test = Callable[[Sequence[Pair]], Optional[_Result]]


def compare_pairs(
    pairs: Sequence[Pair],
    quantity: GatedQuantity,
    tolerance: Tolerance,
    same_question: bool,
    noise: Optional[RunNoise] = None,
    is_alone: bool = False,
) -> List[Comparison]:
    """Verdicts on a quantity: of the cases that have it on both sides, in their order, of workloads, and overall.

    `same_question`: nothing but the run may differ between sides (`learn_noise`). `noise` between runs, if estimated
    from more than these pairs. `is_alone`: a single profile is compared, with any number of minibatches.
    """
    measured = [
        case_pair
        for case_pair in pairs
        if case_pair.is_compared and all(case.series(quantity) for case in case_pair.sides)
    ]
    enough = [case_pair for case_pair in measured if is_alone or _has_enough(case_pair, quantity)]
    is_fastest = quantity == FAST_TIME
    test = _permutation_test(enough) if is_fastest else _noise_test(enough, quantity, same_question, noise)
    comparisons: List[Comparison] = []
    for subjects in _subjects(measured, enough, quantity):
        results = [test(subject.members) if subject.members else None for subject in subjects]
        tested = [result for result in results if result is not None]
        p_values = iter(holm([result.p_value for result in tested]))
        for (scope, name, counts, members, pair), result in zip(subjects, results):
            if result is None:
                comparisons.append(Comparison(scope, name, quantity, TOO_FEW, counts, pair=pair))
                continue
            change, p_value, share = result.change, next(p_values), tolerance.share(members, quantity)
            status = verdict_of(quantity, change, p_value, share)
            doubt = (doubt_of(quantity, change, share),) if status == INCONCLUSIVE else ()
            detectable = detectable_share(change, share, SIGNIFICANCE / 2 / len(tested))
            about = (counts, change, p_value, result.rank_p, share, doubt, pair)
            comparisons.append(Comparison(scope, name, quantity, status, *about, detectable=detectable))
    return comparisons


def _has_enough(case_pair: Pair, quantity: GatedQuantity) -> bool:
    fewest_runs = min(len(case.series()) for case in case_pair.sides)
    return case_pair.fewest_minibatches >= quantity.fewest and (quantity != FAST_TIME or fewest_runs >= FEWEST_RUNS)


def _subjects(measured: Sequence[Pair], enough: Sequence[Pair], quantity: GatedQuantity) -> List[List[_Subject]]:
    """The cases, the workloads, and all cases; each of these has a correction of its own."""
    cases = []
    testable = {case_pair.key for case_pair in enough}
    for case_pair in measured:
        before, after = (len(case.series(quantity)) for case in case_pair.sides)
        members = (case_pair,) if case_pair.key in testable else ()
        cases.append(_Subject(CASES, case_pair.case_id, (before, after), members, case_pair))
    by_workload: Dict[str, List[Pair]] = {}
    for case_pair in enough:
        conditions = case_pair.sides[0].conditions
        task = "" if conditions["task"] == TRAINING else f" ({conditions['task']})"
        by_workload.setdefault(f"{conditions['workload']}{task}", []).append(case_pair)
    workloads = [_Subject(WORKLOADS, name, (len(own), len(own)), tuple(own)) for name, own in by_workload.items()]
    overall = [_Subject(OVERALL, "overall", (len(enough), len(enough)), tuple(enough))] if enough else []
    return [cases, workloads, overall]


def _permutation_test(pairs: Sequence[Pair]) -> _Test:
    """Of whole runs, by the fast minibatches of each; without a result if too few runs have all cases."""
    logs = _logs_of_runs(pairs, FAST_TIME, FAST_MINIBATCHES)

    def test(members: Sequence[Pair]) -> Optional[_Result]:
        before, after = _common_runs(logs, members)
        if min(len(before), len(after)) < FEWEST_RUNS:
            return None
        change = randomised_change(before, after)
        return _Result(change, change.p_value)

    return test


def _noise_test(
    pairs: Sequence[Pair], quantity: GatedQuantity, same_question: bool, noise: Optional[RunNoise]
) -> _Test:
    """A t-test by a model of the noise, which is learned from all pairs, and a rank-sum test that has to agree."""
    modelled = ratios(pairs, quantity, same_question, noise)
    ranks = {case_pair.key: rank_test(*(case.series(quantity) for case in case_pair.sides)) for case_pair in pairs}
    logs = _logs_of_runs(pairs, quantity, 0.5) if len(pairs) > 1 else {}

    def test(members: Sequence[Pair]) -> _Result:
        own = [modelled[case_pair.key] for case_pair in members]
        together = own[0] if len(own) == 1 else mean_ratio(own, *_common_runs(logs, members))
        change = together.change()
        rank_p = combined_ranks([ratio.within.value for ratio in own], [ranks[case_pair.key] for case_pair in members])
        return _Result(change, max(change.p_value, rank_p or 0.0), rank_p)

    return test


_RunLogs = Dict[Tuple[str, int], Dict[Tuple[str, int], float]]
"""By the key of a case and the number of its side: the logarithm of a quantile of each of its runs."""


def _logs_of_runs(pairs: Sequence[Pair], quantity: GatedQuantity, share: float) -> _RunLogs:
    return {
        (case_pair.key, number): {
            run: float(np.log(np.quantile(values, share))) for run, values in side.by_run(quantity).items()
        }
        for case_pair in pairs
        for number, side in enumerate(case_pair.sides)
    }


def _common_runs(logs: _RunLogs, pairs: Sequence[Pair]) -> Tuple[np.ndarray, np.ndarray]:
    """The logarithms of the runs that have all of these cases, on both sides, of shape (runs, cases)."""
    sides = []
    for number in (0, 1):
        cases = [logs[case_pair.key, number] for case_pair in pairs]
        complete = [run for run in cases[0] if all(run in of_case for of_case in cases)]
        rows = [[of_case[run] for of_case in cases] for run in complete]
        sides.append(np.array(rows).reshape(len(complete), len(cases)))
    before, after = sides
    return before, after


def is_beyond(ratio: float, share: float) -> bool:
    """Whether a ratio after / before is farther from 1 than a share, either way."""
    return not 1 / (1 + share) <= ratio <= 1 + share


def verdict_of(quantity: GatedQuantity, change: Change, p_value: float, tolerance: float) -> str:
    """The verdict on a change; `p_value` after Holm's correction, `tolerance` a share."""
    if p_value < SIGNIFICANCE:
        return significant_verdict(quantity, change.ratio, tolerance)
    return INCONCLUSIVE if doubt_of(quantity, change, tolerance) else SAME


def significant_verdict(quantity: GatedQuantity, ratio: float, tolerance: float) -> str:
    """`slower`, or `slower, within the tolerance of 5 %`."""
    word = quantity.worse if quantity.is_worse(ratio) else quantity.better
    return word if is_beyond(ratio, tolerance) else f"{word}, within the tolerance of {share_to_percent(tolerance):g} %"


def doubt_of(quantity: GatedQuantity, change: Change, tolerance: float) -> str:
    """Why a change that is not significant may still be one; empty if it shows no difference.

    Noise is in doubt from the tolerance of a baseline on: with a smaller one, most comparisons would be inconclusive.
    """
    if is_beyond(change.ratio, tolerance) and not change.low <= 1 <= change.high:
        return DOUBTFUL_CHANGE
    bound = max(tolerance, quantity.tolerance)
    if is_beyond(change.ratio, bound):
        return DOUBTFUL_CHANGE
    low, high = 1 / (1 + bound), 1 + bound
    return f"noise may hide a change of {bound:.1%}" if change.low < low and change.high > high else ""


def detectable_share(change: Change, tolerance: float, significance: float) -> float:
    """The change, as a share, that a comparison with the noise of this one detects at `POWER_OF_TEST`; approximate.

    `significance` is that of a one-sided test, corrected for the number of tests.
    """
    if not change.low > 0 or not math.isfinite(change.high):
        return math.inf
    normal = NormalDist()
    error = math.log(change.high / change.low) / 2 / normal.inv_cdf(0.5 + CONFIDENCE / 2)
    least_significant = max(normal.inv_cdf(1 - significance) * error, math.log1p(tolerance))
    log_change = least_significant + normal.inv_cdf(POWER_OF_TEST) * error
    return math.expm1(log_change) if log_change < _MOST_LOG_CHANGE else math.inf


def outdated(comparisons: Iterable[Comparison]) -> str:
    """Why a baseline is outdated: most cases are better by more than the tolerance. Empty if it is not."""
    cases: Dict[str, List[Comparison]] = {}
    for comparison in comparisons:
        if comparison.scope == CASES and comparison.change is not None:
            cases.setdefault(comparison.figure, []).append(comparison)
    for figure, own in cases.items():
        better = [comparison for comparison in own if comparison.status == comparison.quantity.better]
        if 2 * len(better) > len(own):
            of_all = f"{better[0].quantity.better} ({figure}) by more than the tolerance in {len(better)} of"
            return f"the baseline is outdated: {of_all} {counted(len(own), 'case')}; record it again"
    return ""


def describe_detectable(comparisons: Sequence[Comparison]) -> List[str]:
    """A line with the changes that would be detected in each quantity: overall, and in the noisiest case."""
    texts = []
    for figure in dict.fromkeys(comparison.figure for comparison in comparisons):
        shares: Dict[str, List[float]] = {}
        for comparison in comparisons:
            if comparison.figure == figure and comparison.detectable is not None:
                shares.setdefault(comparison.scope, []).append(comparison.detectable)
        cases = shares.get(CASES, [])
        ends = [f"{_share_text(share)} overall" for share in shares.get(OVERALL, ())]
        if len(cases) > 1:
            ends.append(f"{_share_text(max(cases))} in the noisiest case")
        texts += [f"{figure} {', '.join(ends or map(_share_text, cases))}"] if cases else []
    return [f"detectable with a probability of {POWER_OF_TEST:.0%}: {'; '.join(texts)}"] if texts else []


def _share_text(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else "more than 100%"


def describe_doubts(comparisons: Sequence[Comparison]) -> List[str]:
    """A line with the number of inconclusive verdicts and their reasons; none if there are none."""
    reasons = Counter(comparison.notes[0] for comparison in comparisons if comparison.status == INCONCLUSIVE)
    if not reasons:
        return []
    total = f"{INCONCLUSIVE}: {sum(reasons.values())} of {counted(len(comparisons), 'verdict')}"
    if len(reasons) == 1:
        return [f"{total}: {next(iter(reasons))}"]
    return [f"{total}: {'; '.join(f'in {count}, {reason}' for reason, count in reasons.items())}"]


def not_compared(comparisons: Iterable[Comparison], is_partial: bool = False) -> List[Comparison]:
    """The cases without a verdict, for which a strict gate fails; `is_partial` admits those that did not run."""
    statuses = [REFUSED, TOO_FEW, INCONCLUSIVE, NEW, NOT_MEASURED] + ([] if is_partial else [NOT_RUN])
    return [each for each in comparisons if each.scope == CASES and each.status in statuses]


def exit_code(
    comparisons: Sequence[Comparison], strict: bool = False, is_refused: bool = False, is_partial: bool = False
) -> int:
    """1 if something is worse by more than the tolerance; else 2 if a comparison was refused or none was possible.

    `is_refused`: a comparison without a verdict was refused. `strict` returns 2 for all of `not_compared`.
    """
    refused = (
        not_compared(comparisons, is_partial)
        if strict
        else [comparison for comparison in comparisons if comparison.status in (REFUSED, TOO_FEW)]
    )
    is_nothing_compared = all(comparison.change is None for comparison in comparisons)
    return exit_code_of(
        any(comparison.is_worse for comparison in comparisons), is_refused or bool(refused) or is_nothing_compared
    )


def exit_code_of(is_worse: bool, is_open: bool) -> int:
    """1 if something became worse; else 2 if a comparison was refused, or none was possible; else 0."""
    return 1 if is_worse else 2 if is_open else 0
