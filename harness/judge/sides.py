"""A side of a comparison: the runs of its cases, from a results file, a baseline, or a JSON file of pytest-benchmark.

A baseline is a side that was stored, as a JSON file that can be committed. It holds, for each comparable conditions,
the raw series of clean minibatches of each run, so that a later check can resample them, and the run's other figures;
the median and its interval are for the reader.

History of its `version`:
    1  cases: case, conditions, median_ms, interval_ms, environment, runs with minibatch_times_ms and what other columns
       of `harness.judge.quantities` are sure, such as power_mw.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import msgspec

from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json
from harness.core.profiles import Profile
from harness.core.units import s_to_ms
from harness.judge.quantities import QUANTITIES, TIME, JudgedQuantity
from harness.store.conditions import (
    LEFT_OUT,
    NAMED_IN_CONDITIONS,
    RAW_PRUNED,
    comparable_conditions,
    is_disqualified,
    key,
    leaves,
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

CONDITIONS_TEXT = "conditions"
"""In `extra_info` of pytest-benchmark's JSON: the comparable conditions of a case of this suite, as JSON text."""

DECIMALS = 6  # of a millisecond: nanoseconds
_COMMIT_LENGTH = 12  # as in `suite_commit`
_WRITE_ONE = "write one: pytest benchmarks --benchmark-json FILE.json"


class Run(msgspec.Struct, frozen=True):
    """One run of a case."""

    run_id: str
    created_at: str
    flags: Tuple[str, ...]
    times_ms: Tuple[float, ...]  # none of an idle state
    figures: Dict[str, float] = {}  # by column, what else of `QUANTITIES` it has that is sure

    def values(self, quantity: JudgedQuantity) -> Tuple[float, ...]:
        if quantity.of_minibatches:
            return self.times_ms
        return (self.figures[quantity.column],) if quantity.column in self.figures else ()


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

    def by_run(self, quantity: JudgedQuantity = TIME) -> Dict[Tuple[str, int], Tuple[float, ...]]:
        """The values of each run that has some, by run id and number of the profile within it."""
        ids = [run.run_id for run in self.runs]
        values = [run.values(quantity) for run in self.runs]
        return {(ids[place], ids[:place].count(ids[place])): own for place, own in enumerate(values) if own}

    def series(self, quantity: JudgedQuantity = TIME) -> List[Tuple[float, ...]]:
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
        "flag_list", *(quantity.column for quantity in QUANTITIES),
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
            figures = sure_figures(row.flag_list, row._asdict())
            runs.append(Run(row.run_id, row.created_at, row.flag_list, times_ms.get(row.Index, ()), figures))
        counts = len(kept) - len(chosen), len(every) - len(kept)
        case_id = labelled(newest.case_id, newest.device_name, newest.device_label)
        cases.append(CaseRuns(case_id, newest.comparable, newest.environment, tuple(runs), *counts))
    return cases


def _telling(environment: Mapping[str, Any]) -> Dict[str, Any]:
    """What of an environment has to agree."""
    return {name: value for name, value in environment.items() if name not in SAYS_NOTHING}


def sure_figures(flags: Sequence[str], figures: Mapping[str, Optional[float]]) -> Dict[str, float]:
    """Of a run's figures by column, those of `QUANTITIES` that have no raw series, where they are sure."""
    sure = {one.column: one.sure(flags, figures.get(one.column)) for one in QUANTITIES if not one.of_minibatches}
    return {column: value for column, value in sure.items() if value is not None}


def case_of(profile: Profile) -> CaseRuns:
    """A single profile as a case of one run."""
    times_ms = tuple(round(minibatch.e2e_ms, DECIMALS) for minibatch in profile.counted)
    flags = tuple(profile.flags)
    run = Run("", profile.started_at, flags, times_ms, sure_figures(flags, profile.aggregates))
    return CaseRuns(
        profile.case.id, comparable_conditions(profile.conditions, profile.case, profile.provenance), {}, (run,)
    )


