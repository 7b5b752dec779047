"""Baselines and the gate: recorded figures of cases, and whether a case has become worse since.

A baseline is a stored side of a comparison (`harness.judge.sides`), and the gate is that comparison
(`harness.judge.comparison`) with the tolerances of `harness.judge.quantities`. Record at least three runs: one run does
not show the noise between runs.
"""

from __future__ import annotations

import datetime
import itertools
import json
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import msgspec

from harness.core import board_threshold
from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.core.profiles import Profile, flag_kinds, flagged_in_words, is_disqualified
from harness.core.terminal import counted, format_table, wrap
from harness.judge.comparison import (
    ALLOW_TO_DIFFER,
    CASES,
    INCONCLUSIVE,
    LEVEL,
    NEW,
    NOT_MEASURED,
    NOT_RUN,
    OVERALL,
    REFUSED,
    SIGNIFICANCE,
    TOO_FEW,
    WORKLOADS,
    Comparison,
    describe_detectable,
    describe_doubts,
    outdated,
)
from harness.judge.pairs import Pair, nearest, pair, rest_of, without_question
from harness.judge.quantities import MIN_MINIBATCHES, QUANTITIES, TIME, GatedQuantity
from harness.judge.sides import (
    DECIMALS,
    FORMAT,
    VERSION,
    CaseRuns,
    case_of,
    comparable_profiles,
    copies_in_words,
    read_baseline,
    side_of,
    stored_run,
)
from harness.judge.time_parts import compare_and_explain
from harness.judge.tolerances import Tolerance
from harness.stats.comparison import learn_noise, median_of_runs
from harness.stats.estimates import CONFIDENCE, Interval
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import differences, key, without_instance
from harness.store.results import ResultsStore

SIDES = ("the baseline", "now")

ENOUGH_RUNS = 3
RECORD_MORE_NOTE = f"record at least {ENOUGH_RUNS} runs of this case, or raise the tolerance"
NOT_RUN_NOTE = "not run since the baseline was recorded; to compare, measure again: pytest benchmarks"
TOO_FEW_NOTE = f"at least {MIN_MINIBATCHES} clean minibatches are needed on each side"
_NAMED_CASES = 3  # below the table, for each note
_ROUNDING = 1e-9  # as a share

_NOISE = (
    "within runs, a block bootstrap of the minibatches; between runs, a prior for the device, updated by repeated runs"
)
REMEDY = f"to decide: record at least {ENOUGH_RUNS} runs of each case, and measure as many now, on an idle machine"


def recorded_median(case: CaseRuns, quantity: GatedQuantity = TIME) -> Optional[Interval]:
    """The median over all runs of a case with its interval, in the unit of the quantity; None without values."""
    series = case.series(quantity)
    return median_of_runs(series, prior(case.device, quantity.noise)).interval() if series else None


class Recorded(NamedTuple):
    """What a baseline was made of; printed, it is the text of `jetwatt baseline record`."""

    cases: List[CaseRuns]  # the written ones
    dropped: List[str]  # ids of cases that only the previous file had
    flagged: int  # number of profiles left out because of their flags
    results: Path  # the file that was read
    baseline: Path  # the file that was written

    def __repr__(self) -> str:
        return format_recorded(self)


def record_baseline(
    results: Union[str, Path],
    baseline: Union[str, Path],
    *,
    last: Optional[int] = None,
    include_flagged: bool = False,
) -> Recorded:
    """Write a baseline from the profiles of a results file, as `jetwatt baseline record` does.

    Args:
        results: the results file.
        baseline: the JSON file to write; replaced atomically.
        last: use the newest runs of each case, this many; None for all of its environment.
        include_flagged: include profiles flagged disturbed or throttled.

    Returns:
        The written cases, the ids of those that only the previous file had, and how many profiles were left out.

    Raises:
        HarnessError: a file cannot be read or written, or there is no profile to record.
    """
    with ResultsStore(Path(results), read_only=True) as store:
        return record(store, Path(baseline), last, include_flagged)


