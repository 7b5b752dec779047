"""Verdicts of baselines, comparisons and histories: their values, the test behind them, their text and exit codes."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError
from harness.core.terminal import counted
from harness.core.units import share_to_percent
from harness.judge.pairs import Pair
from harness.judge.quantities import JudgedQuantity
from harness.stats.comparison import Change, holm, pooled_median
from harness.stats.estimates import CONFIDENCE
from harness.stats.noise import POWER_OF_TEST

SAME, INCONCLUSIVE, TOO_FEW = "no difference", "inconclusive", "too few"
"""Verdicts in addition to those of each quantity, such as `slower` and `faster`."""

REFUSED, NOT_RUN, NEW, NOT_MEASURED = "refused", "not run", "not in baseline", "not measured"
"""Verdicts on cases or quantities that were not compared: conditions differ, or only one side has them."""

DOUBTFUL_CHANGE = "the change is beyond the threshold, but noise may have caused it"

SIGNIFICANCE = 1 - CONFIDENCE
_MOST_LOG_CHANGE = math.log(2)  # that is detectable; beyond it the noise hides a doubling

CASES, WORKLOADS, OVERALL = "cases", "workloads", "overall"
"""Scope of a verdict: one case, the cases of a workload, or all of them."""


class Tested(NamedTuple):
    """A change with the p-values of a change for the worse and for the better, not corrected for their number."""

    change: Change
    p_worse: float
    p_better: float
    rank_p: Optional[float] = None  # of the rank-sum tests only; None without a test


class Subject(NamedTuple):
    """A case, a workload or all cases, for which a verdict is computed."""

    scope: str  # `CASES`, `WORKLOADS` or `OVERALL`
    name: str  # the case's id, the workload's name, or `overall`
    counts: Tuple[int, int]  # runs of a case on both sides; cases of a workload and overall
    tested: Optional[Tested]  # None if there are too few values
    threshold: float  # share below which a change is none
    pair: Optional[Pair] = None  # of a case


class Compared(NamedTuple):
    """A verdict on one quantity of a case, of a workload or of all."""

    scope: str  # `CASES`, `WORKLOADS` or `OVERALL`
    name: str  # the case's id, the workload's name, or `overall`
    quantity: JudgedQuantity
    status: str  # `quantity.worse`, `quantity.better`, or one of the constants above
    counts: Tuple[int, int] = (0, 0)  # as in `Subject`
    change: Optional[Change] = None  # the ratio; None if it was not compared
    p_value: Optional[float] = None  # after Holm's correction; None if it was not compared
    rank_p: Optional[float] = None  # of the rank-sum tests only, uncorrected; None without a test
    notes: Tuple[str, ...] = ()  # remarks on the verdict, one short sentence each
    pair: Optional[Pair] = None  # of a case
    limit: Optional[float] = None  # of one profile: worse begins beyond it, in the unit of the quantity
    detectable: Optional[float] = None  # share: four of five such comparisons would detect a change this large

    @property
    def figure(self) -> str:
        return self.quantity.name

    @property
    def is_worse(self) -> bool:
        return self.status == self.quantity.worse

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
        text = f"{self.name}: {self.figure}: {self.status}"
        before, after = self.medians
        if before is not None and after is not None and self.change is not None:
            limit = "" if self.limit is None else f", limit {self.quantity.shown(self.limit)}"
            text += f", {self.quantity.shown(before)} -> {self.quantity.shown(after)}: {self.change}{limit}"
        return text + "".join(f"; {note}" for note in self.notes)


def judge(
    subjects: Sequence[Subject], quantity: JudgedQuantity, telling: float = 0.0, tails: int = 1
) -> List[Compared]:
    """Verdicts on a quantity, corrected for the number of tested subjects; `tails` of their tests.

    A change counts if the ratio exceeds the subject's threshold and noise alone is unlikely to cause it. Others are
    inconclusive if `doubt_of` has a reason, which is the first of their notes.
    """
    tested = [subject.tested for subject in subjects if subject.tested is not None]
    worse = iter(holm([result.p_worse for result in tested]))
    better = iter(holm([result.p_better for result in tested]))
    verdicts = []
    for scope, name, counts, result, threshold, pair in subjects:
        if result is None:
            verdicts.append(Compared(scope, name, quantity, TOO_FEW, counts, pair=pair))
            continue
        change, p_values = result.change, (next(worse), next(better))
        status = status_of(quantity, change, *p_values, threshold, telling)
        verdict = Compared(scope, name, quantity, status, counts, change, p_values[0], result.rank_p, pair=pair)
        notes = (doubt_of(change, threshold, telling),) if status == INCONCLUSIVE else ()
        detectable = detectable_share(change, threshold, SIGNIFICANCE / tails / len(tested))
        verdicts.append(verdict._replace(notes=notes, detectable=detectable))
    return verdicts


def status_of(
    quantity: JudgedQuantity, change: Change, p_worse: float, p_better: float, threshold: float, telling: float
) -> str:
    is_beyond = not 1 / (1 + threshold) <= change.ratio <= 1 + threshold
    is_worse = quantity.is_worse(change.ratio)
    if is_beyond and (p_worse if is_worse else p_better) < SIGNIFICANCE:
        return quantity.worse if is_worse else quantity.better
    return INCONCLUSIVE if doubt_of(change, threshold, telling) else SAME


def doubt_of(change: Change, threshold: float, telling: float) -> str:
    """Why a change that is not significant may still be one; empty if it shows no difference."""
    is_beyond = not 1 / (1 + threshold) <= change.ratio <= 1 + threshold
    if is_beyond and not change.low <= 1 <= change.high:
        return DOUBTFUL_CHANGE
    bound = max(threshold, telling)
    low, high = 1 / (1 + bound), 1 + bound
    if not low <= change.ratio <= high:
        return DOUBTFUL_CHANGE
    return f"noise may hide a change of {bound:.1%}" if change.low < low and change.high > high else ""


def detectable_share(change: Change, threshold: float, significance: float) -> float:
    """The change, as a share, that a comparison with the noise of this one detects at `POWER_OF_TEST`; approximate.

    `significance` is that of a one-sided test, corrected for the number of tests.
    """
    if not change.low > 0 or not math.isfinite(change.high):
        return math.inf
    normal = NormalDist()
    error = math.log(change.high / change.low) / 2 / normal.inv_cdf(0.5 + CONFIDENCE / 2)
    least_significant = max(normal.inv_cdf(1 - significance) * error, math.log1p(threshold))
    log_change = least_significant + normal.inv_cdf(POWER_OF_TEST) * error
    return math.expm1(log_change) if log_change < _MOST_LOG_CHANGE else math.inf


def describe_detectable(verdicts: Sequence[Compared]) -> List[str]:
    """A line with the changes that would be detected in each quantity: overall, and in the noisiest case."""
    texts = []
    for figure in dict.fromkeys(verdict.figure for verdict in verdicts):
        shares: Dict[str, List[float]] = {}
        for verdict in verdicts:
            if verdict.figure == figure and verdict.detectable is not None:
                shares.setdefault(verdict.scope, []).append(verdict.detectable)
        cases = shares.get(CASES, [])
        ends = [f"{_share_text(share)} overall" for share in shares.get(OVERALL, ())]
        if len(cases) > 1:
            ends.append(f"{_share_text(max(cases))} in the noisiest case")
        texts += [f"{figure} {', '.join(ends or map(_share_text, cases))}"] if cases else []
    return [f"detectable with a probability of {POWER_OF_TEST:.0%}: {'; '.join(texts)}"] if texts else []


def _share_text(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else "more than 100%"


def describe_doubts(verdicts: Sequence[Compared]) -> List[str]:
    """A line with the number of inconclusive verdicts and their reasons; none if there are none."""
    reasons = Counter(verdict.notes[0] for verdict in verdicts if verdict.status == INCONCLUSIVE)
    if not reasons:
        return []
    total = f"{INCONCLUSIVE}: {sum(reasons.values())} of {counted(len(verdicts), 'verdict')}"
    if len(reasons) == 1:
        return [f"{total}: {next(iter(reasons))}"]
    return [f"{total}: {'; '.join(f'in {count}, {reason}' for reason, count in reasons.items())}"]


def check_threshold(threshold: float) -> None:
    if not threshold >= 0:
        raise InvalidValueError(f"the threshold must be 0 or more, got {share_to_percent(threshold):g} %")


def not_compared(verdicts: Iterable[Compared], is_partial: bool = False) -> List[Compared]:
    """The inconclusive verdicts, for which a strict gate fails; `is_partial` admits recorded cases that did not run."""
    statuses = [REFUSED, TOO_FEW, INCONCLUSIVE, NEW, NOT_MEASURED] + ([] if is_partial else [NOT_RUN])
    return [verdict for verdict in verdicts if verdict.status in statuses]


def exit_code(
    verdicts: Sequence[Compared], strict: bool = False, is_refused: bool = False, is_partial: bool = False
) -> int:
    """1 if something became worse; else 2 if a comparison was refused or none was possible; else 0.

    `is_refused`: a comparison without a verdict was refused. `strict` returns 2 for all verdicts of `not_compared`.
    """
    refused = (
        not_compared(verdicts, is_partial)
        if strict
        else [verdict for verdict in verdicts if verdict.status in (REFUSED, TOO_FEW)]
    )
    is_nothing_compared = all(verdict.change is None for verdict in verdicts)
    return exit_code_of(
        any(verdict.is_worse for verdict in verdicts), is_refused or bool(refused) or is_nothing_compared
    )


def exit_code_of(is_worse: bool, is_open: bool) -> int:
    """1 if something became worse; else 2 if a comparison was refused, or none was possible; else 0."""
    return 1 if is_worse else 2 if is_open else 0
