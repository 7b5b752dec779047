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

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.baseline import MIN_MINIBATCHES, OK_CODE, REFUSED_CODE, SLOWER_CODE, CaseRuns, is_wider
from harness.judge.sides import Pair, Pairing, Side
from harness.stats import noise
from harness.stats.changes import (
    FAST_MINIBATCHES,
    FEWEST_RUNS,
    Change,
    RunsRatio,
    combined_ranks,
    compare_runs,
    holm,
    learn_noise,
    mean_ratio,
    randomised_change,
    rank_test,
)
from harness.stats.estimates import CONFIDENCE, Interval
from harness.store.conditions import LEFT_OUT

DEFAULT_THRESHOLD = 0.02
"""A change of the median below this is none."""

TELLING = 0.05
"""An interval that reaches beyond this both ways is inconclusive: it would hide a change of 5 %."""

TIME, FAST_TIME, POWER = "minibatch time", "fast minibatch time", "power"
SLOWER, FASTER, MORE, LESS = "slower", "faster", "more power", "less power"
SAME, INCONCLUSIVE, TOO_FEW = "no difference", "inconclusive", "too few"
OVERALL = "overall"
_NAMES = {TIME: (SLOWER, FASTER), FAST_TIME: (SLOWER, FASTER), POWER: (MORE, LESS)}

Values = Mapping[Tuple[str, int], Sequence[float]]
"""Minibatch times in ms, or the one power in mW, of each run of one side.

A run goes by its id and by which of its profiles of the same case this is: so the cases of a run are found together.
"""

TEST = (
    "A change counts where the ratio of medians is beyond the threshold and noise alone is unlikely to give it"
    f" (p < {1 - CONFIDENCE:.2g}, two-sided, after Holm's correction over the cases of a figure). Of a case, p is the"
    " greater one of two tests: Student's t with the noise within runs, from a bootstrap of blocks of minibatches, and"
    " between them; and a rank-sum test of blocks of minibatches, where there are enough of them; of several cases the"
    " rank tests are summed, and noise that all cases of a run share counts. With --fastest p comes from a permutation"
    " test of whole runs. inconclusive: no change found, but the interval reaches beyond"
    f" {TELLING:.0%} (or the threshold) both ways, or the ratio is, or the interval alone would tell a change."
)


class Compared(NamedTuple):
    """What came out for one figure of one case, of a workload or overall."""

    name: str  # the case's id, the workload's name, or `overall`
    figure: str  # `TIME`, `FAST_TIME` or `POWER`
    status: str  # `slower`, `faster`, `more power`, `less power`, `no difference`, `inconclusive` or `too few`
    counts: Tuple[int, int]  # runs of a case on both sides; cases of a workload and overall
    change: Optional[Change] = None  # the ratio; None where there was too little to compare
    p_value: Optional[float] = None  # after Holm's correction; None likewise
    rank_p: Optional[float] = None  # that of the rank-sum tests alone, uncorrected; None where none was made


class Comparison(NamedTuple):
    """Everything that was compared: cases in the order of the pairs, workloads, overall."""

    cases: List[Compared]
    workloads: List[Compared]
    overall: List[Compared]


def judge(
    pairs: Sequence[Pair], same_question: bool, threshold: float = DEFAULT_THRESHOLD, fastest: bool = False
) -> Comparison:
    """Find what changed.

    `same_question`: nothing but the run may differ between the sides (`learn_noise`). `fastest` compares the fast
    minibatches of the fast runs instead of medians, and takes `FEWEST_RUNS`.
    """
    if not threshold >= 0:
        raise InvalidValueError(f"--threshold must be 0 or more, got {share_to_percent(threshold):g}")
    figures = (FAST_TIME if fastest else TIME, POWER)
    time, power = (_judge_figure(pairs, figure, same_question, threshold) for figure in figures)
    return Comparison(time.cases + power.cases, time.workloads + power.workloads, time.overall + power.overall)


