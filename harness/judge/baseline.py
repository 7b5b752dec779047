"""Baselines and the gate: what cases took when they were recorded, and whether one has become worse since.

A baseline is a stored side of a comparison (`harness.judge.sides`). A case is worse where a quantity of
`harness.judge.quantities` grew by more than its threshold and by more than noise, which `harness.stats.comparison`
tells. A baseline of three runs or more is worth its time: one run shows nothing of the noise between runs.
"""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.core.profiles import Profile
from harness.core.terminal import format_table
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
)
from harness.judge.verdicts import judge as judge_subjects
from harness.stats.comparison import Change, learn_noise, median_of_runs, pooled_median
from harness.stats.estimates import CONFIDENCE, Estimate, Interval, student_quantile
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import LEFT_OUT, differences, is_disqualified, key, kinds, without_instance
from harness.store.results import ResultsStore

DEFAULT_THRESHOLD = TIME.threshold
SIDES = ("the baseline", "now")

NOT_RUN_NOTE = "not run since the baseline was recorded; to compare, measure again: pytest benchmarks"
TOO_FEW_NOTE = f"at least {MIN_MINIBATCHES} clean minibatches are needed on each side"
_NAMED_CASES = 3  # below the table, for each note

TEST = (
    "slower, more power: the ratio of medians exceeds the threshold, and a one-sided t-test rejects noise as the"
    f" cause (p < {SIGNIFICANCE:.2g} after Holm's correction over all compared cases). Noise within runs: block"
    " bootstrap of the minibatches. Noise between runs: a prior for the device, updated by repeated runs. inconclusive:"
    " no test finds a change, but the ratio exceeds the threshold, or the interval extends beyond it both ways."
)
"""The test, for help texts and below every table."""


def recorded_median(case: CaseRuns, quantity: JudgedQuantity = TIME) -> Optional[Interval]:
    """The median over all runs of a case with its interval, in the unit of the quantity; None where it has none."""
    series = case.series(quantity)
    return median_of_runs(series, prior(case.device, quantity.noise)).interval() if series else None


class Recorded(NamedTuple):
    cases: List[CaseRuns]  # what it wrote
    dropped: List[str]  # the ids of cases that the file held before and holds no more
    flagged: int  # how many profiles were left out because of their flags


