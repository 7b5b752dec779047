"""Matching the cases of two sides, and the ratio of each pair."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from harness.core.errors import UnknownNameError
from harness.core.terminal import available_hint
from harness.judge.quantities import TIME, GatedQuantity
from harness.judge.sides import SAYS_NOTHING, CaseRuns
from harness.stats.comparison import Runs, RunsRatio, compare_runs, learn_noise
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import INSTANCE, NAMED_IN_CONDITIONS, differences, key, without_instance


class Pair(NamedTuple):
    """A case and its counterpart.

    If only one side has the case, the other is None. If conditions differ from those of the nearest counterpart, or the
    counterpart is ambiguous, the comparison is refused.
    """

    before: Optional[CaseRuns]
    after: Optional[CaseRuns]
    differ: List[str]  # differences of the named conditions, `torch: "2.14.0" -> "2.15.0"`; or the reason of a refusal
    is_refused: bool = False

    @property
    def present(self) -> List[CaseRuns]:
        """One or both sides."""
        return [side for side in (self.before, self.after) if side is not None]

    @property
    def case_id(self) -> str:
        return self.present[0].case_id

    @property
    def key(self) -> str:
        return self.present[0].key

    @property
    def is_compared(self) -> bool:
        return self.before is not None and self.after is not None and not self.is_refused

    @property
    def sides(self) -> Tuple[CaseRuns, CaseRuns]:
        """Both sides, of a pair that has them."""
        assert self.before is not None, "only the second side has this case"
        assert self.after is not None, "only the first side has this case"
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

    `by` names conditions that may differ; `power_mode` includes `power_mode.gpu_khz` and so on. `names` are those of
    the sides.
    """
    available = {*NAMED_IN_CONDITIONS, "python"}
    for case in [*before, *after] if by else ():
        available |= {*case.conditions, *case.leaves}
    unknown = [name for name in by if name not in available]
    if unknown:
        raise UnknownNameError(f"no condition is called {unknown[0]}", available_hint(unknown[0], sorted(available)))
    before, after = _of_one_instance(before, after), _of_one_instance(after, before)
    old, new = _by_rest(before, by), _by_rest(after, by)
    alone = [cases[0] for rest, cases in new.items() if rest not in old and len(cases) == 1]
    candidates = [without_question(case, by) for case in alone]
    pairs, met = [], set()
    for rest, (case, *further) in old.items():
        if further:
            pairs.append(_ambiguous(names[0], [case, *further], by))
        elif rest not in new:
            place = nearest(without_question(case, by), candidates)
            if place is None:
                pairs.append(Pair(case, None, []))
            else:
                met.add(place)
                why = differences(rest_of(case, by), rest_of(alone[place], by))
                pairs.append(Pair(case, alone[place], why, is_refused=True))
        elif len(new[rest]) == 1:
            lines = differences(case.conditions, new[rest][0].conditions)
            pairs.append(Pair(case, new[rest][0], [line for line in lines if _is_named(line.partition(":")[0], by)]))
    pairs += [_ambiguous(names[1], cases, by) for cases in new.values() if len(cases) > 1]
    return pairs + [Pair(None, case, []) for place, case in enumerate(alone) if place not in met]


def _of_one_instance(cases: Sequence[CaseRuns], others: Sequence[CaseRuns]) -> List[CaseRuns]:
    """Cases without their board instance, if one side has a single one of the device and the other has none.

    A machine has one by its serial number, its id or `jetwatt.toml`; profiles from before must still be comparable.
    """
    instances: List[Dict[str, Set[Any]]] = [{}, {}]
    for by_device, side in zip(instances, (cases, others)):
        for case in side:
            by_device.setdefault(case.device, set()).add(case.conditions.get(INSTANCE))
    kept = []
    for case in cases:
        own, other = (by_device.get(case.device, set()) for by_device in instances)
        if None in own ^ other and len(own) == len(other) == 1:
            case = dataclasses.replace(case, conditions=without_instance(case.conditions))
        kept.append(case)
    return kept


def nearest(case: CaseRuns, candidates: Sequence[CaseRuns]) -> Optional[int]:
    """The index of the runs of the same workload whose conditions differ least: the likely counterpart."""
    subject = (case.conditions["workload"], case.conditions["task"])
    same = [place for place, candidate in enumerate(candidates) if candidate.case_id == case.case_id] or [
        place
        for place, candidate in enumerate(candidates)
        if (candidate.conditions["workload"], candidate.conditions["task"]) == subject
    ]

    def distance(place: int) -> int:
        other = candidates[place].leaves
        return sum(case.leaves.get(name) != other.get(name) for name in {**case.leaves, **other})

    return min(same, key=distance, default=None)


def _is_named(name: str, by: Iterable[str]) -> bool:
    """Whether a condition, `power_mode.gpu_khz`, is a named one or part of one."""
    return any(name == given or name.startswith(f"{given}.") for given in by)


def rest_of(case: CaseRuns, by: Sequence[str]) -> Dict[str, Any]:
    """The conditions that must agree, flat."""
    return {name: value for name, value in case.leaves.items() if not _is_named(name, by)}


def without_question(case: CaseRuns, by: Sequence[str]) -> CaseRuns:
    """The runs of a case without the named conditions; workload and task are kept, to find it by."""
    subject = {name: case.conditions[name] for name in ("workload", "task")}
    return dataclasses.replace(case, conditions={**rest_of(case, by), **subject})


def _by_rest(cases: Sequence[CaseRuns], by: Sequence[str]) -> Dict[str, List[CaseRuns]]:
    groups: Dict[str, List[CaseRuns]] = {}
    for case in cases:
        groups.setdefault(key(rest_of(case, by)), []).append(case)
    return groups


def _ambiguous(side: str, cases: Sequence[CaseRuns], by: Sequence[str]) -> Pair:
    """Cases of one side that differ only in the named conditions, so that the counterpart is ambiguous."""
    differ = "; ".join(differences(cases[0].conditions, cases[-1].conditions))
    why = f"{side} has {len(cases)} cases that differ only in {', '.join(by)} ({differ})"
    return Pair(cases[0], None, [f"{why}; keep them in separate results files"], is_refused=True)


def environment_changes(pairs: Iterable[Pair]) -> List[str]:
    lines: Dict[str, None] = {}
    for case_pair in pairs:
        old, new = (case.environment for case in case_pair.sides)
        shared = [name for name in old if name in new and name not in SAYS_NOTHING]
        lines.update(
            dict.fromkeys(differences(*({name: environment[name] for name in shared} for environment in (old, new))))
        )
    return list(lines)


def ratios(
    pairs: Sequence[Pair],
    quantity: GatedQuantity = TIME,
    same_question: bool = False,
    noise: Optional[RunNoise] = None,
) -> Dict[str, RunsRatio]:
    """After / before of each pair, by its key; each side has a run with the quantity.

    The noise between runs of a device is learned from all of its pairs, or it is `noise`. `same_question`: nothing but
    the run may differ between the sides (`learn_noise`).
    """
    devices: Dict[str, Dict[str, Tuple[Runs, Runs]]] = {}
    for case_pair in pairs:
        before, after = case_pair.sides
        devices.setdefault(before.device, {})[case_pair.key] = (before.series(quantity), after.series(quantity))
    ratio_by_key = {}
    for device, pairs_of in devices.items():
        prior_noise = prior(device, quantity.noise)
        learned = noise or learn_noise(list(pairs_of.values()), same_question, prior_noise)
        ratio_by_key.update({name: compare_runs(*series, learned, prior_noise) for name, series in pairs_of.items()})
    return ratio_by_key