def record(store: ResultsStore, path: Path, last: Optional[int] = None, include_flagged: bool = False) -> Recorded:
    """Write a baseline from the profiles of a results file.

    `last` takes the newest runs of each case. The file is replaced atomically; a file of another kind is refused.
    """
    side = side_of(store, comparable_profiles(store), include_flagged, last)
    if not side.cases:
        left_out = f": left out {flagged_in_words(side.flagged)}" if side.flagged else ""
        raise StoreError(
            f"{store.path} has no profile to record{left_out}",
            "a baseline needs raw series with clean minibatches, neither disturbed nor throttled",
        )
    before = read_baseline(path) if path.exists() else []
    document = {
        "format": FORMAT,
        "version": VERSION,
        "created_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "confidence": CONFIDENCE,
        "cases": [_stored_case(case) for case in side.cases],
    }
    write_output(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))
    keys = {case.key for case in side.cases}
    dropped = [case.case_id for case in before if case.key not in keys]
    return Recorded(side.cases, dropped, side.flagged, store.path, path)


def _stored_case(case: CaseRuns) -> Dict[str, object]:
    interval = recorded_median(case)
    median, *ends = [None, None, None] if interval is None else [round(value, DECIMALS) for value in interval]
    about = {"case": case.case_id, "conditions": case.conditions, "median_ms": median, "interval_ms": ends}
    own = {} if case.threshold is None else {board_threshold.CONDITION: msgspec.to_builtins(case.threshold)}
    return {**about, **own, "environment": case.environment, "runs": [stored_run(run) for run in case.runs]}


def check(
    store: ResultsStore,
    path: Path,
    threshold: Optional[float] = None,
    last: Optional[int] = None,
    include_flagged: bool = False,
    by: Sequence[str] = (),
) -> List[Comparison]:
    """Compare the profiles of a results file with a baseline, as `compare` does. Only equal conditions are compared.

    Only runs stored after the baseline's newest run count, in any order within a merged file. A recording takes the
    newest profile of each case, so earlier runs are not new: they were left out, for another environment. If the whole
    file is older than the baseline, all of it counts.

    `threshold` is the tolerance as a share, 0.05 is 5 %, for all quantities; by default the board's, else that of each
    quantity. `last` takes the newest runs of the results. `by` names conditions that may differ. Verdicts on each case
    of the baseline, in its order, then on those that only the results have: one for each compared quantity, or one on a
    case that was not compared; then those on workloads and overall.
    """
    before, frame = read_baseline(path), comparable_profiles(store)
    recorded = {(run.run_id, run.created_at) for case in before for run in case.runs}
    is_recorded = [run in recorded for run in zip(frame["run_id"], frame["created_at"])]
    fresh = frame[frame["created_at"] > max(moment for _, moment in recorded)]
    if fresh.empty and not any(is_recorded):
        fresh = frame
    left_out = fresh["key"][~fresh["usable"] & (not include_flagged)]
    comparisons = []
    for comparison in judge(before, side_of(store, fresh, include_flagged, last).cases, threshold, by):
        if comparison.status == NOT_RUN and comparison.pair is not None and not left_out.empty:
            again = int((left_out == comparison.pair.key).sum())
            here = f"run again, but left out: {flagged_in_words(again)}"
            elsewhere = f"under other conditions, left out: {flagged_in_words(len(left_out))}"
            comparison = comparison._replace(notes=(here,) if again else (NOT_RUN_NOTE, elsewhere))
        comparisons.append(comparison)
    return comparisons


def judge(
    before: Sequence[CaseRuns],
    after: Sequence[CaseRuns],
    threshold: Optional[float] = None,
    by: Sequence[str] = (),
) -> List[Comparison]:
    """Compare cases with cases, each key at most once on a side, as in `check`."""
    tolerance = Tolerance(given=threshold)
    tolerance.check()
    comparisons = judge_pairs(pair(before, after, by, SIDES), tolerance, same_question=not by)
    note = outdated(comparisons)
    return [
        each._replace(notes=(*each.notes, note)) if note and each.status == each.quantity.better else each
        for each in comparisons
    ]


