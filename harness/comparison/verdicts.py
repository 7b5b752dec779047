"""What changed between two sides: for each case, each workload and overall, in time and in power.

How often it errs, found by simulating 300 comparisons (100 of 16 cases) of runs of 40 minibatches with 5 % noise within
a run and 0.3 %, 1 % or 3 % between runs, at the threshold of 2 % and without `--by`; one finding among all is enough:

    cases  runs on each side  equal code, something found  slowdown of 5 % found
    1      1                  0.3 %, 1.7 %, 28 %           66 %, 60 %, 51 %
    4      1                  0 %, 0.3 %, 10 %             88 %, 76 %, 50 %
    16     1                  0 %, 1 %, 2 %                99 %, 95 %, 56 %
    1      3                  0.3 %, 2.3 %, 9 %            100 %, 97 %, 47 %
    4      3                  0 %, 0 %, 5 %                100 %, 100 %, 88 %
    16     3                  0 %, 0 %, 2 %                100 %, 100 %, 100 %

So with one run on each side it takes several cases, or minibatches that are less noisy, to be sure of 5 %.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.cases import TRAINING
from harness.comparison.noise import Change, combined_ranks, compare_runs, learn_noise, mean_change, rank_test
from harness.comparison.pairing import Pair, Pairing
from harness.errors import InvalidValueError
from harness.results.gate import MIN_MINIBATCHES, OK_CODE, REFUSED_CODE, SLOWER_CODE, is_wider
from harness.statistics import CONFIDENCE, Runs, holm

DEFAULT_THRESHOLD = 0.02
"""A change of the median below this is none."""

TELLING = 0.05
"""An interval that reaches beyond this both ways tells nothing: a change of 5 % must not be missed unsaid."""

TIME, POWER = "minibatch time", "power"
SLOWER, FASTER, MORE, LESS = "slower", "faster", "more power", "less power"
SAME, INCONCLUSIVE, TOO_FEW = "no difference", "inconclusive", "too few"
OVERALL = "overall"
WORSE = (SLOWER, MORE)
_NAMES = {TIME: (SLOWER, FASTER), POWER: (MORE, LESS)}

TEST = (
    "A change counts where the ratio of medians is beyond the threshold and noise alone is unlikely to give it"
    f" (p < {1 - CONFIDENCE:.2g}, two-sided, after Holm's correction over the cases of a figure). Of a case, p is the"
    " greater one of two tests: Student's t with the noise within runs, from a bootstrap of blocks of minibatches, and"
    " between them; and a rank-sum test of blocks of minibatches, where there are enough of them; of several cases the"
    " rank tests are summed. inconclusive: no change found, but the interval reaches beyond"
    f" {TELLING:.0%} (or the threshold) both ways, or the ratio is, or the interval alone would tell a change."
)


class Finding(NamedTuple):
    """What came out for one figure of one case, of a workload or overall.

    Attributes:
        name: the case's id, the workload's name, or `overall`.
        figure: `TIME` or `POWER`.
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


def judge(pairs: Sequence[Pair], same_question: bool, threshold: float = DEFAULT_THRESHOLD) -> Verdicts:
    """Find what changed.

    Args:
        pairs: the cases that can be compared.
        same_question: nothing but the run may differ between the sides; see `learn_noise`.
        threshold: as a share: 0.02 is 2 %.

    Raises:
        InvalidValueError: the threshold is below 0.
    """
    if not threshold >= 0:
        raise InvalidValueError(f"the threshold must be 0 or more, got {threshold}")
    time, power = (_judge_figure(pairs, figure, same_question, threshold) for figure in (TIME, POWER))
    return Verdicts(time.cases + power.cases, time.workloads + power.workloads, time.overall + power.overall)


def exit_code(verdicts: Verdicts, pairing: Pairing) -> int:
    """1 where something is slower or takes more power; else 2 where a case was refused or none compared; else 0."""
    found = {finding.status for findings in verdicts for finding in findings}
    if found & set(WORSE):
        return SLOWER_CODE
    if pairing.refused or TOO_FEW in found or not found:
        return REFUSED_CODE
    return OK_CODE


def _judge_figure(pairs: Sequence[Pair], figure: str, same_question: bool, threshold: float) -> Verdicts:
    values = {place: _values(one, figure) for place, one in enumerate(pairs)}
    there = {place: runs for place, runs in values.items() if runs[0] and runs[1]}
    enough = {
        place: runs for place, runs in there.items() if figure == POWER or min(map(_count, runs)) >= MIN_MINIBATCHES
    }
    noise = learn_noise(list(enough.values()), same_question)
    changes = {place: compare_runs(*runs, noise) for place, runs in enough.items()}
    ranks = {place: rank_test(*runs) for place, runs in enough.items()}
    strict = [max(changes[place].p_value, ranks[place] or 0.0) for place in enough]
    corrected = dict(zip(enough, holm(strict)))
    cases = []
    for place, runs in there.items():
        change, p_value = changes.get(place), corrected.get(place)
        status = TOO_FEW if change is None or p_value is None else _status(figure, change, p_value, threshold)
        counts = (len(runs[0]), len(runs[1]))
        name = pairs[place].before.runs.case_id
        cases.append(Finding(name, figure, status, change, p_value, ranks.get(place), counts))
    groups: Dict[str, List[int]] = {}
    for place in changes:
        groups.setdefault(_workload(pairs[place]), []).append(place)

    def means(places_by_name: Mapping[str, Sequence[int]]) -> List[Finding]:
        members = {
            name: [(changes[place], ranks[place]) for place in places] for name, places in places_by_name.items()
        }
        return _means(members, figure, threshold)

    return Verdicts(cases, means(groups), means({OVERALL: list(changes)} if changes else {}))


def _means(
    members: Mapping[str, Sequence[Tuple[Change, Optional[float]]]], figure: str, threshold: float
) -> List[Finding]:
    """A finding for each group of cases, from their changes and the p-values of their rank tests."""
    means = {name: mean_change([change for change, _ in cases]) for name, cases in members.items()}
    ranks = {name: combined_ranks(*zip(*cases)) for name, cases in members.items()}
    corrected = dict(zip(means, holm([max(means[name].p_value, ranks[name] or 0.0) for name in means])))
    return [
        Finding(
            name,
            figure,
            _status(figure, change, corrected[name], threshold),
            change,
            corrected[name],
            ranks[name],
            (len(members[name]), len(members[name])),
        )
        for name, change in means.items()
    ]


def _values(one: Pair, figure: str) -> Tuple[Runs, Runs]:
    """The values of each run on both sides: the minibatch times in ms, or the one power in mW."""
    if figure == TIME:
        return one.before.series, one.after.series
    return [[power] for power in one.before.powers_mw], [[power] for power in one.after.powers_mw]


def _count(runs: Runs) -> int:
    return sum(map(len, runs))


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
