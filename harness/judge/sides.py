"""The two sides of a comparison: the runs of their cases, which cases are compared, and the ratio of each.

A side is a results file, a JSON file of pytest-benchmark, or a baseline.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import msgspec

from harness.core.errors import InvalidValueError, StoreError, UnknownNameError
from harness.core.files import read_json
from harness.core.units import s_to_ms, share_to_percent
from harness.stats.comparison import RunsRatio, compare_runs, learn_noise
from harness.stats.estimates import Interval
from harness.stats.noise import POWER, TIME, prior
from harness.store.conditions import (
    INSTANCE,
    LEFT_OUT,
    NAMED_IN_CONDITIONS,
    POWER_IS_UNSURE,
    RAW_PRUNED,
    differences,
    is_disqualified,
    key,
    kinds,
    leaves,
    without_instance,
)
from harness.store.frames import labelled, minibatches, profiles
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

SAYS_NOTHING = ("host_name", "memory_bytes")
"""Of an environment, what may differ between runs that belong together.

Each container has a host name of its own, and the kernel keeps another share of the memory for itself at each boot; how
much memory there is counts among the conditions. The commit of the suite must agree: it is what a gate compares.
"""

MIN_MINIBATCHES = 10  # with fewer clean minibatches on a side its noise cannot be told from a change
SLOWER, FASTER, INCONCLUSIVE, TOO_FEW = "slower", "faster", "inconclusive", "too few"  # verdicts of every comparison
CONDITIONS_TEXT = "conditions"
"""In `extra_info` of pytest-benchmark's JSON: the comparable conditions of a case of this suite, as JSON text."""

DECIMALS = 6  # of a millisecond: nanoseconds
_COMMIT_LENGTH = 12  # as in `suite_commit`
_WRITE_ONE = "write one: pytest benchmarks --benchmark-json FILE.json"


class Run(msgspec.Struct, frozen=True, rename={"times_ms": "minibatch_times_ms"}, omit_defaults=True):
    """One run of a case, as a baseline stores it."""

    run_id: str
    created_at: str
    flags: Tuple[str, ...]
    times_ms: Tuple[float, ...]  # none of an idle state
    power_mw: Optional[float] = None  # None where it has none that is sure


@dataclasses.dataclass(frozen=True)
class CaseRuns:
    case_id: str  # the case's id
    conditions: Dict[str, Any]  # its comparable conditions
    environment: Dict[str, Any]  # that of the newest run; the others' differ in `SAYS_NOTHING` at most
    runs: Tuple[Run, ...]  # oldest first
    older: int = 0  # profiles of the same conditions that were not taken
    # profiles of the same conditions that were left out because of their flags
    flagged: int = dataclasses.field(default=0, compare=False)

    @functools.cached_property
    def key(self) -> str:
        return key(self.conditions)

    @functools.cached_property
    def leaves(self) -> Dict[str, Any]:
        return leaves(self.conditions)

    @property
    def device(self) -> str:
        return str(self.conditions.get("device", ""))

    def by_run(self, quantity: str = TIME) -> Dict[Tuple[str, int], Tuple[float, ...]]:
        """The times in ms, or the one power in mW, of each run, by run id and number of the profile within it."""
        ids = [run.run_id for run in self.runs]
        values = [((run.power_mw,) if run.power_mw else ()) if quantity == POWER else run.times_ms for run in self.runs]
        return {(ids[place], ids[:place].count(ids[place])): own for place, own in enumerate(values) if own}

    def series(self, quantity: str = TIME) -> List[Tuple[float, ...]]:
        return list(self.by_run(quantity).values())


def cases_of(
    store: ResultsStore, frame: pd.DataFrame, include_flagged: bool = False, last: Optional[int] = None
) -> List[CaseRuns]:
    """The cases of some profiles; of each comparable conditions the runs in the environment of the newest one.

    The frame holds flagged profiles too: they are counted, and left out unless they are to be kept. Pruned ones have no
    series to compare. `last` takes the newest runs of each case.
    """
    if last is not None and last < 1:
        raise InvalidValueError(f"the number of runs must be at least 1, got {last}")
    columns = [
        "key", "case_id", "device_name", "device_label", "comparable", "environment", "usable", "run_id", "created_at",
        "flag_list", "power_mw",
    ]  # fmt: skip
    is_pruned = frame["flag_kinds"].map(lambda found: RAW_PRUNED in found).astype(bool)
    taken = []
    for _, group in frame[~is_pruned][columns].groupby("key", sort=False):
        every = list(group.itertuples())
        kept = [row for row in every if include_flagged or row.usable]
        if kept:
            newest = _telling(kept[-1].environment)
            alike = [row for row in kept if _telling(row.environment) == newest]
            taken.append((every, kept, alike if last is None else alike[-last:]))
    times = minibatches(store, [row.Index for _, _, chosen in taken for row in chosen])
    counted = times[times["counted"]].groupby("profile_id")["e2e_ms"]
    times_ms = {number: tuple(round(time, DECIMALS) for time in series) for number, series in counted}
    cases = []
    for every, kept, chosen in taken:
        runs, newest = [], kept[-1]
        for row in chosen:
            power_mw = sure_power(row.flag_list, row.power_mw)
            runs.append(Run(row.run_id, row.created_at, row.flag_list, times_ms.get(row.Index, ()), power_mw))
        counts = len(kept) - len(chosen), len(every) - len(kept)
        case_id = labelled(newest.case_id, newest.device_name, newest.device_label)
        cases.append(CaseRuns(case_id, newest.comparable, newest.environment, tuple(runs), *counts))
    return cases


def _telling(environment: Mapping[str, Any]) -> Dict[str, Any]:
    """What of an environment has to agree."""
    return {name: value for name, value in environment.items() if name not in SAYS_NOTHING}