def judge_pairs(
    pairs: Sequence[Pair],
    tolerance: Tolerance,
    same_question: bool,
    noise: Optional[Dict[str, RunNoise]] = None,
    is_alone: bool = False,
) -> List[Comparison]:
    """Verdicts on pairs, in their order, then on workloads and overall, where several cases are compared.

    `noise` between runs is by the name of the quantity; it and the others are as in `compare_pairs`.
    """
    of_pair: Dict[int, List[Comparison]] = {}
    of_many: List[Comparison] = []
    for quantity in QUANTITIES:
        own_noise = (noise or {}).get(quantity.name)
        comparisons = compare_and_explain(pairs, quantity, tolerance, same_question, own_noise, is_alone)
        of_many += _of_several(comparisons)
        for comparison in comparisons:
            if comparison.pair is None:
                continue
            is_too_few = comparison.status == TOO_FEW
            notes = [TOO_FEW_NOTE] if is_too_few else [*comparison.notes, *_notes(comparison.pair, quantity)]
            recorded, _ = comparison.pair.sides
            if comparison.status == INCONCLUSIVE and len(recorded.runs) < ENOUGH_RUNS:
                notes.append(RECORD_MORE_NOTE)
            of_pair.setdefault(id(comparison.pair), []).append(comparison._replace(notes=tuple(notes)))
    of_pairs = [
        comparison for case_pair in pairs for comparison in [*of_pair.get(id(case_pair), []), *_not_compared(case_pair)]
    ]
    return [*of_pairs, *of_many]


def _of_several(comparisons: Sequence[Comparison]) -> List[Comparison]:
    """The verdicts on workloads and overall; not that on the only workload, nor those on the only case."""
    workloads = [each for each in comparisons if each.scope == WORKLOADS]
    overall = [each for each in comparisons if each.scope == OVERALL and each.counts[0] > 1]
    return [*(workloads if len(workloads) > 1 else []), *overall]


def _limit(comparison: Comparison) -> Optional[float]:
    """The figure beyond which a profile is worse: beyond the tolerance and noise; None if it was not compared."""
    before, _ = comparison.medians
    change, share = comparison.change, comparison.tolerance
    if before is None or change is None or share is None:
        return None
    factor = max(1 + share, change.high / change.ratio)
    if comparison.rank_p is not None and comparison.rank_p >= SIGNIFICANCE:
        # Its minibatches do not show the difference of the medians, so this profile is not worse.
        factor = max(factor, (1 + _ROUNDING) * max(change.ratio, 1 / change.ratio))
    return before * (factor if comparison.quantity.more_is_worse else 1 / factor)


def _not_compared(case_pair: Pair) -> List[Comparison]:
    """The verdict on a pair that was not compared, or on the quantities that only one side of it has."""
    counts = (
        len(case_pair.before.runs) if case_pair.before else 0,
        len(case_pair.after.runs) if case_pair.after else 0,
    )
    if case_pair.is_compared:
        comparisons = []
        for quantity in QUANTITIES:
            has_before, has_after = (bool(side.series(quantity)) for side in case_pair.sides)
            if has_before != has_after:
                status = NOT_MEASURED if has_before else NEW
                note = f"{quantity.name}: only {SIDES[not has_before]} has a reliable one"
                comparisons.append(
                    Comparison(CASES, case_pair.case_id, quantity, status, counts, notes=(note,), pair=case_pair)
                )
        return comparisons
    notes: Tuple[str, ...] = ()
    if case_pair.is_refused and case_pair.after is not None:
        status, notes = REFUSED, (f"not compared with {case_pair.after.case_id}: {'; '.join(case_pair.differ)}",)
    elif case_pair.is_refused:
        status, notes = REFUSED, tuple(case_pair.differ)
    elif case_pair.before is None:
        status = NEW
    else:
        status, notes = NOT_RUN, (NOT_RUN_NOTE,)
    quantity = next((quantity for quantity in QUANTITIES if case_pair.present[0].series(quantity)), TIME)
    return [Comparison(CASES, case_pair.case_id, quantity, status, counts, notes=notes, pair=case_pair)]


def _notes(case_pair: Pair, quantity: GatedQuantity) -> Tuple[str, ...]:
    before, after = case_pair.sides
    notes = ["; ".join(case_pair.differ)] if case_pair.differ else []
    if after.flagged:
        notes.append(f"left out: {flagged_in_words(after.flagged)}")
    if after.copies:
        notes.append(copies_in_words(after.copies))
    if after.older:
        notes.append(f"{counted(after.older, 'older profile')} not used: of another environment, or beyond --last")
    if len(before.runs) == len(after.runs) == 1:
        assumed = prior(before.device, quantity.noise).share
        unseen = f"the noise between runs is not measured, and assumed to be at least {assumed:.1%} ({quantity.name})"
        notes.append(f"one run on each side: {unseen}")
    changed = differences(before.environment, after.environment) if after.environment else []
    if changed:
        notes.append(f"environment changed: {'; '.join(changed)}")
    old, new = ({kind for run in case.runs for kind in flag_kinds(run.flags)} for case in (before, after))
    for only, side in zip((old - new, new - old), SIDES):
        if only:
            notes.append(f"flagged only {side}: {', '.join(sorted(only))}")
    return tuple(notes)


