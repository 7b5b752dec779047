"""The gate: whether a case has become slower than its baseline, by more than a threshold and by more than noise.

How often it errs, found by simulating gates of two cases with 40 minibatches a run, 5 % noise within a run and 1 % or
3 % between runs, at a threshold of 5 %:

    runs: baseline, now   equal code flagged: 1 %, 3 %   slowdown of 20 % found: 1 %, 3 %
    1, 1                  0.7 %, 24 %                    100 %, 100 %
    2, 2                  0 %, 0.8 %                     91 %, 63 %
    3, 3                  0 %, 1.8 %                     100 %, 99 %
    5, 5                  0 %, 1.7 %                     100 %, 100 %
    5, 1                  0.2 %, 3.8 %                   100 %, 99 %

So a baseline of three runs or more is worth its time.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table
from harness.judge.baseline import CaseRuns, group_records, newest_runs, read_baseline, without_flagged
from harness.stats.changes import compare_runs, holm, learn_noise
from harness.stats.estimates import CONFIDENCE, Estimate
from harness.stats.noise import RunNoise
from harness.store.conditions import LEFT_OUT, differences
from harness.store.results import ResultsStore
from harness.store.rows import Record

DEFAULT_THRESHOLD = 0.05
SIGNIFICANCE = 0.05
MIN_MINIBATCHES = 10
"""With fewer clean minibatches on a side its noise cannot be told from a change."""

SLOWER, FASTER, SAME, INCONCLUSIVE = "slower", "faster", "same", "inconclusive"
REFUSED, TOO_FEW, NOT_RUN, NEW = "refused", "too few", "not run", "not in baseline"

NOT_RUN_NOTE = "not run since the baseline was recorded; to compare, measure again: pytest benchmarks"

_NAMED_CASES = 3  # below the table, for each note

OK_CODE, SLOWER_CODE, REFUSED_CODE = 0, 1, 2

TEST = (
    "slower: the ratio of median minibatch times is beyond the threshold, and a one-sided test finds it beyond noise"
    f" (p < {SIGNIFICANCE:g} after Holm's correction over all compared cases). The noise is the standard error from a"
    " hierarchical bootstrap, runs first, then moving blocks of minibatches, with Student's t for the number of runs."
    " inconclusive: neither, and the interval reaches beyond the threshold both ways."
)
"""The test, for help texts and below every table."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came out for one case.

    Attributes:
        case_id: the case's id.
        status: `slower`, `faster` or `same` where it was compared, `inconclusive` where it was and its interval reaches
            beyond the threshold both ways; `refused` where the conditions differ; `too few`
            where a side has less than `MIN_MINIBATCHES` clean minibatches; `not run` and `not in baseline` where only
            one side has it.
        before: its runs in the baseline; None where there are none.
        after: its runs now; None where there are none.
        ratio: of the medians now / baseline, with its noise; None where it was not compared.
        notes: what to know about the verdict, one short sentence each.
    """

    case_id: str
    status: str
    before: Optional[CaseRuns]
    after: Optional[CaseRuns]
    ratio: Optional[Estimate] = None
    notes: Sequence[str] = ()


def check(
    store: ResultsStore,
    path: Path,
    threshold: float = DEFAULT_THRESHOLD,
    last: Optional[int] = None,
    include_flagged: bool = False,
) -> List[Verdict]:
    """Compare the profiles of a results file with a baseline.

    A case is slower where the ratio of medians (now / baseline) is above 1 + threshold and its one-sided p-value,
    corrected by Holm's method over all compared cases, is below `SIGNIFICANCE`;
    see `harness.stats.changes` for the test.
    Faster is the same the other way round. Only equal comparable conditions are compared.

    Only runs from after the baseline count: in the results file that it was recorded from, those after its newest run;
    in another file, all. Of each comparable conditions those in the environment of the newest one are taken.

    Args:
        store: the results file.
        path: the baseline.
        threshold: as a share: 0.05 is 5 %.
        last: take at most this many runs now, the newest.
        include_flagged: keep profiles that were disturbed or throttled (`harness.store.conditions`).

    Returns:
        A verdict for each case of the baseline, in its order, then one for each case that only the results have.

    Raises:
        StoreError: the baseline or the results cannot be read.
        InvalidValueError: the threshold is below 0, or `last` below 1.
    """
    before = read_baseline(path)
    fresh = _since(before, group_records(store))
    kept = without_flagged(fresh, include_flagged)
    now = [
        dataclasses.replace(newest_runs(store, records, last), flagged=len(fresh[key]) - len(records))
        for key, records in kept.items()
    ]
    return [_only_flagged(verdict, fresh) for verdict in judge(before, now, threshold)]


def judge(before: Sequence[CaseRuns], after: Sequence[CaseRuns], threshold: float = DEFAULT_THRESHOLD) -> List[Verdict]:
    """Compare cases with cases, each key at most once on a side; `check` says how.

    Raises:
        InvalidValueError: the threshold is below 0.
    """
    if not threshold >= 0:
        raise InvalidValueError(f"the threshold must be 0 or more, got {threshold}")
    now = {case.key: case for case in after}
    baseline = {case.key: case for case in before}
    compared = _ratios(
        {
            key: (case, now[key])
            for key, case in baseline.items()
            if key in now and _is_enough(case) and _is_enough(now[key])
        }
    )
    slower = dict(zip(compared, holm([ratio.p_above() for ratio in compared.values()])))
    faster = dict(zip(compared, holm([1 - ratio.p_above() for ratio in compared.values()])))
    unmatched = [case for key, case in now.items() if key not in baseline]
    verdicts: List[Verdict] = []
    for key, case in baseline.items():
        if key in compared:
            status = _status(compared[key], threshold, slower[key], faster[key])
            verdicts.append(Verdict(case.case_id, status, case, now[key], compared[key], _notes(case, now[key])))
        elif key in now:
            needed = f"at least {MIN_MINIBATCHES} clean minibatches are needed on each side"
            verdicts.append(Verdict(case.case_id, TOO_FEW, case, now[key], None, [needed]))
        else:
            verdicts.append(_not_compared(case, nearest(case, unmatched)))
    refused = {verdict.case_id for verdict in verdicts if verdict.status == REFUSED}
    new = [case for case in unmatched if case.case_id not in refused]
    return verdicts + [Verdict(case.case_id, NEW, None, case) for case in new]


def _ratios(pairs: Mapping[str, Tuple[CaseRuns, CaseRuns]]) -> Dict[str, Estimate]:
    """Now / baseline of each key; the noise between runs is learned from all cases of a type of device."""
    by_prior: Dict[RunNoise, List[str]] = {}
    for key, (before, _) in pairs.items():
        by_prior.setdefault(before.prior, []).append(key)
    found = {}
    for known, keys in by_prior.items():
        series = {key: (pairs[key][0].series, pairs[key][1].series) for key in keys}
        noise = learn_noise(list(series.values()), False, known)
        found.update({key: compare_runs(*sides, noise, known).estimate for key, sides in series.items()})
    return {key: found[key] for key in pairs}


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 where a case is slower; else 2 where one was refused or none could be compared; else 0."""
    found = {verdict.status for verdict in verdicts}
    if SLOWER in found:
        return SLOWER_CODE
    if found & {REFUSED, TOO_FEW} or not found & {SAME, FASTER, INCONCLUSIVE}:
        return REFUSED_CODE
    return OK_CODE


