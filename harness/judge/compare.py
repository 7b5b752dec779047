"""Changes between two sides: for each case, each workload and overall, in time and in power.

Error rates, from 200 or 300 simulated comparisons of runs of 40 minibatches with 5 % noise within a run, at the
tolerance of 2 % and without `--by`; a single change among all counts. The noise between runs is that of the prior of
the device's class, 0.5 % on a board and 1.5 % on NX, and 1, 3 or 5 % on any other machine:

    cases  runs on each side  equal code, false changes        slowdown of 5 % detected
                              board, NX, any machine           board, NX, any machine
    1      1                  3 %, 1 %, 0 %  0 %  0 %          86 %, 36 %, 0 %  0 %  0 %
    4      1                  1 %, 1 %, 0 %  0 %  0 %          100 %, 28 %, 0 %  0 %  0 %
    1      3                  1 %, 4 %, 0 %  2 %  5 %          98 %, 76 %, 34 %  19 %  14 %
    4      3                  0 %, 1 %, 0 %  0 %  1 %          100 %, 100 %, 100 %  51 %  22 %

So one run on each side is enough on boards only. On a board twice as noisy as the prior, 8 % of comparisons of one run
and 4 % of comparisons of three runs are wrong.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import msgspec

from harness.core.board_threshold import BoardThreshold
from harness.core.profiles import flagged_in_words
from harness.core.terminal import counted, escape_tags, format_table, wrap
from harness.judge.case_frame import SOFTWARE
from harness.judge.comparison import (
    ALLOW_TO_DIFFER,
    CASES,
    DEFAULT_SHARE,
    DEFAULT_TOLERANCE,
    INCONCLUSIVE,
    LEVEL,
    OVERALL,
    SAME,
    TOO_FEW,
    WORKLOADS,
    Comparison,
    describe_detectable,
    describe_doubts,
    exit_code,
)
from harness.judge.pairs import Pair, environment_changes, pair, ratios
from harness.judge.quantities import FAST_TIME, MIN_MINIBATCHES, QUANTITIES, TIME
from harness.judge.sides import Side, cases_of, copies_in_words, read_side
from harness.judge.time_parts import compare_and_explain
from harness.judge.tolerances import Tolerance
from harness.stats.comparison import FEWEST_RUNS
from harness.stats.estimates import CONFIDENCE, Interval
from harness.store.frames import profiles
from harness.store.results import ResultsStore

REMEDY = "to detect smaller changes: measure more runs of each side, in turns (before, after, before, ...)"
ON_SHARED_MACHINES = "; on a shared machine, compare with --fastest"


_INTERVAL = f"{CONFIDENCE:.0%} interval"
_MOST_LINES = 40
"""With more cases, those without a difference are only counted in text; JSON lists all."""


@dataclasses.dataclass(frozen=True)
class TwoSides:
    """Two sides and the comparisons of their cases."""

    before: Side  # one side
    after: Side  # the other
    by: Sequence[str]  # the conditions that may differ
    pairs: List[Pair]  # compared or not
    comparisons: List[Comparison]
    tolerance: Tolerance

    @property
    def threshold(self) -> float:
        """The tolerance, as a share, where no board has its own."""
        return DEFAULT_SHARE if self.tolerance.given is None else self.tolerance.given

    @property
    def board_thresholds(self) -> List[BoardThreshold]:
        """Those in use."""
        return self.tolerance.boards(self.pairs)

    def of(self, scope: str) -> List[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.scope == scope]

    @property
    def refused(self) -> List[Pair]:
        return [case_pair for case_pair in self.pairs if case_pair.is_refused]

    @property
    def only_before(self) -> List[str]:
        return [case_pair.case_id for case_pair in self.pairs if case_pair.after is None and not case_pair.is_refused]

    @property
    def only_after(self) -> List[str]:
        return [case_pair.case_id for case_pair in self.pairs if case_pair.before is None]

    @property
    def compared(self) -> List[Pair]:
        return [case_pair for case_pair in self.pairs if case_pair.is_compared]

    @property
    def changed(self) -> List[str]:
        return list(dict.fromkeys(line for case_pair in self.compared for line in case_pair.differ))

    @property
    def exit_code(self) -> int:
        return exit_code(self.comparisons, is_refused=bool(self.refused))


def compare_files(
    before: Path,
    after: Path,
    by: Sequence[str] = (),
    threshold: Optional[float] = None,
    fastest: bool = False,
    include_flagged: bool = False,
) -> TwoSides:
    """Compare two results files, or JSON files of pytest-benchmark: changes in time, then in power.

    `threshold` is the tolerance as a share, 0.02 is 2 %; by default that of the board, else `DEFAULT_SHARE`.
    `fastest` compares the fast minibatches of the fast runs instead of medians, and takes `FEWEST_RUNS`.
    """
    old, new = (read_side(path, include_flagged) for path in (before, after))
    return compare_sides(old, new, by, threshold, fastest)


def compare_sides(
    before: Side, after: Side, by: Sequence[str] = (), threshold: Optional[float] = None, fastest: bool = False
) -> TwoSides:
    """The same of two sides that were read."""
    tolerance = DEFAULT_TOLERANCE._replace(given=threshold)
    tolerance.check()
    pairs = pair(before.cases, after.cases, by, (before.path.name, after.path.name))
    quantities = [FAST_TIME if fastest and quantity == TIME else quantity for quantity in QUANTITIES]
    comparisons = []
    for quantity in quantities:
        comparisons += compare_and_explain(pairs, quantity, tolerance, same_question=not by)
    return TwoSides(before, after, by, pairs, comparisons, tolerance)


def format_result(result: TwoSides, markdown: bool = False) -> str:
    text = "\n\n".join(_parts(result, markdown))
    return escape_tags(text) if markdown else text  # names may have markup


def _parts(result: TwoSides, markdown: bool) -> List[str]:
    names = [side.path.name for side in (result.before, result.after)]
    heading = " -> ".join(names)
    parts = [f"## Comparison: {heading}" if markdown else heading]
    if not result.compared:
        return [*parts, _nothing_shared(result), *_listed("Notes:", _notes(result), markdown)]
    parts += ["; ".join(result.changed)] if result.changed else []
    overall = [
        f"Overall, {verdict.figure}: {verdict.status} ({_percent(verdict.change.ratio)}, {_INTERVAL}"
        f" {_percent(verdict.change.low)} to {_percent(verdict.change.high)},"
        f" {counted(verdict.counts[0], 'case')})"
        for verdict in result.of(OVERALL)
        if verdict.change
    ]
    parts.append("\n".join(overall or ["Nothing could be compared."]))
    cases, workloads = result.of(CASES), result.of(WORKLOADS)
    if workloads:
        parts.append(_table("workload", "cases", workloads, markdown))
    listed = [verdict for verdict in cases if len(cases) <= _MOST_LINES or verdict.status != SAME]
    if listed:
        parts.append(_table("case", "runs", listed, markdown))
    if len(listed) < len(cases):
        parts.append(f"{len(cases) - len(listed)} more figures of cases: {SAME}")
    refused = [f"{case_pair.case_id}: {'; '.join(case_pair.differ)}" for case_pair in result.refused]
    environment = environment_changes(result.compared)
    parts += [
        *_listed("Not compared, because conditions differ:", refused, markdown),
        *_listed(f"Only in {names[0]}:", result.only_before, markdown),
        *_listed(f"Only in {names[1]}:", result.only_after, markdown),
        *_listed("Machine or software differs, and is compared anyway:", environment, markdown),
        *_listed("Notes:", _notes(result), markdown),
    ]
    return [*parts, *_listed("Verdicts:", _explained(result), markdown)]


def _explained(result: TwoSides) -> List[str]:
    """What was tested, at what level, what would be detected, and what is inconclusive and how to decide it."""
    tests = ["a t-test with the noise within and between runs", "a rank-sum test of blocks of minibatches"]
    fastest = any(verdict.quantity == FAST_TIME for verdict in result.comparisons)
    return [
        f"tolerance: {result.tolerance.describe(result.pairs)}",
        f"test: significant if {LEVEL}; worse or better if the ratio of medians is also beyond the tolerance",
        f"p: the larger one of {' and '.join(tests)}",
        *([f"p of {FAST_TIME.name}: a permutation test of whole runs"] if fastest else []),
        *describe_detectable(result.comparisons),
        *describe_doubts(result.comparisons),
        *_remedies(result),
    ]


def _remedies(result: TwoSides) -> List[str]:
    """What to do about inconclusive verdicts, and about noise that would often hide a change that a gate fails for."""
    for verdict in result.comparisons:
        telling = 1 + verdict.quantity.tolerance
        is_blunt = verdict.change is not None and verdict.change.high > verdict.change.low * telling
        if verdict.status == INCONCLUSIVE or (verdict.scope == OVERALL and verdict.status == SAME and is_blunt):
            is_fastest = any(other.quantity == FAST_TIME for other in result.comparisons)
            return [REMEDY if is_fastest else REMEDY + ON_SHARED_MACHINES]
    return []


def _nothing_shared(result: TwoSides) -> str:
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
    return f"{text}\n{differ}. {ALLOW_TO_DIFFER}; --json lists the cases."


def _listed(title: str, lines: Sequence[str], markdown: bool) -> List[str]:
    """A part of the text with its title, at most `_MOST_LINES` long; empty without lines."""
    more = len(lines) - _MOST_LINES
    bullets = [*lines[:_MOST_LINES], *([f"{more} more, see --json"] if more > 0 else [])]
    wrapped = [wrap(f"- {line}", "  ") for line in bullets]
    return ["\n".join([title, *([""] if markdown else []), *wrapped])] if lines else []


def to_plain(result: TwoSides) -> Dict[str, Any]:
    """The comparison as plain values: ratios are after / before, `p_value` is corrected for the number of cases."""
    by_scope: Dict[str, List[Dict[str, Any]]] = {scope: [] for scope in (OVERALL, WORKLOADS, CASES)}
    for verdict in result.comparisons:
        ratio, low, high = verdict.change[:3] if verdict.change else (None, None, None)
        about = {
            "name": verdict.name,
            "figure": verdict.figure,
            "status": verdict.status,
            "ratio": ratio,
            "low": low,
            "high": high,
        }
        p_values = {"p_value": verdict.p_value, "rank_p_value": verdict.rank_p}
        decided = {"significant": verdict.is_significant, "tolerance": verdict.tolerance}
        by_scope[verdict.scope].append({**about, **p_values, **decided, "counts": list(verdict.counts)})
    return {
        "before": str(result.before.path),
        "after": str(result.after.path),
        "by": list(result.by),
        "changed": result.changed,
        "confidence": CONFIDENCE,
        "threshold": result.threshold,
        "board_thresholds": [msgspec.to_builtins(threshold) for threshold in result.board_thresholds],
        "exit_code": result.exit_code,
        **by_scope,
        "refused": [{"case": case_pair.case_id, "why": case_pair.differ} for case_pair in result.refused],
        "only_before": result.only_before,
        "only_after": result.only_after,
        "environment": environment_changes(result.compared),
        "notes": [*_notes(result), *_remedies(result)],
    }


def _table(what: str, counted: str, findings: Sequence[Comparison], markdown: bool) -> str:
    header = [what, "figure", ">change", f">{_INTERVAL}", ">p", f">{counted}", "verdict"]
    rows = []
    for verdict in findings:
        count, texts = (
            f"{verdict.counts[0]}" if counted == "cases" else f"{verdict.counts[0]}, {verdict.counts[1]}",
            ["-", "-", "-"],
        )
        if verdict.change is not None and verdict.p_value is not None:
            interval = f"{_percent(verdict.change.low)} to {_percent(verdict.change.high)}"
            p_value = "< 0.001" if verdict.p_value < 0.001 else f"{verdict.p_value:.3f}"
            texts = [_percent(verdict.change.ratio), interval, p_value]
        rows.append([verdict.name, verdict.figure, *texts, count, verdict.status])
    return format_table(header, rows, markdown)


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _notes(result: TwoSides) -> List[str]:
    notes = []
    for side in (result.before, result.after):
        older = sum(case.older for case in side.cases)
        if side.flagged:
            notes.append(f"{side.path.name}: left out {flagged_in_words(side.flagged)}")
        copies = sum(case.copies for case in side.cases)
        if copies:
            notes.append(f"{side.path.name}: {copies_in_words(copies)}")
        if older:
            notes.append(f"{side.path.name}: left out {counted(older, 'older profile')}, of another environment")
    cases = result.of(CASES)
    notes += [f"{verdict.name}: {note}" for verdict in cases if verdict.is_worse for note in verdict.notes]
    if any(verdict.status == TOO_FEW for verdict in cases):
        notes.append(
            f"too few: each side of a case needs {MIN_MINIBATCHES} minibatches, and {FEWEST_RUNS} runs for --fastest"
        )
    if cases and all(verdict.counts == (1, 1) for verdict in cases):
        notes.append(
            "one run on each side: the noise between runs is assumed from a prior for the board and the scatter of"
            " cases; measure each side three times for a reliable answer"
        )
    return notes


class VersionEffect(NamedTuple):
    """The ratio of a case's times between versions of the software (E8; 004 sec. 5.4.4)."""

    case_id: str
    differ: List[str]  # the versions that changed, `torch: "1.12" -> "2.0"`
    ratio: Interval  # median minibatch time after / before

    @property
    def text(self) -> str:
        low, high = f"{self.ratio.low:.3f}", f"{self.ratio.high:.3f}"
        return f"{self.case_id}: {'; '.join(self.differ)}: time x {self.ratio.value:.3f} ({low} to {high})"


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """The undisturbed cases that were measured with several sets of versions, each set against the first one."""
    frame = profiles(store, timed=True, replayed=False)
    versions = frame["conditions"].map(lambda conditions: tuple(conditions.get(name) for name in SOFTWARE))
    sets = [cases_of(store, frame[versions == version]) for version in dict.fromkeys(versions)]
    effects = []
    for later in sets[1:]:
        pairs = [case_pair for case_pair in pair(sets[0], later, SOFTWARE) if case_pair.is_compared]
        time_ratios = ratios(pairs)
        effects += [
            VersionEffect(case_pair.case_id, case_pair.differ, time_ratios[case_pair.key].estimate.interval())
            for case_pair in pairs
        ]
    return effects
