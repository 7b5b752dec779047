"""Baselines and the gate: what cases took when it was recorded, and whether one has become slower since.

A baseline is a JSON file that can be committed. It holds, per comparable conditions, the raw series of clean
minibatches of each run, so that a later check can resample them, and its power; the median and its interval are for the
reader.

History (`version`):
    1  cases: case, conditions, median_ms, interval_ms, environment, runs with minibatch_times_ms. Since 0.2.0 a run
       whose power is sure has its power_mw too.

A case is slower where its median grew by more than a threshold and by more than noise, which `harness.stats.comparison`
tells. A baseline of three runs or more is worth its time: one run shows nothing of the noise between runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

import msgspec

from harness.core.errors import StoreError
from harness.core.files import write_output
from harness.core.profiles import Profile
from harness.core.terminal import format_table
from harness.judge.sides import (
    DECIMALS,
    FASTER,
    INCONCLUSIVE,
    MIN_MINIBATCHES,
    SLOWER,
    TOO_FEW,
    CaseRuns,
    Pair,
    Run,
    cases_of,
    check_threshold,
    exit_code_of,
    is_unsure,
    nearest,
    pair,
    ratios,
    read_object,
)
from harness.stats.comparison import compare_runs, holm, learn_noise, median_of_runs, pooled_median
from harness.stats.estimates import CONFIDENCE, Estimate, Interval, student_quantile
from harness.stats.noise import prior
from harness.store.conditions import (
    LEFT_OUT,
    comparable_conditions,
    differences,
    is_disqualified,
    key,
    kinds,
    without_instance,
)
from harness.store.frames import profiles
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "jetwatt-baseline", 1
_RECORD_ONE = "record one: python -m harness baseline record --results FILE --baseline FILE.json"

DEFAULT_THRESHOLD = 0.05
SIGNIFICANCE = 0.05

SAME, REFUSED, NOT_RUN, NEW, MISSING = "same", "refused", "not run", "not in baseline", "missing"
"""Verdicts of the gate beside those of every comparison."""

NOT_RUN_NOTE = "not run since the baseline was recorded; to compare, measure again: pytest benchmarks"
TOO_FEW_NOTE = f"at least {MIN_MINIBATCHES} clean minibatches are needed on each side"
_NAMED_CASES = 3  # below the table, for each note

TEST = (
    "slower: the ratio of median minibatch times exceeds the threshold, and a one-sided t-test rejects noise as the"
    f" cause (p < {SIGNIFICANCE:g} after Holm's correction over all compared cases). Noise within runs: block bootstrap"
    " of the minibatches. Noise between runs: a prior for the device, updated by repeated runs. inconclusive: no"
    " test finds a change, but the ratio exceeds the threshold, or the interval extends beyond it both ways."
)
"""The test, for help texts and below every table."""


def _timed(store: ResultsStore) -> pd.DataFrame:
    return profiles(store, include_flagged=True, timed=True, replayed=False)  # a replayed one has a median alone


def recorded_median(case: CaseRuns) -> Interval:
    """The median minibatch time over all runs of a case with its interval, in ms."""
    return median_of_runs(case.series(), prior(case.device)).interval()


class Recorded(NamedTuple):
    cases: List[CaseRuns]  # what it wrote
    dropped: List[str]  # the ids of cases that the file held before and holds no more
    flagged: int  # how many profiles were left out because of their flags


def record(store: ResultsStore, path: Path, last: Optional[int] = None, include_flagged: bool = False) -> Recorded:
    """Write a baseline from the profiles of a results file.

    `last` takes the newest runs of each case. The file is replaced whole or not at all; one of another kind never.
    """
    frame = _timed(store)
    flagged = 0 if include_flagged else int((~frame["usable"]).sum())
    cases = cases_of(store, frame, include_flagged, last)
    if not cases:
        left_out = f": left out {flagged} {LEFT_OUT}" if flagged else ""
        raise StoreError(
            f"{store.path} holds no profile to record{left_out}",
            "it takes raw series with a clean minibatch, neither disturbed nor throttled",
        )
    before = read_baseline(path) if path.exists() else []
    written = []
    for case in cases:
        median, low, high = (round(value, DECIMALS) for value in recorded_median(case))
        about = {"case": case.case_id, "conditions": case.conditions, "median_ms": median, "interval_ms": [low, high]}
        written.append({**about, "environment": case.environment, "runs": msgspec.to_builtins(case.runs)})
    document = {
        "format": FORMAT,
        "version": VERSION,
        "created_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "confidence": CONFIDENCE,
        "cases": written,
    }
    write_output(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))
    keys = {case.key for case in cases}
    return Recorded(cases, [case.case_id for case in before if case.key not in keys], flagged)


def read_baseline(path: Path) -> List[CaseRuns]:
    document = read_object(path, "baseline", _RECORD_ONE)
    if document.get("format") != FORMAT:
        raise StoreError(f"{path} is no baseline: it does not say format {FORMAT!r}", _RECORD_ONE)
    if document.get("version") != VERSION:
        raise StoreError(
            f"{path} is a baseline of version {document.get('version')!r}; this version of jetwatt reads {VERSION}",
            "update jetwatt, or record a new one",
        )
    cases = []
    try:
        for case in document["cases"]:
            runs = msgspec.convert(case["runs"], Tuple[Run, ...])
            if not runs or not all(run.times_ms and min(run.times_ms) > 0 for run in runs):
                raise ValueError(f"case {case['case']} has a run without minibatch times, or one of 0")
            cases.append(CaseRuns(case["case"], dict(case["conditions"]), dict(case["environment"]), runs))
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__} {error}", _RECORD_ONE) from error
    return cases


@dataclasses.dataclass(frozen=True)
class Checked:
    case_id: str  # the case's id
    # `slower`, `faster` or `same` where it was compared, `inconclusive` where it was and its interval reaches beyond
    # the threshold both ways; `refused` where the conditions differ; `too few` where a side has less than
    # `MIN_MINIBATCHES` clean minibatches; `not run` and `not in baseline` where only one side has it
    status: str
    before: Optional[CaseRuns]  # its runs in the baseline; None where there are none
    after: Optional[CaseRuns]  # its runs now; None where there are none
    ratio: Optional[Estimate] = None  # of the medians now / baseline, with its noise; None where it was not compared
    notes: Sequence[str] = ()  # what to know about the verdict, one short sentence each
    limit_ms: Optional[float] = None  # of one profile: slower begins above this time


def check(
    store: ResultsStore,
    path: Path,
    threshold: float = DEFAULT_THRESHOLD,
    last: Optional[int] = None,
    include_flagged: bool = False,
    by: Sequence[str] = (),
) -> List[Checked]:
    """Compare the profiles of a results file with a baseline; `TEST` says how. Only equal conditions are compared.

    Only runs from after the baseline count, by when they were stored: those after its newest run, in whatever order a
    merged file has them. A recording takes the newest profile of every case, so what comes before its last was there
    already: runs that it left out, of another environment, must not be taken for new ones. Another file that is older
    as a whole was meant by whoever named it: all of it counts.

    `threshold` is a share: 0.05 is 5 %. `last` takes the newest runs now. `by` names conditions that may differ. A
    verdict for each case of the baseline, in its order, then one for each case that only the results have.
    """
    before, frame = read_baseline(path), _timed(store)
    recorded = {(run.run_id, run.created_at) for case in before for run in case.runs}
    is_recorded = [run in recorded for run in zip(frame["run_id"], frame["created_at"])]
    fresh = frame[frame["created_at"] > max(moment for _, moment in recorded)]
    if fresh.empty and not any(is_recorded):
        fresh = frame
    left_out = fresh["key"][~fresh["usable"] & (not include_flagged)]
    found = []
    for one in judge(before, cases_of(store, fresh, include_flagged, last), threshold, by):
        if one.status == NOT_RUN and one.before is not None and not left_out.empty:
            again = int((left_out == one.before.key).sum())
            here = f"run again, but left out: {again} {LEFT_OUT}"
            elsewhere = f"under other conditions, left out: {len(left_out)} {LEFT_OUT}"
            one = dataclasses.replace(one, notes=[here] if again else [NOT_RUN_NOTE, elsewhere])
        found.append(one)
    return found


def judge(
    before: Sequence[CaseRuns], after: Sequence[CaseRuns], threshold: float = DEFAULT_THRESHOLD, by: Sequence[str] = ()
) -> List[Checked]:
    """Compare cases with cases, each key at most once on a side; `check` says how."""
    check_threshold(threshold)
    pairs = pair(before, after, by, ("the baseline", "now"))
    enough = [one for one in pairs if one.is_compared and one.fewest_minibatches >= MIN_MINIBATCHES]
    found_ratios = {name: ratio.estimate for name, ratio in ratios(enough).items()}
    slower = dict(zip(found_ratios, holm([ratio.p_above() for ratio in found_ratios.values()])))
    faster = dict(zip(found_ratios, holm([1 - ratio.p_above() for ratio in found_ratios.values()])))
    found = []
    for one in pairs:
        old, new, ratio = one.before, one.after, None
        if old is None:
            status, notes = NEW, []
        elif new is None:
            status, notes = NOT_RUN, [NOT_RUN_NOTE]
        elif one.is_refused:
            status, notes = REFUSED, [f"not compared with {new.case_id}: {'; '.join(one.differ)}"]
        elif old.key not in found_ratios:
            status, notes = TOO_FEW, [TOO_FEW_NOTE]
        else:
            ratio = found_ratios[old.key]
            status = _status(ratio, threshold, slower[old.key], faster[old.key])
            notes = [*(["; ".join(one.differ)] if one.differ else []), *_notes(old, new)]
        found.append(Checked(one.case_id, status, old, new, ratio, notes))
    return found


def _status(ratio: Estimate, threshold: float, p_slower: float, p_faster: float) -> str:
    if ratio.value > 1 + threshold and p_slower < SIGNIFICANCE:
        return SLOWER
    if ratio.value < 1 / (1 + threshold) and p_faster < SIGNIFICANCE:
        return FASTER
    return INCONCLUSIVE if is_unsure(ratio.interval(), threshold) else SAME


def _notes(before: CaseRuns, after: CaseRuns) -> List[str]:
    notes = []
    if after.flagged:
        notes.append(f"left out: {after.flagged} {LEFT_OUT}")
    if after.older:
        notes.append(f"{after.older} older profiles not used: of another environment, or beyond --last")
    if len(before.runs) == len(after.runs) == 1:
        known = prior(before.device).share
        notes.append(f"one run on each side: the noise between runs is not seen, and taken to be {known:.1%} at least")
    changed = differences(before.environment, after.environment) if after.environment else []
    if changed:
        notes.append(f"environment changed: {'; '.join(changed)}")
    old, new = ({kind for run in case.runs for kind in kinds(run.flags)} for case in (before, after))
    for only, side in ((old - new, "the baseline"), (new - old, "now")):
        if only:
            notes.append(f"flagged only {side}: {', '.join(sorted(only))}")
    return notes


def check_profile(baseline: Sequence[CaseRuns], profile: Profile) -> Checked:
    """Compare one profile's minibatch time with a baseline, as `check` does with those of a results file.

    All cases of the device tell the noise between runs. The status is `SLOWER`, `FASTER`, `SAME` or `INCONCLUSIVE`,
    which fewer than `MIN_MINIBATCHES` clean minibatches are, and what was disturbed or throttled; or `MISSING` where
    the baseline has nothing under exactly these conditions. The notes say why.
    """
    times_ms = tuple(round(minibatch.e2e_ms, DECIMALS) for minibatch in profile.counted)
    run = Run("", profile.started_at, tuple(profile.flags), times_ms)
    comparable = comparable_conditions(profile.conditions, profile.case, profile.provenance)
    now = CaseRuns(profile.case.id, comparable, {}, (run,))
    keys = (now.key, key(without_instance(comparable)))
    recorded = next((case for case in baseline if case.key in keys), None)
    if recorded is None or not times_ms:
        place = None if recorded else nearest(now, baseline)
        why = f"the baseline has nothing of {comparable['workload']}"
        if recorded is not None:
            why = f"{now.case_id} has no minibatch times"
        elif place is not None:
            differ = "; ".join(differences(baseline[place].conditions, comparable))
            why = f"not recorded; not compared with {baseline[place].case_id}: {differ}"
        return Checked(now.case_id, MISSING, recorded, now, notes=[why])
    known = prior(now.device)
    others = [[case.series()] for case in baseline if case.device == now.device and case is not recorded]
    noise = learn_noise([[recorded.series(), [times_ms]], *others], False, known)
    ratio = compare_runs(recorded.series(), [times_ms], noise, known).estimate
    p_slower, notes = ratio.p_above(), _notes(recorded, now)
    status = _status(ratio, DEFAULT_THRESHOLD, p_slower, 1 - p_slower)
    if Pair(recorded, now, []).fewest_minibatches < MIN_MINIBATCHES:
        status, notes = INCONCLUSIVE, [TOO_FEW_NOTE, *notes]
    elif is_disqualified(profile.flags):
        status, notes = INCONCLUSIVE, [f"the profile is flagged {' and '.join(profile.flags)}", *notes]
    beyond_noise = math.exp(student_quantile(ratio.dof, 1 - SIGNIFICANCE) * ratio.error)
    limit_ms = pooled_median(recorded.series()) * max(1 + DEFAULT_THRESHOLD, beyond_noise)
    return Checked(now.case_id, status, recorded, now, ratio, notes, limit_ms)


def exit_code(found: Sequence[Checked], strict: bool = False) -> int:
    """1 where a case is slower; else 2 where one was refused or none could be compared; else 0.

    To be `strict` is to give 2 also where a case is inconclusive.
    """
    statuses = {one.status for one in found}
    open_ones = {REFUSED, TOO_FEW, *([INCONCLUSIVE] if strict else [])}
    is_open = bool(statuses & open_ones) or not statuses & {SAME, FASTER, INCONCLUSIVE}
    return exit_code_of(SLOWER in statuses, is_open)


def format_checked(found: Sequence[Checked], threshold: float) -> str:
    """The table of a check, the notes on its cases, and how the verdicts were found."""
    header = ["case", ">baseline ms", ">now ms", ">ratio", f">{CONFIDENCE:.0%} interval", ">runs", "verdict"]
    cases_of_note: Dict[str, List[str]] = {}
    for one in found:
        for note in one.notes:
            cases_of_note.setdefault(note, []).append(one.case_id)
    rows = []
    for one in found:
        sides, interval = (one.before, one.after), one.ratio.interval() if one.ratio else None
        medians = [f"{pooled_median(side.series()):.3f}" if side else "-" for side in sides]
        ends = [f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}"] if interval else ["-", "-"]
        runs = " | ".join(str(len(side.runs) if side else 0) for side in sides)
        rows.append([one.case_id, *medians, *ends, runs, one.status])
    lines = [format_table(header, rows), ""]
    for note, cases in cases_of_note.items():
        more = len(cases) - _NAMED_CASES
        lines.append(f"{', '.join(cases[:_NAMED_CASES])}{f' and {more} more' if more > 0 else ''}: {note}")
    return "\n".join([*lines, f"threshold {threshold:.1%}. {TEST}"])