def format_verdicts(verdicts: Sequence[Verdict], threshold: float) -> str:
    """The table of a check, the notes on its cases, and how the verdicts were found."""
    header = ["case", ">baseline ms", ">now ms", ">ratio", f">{CONFIDENCE:.0%} interval", ">runs", "verdict"]
    lines = [format_table(header, [_cells(verdict) for verdict in verdicts]), ""]
    lines += [f"{_named(cases)}: {note}" for note, cases in _by_note(verdicts).items()]
    return "\n".join([*lines, f"threshold {threshold:.1%}. {TEST}"])


def _since(before: Sequence[CaseRuns], groups: Mapping[str, Sequence[Record]]) -> Dict[str, List[Record]]:
    """The profiles that were added after every run of the baseline; groups without one are left out.

    A recording takes the newest profile of every group, so what comes before its last was in the file already: runs
    that it left out, of another environment, must not be taken for new ones.
    """
    recorded = {(run.run_id, run.created_at) for case in before for run in case.runs}
    records = [found for group in groups.values() for found in group]
    newest = max((found.id for found in records if (found.run_id, found.created_at) in recorded), default=0)
    fresh = {key: [found for found in group if found.id > newest] for key, group in groups.items()}
    return {key: group for key, group in fresh.items() if group}


def _only_flagged(verdict: Verdict, fresh: Mapping[str, Sequence[Record]]) -> Verdict:
    """The verdict; where a case was run again and all its profiles were left out, with that as its note."""
    if verdict.status != NOT_RUN or verdict.before is None or verdict.before.key not in fresh:
        return verdict
    return dataclasses.replace(verdict, notes=[f"run again, but left out: {len(fresh[verdict.before.key])} {LEFT_OUT}"])