def exit_code(comparison: Comparison, pairing: Pairing) -> int:
    """1 where something is slower or takes more power; else 2 where a case was refused or none compared; else 0."""
    found = {one.status for every in comparison for one in every}
    if found & {SLOWER, MORE}:
        return SLOWER_CODE
    return REFUSED_CODE if pairing.refused or TOO_FEW in found or not found else OK_CODE


class _Case(NamedTuple):
    """The values of a case on both sides, and what the model of noise and the ranks say of it where they were asked."""

    before: Values
    after: Values
    ratio: Optional[RunsRatio] = None
    rank_p: Optional[float] = None


def _judge_figure(pairs: Sequence[Pair], figure: str, same_question: bool, threshold: float) -> Comparison:
    there: Dict[str, _Case] = {}  # by case id, as the findings of cases go
    workloads: Dict[str, List[str]] = {}
    devices: Dict[str, List[str]] = {}
    for one in pairs:
        case = _Case(_values(one.before, figure), _values(one.after, figure))
        if not case.before or not case.after:
            continue
        name, conditions = one.before.case_id, one.before.conditions
        there[name] = case
        if _suffices(case, figure):
            task = "" if conditions["task"] == TRAINING else f" ({conditions['task']})"
            workloads.setdefault(f"{conditions['workload']}{task}", []).append(name)
            devices.setdefault(str(conditions.get("device", "")), []).append(name)
    cases = {name: there[name] for names in workloads.values() for name in names}
    if figure != FAST_TIME:
        for device, names in devices.items():
            cases.update(_with_noise({name: cases[name] for name in names}, device, figure, same_question))
    cases = {name: cases[name] for name in there if name in cases}

    def compared(groups: Mapping[str, Sequence[str]], counts: Mapping[str, Tuple[int, int]]) -> Dict[str, Compared]:
        """Each group of cases; p-values are corrected for how many groups there are."""
        outcome_of = _randomised if figure == FAST_TIME else _modelled
        outcomes = {name: outcome_of([cases[member] for member in members]) for name, members in groups.items()}
        tested = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        found = {name: Compared(name, figure, TOO_FEW, counts[name]) for name in groups}
        for (name, outcome), p_value in zip(tested.items(), holm([outcome[1] for outcome in tested.values()])):
            change, _, rank_p = outcome
            status = _status(figure, change, p_value, threshold)
            found[name] = Compared(name, figure, status, counts[name], change, p_value, rank_p)
        return found

    runs = {name: (len(case.before), len(case.after)) for name, case in there.items()}
    of_cases = compared({name: [name] for name in cases}, runs)
    sizes = {name: (len(members), len(members)) for name, members in workloads.items()}
    overall = compared({OVERALL: list(cases)}, {OVERALL: (len(cases), len(cases))}) if cases else {}
    return Comparison(
        [of_cases.get(name) or Compared(name, figure, TOO_FEW, runs[name]) for name in there],
        list(compared(workloads, sizes).values()),
        list(overall.values()),
    )


def _values(case: CaseRuns, figure: str) -> Values:
    """The values of each run that has some; an idle state has no times."""
    ids = [run.run_id for run in case.runs]
    names = [(run_id, ids[:place].count(run_id)) for place, run_id in enumerate(ids)]
    if figure == POWER:
        return {name: (run.power_mw,) for name, run in zip(names, case.runs) if run.power_mw}
    return {name: run.times_ms for name, run in zip(names, case.runs) if run.times_ms}


def _suffices(case: _Case, figure: str) -> bool:
    """Whether there is enough of a case to say something."""
    sides = (case.before, case.after)
    if figure == FAST_TIME and min(map(len, sides)) < FEWEST_RUNS:
        return False
    return figure == POWER or min(sum(map(len, side.values())) for side in sides) >= MIN_MINIBATCHES


def _with_noise(cases: Mapping[str, _Case], device: str, figure: str, same_question: bool) -> Dict[str, _Case]:
    """The cases of a device with their ratios; the noise between runs is learned from all of them."""
    known = noise.prior(device, noise.POWER if figure == POWER else noise.TIME)
    series = {name: (list(case.before.values()), list(case.after.values())) for name, case in cases.items()}
    learned = learn_noise(list(series.values()), same_question, known)
    return {
        name: case._replace(ratio=compare_runs(*series[name], learned, known), rank_p=rank_test(*series[name]))
        for name, case in cases.items()
    }