def record(store: ResultsStore, path: Path, last: Optional[int] = None, include_flagged: bool = False) -> Recorded:
    """Write a baseline from the profiles of a results file.

    `last` takes the newest runs of each case. The file is replaced whole or not at all; one of another kind never.
    """
    side = side_of(store, comparable_profiles(store), include_flagged, last)
    if not side.cases:
        left_out = f": left out {side.flagged} {LEFT_OUT}" if side.flagged else ""
        raise StoreError(
            f"{store.path} holds no profile to record{left_out}",
            "it takes raw series with a clean minibatch, neither disturbed nor throttled",
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
    return Recorded(side.cases, [case.case_id for case in before if case.key not in keys], side.flagged)


def _stored_case(case: CaseRuns) -> Dict[str, object]:
    interval = recorded_median(case)
    median, *ends = [None, None, None] if interval is None else [round(value, DECIMALS) for value in interval]
    about = {"case": case.case_id, "conditions": case.conditions, "median_ms": median, "interval_ms": ends}
    return {**about, "environment": case.environment, "runs": [stored_run(run) for run in case.runs]}


def check(
    store: ResultsStore,
    path: Path,
    threshold: Optional[float] = None,
    last: Optional[int] = None,
    include_flagged: bool = False,
    by: Sequence[str] = (),
) -> List[Compared]:
    """Compare the profiles of a results file with a baseline; `TEST` says how. Only equal conditions are compared.

    Only runs from after the baseline count, by when they were stored: those after its newest run, in whatever order a
    merged file has them. A recording takes the newest profile of every case, so what comes before its last was there
    already: runs that it left out, of another environment, must not be taken for new ones. Another file that is older
    as a whole was meant by whoever named it: all of it counts.

    `threshold` is a share, 0.05 is 5 %, for every quantity; by default each has its own. `last` takes the newest runs
    now. `by` names conditions that may differ. Verdicts on each case of the baseline, in its order, then on those that
    only the results have: one for each quantity that was compared, or one on a case that was not.
    """
    before, frame = read_baseline(path), comparable_profiles(store)
    recorded = {(run.run_id, run.created_at) for case in before for run in case.runs}
    is_recorded = [run in recorded for run in zip(frame["run_id"], frame["created_at"])]
    fresh = frame[frame["created_at"] > max(moment for _, moment in recorded)]
    if fresh.empty and not any(is_recorded):
        fresh = frame
    left_out = fresh["key"][~fresh["usable"] & (not include_flagged)]
    verdicts = []
    for one in judge(before, side_of(store, fresh, include_flagged, last).cases, threshold, by):
        if one.status == NOT_RUN and one.pair is not None and not left_out.empty:
            again = int((left_out == one.pair.key).sum())
            here = f"run again, but left out: {again} {LEFT_OUT}"
            elsewhere = f"under other conditions, left out: {len(left_out)} {LEFT_OUT}"
            one = one._replace(notes=(here,) if again else (NOT_RUN_NOTE, elsewhere))
        verdicts.append(one)
    return verdicts


def judge(
    before: Sequence[CaseRuns],
    after: Sequence[CaseRuns],
    threshold: Optional[float] = None,
    by: Sequence[str] = (),
) -> List[Compared]:
    """Compare cases with cases, each key at most once on a side; `check` says how."""
    return judge_pairs(pair(before, after, by, SIDES), threshold)


def judge_pairs(
    pairs: Sequence[Pair],
    threshold: Optional[float] = None,
    noise: Optional[Dict[str, RunNoise]] = None,
    is_alone: bool = False,
) -> List[Compared]:
    """Verdicts on pairs, in their order.

    `noise` between runs by the name of the quantity, where it is known from more than these pairs. `is_alone`: a single
    profile is judged, with however few minibatches.
    """
    if threshold is not None:
        check_threshold(threshold)
    of_pair: Dict[int, List[Compared]] = {}
    for quantity in QUANTITIES:
        allowed = quantity.threshold if threshold is None else threshold
        compared = [one for one in pairs if one.is_compared and all(side.series(quantity) for side in one.sides)]
        enough = [one for one in compared if is_alone or one.fewest_minibatches >= quantity.fewest]
        estimates = ratios(enough, quantity, noise=(noise or {}).get(quantity.name))
        subjects = []
        for one in compared:
            ratio = estimates[one.key].estimate if one.key in estimates else None
            before, after = (len(side.series(quantity)) for side in one.sides)
            subjects.append(Subject(CASES, one.case_id, (before, after), _tested(ratio, quantity), one))
        for verdict in judge_subjects(subjects, quantity, allowed, allowed):
            ratio = estimates[verdict.pair.key].estimate if verdict.pair.key in estimates else None
            limit = _limit(verdict.pair.before, ratio, quantity, allowed) if is_alone and ratio else None
            notes = (TOO_FEW_NOTE,) if verdict.status == TOO_FEW else _notes(verdict.pair, quantity)
            of_pair.setdefault(id(verdict.pair), []).append(verdict._replace(notes=notes, limit=limit))
    return [verdict for one in pairs for verdict in [*of_pair.get(id(one), []), *_not_compared(one)]]


def _tested(ratio: Optional[Estimate], quantity: JudgedQuantity) -> Optional[Tested]:
    if ratio is None:
        return None
    p_above = ratio.p_above()
    p_values = (p_above, 1 - p_above) if quantity.more_is_worse else (1 - p_above, p_above)
    return Tested(Change(*ratio.interval(), ratio.p_differs()), *p_values)


def _limit(recorded: CaseRuns, ratio: Estimate, quantity: JudgedQuantity, threshold: float) -> float:
    """Where worse begins: beyond the threshold and beyond noise."""
    beyond_noise = math.exp(student_quantile(ratio.dof, 1 - SIGNIFICANCE) * ratio.error)
    factor = max(1 + threshold, beyond_noise)
    return pooled_median(recorded.series(quantity)) * (factor if quantity.more_is_worse else 1 / factor)


def _not_compared(one: Pair) -> List[Compared]:
    """The verdict on a pair that was not compared, or on the quantities that only one side of it has."""
    counts = (len(one.before.runs) if one.before else 0, len(one.after.runs) if one.after else 0)
    if one.is_compared:
        verdicts = []
        for quantity in QUANTITIES:
            has_before, has_after = (bool(side.series(quantity)) for side in one.sides)
            if has_before != has_after:
                status = NOT_MEASURED if has_before else NEW
                note = f"{quantity.name}: only {SIDES[not has_before]} has one that is sure"
                verdicts.append(Compared(CASES, one.case_id, quantity, status, counts, notes=(note,), pair=one))
        return verdicts
    if one.is_refused and one.after is not None:
        status, notes = REFUSED, (f"not compared with {one.after.case_id}: {'; '.join(one.differ)}",)
    elif one.is_refused:
        status, notes = REFUSED, tuple(one.differ)
    elif one.before is None:
        status, notes = NEW, ()
    else:
        status, notes = NOT_RUN, (NOT_RUN_NOTE,)
    sides = [side for side in one.sides if side is not None]
    quantity = next((quantity for quantity in QUANTITIES if sides[0].series(quantity)), TIME)
    return [Compared(CASES, one.case_id, quantity, status, counts, notes=notes, pair=one)]


def _notes(one: Pair, quantity: JudgedQuantity) -> Tuple[str, ...]:
    before, after = one.sides
    notes = ["; ".join(one.differ)] if one.differ else []
    if after.flagged:
        notes.append(f"left out: {after.flagged} {LEFT_OUT}")
    if after.older:
        notes.append(f"{after.older} older profiles not used: of another environment, or beyond --last")
    if len(before.runs) == len(after.runs) == 1:
        known = prior(before.device, quantity.noise).share
        unseen = f"the noise between runs is not seen, and taken to be {known:.1%} at least ({quantity.name})"
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
    """A baseline that single profiles are held against.

    `by` names conditions that may differ; UnknownNameError where there is none of that name.
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
        """Compare a profile with the baseline, as `check` does with those of a results file: each quantity.

        All cases of the device tell the noise between runs. A profile of fewer than `MIN_MINIBATCHES` clean minibatches
        is inconclusive, and so is what was disturbed or throttled; its `limit` is given all the same. One verdict,
        `REFUSED` or `NEW`, where the baseline has nothing under exactly these conditions; its notes say why.
        """
        now = case_of(profile)
        [one] = pair(self._candidates(now), [now], self._by, SIDES)
        verdicts = judge_pairs([one], noise=self._noise_of(now.device), is_alone=True)
        if not one.is_compared:
            return [self._missing(one, now)]
        for note in _doubts(one, profile):
            verdicts = [
                verdict._replace(status=INCONCLUSIVE, notes=(note, *verdict.notes)) if verdict.change else verdict
                for verdict in verdicts
            ]
        return verdicts

    def _candidates(self, now: CaseRuns) -> List[CaseRuns]:
        """The cases that may be meant; where there is none, the one whose conditions differ least."""
        for conditions in (now.conditions, without_instance(now.conditions)):
            found = self._alike.get(key(rest_of(CaseRuns(now.case_id, conditions, {}, now.runs), self._by)))
            if found:
                return found
        place = nearest(without_question(now, self._by), [without_question(case, self._by) for case in self._cases])
        return [] if place is None else [self._cases[place]]

    def _missing(self, one: Pair, now: CaseRuns) -> Compared:
        why = f"the baseline has nothing of {now.conditions['workload']}"
        if one.before is not None and one.after is not None:
            why = f"not recorded; not compared with {one.before.case_id}: {'; '.join(one.differ)}"
        elif one.is_refused:
            why = "; ".join(one.differ)
        status = REFUSED if one.is_refused else NEW
        return Compared(CASES, now.case_id, TIME, status, (0, 1), notes=(why,), pair=one)

    def _noise_of(self, device: str) -> Dict[str, RunNoise]:
        """The noise between runs of a device, by the name of the quantity."""
        if device not in self._noise:
            self._noise[device] = {}
            for quantity in QUANTITIES:
                series = [[case.series(quantity)] for case in self._cases if case.device == device]
                recorded = [side for side in series if side[0]]
                self._noise[device][quantity.name] = learn_noise(recorded, False, prior(device, quantity.noise))
        return self._noise[device]


def _doubts(one: Pair, profile: Profile) -> List[str]:
    """Why no verdict on a profile would be sure."""
    doubts = []
    if is_disqualified(profile.flags):
        doubts.append(f"the profile is flagged {' and '.join(profile.flags)}")
    if one.after.series(TIME) and one.fewest_minibatches < MIN_MINIBATCHES:
        doubts.append(TOO_FEW_NOTE)
    return doubts


def check_profile(baseline: Sequence[CaseRuns], profile: Profile, by: Sequence[str] = ()) -> List[Compared]:
    """Compare one profile with a baseline: `Gate.check`, for a single one."""
    return Gate(baseline, by).check(profile)


def format_checked(verdicts: Sequence[Compared], threshold: Optional[float] = None) -> str:
    """The table of a check, the notes on its cases, and how the verdicts were found."""
    header = ["case", "figure", ">baseline", ">now", ">ratio", f">{CONFIDENCE:.0%} interval", ">runs", "verdict"]
    cases_of_note: Dict[str, Dict[str, None]] = {}
    for one in verdicts:
        for note in one.notes:
            cases_of_note.setdefault(note, {})[one.name] = None
    rows = []
    for one in verdicts:
        medians = ["-" if value is None else one.quantity.shown(value) for value in one.medians]
        ends = ["-", "-"]
        if one.change is not None:
            ends = [f"{one.change.ratio:.3f}", f"{one.change.low:.3f} to {one.change.high:.3f}"]
        runs = " | ".join(map(str, one.counts))
        rows.append([one.name, one.figure, *medians, *ends, runs, one.status])
    lines = [format_table(header, rows), ""]
    for note, names in cases_of_note.items():
        cases, more = list(names), len(names) - _NAMED_CASES
        lines.append(f"{', '.join(cases[:_NAMED_CASES])}{f' and {more} more' if more > 0 else ''}: {note}")
    thresholds = ", ".join(f"{one.name} {one.threshold if threshold is None else threshold:.1%}" for one in QUANTITIES)
    return "\n".join([*lines, f"threshold: {thresholds}. {TEST}"])