class Gate:
    """A baseline with which single profiles are compared.

    `by` names conditions that may differ; UnknownNameError for an unknown name.
    """

    def __init__(self, cases: Sequence[CaseRuns], by: Sequence[str] = ()) -> None:
        if by:
            pair(cases, [], by, SIDES)
        self._cases = list(cases)
        self._by = tuple(by)
        self._noise: Dict[str, Dict[str, RunNoise]] = {}
        self._alike: Dict[str, List[CaseRuns]] = {}
        for case in cases:
            self._alike.setdefault(key(rest_of(case, by)), []).append(case)

    def check(self, profile: Profile) -> List[Comparison]:
        """Compare each quantity of a profile with the baseline, as `check` does for a results file.

        The noise between runs is estimated from all cases of the device. A profile with fewer than `MIN_MINIBATCHES`
        clean minibatches is inconclusive, and so is a disturbed or throttled one; its `limit` is still given. One
        verdict, `REFUSED` or `NEW`, if the baseline has nothing under exactly these conditions, with the reason in its
        notes.
        """
        now = case_of(profile)
        [case_pair] = pair(self._candidates(now), [now], self._by, SIDES)
        if not case_pair.is_compared:
            return [self._missing(case_pair, now)]
        noise = self._noise_of(now.device)
        comparisons = []
        for comparison in judge_pairs([case_pair], Tolerance(), not self._by, noise, is_alone=True):
            if comparison.scope == CASES:
                comparisons.append(comparison._replace(limit=_limit(comparison)))
        for note in _doubts(case_pair, profile):
            comparisons = [
                each._replace(status=INCONCLUSIVE, notes=(note, *each.notes)) if each.change else each
                for each in comparisons
            ]
        return comparisons

    def _candidates(self, now: CaseRuns) -> List[CaseRuns]:
        """The cases with the same conditions; if there is none, the one whose conditions differ least."""
        for conditions in (now.conditions, without_instance(now.conditions)):
            alike = self._alike.get(key(rest_of(CaseRuns(now.case_id, conditions, {}, now.runs), self._by)))
            if alike:
                return alike
        place = nearest(without_question(now, self._by), [without_question(case, self._by) for case in self._cases])
        return [] if place is None else [self._cases[place]]

    def _missing(self, case_pair: Pair, now: CaseRuns) -> Comparison:
        why = f"the baseline has no case of {now.conditions['workload']}"
        if case_pair.before is not None and case_pair.after is not None:
            why = f"not recorded; not compared with {case_pair.before.case_id}: {'; '.join(case_pair.differ)}"
        elif case_pair.is_refused:
            why = "; ".join(case_pair.differ)
        status = REFUSED if case_pair.is_refused else NEW
        return Comparison(CASES, now.case_id, TIME, status, (0, 1), notes=(why,), pair=case_pair)

    def _noise_of(self, device: str) -> Dict[str, RunNoise]:
        """The noise between runs of a device, by the name of the quantity."""
        if device not in self._noise:
            self._noise[device] = {}
            for quantity in QUANTITIES:
                series = [[case.series(quantity)] for case in self._cases if case.device == device]
                recorded = [side for side in series if side[0]]
                self._noise[device][quantity.name] = learn_noise(recorded, False, prior(device, quantity.noise))
        return self._noise[device]


def _doubts(case_pair: Pair, profile: Profile) -> List[str]:
    """Reasons why a verdict on a profile is inconclusive."""
    doubts = []
    _, now = case_pair.sides
    if is_disqualified(profile.flags):
        doubts.append(f"the profile is flagged {' and '.join(profile.flags)}")
    if now.series(TIME) and case_pair.fewest_minibatches < MIN_MINIBATCHES:
        doubts.append(TOO_FEW_NOTE)
    return doubts