_Outcome = Tuple[Change, float, Optional[float]]
"""A change, its p-value before correction, and that of the rank-sum tests where there were any."""


def _modelled(cases: Sequence[_Case]) -> _Outcome:
    """The change of medians of one case, or of several together, by the noise within and between runs."""
    ratios = [case.ratio for case in cases if case.ratio is not None]
    change = mean_ratio(ratios, *_of_runs(cases, 0.5)).change()
    rank_p = combined_ranks([ratio.within.value for ratio in ratios], [case.rank_p for case in cases])
    return change, max(change.p_value, rank_p or 0.0), rank_p


def _randomised(cases: Sequence[_Case]) -> Optional[_Outcome]:
    """The change of fast minibatches; None where too few runs have all of the cases."""
    before, after = _of_runs(cases, FAST_MINIBATCHES)
    if min(len(before), len(after)) < FEWEST_RUNS:
        return None
    change = randomised_change(before, after)
    return change, change.p_value, None


def _of_runs(cases: Sequence[_Case], share: float) -> List[np.ndarray]:
    """The logarithm of a quantile of each run that has all cases, on both sides, of shape (runs, cases)."""
    sides = []
    for values in ([case.before for case in cases], [case.after for case in cases]):
        complete = [run for run in values[0] if all(run in one for one in values)]
        figures = [[np.quantile(one[run], share) for one in values] for run in complete]
        sides.append(np.log(np.array(figures).reshape(len(complete), len(values))))
    return sides


def _status(figure: str, change: Change, p_value: float, threshold: float) -> str:
    worse, better = _NAMES[figure]
    if p_value < 1 - CONFIDENCE and change.ratio > 1 + threshold:
        return worse
    if p_value < 1 - CONFIDENCE and change.ratio < 1 / (1 + threshold):
        return better
    telling = max(threshold, TELLING)
    is_large = not 1 / (1 + telling) <= change.ratio <= 1 + telling
    is_likely = not 1 / (1 + threshold) <= change.ratio <= 1 + threshold and not change.low <= 1 <= change.high
    unsure = is_large or is_likely or is_wider(Interval(*change[:3]), telling)
    return INCONCLUSIVE if unsure else SAME


_INTERVAL = f"{CONFIDENCE:.0%} interval"
_PLAIN_CASES = 40
"""Of more cases than this, those without a difference are counted in text and not listed; JSON has them all."""


class ComparedSides(NamedTuple):
    """Everything about one comparison."""

    before: Side  # one side
    after: Side  # the other
    by: Sequence[str]  # the conditions in question
    pairing: Pairing  # what was compared and what was not
    verdicts: Comparison  # what came out
    threshold: float  # as a share


def format_result(result: ComparedSides, markdown: bool = False) -> str:
    """The comparison as text: the overall answer first, then workloads, cases, what was refused, and the test."""
    verdicts, pairing = result.verdicts, result.pairing
    heading = f"{result.before.path.name} -> {result.after.path.name}"
    changed = "; ".join(_changed(pairing))
    parts = [f"## Comparison: {heading}" if markdown else heading, *([changed] if changed else [])]
    parts.append("\n".join(_sentences(result)))
    if verdicts.workloads:
        parts.append(_table("workload", "cases", verdicts.workloads, markdown))
    shown = [one for one in verdicts.cases if len(verdicts.cases) <= _PLAIN_CASES or one.status != SAME]
    if shown:
        parts.append(_table("case", "runs", shown, markdown))
    if len(shown) < len(verdicts.cases):
        parts.append(f"{len(verdicts.cases) - len(shown)} more figures of cases: {SAME}")
    for title, lines in (
        (
            "Not compared, because conditions differ:",
            [f"{case_id}: {'; '.join(why)}" for case_id, why in pairing.refused],
        ),
        (f"Only in {result.before.path.name}:", pairing.only_before),
        (f"Only in {result.after.path.name}:", pairing.only_after),
        ("Machine or software differs, which is compared all the same:", pairing.environment),
        ("Notes:", _notes(result)),
    ):
        if lines:
            parts.append("\n".join([title, *([""] if markdown else []), *(f"- {line}" for line in lines)]))
    parts.append(f"Threshold {result.threshold:.1%}. {TEST}")
    return "\n\n".join(parts)