class Side(NamedTuple):
    """What a file holds: its cases, and how many profiles were left out because of their flags."""

    path: Path
    cases: List[CaseRuns]
    flagged: int


def side_of(
    store: ResultsStore, frame: pd.DataFrame, include_flagged: bool = False, last: Optional[int] = None
) -> Side:
    """The cases of some profiles that have anything to compare; `frame` as `cases_of` takes it."""
    flagged = 0 if include_flagged else int((~frame["usable"]).sum())
    cases = cases_of(store, frame, include_flagged, last)
    return Side(store.path, [case for case in cases if any(map(case.series, QUANTITIES))], flagged)


def comparable_profiles(store: ResultsStore) -> pd.DataFrame:
    """The profiles that a side is made of; a replayed one repeats one figure of its corpus."""
    return profiles(store, include_flagged=True, replayed=False)


def read_side(path: Path, include_flagged: bool = False) -> Side:
    """Read a results file or, where the name ends in `.json`, a baseline or what pytest-benchmark wrote."""
    if path.suffix == ".json":
        document = read_object(path, "file of pytest-benchmark or baseline", _WRITE_ONE)
        if document.get("format") == FORMAT:
            return Side(path, read_baseline(path), 0)
        side = _from_pytest_benchmark(path, document, include_flagged)
    else:
        with ResultsStore(path, read_only=True) as store:
            side = side_of(store, comparable_profiles(store), include_flagged)
    if not side.cases:
        why = f": left out {side.flagged} {LEFT_OUT}" if side.flagged else ""
        raise StoreError(
            f"{path} holds nothing to compare{why}", "measure some: pytest benchmarks; pruned ones have no series"
        )
    return side


FORMAT, VERSION = "jetwatt-baseline", 1
_RECORD_ONE = "record one: python -m harness baseline record --results FILE --baseline FILE.json"


def stored_run(run: Run) -> Dict[str, Any]:
    """A run as a baseline stores it."""
    about = {"run_id": run.run_id, "created_at": run.created_at, "flags": list(run.flags)}
    return {**about, "minibatch_times_ms": list(run.times_ms), **run.figures}


def read_baseline(path: Path) -> List[CaseRuns]:
    """The cases that a baseline holds; a StoreError where the file is none, or damaged."""
    document = read_object(path, "baseline", _RECORD_ONE)
    if document.get("format") != FORMAT:
        raise StoreError(f"{path} is no baseline: it does not say format {FORMAT!r}", _RECORD_ONE)
    if document.get("version") != VERSION:
        raise StoreError(
            f"{path} is a baseline of version {document.get('version')!r}; this version of jetwatt reads {VERSION}",
            "update jetwatt, or record a new one",
        )
    cases = []
    try:
        for case in document["cases"]:
            runs = tuple(map(_run_of, case["runs"]))
            if not runs or not all(run.times_ms or run.figures for run in runs):
                raise ValueError(f"case {case['case']} has a run without minibatch times and power")
            if any(min((*run.times_ms, *run.figures.values())) <= 0 for run in runs):
                raise ValueError(f"case {case['case']} has a run with a figure of 0 or less")
            cases.append(CaseRuns(case["case"], dict(case["conditions"]), dict(case["environment"]), runs))
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__} {error}", _RECORD_ONE) from error
    return cases


def _run_of(stored: Mapping[str, Any]) -> Run:
    figures = {one.column: stored[one.column] for one in QUANTITIES if one.column in stored}
    return msgspec.convert({**stored, "times_ms": stored["minibatch_times_ms"], "figures": figures}, Run)


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


def _from_pytest_benchmark(path: Path, document: Mapping[str, Any], include_flagged: bool) -> Side:
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
    run = Run(taken_at, taken_at, flags, times_ms, sure_figures(flags, info))
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
