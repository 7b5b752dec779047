"""The two sides of a comparison: their cases, and which of them are compared: those whose conditions agree.

A side is a results file, or a JSON file of pytest-benchmark.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from harness.core.errors import StoreError, UnknownNameError
from harness.core.units import s_to_ms
from harness.judge.baseline import SAYS_NOTHING, CaseRuns, Run, cases_of, nearest, sure_power
from harness.store.conditions import NAMED_IN_CONDITIONS, differences, is_disqualified, key
from harness.store.frames import profiles
from harness.store.results import ResultsStore

CONDITIONS_TEXT = "conditions"
"""In `extra_info` of pytest-benchmark's JSON: the comparable conditions of a case of this suite, as JSON text."""

_COMMIT_LENGTH = 12  # as in `suite_commit`
_WRITE_ONE = "write one: pytest benchmarks --benchmark-json FILE.json"


class Side(NamedTuple):
    """What a file holds: its cases, and how many profiles were left out because of their flags."""

    path: Path
    cases: List[CaseRuns]
    flagged: int


def read_side(path: Path, include_flagged: bool = False) -> Side:
    """Read a results file or, where the name ends in `.json`, what pytest-benchmark wrote."""
    if path.suffix == ".json":
        side = _read_json(path, include_flagged)
    else:
        with ResultsStore(path, read_only=True) as store:  # a replayed profile repeats one figure of its corpus
            frame = profiles(store, include_flagged=True, replayed=False)
            flagged = 0 if include_flagged else int((~frame["usable"]).sum())
            side = Side(path, cases_of(store, frame, include_flagged), flagged)
    if not side.cases:
        why = f": {side.flagged} profiles were left out because of their flags" if side.flagged else ""
        raise StoreError(f"{path} holds nothing to compare{why}", "measure some, or see --include-flagged")
    return side


def _read_json(path: Path, include_flagged: bool) -> Side:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not JSON ({error})", _WRITE_ONE) from error
    if not isinstance(document, dict) or not {"benchmarks", "machine_info"} <= set(document):
        raise StoreError(f"{path} is no file of pytest-benchmark: it has no benchmarks and machine_info", _WRITE_ONE)
    cases: Dict[str, CaseRuns] = {}
    flagged = 0
    try:
        environment = _environment(document)
        for benchmark in document["benchmarks"]:
            if is_disqualified(benchmark["extra_info"].get("flags", ())) and not include_flagged:
                flagged += 1
            else:
                case = _from_benchmark(path, benchmark, environment, str(document.get("datetime")))
                cases[case.key] = case
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged, or not of pytest-benchmark: {type(error).__name__} {error}") from error
    return Side(path, list(cases.values()), flagged)


def _from_benchmark(path: Path, benchmark: Mapping[str, Any], environment: Dict[str, Any], taken_at: str) -> CaseRuns:
    info, times_s = benchmark["extra_info"], benchmark["stats"].get("data")
    if not times_s:
        raise StoreError(
            f"{path} has no single times of {benchmark['name']}", f"{_WRITE_ONE}, or --benchmark-save-data"
        )
    flags = tuple(info.get("flags", ()))
    is_idle = info.get("task") == "idle"  # what pytest-benchmark is given there is how long it was watched
    times_ms = () if is_idle else tuple(s_to_ms(float(time_s)) for time_s in times_s)
    if CONDITIONS_TEXT in info:
        conditions = dict(json.loads(info[CONDITIONS_TEXT]))
    else:  # another benchmark: what its file tells
        conditions = {
            "workload": benchmark["fullname"].partition("[")[0],
            "task": info.get("task", "benchmark"),
            "benchmark": benchmark["fullname"],
            **(benchmark.get("params") or {}),
            **{name: info[name] for name in NAMED_IN_CONDITIONS if info.get(name) is not None},
            "device_model": environment.get("cpu_model"),
            "python": ".".join(str(environment.get("python", "")).split(".")[:2]) or None,
        }
    return CaseRuns(
        case_id=info.get("case", benchmark["fullname"]),
        conditions=conditions,
        environment=environment,
        runs=(Run(taken_at, taken_at, flags, times_ms, sure_power(flags, info.get("power_mw"))),),
    )


def _environment(document: Mapping[str, Any]) -> Dict[str, Any]:
    """Of machine and software what pytest-benchmark notes, by the names that results files use."""
    machine, commit = document["machine_info"], document.get("commit_info") or {}
    known = {
        "suite_commit": commit.get("id") and commit["id"][:_COMMIT_LENGTH] + ("+" if commit.get("dirty") else ""),
        "host_name": machine.get("node"),
        "kernel": machine.get("release"),
        "architecture": machine.get("machine"),
        "cpu_model": (machine.get("cpu") or {}).get("brand_raw"),
        "python": machine.get("python_version"),
    }
    return {name: value for name, value in known.items() if value is not None}