def to_json(result: ComparedSides) -> str:
    """The comparison as JSON: ratios are after / before, `p_value` is corrected for the number of cases."""
    pairing, verdicts = result.pairing, result.verdicts
    document = {
        "before": str(result.before.path),
        "after": str(result.after.path),
        "by": list(result.by),
        "changed": _changed(pairing),
        "confidence": CONFIDENCE,
        "threshold": result.threshold,
        "exit_code": exit_code(verdicts, pairing),
        "overall": [_compared(one) for one in verdicts.overall],
        "workloads": [_compared(one) for one in verdicts.workloads],
        "cases": [_compared(one) for one in verdicts.cases],
        "refused": [{"case": case_id, "why": why} for case_id, why in pairing.refused],
        "only_before": pairing.only_before,
        "only_after": pairing.only_after,
        "environment": pairing.environment,
        "notes": _notes(result),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _changed(pairing: Pairing) -> List[str]:
    """What differs of the conditions in question, each line once."""
    return list({line: None for one in pairing.pairs for line in one.changed})


def _sentences(result: ComparedSides) -> List[str]:
    """The overall answers."""
    if not result.verdicts.overall:
        return ["Nothing could be compared."]
    return [
        f"Overall, {one.figure}: {one.status} ({_percent(one.change.ratio)}, {_INTERVAL} {_percent(one.change.low)} to"
        f" {_percent(one.change.high)}, {one.counts[0]} case{'s' if one.counts[0] > 1 else ''})"
        for one in result.verdicts.overall
        if one.change
    ]


def _table(what: str, counted: str, findings: Sequence[Compared], markdown: bool) -> str:
    header = [what, "figure", ">change", f">{_INTERVAL}", ">p", f">{counted}", "verdict"]
    return format_table(header, [_cells(one, counted) for one in findings], markdown)


def _cells(one: Compared, counted: str) -> List[str]:
    count = f"{one.counts[0]}" if counted == "cases" else f"{one.counts[0]}, {one.counts[1]}"
    if one.change is None or one.p_value is None:
        return [one.name, one.figure, "-", "-", "-", count, one.status]
    interval = f"{_percent(one.change.low)} to {_percent(one.change.high)}"
    p_value = "< 0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
    return [one.name, one.figure, _percent(one.change.ratio), interval, p_value, count, one.status]


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
    cases = result.verdicts.cases
    if any(one.status == TOO_FEW for one in cases):
        notes.append(
            f"too few: each side of a case needs {MIN_MINIBATCHES} minibatches, and {FEWEST_RUNS} runs for --fastest"
        )
    if cases and all(one.counts == (1, 1) for one in cases):
        notes.append(
            "one run on each side: how much runs differ is taken from what is known of boards and from how much cases"
            " scatter; measure each side three times for a sure answer"
        )
    if any(one.change and one.change.high > one.change.low * (1 + TELLING) for one in result.verdicts.overall):
        notes.append(
            f"runs differ so much here that a change of {TELLING:.0%} may be missed: measure more runs of each side, in"
            " turns (before, after, before, ...); where others share the machine, compare with --fastest"
        )
    return notes


def _compared(one: Compared) -> Dict[str, Any]:
    ratio, low, high = one.change[:3] if one.change else (None, None, None)
    return {
        "name": one.name,
        "figure": one.figure,
        "status": one.status,
        "ratio": ratio,
        "low": low,
        "high": high,
        "p_value": one.p_value,
        "rank_p_value": one.rank_p,
        "counts": list(one.counts),
    }
