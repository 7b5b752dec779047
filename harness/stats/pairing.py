"""Which cases of two sides are compared: those whose conditions agree but for the ones that are the question."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set

from harness.core.errors import UnknownNameError
from harness.judge.baseline import SAYS_NOTHING, CaseRuns
from harness.judge.gate import nearest
from harness.judge.sides import Measured, Side
from harness.store.conditions import NAMED_IN_CONDITIONS, differences, key


class Pair(NamedTuple):
    """A case on both sides, with what differs of the conditions in question: `torch: "2.14.0" -> "2.15.0"`."""

    before: Measured
    after: Measured
    changed: List[str]


class Refused(NamedTuple):
    """A case that was not compared with what it stands nearest to, and why."""

    case_id: str
    why: List[str]


class Pairing(NamedTuple):
    """What can be compared and what cannot.

    Attributes:
        pairs: in the order of the first side.
        refused: cases whose conditions differ from those of their nearest counterpart.
        only_before: ids of cases that have no counterpart on the second side.
        only_after: ids of cases that have none on the first.
        environment: what differs in machine and software between sides that are compared, each line once.
    """

    pairs: List[Pair]
    refused: List[Refused]
    only_before: List[str]
    only_after: List[str]
    environment: List[str]


def pair(before: Side, after: Side, by: Sequence[str] = ()) -> Pairing:
    """Pair the cases of two sides.

    Args:
        before: one side.
        after: the other.
        by: conditions that may differ, by name; `power_mode` stands for all of `power_mode.gpu_khz` and the like.

    Raises:
        UnknownNameError: neither side knows a condition of that name.
    """
    _refuse_unknown(by, [*before.cases, *after.cases])
    old, new = _by_rest(before.cases, by), _by_rest(after.cases, by)
    refused = _ambiguous(before, old, by) + _ambiguous(after, new, by)
    common = [rest for rest in old if rest in new and len(old[rest]) == len(new[rest]) == 1]
    pairs = [_pair(old[rest][0], new[rest][0], by) for rest in common]
    lone_old = [cases[0] for rest, cases in old.items() if rest not in new and len(cases) == 1]
    lone_new = [cases[0] for rest, cases in new.items() if rest not in old and len(cases) == 1]
    candidates = [_to_be_found(case, by) for case in lone_new]
    only_before, met = [], set()
    for case in lone_old:
        found = nearest(_to_be_found(case, by), candidates)
        if found is None:
            only_before.append(case.runs.case_id)
        else:
            met.add(candidates.index(found))
            other = lone_new[candidates.index(found)]
            refused.append(Refused(case.runs.case_id, differences(_rest(case, by), _rest(other, by))))
    only_after = [case.runs.case_id for place, case in enumerate(lone_new) if place not in met]
    environment = {line: None for one in pairs for line in _environment_changes(one)}
    return Pairing(pairs, refused, only_before, only_after, list(environment))


def is_named(name: str, by: Iterable[str]) -> bool:
    """Whether a condition, `power_mode.gpu_khz`, is one of those named or lies in one."""
    return any(name == given or name.startswith(f"{given}.") for given in by)


def _rest(case: Measured, by: Sequence[str]) -> Dict[str, Any]:
    """The conditions that have to agree."""
    return _leave_out(case.runs.conditions, by)


def _leave_out(conditions: Mapping[str, Any], by: Sequence[str], prefix: str = "") -> Dict[str, Any]:
    return {
        name: _leave_out(value, by, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in conditions.items()
        if not is_named(f"{prefix}{name}", by)
    }


def _to_be_found(case: Measured, by: Sequence[str]) -> CaseRuns:
    """The runs of a case without the conditions in question; workload and task stay, to find it by."""
    subject = {name: case.runs.conditions[name] for name in ("workload", "task")}
    return dataclasses.replace(case.runs, conditions={**_rest(case, by), **subject})


def _by_rest(cases: Sequence[Measured], by: Sequence[str]) -> Dict[str, List[Measured]]:
    groups: Dict[str, List[Measured]] = {}
    for case in cases:
        groups.setdefault(key(_rest(case, by)), []).append(case)
    return groups


def _ambiguous(side: Side, groups: Mapping[str, Sequence[Measured]], by: Sequence[str]) -> List[Refused]:
    """Cases of one side that differ in nothing but the question: which of them is meant cannot be known."""
    return [
        Refused(
            cases[0].runs.case_id,
            [
                f"{side.path.name} holds {len(cases)} that differ in {', '.join(by)} alone"
                f" ({'; '.join(differences(cases[0].runs.conditions, cases[-1].runs.conditions))});"
                " keep them in results files of their own"
            ],
        )
        for cases in groups.values()
        if len(cases) > 1
    ]


def _pair(before: Measured, after: Measured, by: Sequence[str]) -> Pair:
    lines = differences(before.runs.conditions, after.runs.conditions)
    return Pair(before, after, [line for line in lines if is_named(line.partition(":")[0], by)])


def _environment_changes(one: Pair) -> List[str]:
    """What both sides tell of machine and software and tell differently."""
    old, new = one.before.runs.environment, one.after.runs.environment
    shared = [name for name in old if name in new and name not in SAYS_NOTHING]
    return differences({name: old[name] for name in shared}, {name: new[name] for name in shared})


def _refuse_unknown(by: Sequence[str], cases: Sequence[Measured]) -> None:
    known = {*NAMED_IN_CONDITIONS, "python"}
    for case in cases:
        known |= set(case.runs.conditions) | _leaf_names(case.runs.conditions)
    unknown = [name for name in by if name not in known]
    if unknown:
        raise UnknownNameError(f"no condition is called {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def _leaf_names(conditions: Mapping[str, Any]) -> Set[str]:
    return {line.partition(":")[0] for line in differences({}, conditions)}