class Pair(NamedTuple):
    """A case on both sides, with what differs of the conditions in question: `torch: "2.14.0" -> "2.15.0"`."""

    before: CaseRuns
    after: CaseRuns
    changed: List[str]


class Pairing(NamedTuple):
    """What can be compared and what cannot."""

    pairs: List[Pair]  # in the order of the first side
    # ids of cases whose conditions differ from those of their nearest counterpart, and in what
    refused: List[Tuple[str, List[str]]]
    only_before: List[str]  # ids of cases that have no counterpart on the second side
    only_after: List[str]  # ids of cases that have none on the first
    environment: List[str]  # what differs in machine and software between sides that are compared, each line once


def pair(before: Side, after: Side, by: Sequence[str] = ()) -> Pairing:
    """Pair the cases of two sides.

    `by` names conditions that may differ; `power_mode` stands for all of `power_mode.gpu_khz` and the like.
    """
    _refuse_unknown(by, [*before.cases, *after.cases])
    old, new = _by_rest(before.cases, by), _by_rest(after.cases, by)
    refused = _ambiguous(before, old, by) + _ambiguous(after, new, by)
    common = [rest for rest in old if rest in new and len(old[rest]) == len(new[rest]) == 1]
    pairs = []
    environment: Dict[str, None] = {}
    for rest in common:
        one, other = old[rest][0], new[rest][0]
        lines = differences(one.conditions, other.conditions)
        pairs.append(Pair(one, other, [line for line in lines if _is_named(line.partition(":")[0], by)]))
        shared = [name for name in one.environment if name in other.environment and name not in SAYS_NOTHING]
        told = ({name: case.environment[name] for name in shared} for case in (one, other))
        environment.update(dict.fromkeys(differences(*told)))
    lone_old = [cases[0] for rest, cases in old.items() if rest not in new and len(cases) == 1]
    lone_new = [cases[0] for rest, cases in new.items() if rest not in old and len(cases) == 1]
    candidates = [_to_be_found(case, by) for case in lone_new]
    only_before, met = [], set()
    for case in lone_old:
        found = nearest(_to_be_found(case, by), candidates)
        if found is None:
            only_before.append(case.case_id)
        else:
            place = candidates.index(found)
            met.add(place)
            why = differences(_rest(case.conditions, by), _rest(lone_new[place].conditions, by))
            refused.append((case.case_id, why))
    only_after = [case.case_id for place, case in enumerate(lone_new) if place not in met]
    return Pairing(pairs, refused, only_before, only_after, list(environment))


def _is_named(name: str, by: Iterable[str]) -> bool:
    """Whether a condition, `power_mode.gpu_khz`, is one of those named or lies in one."""
    return any(name == given or name.startswith(f"{given}.") for given in by)


def _rest(conditions: Mapping[str, Any], by: Sequence[str], prefix: str = "") -> Dict[str, Any]:
    """The conditions that have to agree."""
    return {
        name: _rest(value, by, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in conditions.items()
        if not _is_named(f"{prefix}{name}", by)
    }


def _to_be_found(case: CaseRuns, by: Sequence[str]) -> CaseRuns:
    """The runs of a case without the conditions in question; workload and task stay, to find it by."""
    subject = {name: case.conditions[name] for name in ("workload", "task")}
    return dataclasses.replace(case, conditions={**_rest(case.conditions, by), **subject})


def _by_rest(cases: Sequence[CaseRuns], by: Sequence[str]) -> Dict[str, List[CaseRuns]]:
    groups: Dict[str, List[CaseRuns]] = {}
    for case in cases:
        groups.setdefault(key(_rest(case.conditions, by)), []).append(case)
    return groups


def _ambiguous(side: Side, groups: Mapping[str, Sequence[CaseRuns]], by: Sequence[str]) -> List[Tuple[str, List[str]]]:
    """Cases of one side that differ in nothing but the question: which of them is meant cannot be known."""
    found = []
    for cases in groups.values():
        if len(cases) > 1:
            differ = "; ".join(differences(cases[0].conditions, cases[-1].conditions))
            why = f"{side.path.name} holds {len(cases)} that differ in {', '.join(by)} alone ({differ}); keep them in"
            found.append((cases[0].case_id, [f"{why} results files of their own"]))
    return found


def _refuse_unknown(by: Sequence[str], cases: Sequence[CaseRuns]) -> None:
    known = {*NAMED_IN_CONDITIONS, "python"}
    for case in cases:
        known |= set(case.conditions) | {line.partition(":")[0] for line in differences({}, case.conditions)}
    unknown = [name for name in by if name not in known]
    if unknown:
        raise UnknownNameError(f"no condition is called {', '.join(unknown)}; known: {', '.join(sorted(known))}")
