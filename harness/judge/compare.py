"""What changed between two sides: for each case, each workload and overall, in time and in power.

How often it errs, found by simulating 300 comparisons (100 of 16 cases) of runs of 40 minibatches with 5 % noise within
a run and 0.3 %, 1 % or 3 % between runs, at the threshold of 2 % and without `--by`; one finding among all is enough:

    cases  runs on each side  equal code, something found  slowdown of 5 % found
    1      1                  0 %, 1.7 %, 29 %                63 %, 61 %, 54 %
    4      1                  0 %, 0.3 %, 8 %                 89 %, 75 %, 52 %
    16     1                  0 %, 0 %, 1 %                   99 %, 95 %, 58 %
    1      3                  0 %, 6 %, 9 %                   100 %, 96 %, 48 %
    4      3                  0 %, 1 %, 5 %                   100 %, 100 %, 88 %
    16     3                  0 %, 0 %, 2 %                   100 %, 100 %, 100 %

So with one run on each side it takes several cases, or minibatches that are less noisy, to be sure of 5 %.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.errors import InvalidValueError
from harness.core.units import share_to_percent
from harness.judge.gate import MIN_MINIBATCHES, OK_CODE, REFUSED_CODE, SLOWER_CODE, is_wider
from harness.judge.sides import RunName
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
from harness.stats.estimates import CONFIDENCE
from harness.stats.noise import POWER as POWER_NOISE
from harness.stats.noise import TIME as TIME_NOISE
from harness.stats.noise import prior
from harness.stats.pairing import Pair, Pairing

DEFAULT_THRESHOLD = 0.02
"""A change of the median below this is none."""

TELLING = 0.05
"""An interval that reaches beyond this both ways tells nothing: a change of 5 % must not be missed unsaid."""

TIME, FAST_TIME, POWER = "minibatch time", "fast minibatch time", "power"
SLOWER, FASTER, MORE, LESS = "slower", "faster", "more power", "less power"
SAME, INCONCLUSIVE, TOO_FEW = "no difference", "inconclusive", "too few"
OVERALL = "overall"
WORSE = (SLOWER, MORE)
_NAMES = {TIME: (SLOWER, FASTER), FAST_TIME: (SLOWER, FASTER), POWER: (MORE, LESS)}

Values = Mapping[RunName, Sequence[float]]
"""The values of each run of one side: minibatch times in ms, or the one power in mW."""

TEST = (
    "A change counts where the ratio of medians is beyond the threshold and noise alone is unlikely to give it"
    f" (p < {1 - CONFIDENCE:.2g}, two-sided, after Holm's correction over the cases of a figure). Of a case, p is the"
    " greater one of two tests: Student's t with the noise within runs, from a bootstrap of blocks of minibatches, and"
    " between them; and a rank-sum test of blocks of minibatches, where there are enough of them; of several cases the"
    " rank tests are summed, and noise that all cases of a run share counts. With --fastest p comes from dealing whole"
    " runs to both sides anew. inconclusive: no change found, but the interval reaches beyond"
    f" {TELLING:.0%} (or the threshold) both ways, or the ratio is, or the interval alone would tell a change."
)


class Finding(NamedTuple):
    """What came out for one figure of one case, of a workload or overall.

    Attributes:
        name: the case's id, the workload's name, or `overall`.
        figure: `TIME`, `FAST_TIME` or `POWER`.
        status: `slower`, `faster`, `more power`, `less power`, `no difference`, `inconclusive` or `too few`.
        change: the ratio; None where there was too little to compare.
        p_value: after Holm's correction; None likewise.
        rank_p: that of the rank-sum tests alone, uncorrected; None where none was made.
        counts: runs of a case on both sides; cases of a workload and overall.
    """

    name: str
    figure: str
    status: str
    change: Optional[Change]
    p_value: Optional[float]
    rank_p: Optional[float]
    counts: Tuple[int, int]


class Verdicts(NamedTuple):
    """All findings: of cases in the order of the pairs, of workloads, overall."""

    cases: List[Finding]
    workloads: List[Finding]
    overall: List[Finding]


def judge(
    pairs: Sequence[Pair], same_question: bool, threshold: float = DEFAULT_THRESHOLD, fastest: bool = False
) -> Verdicts:
    """Find what changed.

    Args:
        pairs: the cases that can be compared.
        same_question: nothing but the run may differ between the sides; see `learn_noise`.
        threshold: as a share: 0.02 is 2 %.
        fastest: compare the fast minibatches of the fast runs instead of medians; takes `FEWEST_RUNS`.

    Raises:
        InvalidValueError: the threshold is below 0.
    """
    if not threshold >= 0:
        raise InvalidValueError(f"--threshold must be 0 or more, got {share_to_percent(threshold):g}")
    figures = (FAST_TIME if fastest else TIME, POWER)
    time, power = (_judge_figure(pairs, figure, same_question, threshold) for figure in figures)
    return Verdicts(time.cases + power.cases, time.workloads + power.workloads, time.overall + power.overall)


def exit_code(verdicts: Verdicts, pairing: Pairing) -> int:
    """1 where something is slower or takes more power; else 2 where a case was refused or none compared; else 0."""
    found = {finding.status for findings in verdicts for finding in findings}
    if found & set(WORSE):
        return SLOWER_CODE
    if pairing.refused or TOO_FEW in found or not found:
        return REFUSED_CODE
    return OK_CODE


class _Outcome(NamedTuple):
    """A change before correction: the p-value of the stricter test; that of the rank-sum tests where there were any."""

    change: Change
    p_value: float
    rank_p: Optional[float]


class _Case(NamedTuple):
    """The values of a case on both sides, and what the model of noise says of it where there is one."""

    before: Values
    after: Values
    modelled: Optional[RunsRatio]
    rank_p: Optional[float]


def _judge_figure(pairs: Sequence[Pair], figure: str, same_question: bool, threshold: float) -> Verdicts:
    values = {place: _values(one, figure) for place, one in enumerate(pairs)}
    there = {place: sides for place, sides in values.items() if sides[0] and sides[1]}
    enough = {place: sides for place, sides in there.items() if _suffices(sides, figure)}
    cases = {place: _Case(*sides, None, None) for place, sides in enough.items()}
    if figure != FAST_TIME:
        cases = _with_noise(pairs, enough, figure, same_question)

    def findings(groups: Mapping[str, Sequence[int]], counts: Mapping[str, Tuple[int, int]]) -> List[Finding]:
        """A finding for each group of cases; their p-values are corrected for how many groups there are."""
        outcome_of = _randomised if figure == FAST_TIME else _modelled
        outcomes = {name: outcome_of([cases[place] for place in places]) for name, places in groups.items()}
        found = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        corrected = dict(zip(found, holm([outcome.p_value for outcome in found.values()])))
        return [
            Finding(
                name,
                figure,
                _status(figure, found[name].change, corrected[name], threshold),
                found[name].change,
                corrected[name],
                found[name].rank_p,
                counts[name],
            )
            if name in found
            else Finding(name, figure, TOO_FEW, None, None, None, counts[name])
            for name in groups
        ]

    names = {place: pairs[place].before.runs.case_id for place in there}
    counts = {names[place]: (len(sides[0]), len(sides[1])) for place, sides in there.items()}
    of_cases = {one.name: one for one in findings({names[place]: [place] for place in cases}, counts)}
    workloads: Dict[str, List[int]] = {}
    for place in cases:
        workloads.setdefault(_workload(pairs[place]), []).append(place)
    sizes = {name: (len(places), len(places)) for name, places in workloads.items()}
    return Verdicts(
        [
            of_cases.get(name) or Finding(name, figure, TOO_FEW, None, None, None, counts[name])
            for name in names.values()
        ],
        findings(workloads, sizes),
        findings({OVERALL: list(cases)}, {OVERALL: (len(cases), len(cases))}) if cases else [],
    )


def _with_noise(
    pairs: Sequence[Pair], enough: Mapping[int, Tuple[Values, Values]], figure: str, same_question: bool
) -> Dict[int, _Case]:
    """Cases with their ratios by the noise between runs, which is learned for each type of device."""
    series = {place: tuple(list(side.values()) for side in sides) for place, sides in enough.items()}
    boards: Dict[str, List[int]] = {}
    for place in enough:
        boards.setdefault(str(pairs[place].before.runs.conditions.get("device", "")), []).append(place)
    cases = {}
    for board, places in boards.items():
        known = prior(board, POWER_NOISE if figure == POWER else TIME_NOISE)
        noise = learn_noise([series[place] for place in places], same_question, known)
        for place in places:
            cases[place] = _Case(*enough[place], compare_runs(*series[place], noise, known), rank_test(*series[place]))
    return {place: cases[place] for place in enough}


def _modelled(cases: Sequence[_Case]) -> _Outcome:
    """The change of medians of one case, or of several together, by what is known and learned of noise."""
    before, after = _of_runs(cases, 0.5)
    change = mean_ratio([case.modelled for case in cases], before, after).change()
    rank_p = combined_ranks([case.modelled.within.value for case in cases], [case.rank_p for case in cases])
    return _Outcome(change, max(change.p_value, rank_p or 0.0), rank_p)


def _randomised(cases: Sequence[_Case]) -> Optional[_Outcome]:
    """The change of fast minibatches; None where too few runs have all of the cases."""
    before, after = _of_runs(cases, FAST_MINIBATCHES)
    if min(len(before), len(after)) < FEWEST_RUNS:
        return None
    change = randomised_change(before, after)
    return _Outcome(change, change.p_value, None)


def _of_runs(cases: Sequence[_Case], share: float) -> Tuple[np.ndarray, np.ndarray]:
    """The logarithm of a quantile of each run that has all cases, on both sides, of shape (runs, cases)."""
    sides = ([case.before for case in cases], [case.after for case in cases])
    before, after = (_of_side(values, share) for values in sides)
    return before, after


def _of_side(cases: Sequence[Values], share: float) -> np.ndarray:
    complete = [run for run in cases[0] if all(run in case for case in cases)]
    figures = [[np.quantile(case[run], share) for case in cases] for run in complete]
    return np.log(np.array(figures).reshape(len(complete), len(cases)))


def _values(one: Pair, figure: str) -> Tuple[Values, Values]:
    """The values of each run on both sides."""
    if figure == POWER:
        return one.before.power_mw, one.after.power_mw
    return one.before.times_ms, one.after.times_ms


def _suffices(sides: Tuple[Values, Values], figure: str) -> bool:
    """Whether there is enough of a case to say something."""
    if figure == FAST_TIME and min(map(len, sides)) < FEWEST_RUNS:
        return False
    return figure == POWER or min(sum(map(len, side.values())) for side in sides) >= MIN_MINIBATCHES


def _status(figure: str, change: Change, p_value: float, threshold: float) -> str:
    worse, better = _NAMES[figure]
    if p_value < 1 - CONFIDENCE and change.ratio > 1 + threshold:
        return worse
    if p_value < 1 - CONFIDENCE and change.ratio < 1 / (1 + threshold):
        return better
    telling = max(threshold, TELLING)
    is_large = not 1 / (1 + telling) <= change.ratio <= 1 + telling
    is_likely = not 1 / (1 + threshold) <= change.ratio <= 1 + threshold and not change.low <= 1 <= change.high
    return INCONCLUSIVE if is_large or is_likely or is_wider(change.low, change.high, telling) else SAME


def _workload(one: Pair) -> str:
    conditions = one.before.runs.conditions
    workload, task = str(conditions["workload"]), str(conditions["task"])
    return workload if task == TRAINING else f"{workload} ({task})"
