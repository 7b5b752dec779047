"""Baselines and the gate: recorded figures of cases, and whether a case has become worse since.

A baseline is a stored side of a comparison (`harness.judge.sides`). A case is worse if a quantity of
`harness.judge.quantities` grew by more than its threshold and by more than noise, according to
`harness.stats.comparison`. Record at least three runs: one run does not show the noise between runs.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import msgspec

from harness.core import board_threshold
from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.core.profiles import Profile
from harness.core.terminal import counted, format_table, wrap
from harness.judge.pairs import Pair, nearest, pair, ratios, rest_of, without_question
from harness.judge.quantities import MIN_MINIBATCHES, QUANTITIES, TIME, JudgedQuantity
from harness.judge.sides import (
    DECIMALS,
    FORMAT,
    VERSION,
    CaseRuns,
    case_of,
    comparable_profiles,
    read_baseline,
    side_of,
    stored_run,
)
from harness.judge.thresholds import allowed_share, describe_thresholds
from harness.judge.verdicts import (
    CASES,
    INCONCLUSIVE,
    NEW,
    NOT_MEASURED,
    NOT_RUN,
    REFUSED,
    SIGNIFICANCE,
    TOO_FEW,
    Compared,
    Subject,
    Tested,
    check_threshold,
    describe_detectable,
    describe_doubts,
)
from harness.judge.verdicts import judge as judge_subjects
from harness.stats.comparison import Change, learn_noise, median_of_runs, pooled_median
from harness.stats.estimates import CONFIDENCE, Estimate, Interval, student_quantile
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import differences, flagged_in_words, is_disqualified, key, kinds, without_instance
from harness.store.results import ResultsStore

DEFAULT_THRESHOLD = TIME.threshold
SIDES = ("the baseline", "now")

ENOUGH_RUNS = 3
RECORD_MORE_NOTE = f"record at least {ENOUGH_RUNS} runs of this case, or raise the threshold"
NOT_RUN_NOTE = "not run since the baseline was recorded; to compare, measure again: pytest benchmarks"
TOO_FEW_NOTE = f"at least {MIN_MINIBATCHES} clean minibatches are needed on each side"
_NAMED_CASES = 3  # below the table, for each note

_TESTED = (
    "the ratio of medians is beyond the threshold, and a one-sided t-test has p <"
    f" {SIGNIFICANCE:.2g} after Holm's correction over all cases"
)
_NOISE = (
    "within runs, a block bootstrap of the minibatches; between runs, a prior for the device, updated by repeated runs"
)
TEST = (
    f"slower, more power, more memory: {_TESTED}. Noise: {_NOISE}. Without a significant change, a verdict is"
    " inconclusive if the ratio is beyond the threshold, or the interval extends beyond it both ways."
)
"""The test, for help texts."""
REMEDY = f"to decide: record at least {ENOUGH_RUNS} runs of each case, and measure as many now, on an idle machine"


def recorded_median(case: CaseRuns, quantity: JudgedQuantity = TIME) -> Optional[Interval]:
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
) -> List[Compared]:
    """Compare the profiles of a results file with a baseline by `TEST`. Only equal conditions are compared.

    Only runs stored after the baseline's newest run count, in any order within a merged file. A recording takes the
    newest profile of each case, so earlier runs are not new: they were left out, for another environment. If the whole
    file is older than the baseline, all of it counts.

    `threshold` is a share, 0.05 is 5 %, for all quantities; by default the board's, else that of each quantity. `last`
    takes the newest runs of the results. `by` names conditions that may differ. Verdicts on each case of the baseline,
    in its order, then on those that only the results have: one for each compared quantity, or one on a case that was
    not compared.
    """
    before, frame = read_baseline(path), comparable_profiles(store)
    recorded = {(run.run_id, run.created_at) for case in before for run in case.runs}
    is_recorded = [run in recorded for run in zip(frame["run_id"], frame["created_at"])]
    fresh = frame[frame["created_at"] > max(moment for _, moment in recorded)]
    if fresh.empty and not any(is_recorded):
        fresh = frame
    left_out = fresh["key"][~fresh["usable"] & (not include_flagged)]
    verdicts = []
    for verdict in judge(before, side_of(store, fresh, include_flagged, last).cases, threshold, by):
        if verdict.status == NOT_RUN and verdict.pair is not None and not left_out.empty:
            again = int((left_out == verdict.pair.key).sum())
            here = f"run again, but left out: {flagged_in_words(again)}"
            elsewhere = f"under other conditions, left out: {flagged_in_words(len(left_out))}"
            verdict = verdict._replace(notes=(here,) if again else (NOT_RUN_NOTE, elsewhere))
        verdicts.append(verdict)
    return verdicts


def judge(
    before: Sequence[CaseRuns],
    after: Sequence[CaseRuns],
    threshold: Optional[float] = None,
    by: Sequence[str] = (),
) -> List[Compared]:
    """Compare cases with cases, each key at most once on a side, as in `check`."""
    return judge_pairs(pair(before, after, by, SIDES), threshold)


def judge_pairs(
    pairs: Sequence[Pair],
    threshold: Optional[float] = None,
    noise: Optional[Dict[str, RunNoise]] = None,
    is_alone: bool = False,
) -> List[Compared]:
    """Verdicts on pairs, in their order.

    `noise` between runs by the name of the quantity, if estimated from more than these pairs. `is_alone`: a single
    profile is judged, with any number of minibatches.
    """
    if threshold is not None:
        check_threshold(threshold)
    of_pair: Dict[int, List[Compared]] = {}
    for quantity in QUANTITIES:
        compared = [
            case_pair
            for case_pair in pairs
            if case_pair.is_compared and all(side.series(quantity) for side in case_pair.sides)
        ]
        enough = [case_pair for case_pair in compared if is_alone or case_pair.fewest_minibatches >= quantity.fewest]
        estimates = ratios(enough, quantity, noise=(noise or {}).get(quantity.name))
        subjects = []
        for case_pair in compared:
            ratio = estimates[case_pair.key].estimate if case_pair.key in estimates else None
            before, after = (len(side.series(quantity)) for side in case_pair.sides)
            tested = _tested(ratio, quantity)
            allowed = allowed_share([case_pair], quantity, threshold, quantity.threshold)
            subjects.append(Subject(CASES, case_pair.case_id, (before, after), tested, allowed, case_pair))
        for case_pair, verdict in zip(compared, judge_subjects(subjects, quantity)):
            recorded, _ = case_pair.sides
            ratio = estimates[case_pair.key].estimate if case_pair.key in estimates else None
            allowed = allowed_share([case_pair], quantity, threshold, quantity.threshold)
            limit = _limit(recorded, ratio, quantity, allowed) if is_alone and ratio else None
            notes = (TOO_FEW_NOTE,) if verdict.status == TOO_FEW else (*verdict.notes, *_notes(case_pair, quantity))
            if verdict.status == INCONCLUSIVE and len(recorded.runs) < ENOUGH_RUNS:
                notes = (*notes, RECORD_MORE_NOTE)
            of_pair.setdefault(id(case_pair), []).append(verdict._replace(notes=notes, limit=limit))
    return [verdict for case_pair in pairs for verdict in [*of_pair.get(id(case_pair), []), *_not_compared(case_pair)]]


def _tested(ratio: Optional[Estimate], quantity: JudgedQuantity) -> Optional[Tested]:
    if ratio is None:
        return None
    p_above = ratio.p_above()
    p_values = (p_above, 1 - p_above) if quantity.more_is_worse else (1 - p_above, p_above)
    return Tested(Change(*ratio.interval(), ratio.p_differs()), *p_values)


def _limit(recorded: CaseRuns, ratio: Estimate, quantity: JudgedQuantity, threshold: float) -> float:
    """The figure beyond which a profile is worse: beyond the threshold and beyond noise."""
    beyond_noise = math.exp(student_quantile(ratio.dof, 1 - SIGNIFICANCE) * ratio.error)
    factor = max(1 + threshold, beyond_noise)
    return pooled_median(recorded.series(quantity)) * (factor if quantity.more_is_worse else 1 / factor)


def _not_compared(case_pair: Pair) -> List[Compared]:
    """The verdict on a pair that was not compared, or on the quantities that only one side of it has."""
    counts = (
        len(case_pair.before.runs) if case_pair.before else 0,
        len(case_pair.after.runs) if case_pair.after else 0,
    )
    if case_pair.is_compared:
        verdicts = []
        for quantity in QUANTITIES:
            has_before, has_after = (bool(side.series(quantity)) for side in case_pair.sides)
            if has_before != has_after:
                status = NOT_MEASURED if has_before else NEW
                note = f"{quantity.name}: only {SIDES[not has_before]} has a reliable one"
                verdicts.append(
                    Compared(CASES, case_pair.case_id, quantity, status, counts, notes=(note,), pair=case_pair)
                )
        return verdicts
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
    return [Compared(CASES, case_pair.case_id, quantity, status, counts, notes=notes, pair=case_pair)]


def _notes(case_pair: Pair, quantity: JudgedQuantity) -> Tuple[str, ...]:
    before, after = case_pair.sides
    notes = ["; ".join(case_pair.differ)] if case_pair.differ else []
    if after.flagged:
        notes.append(f"left out: {flagged_in_words(after.flagged)}")
    if after.older:
        notes.append(f"{counted(after.older, 'older profile')} not used: of another environment, or beyond --last")
    if len(before.runs) == len(after.runs) == 1:
        assumed = prior(before.device, quantity.noise).share
        unseen = f"the noise between runs is not measured, and assumed to be at least {assumed:.1%} ({quantity.name})"
        notes.append(f"one run on each side: {unseen}")
    changed = differences(before.environment, after.environment) if after.environment else []
    if changed:
        notes.append(f"environment changed: {'; '.join(changed)}")
    old, new = ({kind for run in case.runs for kind in kinds(run.flags)} for case in (before, after))
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

    def check(self, profile: Profile) -> List[Compared]:
        """Compare each quantity of a profile with the baseline, as `check` does for a results file.

        The noise between runs is estimated from all cases of the device. A profile with fewer than `MIN_MINIBATCHES`
        clean minibatches is inconclusive, and so is a disturbed or throttled one; its `limit` is still given. One
        verdict, `REFUSED` or `NEW`, if the baseline has nothing under exactly these conditions, with the reason in its
        notes.
        """
        now = case_of(profile)
        [case_pair] = pair(self._candidates(now), [now], self._by, SIDES)
        verdicts = judge_pairs([case_pair], noise=self._noise_of(now.device), is_alone=True)
        if not case_pair.is_compared:
            return [self._missing(case_pair, now)]
        for note in _doubts(case_pair, profile):
            verdicts = [
                verdict._replace(status=INCONCLUSIVE, notes=(note, *verdict.notes)) if verdict.change else verdict
                for verdict in verdicts
            ]
        return verdicts

    def _candidates(self, now: CaseRuns) -> List[CaseRuns]:
        """The cases with the same conditions; if there is none, the one whose conditions differ least."""
        for conditions in (now.conditions, without_instance(now.conditions)):
            alike = self._alike.get(key(rest_of(CaseRuns(now.case_id, conditions, {}, now.runs), self._by)))
            if alike:
                return alike
        place = nearest(without_question(now, self._by), [without_question(case, self._by) for case in self._cases])
        return [] if place is None else [self._cases[place]]

    def _missing(self, case_pair: Pair, now: CaseRuns) -> Compared:
        why = f"the baseline has no case of {now.conditions['workload']}"
        if case_pair.before is not None and case_pair.after is not None:
            why = f"not recorded; not compared with {case_pair.before.case_id}: {'; '.join(case_pair.differ)}"
        elif case_pair.is_refused:
            why = "; ".join(case_pair.differ)
        status = REFUSED if case_pair.is_refused else NEW
        return Compared(CASES, now.case_id, TIME, status, (0, 1), notes=(why,), pair=case_pair)

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
            if len(case.runs) == 1 and estimate.high > estimate.value * (1 + quantity.threshold):
                vague.add(case.key)
        older = f", {counted(case.older, 'older profile')} not used" if case.older else ""
        name = f"{case.case_id}{differing.get(case.key, '')}"
        lines.append(f"{name}: {', '.join(figures)}, {counted(len(case.runs), 'run')}{older}")
    for case_id in done.dropped:
        lines.append(f"{case_id}: no longer in the baseline, {done.results} has no profile of the same conditions")
    if done.flagged:
        lines.append(f"left out: {flagged_in_words(done.flagged)}")
    if vague:
        lines.append(
            f"warning: cases with one run only, uncertain by more than {DEFAULT_THRESHOLD:.0%}: {len(vague)} of"
            f" {len(done.cases)}; a check misses changes of that size: repeat the same pytest command twice, without"
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


def format_checked(verdicts: Sequence[Compared], threshold: Optional[float] = None) -> str:
    """The table of a check, the notes on its cases, and the test used."""
    header = ["case", "figure", ">baseline", ">now", ">ratio", f">{CONFIDENCE:.0%} interval", ">runs", "verdict"]
    cases_of_note: Dict[str, Dict[str, None]] = {}
    for verdict in verdicts:
        for note in verdict.notes:
            cases_of_note.setdefault(note, {})[verdict.name] = None
    rows = []
    for verdict in verdicts:
        medians = ["-" if value is None else verdict.quantity.shown(value) for value in verdict.medians]
        ends = ["-", "-"]
        if verdict.change is not None:
            ends = [f"{verdict.change.ratio:.3f}", f"{verdict.change.low:.3f} to {verdict.change.high:.3f}"]
        runs = " | ".join(map(str, verdict.counts))
        rows.append([verdict.name, verdict.figure, *medians, *ends, runs, verdict.status])
    lines = [format_table(header, rows), ""]
    for note, names in cases_of_note.items():
        cases, more = list(names), len(names) - _NAMED_CASES
        lines.append(f"{', '.join(cases[:_NAMED_CASES])}{f' and {more} more' if more > 0 else ''}: {note}")
    pairs = [verdict.pair for verdict in verdicts if verdict.pair is not None]
    explained = [
        f"threshold: {thresholds_in_words(pairs, threshold)}",
        f"test: {_TESTED}",
        f"noise: {_NOISE}",
        *describe_detectable(verdicts),
        *describe_doubts(verdicts),
        *([REMEDY] if any(verdict.status == INCONCLUSIVE for verdict in verdicts) else []),
    ]
    return "\n".join([*lines, *(wrap(line, "  ") for line in explained)])


def thresholds_in_words(pairs: Sequence[Pair], threshold: Optional[float] = None) -> str:
    """The thresholds of a check; those of boards with where they come from."""
    default = ", ".join(
        f"{quantity.name} {quantity.threshold if threshold is None else threshold:.1%}" for quantity in QUANTITIES
    )
    return describe_thresholds(pairs, threshold, default)