def sure_power(flags: Sequence[str], power_mw: Optional[float]) -> Optional[float]:
    """The power of a run; None where there is none (or NaN), or its flags say that it is unsure."""
    is_there = power_mw is not None and power_mw > 0 and not set(kinds(flags)) & set(POWER_IS_UNSURE)
    return power_mw if is_there else None


class Side(NamedTuple):
    """What a file holds: its cases, and how many profiles were left out because of their flags."""

    path: Path
    cases: List[CaseRuns]
    flagged: int


def read_side(path: Path, include_flagged: bool = False) -> Side:
    """Read a results file or, where the name ends in `.json`, what pytest-benchmark wrote."""
    if path.suffix == ".json":
        side = _from_pytest_benchmark(path, include_flagged)
    else:
        with ResultsStore(path, read_only=True) as store:  # a replayed profile repeats one figure of its corpus
            frame = profiles(store, include_flagged=True, replayed=False)
            flagged = 0 if include_flagged else int((~frame["usable"]).sum())
            side = Side(path, cases_of(store, frame, include_flagged), flagged)
    if not side.cases:
        why = f": left out {side.flagged} {LEFT_OUT}" if side.flagged else ""
        raise StoreError(
            f"{path} holds nothing to compare{why}", "measure some: pytest benchmarks; pruned ones have no series"
        )
    return side


def check_threshold(threshold: float) -> None:
    if not threshold >= 0:
        raise InvalidValueError(f"the threshold must be 0 or more, got {share_to_percent(threshold):g} %")


def read_object(path: Path, what: str, hint: str) -> Dict[str, Any]:
    """The JSON object that a file holds; a `StoreError` says that it is no `what`."""
    try:
        document = read_json(path)
    except OSError as error:
        raise StoreError(f"cannot read the {what} {path}: {error}", hint) from error
    except ValueError as error:
        raise StoreError(f"{path} is no {what}: it is not JSON ({error})", hint) from error
    if not isinstance(document, dict):
        raise StoreError(f"{path} is no {what}: it holds a {type(document).__name__}", hint)
    return document


def _from_pytest_benchmark(path: Path, include_flagged: bool) -> Side:
    document = read_object(path, "file of pytest-benchmark", _WRITE_ONE)
    if not {"benchmarks", "machine_info"} <= set(document):
        raise StoreError(f"{path} is no file of pytest-benchmark: it has no benchmarks and machine_info", _WRITE_ONE)
    cases, flagged = {}, 0
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
    run = Run(taken_at, taken_at, flags, times_ms, sure_power(flags, info.get("power_mw")))
    return CaseRuns(info.get("case", benchmark["fullname"]), conditions, environment, (run,))


def _environment(document: Mapping[str, Any]) -> Dict[str, Any]:
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
        raise UnknownNameError(f"no condition is called {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    before, after = _of_one_instance(before, after), _of_one_instance(after, before)
    old, new = _by_rest(before, by), _by_rest(after, by)
    alone = [cases[0] for rest, cases in new.items() if rest not in old and len(cases) == 1]
    candidates = [_to_be_found(case, by) for case in alone]
    pairs, met = [], set()
    for rest, (one, *further) in old.items():
        if further:
            pairs.append(_ambiguous(names[0], [one, *further], by))
        elif rest not in new:
            place = nearest(_to_be_found(one, by), candidates)
            if place is None:
                pairs.append(Pair(one, None, []))
            else:
                met.add(place)
                why = differences(_rest(one, by), _rest(alone[place], by))
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


def _rest(case: CaseRuns, by: Sequence[str]) -> Dict[str, Any]:
    """The conditions that have to agree, flat."""
    return {name: value for name, value in case.leaves.items() if not _is_named(name, by)}


def _to_be_found(case: CaseRuns, by: Sequence[str]) -> CaseRuns:
    """The runs of a case without the conditions in question; workload and task stay, to find it by."""
    subject = {name: case.conditions[name] for name in ("workload", "task")}
    return dataclasses.replace(case, conditions={**_rest(case, by), **subject})


def _by_rest(cases: Sequence[CaseRuns], by: Sequence[str]) -> Dict[str, List[CaseRuns]]:
    groups: Dict[str, List[CaseRuns]] = {}
    for case in cases:
        groups.setdefault(key(_rest(case, by)), []).append(case)
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


def ratios(pairs: Sequence[Pair], quantity: str = TIME, same_question: bool = False) -> Dict[str, RunsRatio]:
    """After / before of each pair, by its key; each side has a run with the quantity.

    The noise between runs of a device is learned from all of its pairs. `same_question`: nothing but the run may differ
    between the sides (`learn_noise`).
    """
    devices: Dict[str, Dict[str, List[List[Tuple[float, ...]]]]] = {}
    for one in pairs:
        series = [case.series(quantity) for case in one.sides]
        devices.setdefault(one.sides[0].device, {})[one.key] = series
    found = {}
    for device, pairs_of in devices.items():
        known = prior(device, quantity)
        noise = learn_noise(list(pairs_of.values()), same_question, known)
        found.update({name: compare_runs(*series, noise, known) for name, series in pairs_of.items()})
    return found


def exit_code_of(is_worse: bool, is_open: bool) -> int:
    """1 where something became worse; else 2 where a comparison was refused, or none was possible; else 0."""
    return 1 if is_worse else 2 if is_open else 0


def is_unsure(interval: Interval, threshold: float) -> bool:
    """Whether a ratio that no test tells from 1 may be a change all the same: beyond the threshold, or too vague."""
    low, high = 1 / (1 + threshold), 1 + threshold
    return not low <= interval.value <= high or (interval.low < low and interval.high > high)