def _is_enough(case: CaseRuns) -> bool:
    return sum(map(len, case.series)) >= MIN_MINIBATCHES


def _status(ratio: Estimate, threshold: float, p_slower: float, p_faster: float) -> str:
    if ratio.value > 1 + threshold and p_slower < SIGNIFICANCE:
        return SLOWER
    if ratio.value < 1 / (1 + threshold) and p_faster < SIGNIFICANCE:
        return FASTER
    interval = ratio.interval()
    return INCONCLUSIVE if is_wider(interval.low, interval.high, threshold) else SAME


def is_wider(low: float, high: float, threshold: float) -> bool:
    """Whether an interval of a ratio reaches beyond the threshold both ways, so that it tells nothing either way."""
    return low < 1 / (1 + threshold) and high > 1 + threshold


def _notes(before: CaseRuns, after: CaseRuns) -> List[str]:
    notes = []
    if after.flagged:
        notes.append(f"left out: {after.flagged} {LEFT_OUT}")
    if after.older:
        notes.append(f"{after.older} older profiles not used: of another environment, or beyond --last")
    if len(before.runs) == len(after.runs) == 1:
        notes.append(f"one run on each side: how much runs differ is taken to be {before.prior.share:.1%}")
    changed = differences(before.environment, after.environment)
    if changed:
        notes.append(f"environment changed: {'; '.join(changed)}")
    kinds = [{flag.split(":")[0] for run in case.runs for flag in run.flags} for case in (before, after)]
    for only, side in ((kinds[0] - kinds[1], "the baseline"), (kinds[1] - kinds[0], "now")):
        if only:
            notes.append(f"flagged only {side}: {', '.join(sorted(only))}")
    return notes


def nearest(before: CaseRuns, candidates: Sequence[CaseRuns]) -> Optional[CaseRuns]:
    """The runs of the same workload under the conditions that differ least: what the user probably meant to compare."""
    same = [case for case in candidates if case.case_id == before.case_id]
    same = same or [case for case in candidates if _subject(case) == _subject(before)]
    return min(same, key=lambda case: len(differences(before.conditions, case.conditions)), default=None)


def _subject(case: CaseRuns) -> Tuple[str, str]:
    return case.conditions["workload"], case.conditions["task"]


def _not_compared(before: CaseRuns, nearest: Optional[CaseRuns]) -> Verdict:
    if nearest is None:
        return Verdict(before.case_id, NOT_RUN, before, None, None, [NOT_RUN_NOTE])
    differ = "; ".join(differences(before.conditions, nearest.conditions))
    return Verdict(before.case_id, REFUSED, before, nearest, None, [f"not compared with {nearest.case_id}: {differ}"])


def _by_note(verdicts: Sequence[Verdict]) -> Dict[str, List[str]]:
    """Each note once, with the ids of the cases that have it."""
    cases: Dict[str, List[str]] = {}
    for verdict in verdicts:
        for note in verdict.notes:
            cases.setdefault(note, []).append(verdict.case_id)
    return cases


def _named(case_ids: Sequence[str]) -> str:
    more = len(case_ids) - _NAMED_CASES
    return ", ".join(case_ids[:_NAMED_CASES]) + (f" and {more} more" if more > 0 else "")


def _cells(verdict: Verdict) -> List[str]:
    result = verdict.ratio.interval() if verdict.ratio else None
    return [
        verdict.case_id,
        _median(verdict.before),
        _median(verdict.after),
        f"{result.value:.3f}" if result else "-",
        f"{result.low:.3f} to {result.high:.3f}" if result else "-",
        f"{_count(verdict.before)} | {_count(verdict.after)}",
        verdict.status,
    ]


def _median(case: Optional[CaseRuns]) -> str:
    return f"{case.median_ms:.3f}" if case else "-"


def _count(case: Optional[CaseRuns]) -> int:
    return len(case.runs) if case else 0
