"""What changed between two sides: for each case, each workload and overall, in time and in power.

How often it errs, found by simulating 200 or 300 comparisons of runs of 40 minibatches with 5 % noise within a run, at
the threshold of 2 % and without `--by`; one finding among all is enough. The noise between runs is that of the prior of
the device's class, 0.5 % on a board and 1.5 % on NX, and 1, 3 or 5 % on any other machine:

    cases  runs on each side  equal code, something found      slowdown of 5 % found
                              board, NX, any machine           board, NX, any machine
    1      1                  3 %, 1 %, 0 %  0 %  0 %          86 %, 36 %, 0 %  0 %  0 %
    4      1                  1 %, 1 %, 0 %  0 %  0 %          100 %, 28 %, 0 %  0 %  0 %
    1      3                  1 %, 4 %, 0 %  2 %  5 %          98 %, 76 %, 34 %  19 %  14 %
    4      3                  0 %, 1 %, 0 %  0 %  1 %          100 %, 100 %, 100 %  51 %  22 %

So one run on each side is enough on boards alone. A board that is twice as noisy as the prior is wrong in 8 % of
comparisons of one run, and in 4 % of three.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.terminal import format_table
from harness.judge.case_frame import SOFTWARE
from harness.judge.pairs import Pair, environment_changes, pair, ratios
from harness.judge.quantities import MIN_MINIBATCHES, QUANTITIES, TIME, JudgedQuantity
from harness.judge.sides import Side, cases_of, read_side
from harness.judge.verdicts import (
    CASES,
    OVERALL,
    SAME,
    SIGNIFICANCE,
    TOO_FEW,
    WORKLOADS,
    Compared,
    Subject,
    Tested,
    check_threshold,
    exit_code,
)
from harness.judge.verdicts import judge as judge_subjects
from harness.stats.comparison import (
    FAST_MINIBATCHES,
    FEWEST_RUNS,
    combined_ranks,
    mean_ratio,
    randomised_change,
    rank_test,
)
from harness.stats.estimates import CONFIDENCE, Interval
from harness.store.conditions import LEFT_OUT
from harness.store.frames import profiles
from harness.store.results import ResultsStore

DEFAULT_THRESHOLD = 0.02  # a change of the median below this is none
TELLING = 0.05  # an interval that reaches beyond this both ways is inconclusive: it would hide a change of 5 %
FAST_TIME = TIME._replace(name="fast minibatch time")  # with --fastest, in the place of the median

TEST = (
    "A change counts if the ratio of medians exceeds the threshold and noise alone is unlikely to cause it"
    f" (p < {SIGNIFICANCE:.2g}, two-sided, after Holm's correction over the cases of a figure). The p-value of a case"
    " is the larger of two tests: a t-test with the noise within runs (block bootstrap of the minibatches) and between"
    " runs, and a rank-sum test of blocks of minibatches where there are enough. Over several cases rank tests are"
    " combined, and noise shared by all cases of a run is included. With --fastest, p comes from a permutation test of"
    f" whole runs. inconclusive: no change found, but the interval extends beyond {TELLING:.0%} (or the threshold) both"
    " ways, or the ratio is beyond it, or the interval alone would indicate a change."
)


def _judge(pairs: Sequence[Pair], quantity: JudgedQuantity, same_question: bool, threshold: float) -> List[Compared]:
    """What changed in a quantity; `same_question`: nothing but the run may differ between sides (`learn_noise`)."""
    there = [one for one in pairs if all(case.series(quantity) for case in one.sides)]
    enough = [one for one in there if one.fewest_minibatches >= quantity.fewest]
    is_fastest = quantity == FAST_TIME
    if is_fastest:
        enough = [one for one in enough if min(len(case.series()) for case in one.sides) >= FEWEST_RUNS]
    modelled = {} if is_fastest else ratios(enough, quantity, same_question)
    ranks = {one.key: rank_test(*(case.series(quantity) for case in one.sides)) for one in enough if modelled}

    def tested(members: Sequence[Pair]) -> Optional[Tested]:
        if is_fastest:
            sides = _of_runs(members, quantity, FAST_MINIBATCHES)
            if min(map(len, sides)) < FEWEST_RUNS:
                return None
            change = randomised_change(*sides)
            return Tested(change, change.p_value, change.p_value)
        own = [modelled[one.key] for one in members]
        change = mean_ratio(own, *_of_runs(members, quantity, 0.5)).change()
        rank_p = combined_ranks([ratio.within.value for ratio in own], [ranks[one.key] for one in members])
        p_value = max(change.p_value, rank_p or 0.0)
        return Tested(change, p_value, p_value, rank_p)

    testable = {one.key for one in enough}
    workloads: Dict[str, List[Pair]] = {}
    for one in enough:
        conditions = one.sides[0].conditions
        task = "" if conditions["task"] == TRAINING else f" ({conditions['task']})"
        workloads.setdefault(f"{conditions['workload']}{task}", []).append(one)
    scopes: Dict[str, List[Tuple[str, List[Pair]]]] = {
        CASES: [(one.case_id, [one]) for one in there],
        WORKLOADS: list(workloads.items()),
        OVERALL: [("overall", enough)] if enough else [],
    }
    verdicts = []
    for scope, groups in scopes.items():
        subjects = []
        for name, members in groups:
            counts = (len(members), len(members))
            if scope == CASES:
                counts = tuple(len(case.series(quantity)) for case in members[0].sides)
            own = tested(members) if members[0].key in testable else None
            subjects.append(Subject(scope, name, counts, own, members[0] if scope == CASES else None))
        verdicts += judge_subjects(subjects, quantity, threshold, TELLING)
    return verdicts


def _of_runs(pairs: Sequence[Pair], quantity: JudgedQuantity, share: float) -> List[np.ndarray]:
    """The logarithm of a quantile of each run that has all cases, on both sides, of shape (runs, cases)."""
    sides = []
    for cases in zip(*(one.sides for one in pairs)):
        values = [case.by_run(quantity) for case in cases]
        complete = [run for run in values[0] if all(run in one for one in values)]
        figures = [[np.quantile(one[run], share) for one in values] for run in complete]
        sides.append(np.log(np.array(figures).reshape(len(complete), len(values))))
    return sides


_INTERVAL = f"{CONFIDENCE:.0%} interval"
_MOST_LINES = 40
"""Of more cases than this, those without a difference are counted in text and not listed; JSON has them all."""


@dataclasses.dataclass(frozen=True)
class ComparedSides:
    before: Side  # one side
    after: Side  # the other
    by: Sequence[str]  # the conditions in question
    pairs: List[Pair]  # what was compared and what was not
    found: List[Compared]  # what came out
    threshold: float  # as a share

    def of(self, scope: str) -> List[Compared]:
        return [one for one in self.found if one.scope == scope]

    @property
    def refused(self) -> List[Pair]:
        return [one for one in self.pairs if one.is_refused]

    @property
    def only_before(self) -> List[str]:
        return [one.case_id for one in self.pairs if one.after is None and not one.is_refused]

    @property
    def only_after(self) -> List[str]:
        return [one.case_id for one in self.pairs if one.before is None]

    @property
    def compared(self) -> List[Pair]:
        return [one for one in self.pairs if one.is_compared]

    @property
    def changed(self) -> List[str]:
        return list(dict.fromkeys(line for one in self.compared for line in one.differ))

    @property
    def exit_code(self) -> int:
        return exit_code(self.found, is_refused=bool(self.refused))


def compare_files(
    before: Path,
    after: Path,
    by: Sequence[str] = (),
    threshold: float = DEFAULT_THRESHOLD,
    fastest: bool = False,
    include_flagged: bool = False,
) -> ComparedSides:
    """Compare two results files, or JSON files of pytest-benchmark: what changed in time, then in power.

    `fastest` compares the fast minibatches of the fast runs instead of medians, and takes `FEWEST_RUNS`.
    """
    check_threshold(threshold)
    old, new = (read_side(path, include_flagged) for path in (before, after))
    pairs = pair(old.cases, new.cases, by, (before.name, after.name))
    compared = [one for one in pairs if one.is_compared]
    quantities = [FAST_TIME if fastest and one == TIME else one for one in QUANTITIES]
    found = [verdict for one in quantities for verdict in _judge(compared, one, not by, threshold)]
    return ComparedSides(old, new, by, pairs, found, threshold)


def format_result(result: ComparedSides, markdown: bool = False) -> str:
    names = [side.path.name for side in (result.before, result.after)]
    heading = " -> ".join(names)
    parts = [f"## Comparison: {heading}" if markdown else heading]
    if not result.compared:
        return "\n\n".join([*parts, _nothing_shared(result), *_listed("Notes:", _notes(result), markdown)])
    parts += ["; ".join(result.changed)] if result.changed else []
    overall = [
        f"Overall, {one.figure}: {one.status} ({_percent(one.change.ratio)}, {_INTERVAL} {_percent(one.change.low)} to"
        f" {_percent(one.change.high)}, {one.counts[0]} case{'s' if one.counts[0] > 1 else ''})"
        for one in result.of(OVERALL)
        if one.change
    ]
    parts.append("\n".join(overall or ["Nothing could be compared."]))
    cases, workloads = result.of(CASES), result.of(WORKLOADS)
    if workloads:
        parts.append(_table("workload", "cases", workloads, markdown))
    shown = [one for one in cases if len(cases) <= _MOST_LINES or one.status != SAME]
    if shown:
        parts.append(_table("case", "runs", shown, markdown))
    if len(shown) < len(cases):
        parts.append(f"{len(cases) - len(shown)} more figures of cases: {SAME}")
    refused = [f"{one.case_id}: {'; '.join(one.differ)}" for one in result.refused]
    environment = environment_changes(result.compared)
    parts += [
        *_listed("Not compared, because conditions differ:", refused, markdown),
        *_listed(f"Only in {names[0]}:", result.only_before, markdown),
        *_listed(f"Only in {names[1]}:", result.only_after, markdown),
        *_listed("Machine or software differs, which is compared all the same:", environment, markdown),
        *_listed("Notes:", _notes(result), markdown),
    ]
    return "\n\n".join([*parts, f"Threshold {result.threshold:.1%}. {TEST}"])


def _nothing_shared(result: ComparedSides) -> str:
    counts = [f"{len(side.cases)} case{'s' * (len(side.cases) != 1)}" for side in (result.before, result.after)]
    text = (
        f"Nothing could be compared: {result.before.path.name} ({counts[0]}) and {result.after.path.name} ({counts[1]})"
        " share no case."
    )
    if not result.refused:
        return text
    first, *others = result.refused
    common = [line for line in first.differ if all(line in other.differ for other in others)]
    differ = f"All differ in {'; '.join(common)}" if common else f"{first.case_id}: {'; '.join(first.differ)}"
    return f"{text}\n{differ}. --by NAMES lets conditions differ; --json lists the cases."


def _listed(title: str, lines: Sequence[str], markdown: bool) -> List[str]:
    """A part of the text with its title, at most `_MOST_LINES` long; none without lines."""
    more = len(lines) - _MOST_LINES
    shown = [*lines[:_MOST_LINES], *([f"{more} more, see --json"] if more > 0 else [])]
    return ["\n".join([title, *([""] if markdown else []), *(f"- {line}" for line in shown)])] if lines else []


def to_json(result: ComparedSides) -> str:
    """The comparison as JSON: ratios are after / before, `p_value` is corrected for the number of cases."""
    found: Dict[str, List[Dict[str, Any]]] = {scope: [] for scope in (OVERALL, WORKLOADS, CASES)}
    for one in result.found:
        ratio, low, high = one.change[:3] if one.change else (None, None, None)
        about = {"name": one.name, "figure": one.figure, "status": one.status, "ratio": ratio, "low": low, "high": high}
        p_values = {"p_value": one.p_value, "rank_p_value": one.rank_p}
        found[one.scope].append({**about, **p_values, "counts": list(one.counts)})
    document = {
        "before": str(result.before.path),
        "after": str(result.after.path),
        "by": list(result.by),
        "changed": result.changed,
        "confidence": CONFIDENCE,
        "threshold": result.threshold,
        "exit_code": result.exit_code,
        **found,
        "refused": [{"case": one.case_id, "why": one.differ} for one in result.refused],
        "only_before": result.only_before,
        "only_after": result.only_after,
        "environment": environment_changes(result.compared),
        "notes": _notes(result),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _table(what: str, counted: str, findings: Sequence[Compared], markdown: bool) -> str:
    header = [what, "figure", ">change", f">{_INTERVAL}", ">p", f">{counted}", "verdict"]
    rows = []
    for one in findings:
        count, told = f"{one.counts[0]}" if counted == "cases" else f"{one.counts[0]}, {one.counts[1]}", ["-", "-", "-"]
        if one.change is not None and one.p_value is not None:
            interval = f"{_percent(one.change.low)} to {_percent(one.change.high)}"
            p_value = "< 0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
            told = [_percent(one.change.ratio), interval, p_value]
        rows.append([one.name, one.figure, *told, count, one.status])
    return format_table(header, rows, markdown)


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _notes(result: ComparedSides) -> List[str]:
    notes = []
    for side in (result.before, result.after):
        older = sum(case.older for case in side.cases)
        if side.flagged:
            notes.append(f"{side.path.name}: left out {side.flagged} {LEFT_OUT}")
        if older:
            notes.append(f"{side.path.name}: left out {older} older profiles, of another environment")
    cases = result.of(CASES)
    if any(one.status == TOO_FEW for one in cases):
        notes.append(
            f"too few: each side of a case needs {MIN_MINIBATCHES} minibatches, and {FEWEST_RUNS} runs for --fastest"
        )
    if cases and all(one.counts == (1, 1) for one in cases):
        notes.append(
            "one run on each side: how much runs differ is taken from what is known of boards and from how much cases"
            " scatter; measure each side three times for a sure answer"
        )
    if any(one.change and one.change.high > one.change.low * (1 + TELLING) for one in result.of(OVERALL)):
        notes.append(
            f"runs differ so much here that a change of {TELLING:.0%} may be missed: measure more runs of each side, in"
            " turns (before, after, before, ...); where others share the machine, compare with --fastest"
        )
    return notes


class VersionEffect(NamedTuple):
    """How much the time of a case differs between versions of the software (E8; 004 sec. 5.4.4)."""

    case_id: str
    differ: List[str]  # the versions that changed, `torch: "1.12" -> "2.0"`
    ratio: Interval  # median minibatch time after / before

    @property
    def text(self) -> str:
        low, high = f"{self.ratio.low:.3f}", f"{self.ratio.high:.3f}"
        return f"{self.case_id}: {'; '.join(self.differ)}: time x {self.ratio.value:.3f} ({low} to {high})"


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """Every undisturbed case that was measured with several sets of versions, each set against the first one."""
    frame = profiles(store, timed=True, replayed=False)
    versions = frame["conditions"].map(lambda conditions: tuple(conditions.get(name) for name in SOFTWARE))
    sets = [cases_of(store, frame[versions == found]) for found in dict.fromkeys(versions)]
    effects = []
    for later in sets[1:]:
        pairs = [one for one in pair(sets[0], later, SOFTWARE) if one.is_compared]
        found = ratios(pairs)
        effects += [VersionEffect(one.case_id, one.differ, found[one.key].estimate.interval()) for one in pairs]
    return effects
