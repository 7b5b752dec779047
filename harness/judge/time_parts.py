"""Which part of a minibatch became slower, the fetch stall or the rest, by the test that its time was judged by."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

from harness.judge.comparison import INCONCLUSIVE, SAME, Comparison, compare_pairs
from harness.judge.pairs import Pair
from harness.judge.quantities import TIME, GatedQuantity
from harness.judge.sides import CaseRuns, Run
from harness.judge.tolerances import Tolerance
from harness.stats.comparison import pooled_median
from harness.stats.noise import RunNoise

FETCH_STALL, COMPUTE = "fetch stall", "compute"
"""All of a minibatch but its fetch stall counts as compute."""


def compare_and_explain(
    pairs: Sequence[Pair],
    quantity: GatedQuantity,
    tolerance: Tolerance,
    same_question: bool,
    noise: Optional[RunNoise] = None,
    is_alone: bool = False,
) -> List[Comparison]:
    """The verdicts of `compare_pairs`; each case whose minibatches became slower has a note which part of them did.

    A part is compared as their time is, in minibatches whose other part is always the median of the first side.
    """
    comparisons = compare_pairs(pairs, quantity, tolerance, same_question, noise, is_alone)
    if quantity != TIME:
        return comparisons
    slower = [each.pair for each in comparisons if each.is_worse and each.pair is not None and _has_stalls(each.pair)]
    if not slower:
        return comparisons
    medians_ms = {case_pair.key: _medians_ms(case_pair) for case_pair in slower}
    changes: Dict[str, List[str]] = {key: [] for key in medians_ms}
    for part, other in ((FETCH_STALL, COMPUTE), (COMPUTE, FETCH_STALL)):
        alone = [_with_one_part(case_pair, part, medians_ms[case_pair.key][other][0]) for case_pair in slower]
        for verdict in compare_pairs(alone, TIME, tolerance, same_question, noise, is_alone):
            if verdict.pair is not None:
                key = verdict.pair.key
                changes[key].append(_describe(part, verdict.status, *medians_ms[key][part]))
    return [_with_note(comparison, changes) for comparison in comparisons]


def _has_stalls(case_pair: Pair) -> bool:
    """Whether both sides have their fetch stalls."""
    runs = [run for side in case_pair.sides for run in side.runs]
    return all(run.stalls_ms for run in runs if run.times_ms)


def _with_note(comparison: Comparison, changes: Dict[str, List[str]]) -> Comparison:
    if comparison.pair is None or comparison.pair.key not in changes:
        return comparison
    return comparison._replace(notes=(*comparison.notes, ", ".join(changes[comparison.pair.key])))


def _describe(part: str, status: str, before_ms: float, after_ms: float) -> str:
    """`fetch stall rose from 3 to 9 ms`."""
    if status in (SAME, INCONCLUSIVE):
        return f"{part} did not change beyond the noise"
    verb = "rose" if after_ms > before_ms else "fell"
    return f"{part} {verb} from {before_ms:.3g} to {after_ms:.3g} ms"


def _part_ms(run: Run, part: str) -> Tuple[float, ...]:
    if part == FETCH_STALL:
        return run.stalls_ms
    return tuple(time_ms - stall_ms for time_ms, stall_ms in zip(run.times_ms, run.stalls_ms))


def _medians_ms(case_pair: Pair) -> Dict[str, Tuple[float, float]]:
    """The median of each part on both sides."""
    medians_ms = {}
    for part in (FETCH_STALL, COMPUTE):
        before, after = (pooled_median([_part_ms(run, part) for run in side.runs]) for side in case_pair.sides)
        medians_ms[part] = before, after
    return medians_ms


def _with_one_part(case_pair: Pair, part: str, other_ms: float) -> Pair:
    """The pair as if only this part of its minibatches differed between them; the other takes `other_ms` in all."""

    def alone(side: CaseRuns) -> CaseRuns:
        runs = []
        for run in side.runs:
            times_ms = tuple(other_ms + part_ms for part_ms in _part_ms(run, part))
            runs.append(Run(run.run_id, run.created_at, run.flags, times_ms))
        return dataclasses.replace(side, runs=tuple(runs))

    before, after = map(alone, case_pair.sides)
    return case_pair._replace(before=before, after=after)
