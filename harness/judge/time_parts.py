"""Which part of a minibatch became slower, the fetch stall or the rest, by the test that its time was judged by."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

from harness.judge.comparison import CASES, INCONCLUSIVE, SAME, Comparison, compare_pairs
from harness.judge.pairs import Pair
from harness.judge.quantities import TIME
from harness.judge.sides import CaseRuns, Run
from harness.judge.tolerances import Tolerance
from harness.stats.comparison import pooled_median
from harness.stats.noise import RunNoise

FETCH_STALL, COMPUTE = "fetch stall", "compute"
"""All of a minibatch but its fetch stall counts as compute."""


def with_slower_parts(
    comparisons: Sequence[Comparison],
    tolerance: Tolerance,
    same_question: bool,
    noise: Optional[RunNoise] = None,
    is_alone: bool = False,
) -> List[Comparison]:
    """Comparisons, with a note on each case whose minibatches became slower: which part of them did.

    A part is compared as their time is, in minibatches whose other part is always the median of the first side. The
    further arguments are those of `compare_pairs`.
    """
    pairs = {each.pair.key: each.pair for each in comparisons if each.pair is not None and _is_to_explain(each)}
    changes: Dict[str, List[str]] = {key: [] for key in pairs}
    for part in (FETCH_STALL, COMPUTE):
        alone = [_with_one_part(case_pair, part) for case_pair in pairs.values()]
        for verdict in compare_pairs(alone, TIME, tolerance, same_question, noise, is_alone):
            if verdict.scope == CASES and verdict.pair is not None:
                key = verdict.pair.key
                changes[key].append(_describe(part, verdict.status, *_medians(pairs[key], part)))
    noted = []
    for comparison in comparisons:
        if comparison.pair is not None and _is_to_explain(comparison):
            note = ", ".join(changes[comparison.pair.key])
            comparison = comparison._replace(notes=(*comparison.notes, note))
        noted.append(comparison)
    return noted


def _is_to_explain(comparison: Comparison) -> bool:
    """Whether the minibatches of a case became slower, and both sides have their fetch stalls."""
    if comparison.scope != CASES or comparison.quantity != TIME or not comparison.is_worse or comparison.pair is None:
        return False
    runs = [run for side in comparison.pair.sides for run in side.runs]
    return all(run.stalls_ms for run in runs if run.times_ms)


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


def _medians(case_pair: Pair, part: str) -> Tuple[float, float]:
    before, after = (pooled_median([_part_ms(run, part) for run in side.runs]) for side in case_pair.sides)
    return before, after


def _with_one_part(case_pair: Pair, part: str) -> Pair:
    """The pair as if only this part of its minibatches differed between them."""
    other = COMPUTE if part == FETCH_STALL else FETCH_STALL
    held_ms, _ = _medians(case_pair, other)

    def alone(side: CaseRuns) -> CaseRuns:
        runs = []
        for run in side.runs:
            times_ms = tuple(held_ms + part_ms for part_ms in _part_ms(run, part))
            runs.append(Run(run.run_id, run.created_at, run.flags, times_ms))
        return dataclasses.replace(side, runs=tuple(runs))

    before, after = map(alone, case_pair.sides)
    return case_pair._replace(before=before, after=after)