def format_recorded(done: Recorded) -> str:
    """A line for each written or dropped case, and a warning if cases are uncertain."""
    lines, vague = [], set()
    differing = _differing_conditions(done.cases)
    for case in done.cases:
        figures = []
        for quantity in QUANTITIES:
            estimate = recorded_median(case, quantity)
            if estimate is None:
                continue
            value, low, high = (f"{quantity.to_shown(end):.{quantity.decimals}f}" for end in estimate)
            figures.append(f"{value} {quantity.unit_shown} ({low} to {high})")
            if len(case.runs) == 1 and estimate.high > estimate.value * (1 + quantity.tolerance):
                vague.add(case.key)
        older = f", {counted(case.older, 'older profile')} not used" if case.older else ""
        older += f", {copies_in_words(case.copies)}" if case.copies else ""
        name = f"{case.case_id}{differing.get(case.key, '')}"
        lines.append(f"{name}: {', '.join(figures)}, {counted(len(case.runs), 'run')}{older}")
    for case_id in done.dropped:
        lines.append(f"{case_id}: no longer in the baseline, {done.results} has no profile of the same conditions")
    if done.flagged:
        lines.append(f"left out: {flagged_in_words(done.flagged)}")
    if vague:
        lines.append(
            f"warning: cases with one run only, uncertain by more than {TIME.tolerance:.0%}: {len(vague)} of"
            f" {len(done.cases)}; a check misses changes of that size: run the same command twice more, without"
            " --resume, and record again"
        )
    return "\n".join([*lines, f"{done.baseline}: {counted(len(done.cases), 'case')}"])


def _differing_conditions(cases: Sequence[CaseRuns]) -> Dict[str, str]:
    """Of cases that share an id, by their keys: the conditions in which they differ, in brackets."""
    of_id: Dict[str, List[CaseRuns]] = {}
    for case in cases:
        of_id.setdefault(case.case_id, []).append(case)
    differing = {}
    for alike in of_id.values():
        conditions = [case.leaves for case in alike]
        names = []
        for name in dict.fromkeys(itertools.chain(*conditions)):
            values = {str(own.get(name)) for own in conditions}
            if len(values) > 1:
                names.append(name)
        for case, own in zip(alike, conditions):
            if names:
                differing[case.key] = f" ({', '.join(f'{name} {own.get(name)}' for name in names)})"
    return differing


def format_checked(comparisons: Sequence[Comparison], threshold: Optional[float] = None) -> str:
    """The table of a check, the notes on its cases, and the test used."""
    header = ["case", "figure", ">baseline", ">now", ">ratio", f">{CONFIDENCE:.0%} interval", ">runs", "verdict"]
    cases = [comparison for comparison in comparisons if comparison.scope == CASES]
    cases_of_note: Dict[str, Dict[str, None]] = {}
    rows = []
    for case in cases:
        for note in case.notes:
            cases_of_note.setdefault(note, {})[case.name] = None
        medians = ["-" if value is None else case.quantity.shown(value) for value in case.medians]
        ends = ["-", "-"]
        if case.change is not None:
            ends = [f"{case.change.ratio:.3f}", f"{case.change.low:.3f} to {case.change.high:.3f}"]
        rows.append([case.name, case.figure, *medians, *ends, " | ".join(map(str, case.counts)), case.status])
    lines = [format_table(header, rows), ""]
    lines += [each.text for each in comparisons if each.scope != CASES and each.is_significant]
    for note, names in cases_of_note.items():
        named, more = list(names), len(names) - _NAMED_CASES
        lines.append(f"{', '.join(named[:_NAMED_CASES])}{f' and {more} more' if more > 0 else ''}: {note}")
    explained = [
        f"tolerance: {tolerance_in_words(comparisons, threshold)}",
        f"test: significant if {LEVEL}; worse or better if the ratio of medians is also beyond the tolerance",
        f"noise: {_NOISE}",
        *describe_detectable(comparisons),
        *describe_doubts(cases),
        *([REMEDY] if any(case.status == INCONCLUSIVE for case in cases) else []),
        *([ALLOW_TO_DIFFER] if any(case.status == REFUSED for case in cases) else []),
    ]
    return "\n".join([*lines, *(wrap(line, "  ") for line in explained)])


def tolerance_in_words(comparisons: Sequence[Comparison], threshold: Optional[float] = None) -> str:
    """The tolerance of a check; those of boards with where they come from."""
    pairs = [comparison.pair for comparison in comparisons if comparison.pair is not None]
    return Tolerance(given=threshold).describe(pairs)
