"""Which cases of two sides are compared, and the ratio of each."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from harness.core.errors import UnknownNameError
from harness.judge.quantities import TIME, JudgedQuantity
from harness.judge.sides import SAYS_NOTHING, CaseRuns
from harness.stats.comparison import RunsRatio, compare_runs, learn_noise
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import INSTANCE, NAMED_IN_CONDITIONS, differences, key, without_instance


class Pair(NamedTuple):
    """A case and its counterpart.

    Where only one side has the case, the other is None. Where conditions differ from those of the nearest counterpart,
    or it cannot be known which is meant, the comparison is refused.
    """

    before: Optional[CaseRuns]
    after: Optional[CaseRuns]
    differ: List[str]  # what differs of the conditions in question, `torch: "2.14.0" -> "2.15.0"`; or why it is refused
    is_refused: bool = False

    @property
    def case_id(self) -> str:
        return (self.before or self.after).case_id

    @property
    def key(self) -> str:
        return self.sides[0].key

    @property
    def is_compared(self) -> bool:
        return self.before is not None and self.after is not None and not self.is_refused

    @property
    def sides(self) -> Tuple[CaseRuns, CaseRuns]:
        return self.before, self.after

    @property
    def fewest_minibatches(self) -> int:
        return min(sum(map(len, case.series())) for case in self.sides)


def pair(
    before: Sequence[CaseRuns],
    after: Sequence[CaseRuns],
    by: Sequence[str] = (),
    names: Tuple[str, str] = ("one side", "the other"),
) -> List[Pair]:
    """The cases of two sides: those of the first in its order, then those that only the second has.

    `by` names conditions that may differ; `power_mode` stands for all of `power_mode.gpu_khz` and the like. `names` are
    those of the sides.
    """
    known = {*NAMED_IN_CONDITIONS, "python"}
    for case in [*before, *after] if by else ():
        known |= {*case.conditions, *case.leaves}
    unknown = [name for name in by if name not in known]
    if unknown:
        raise UnknownNameError(f"no condition is called {', '.join(unknown)}; available: {', '.join(sorted(known))}")
    before, after = _of_one_instance(before, after), _of_one_instance(after, before)
    old, new = _by_rest(before, by), _by_rest(after, by)
    alone = [cases[0] for rest, cases in new.items() if rest not in old and len(cases) == 1]
    candidates = [without_question(case, by) for case in alone]
    pairs, met = [], set()
    for rest, (one, *further) in old.items():
        if further:
            pairs.append(_ambiguous(names[0], [one, *further], by))
        elif rest not in new:
            place = nearest(without_question(one, by), candidates)
            if place is None:
                pairs.append(Pair(one, None, []))
            else:
                met.add(place)
                why = differences(rest_of(one, by), rest_of(alone[place], by))
                pairs.append(Pair(one, alone[place], why, is_refused=True))
        elif len(new[rest]) == 1:
            lines = differences(one.conditions, new[rest][0].conditions)
            pairs.append(Pair(one, new[rest][0], [line for line in lines if _is_named(line.partition(":")[0], by)]))
    pairs += [_ambiguous(names[1], cases, by) for cases in new.values() if len(cases) > 1]
    return pairs + [Pair(None, case, []) for place, case in enumerate(alone) if place not in met]


def _of_one_instance(cases: Sequence[CaseRuns], others: Sequence[CaseRuns]) -> List[CaseRuns]:
    """Cases without their board instance, where one side has a single one of the device and the other tells none.

    Files from before 0.2.0 do not tell it. That is no reason to refuse what was compared with them so far.
    """
    told: List[Dict[str, Set[Any]]] = [{}, {}]
    for found, side in zip(told, (cases, others)):
        for case in side:
            found.setdefault(case.device, set()).add(case.conditions.get(INSTANCE))
    kept = []
    for case in cases:
        own, other = (found.get(case.device, set()) for found in told)
        if None in own ^ other and len(own) == len(other) == 1:
            case = dataclasses.replace(case, conditions=without_instance(case.conditions))
        kept.append(case)
    return kept


def nearest(case: CaseRuns, candidates: Sequence[CaseRuns]) -> Optional[int]:
    """The place of the runs of the same workload whose conditions differ least: what was probably meant."""
    subject = (case.conditions["workload"], case.conditions["task"])
    same = [place for place, one in enumerate(candidates) if one.case_id == case.case_id] or [
        place for place, one in enumerate(candidates) if (one.conditions["workload"], one.conditions["task"]) == subject
    ]

    def distance(place: int) -> int:
        other = candidates[place].leaves
        return sum(case.leaves.get(name) != other.get(name) for name in {**case.leaves, **other})

    return min(same, key=distance, default=None)


def _is_named(name: str, by: Iterable[str]) -> bool:
    """Whether a condition, `power_mode.gpu_khz`, is one of those named or lies in one."""
    return any(name == given or name.startswith(f"{given}.") for given in by)


def rest_of(case: CaseRuns, by: Sequence[str]) -> Dict[str, Any]:
    """The conditions that have to agree, flat."""
    return {name: value for name, value in case.leaves.items() if not _is_named(name, by)}


def without_question(case: CaseRuns, by: Sequence[str]) -> CaseRuns:
    """The runs of a case without the conditions in question; workload and task stay, to find it by."""
    subject = {name: case.conditions[name] for name in ("workload", "task")}
    return dataclasses.replace(case, conditions={**rest_of(case, by), **subject})


def _by_rest(cases: Sequence[CaseRuns], by: Sequence[str]) -> Dict[str, List[CaseRuns]]:
    groups: Dict[str, List[CaseRuns]] = {}
    for case in cases:
        groups.setdefault(key(rest_of(case, by)), []).append(case)
    return groups


def _ambiguous(side: str, cases: Sequence[CaseRuns], by: Sequence[str]) -> Pair:
    """Cases of one side that differ in nothing but the question: which of them is meant cannot be known."""
    differ = "; ".join(differences(cases[0].conditions, cases[-1].conditions))
    why = f"{side} holds {len(cases)} that differ in {', '.join(by)} alone ({differ})"
    return Pair(cases[0], None, [f"{why}; keep them in results files of their own"], is_refused=True)


def environment_changes(pairs: Iterable[Pair]) -> List[str]:
    lines: Dict[str, None] = {}
    for one in pairs:
        old, new = (case.environment for case in one.sides)
        shared = [name for name in old if name in new and name not in SAYS_NOTHING]
        lines.update(dict.fromkeys(differences(*({name: told[name] for name in shared} for told in (old, new)))))
    return list(lines)


def ratios(
    pairs: Sequence[Pair],
    quantity: JudgedQuantity = TIME,
    same_question: bool = False,
    noise: Optional[RunNoise] = None,
) -> Dict[str, RunsRatio]:
    """After / before of each pair, by its key; each side has a run with the quantity.

    The noise between runs of a device is learned from all of its pairs, or it is `noise`. `same_question`: nothing but
    the run may differ between the sides (`learn_noise`).
    """
    devices: Dict[str, Dict[str, List[List[Tuple[float, ...]]]]] = {}
    for one in pairs:
        series = [case.series(quantity) for case in one.sides]
        devices.setdefault(one.sides[0].device, {})[one.key] = series
    found = {}
    for device, pairs_of in devices.items():
        known = prior(device, quantity.noise)
        learned = noise or learn_noise(list(pairs_of.values()), same_question, known)
        found.update({name: compare_runs(*series, learned, known) for name, series in pairs_of.items()})
    return found
