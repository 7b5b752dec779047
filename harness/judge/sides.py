"""A side of a comparison: the runs of its cases, from a results file, a baseline, or a JSON file of pytest-benchmark.

A baseline is a side that was stored, as a JSON file that can be committed. It holds, for each comparable conditions,
the raw series of clean minibatches of each run, so that a later check can resample them, and the run's other figures;
the median and its interval are for the reader.

History of its `version`:
    1  cases: case, conditions, median_ms, interval_ms, environment, runs with minibatch_times_ms and what other columns
       of `harness.judge.quantities` are sure, such as power_mw; board_threshold where the board has one. Later also
       fetch_stalls_ms of those minibatches, which earlier ones lack and readers may.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import msgspec

from harness.core import board_threshold
from harness.core.board_threshold import BoardThreshold
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json
from harness.core.profiles import RAW_PRUNED, Profile, flagged_in_words, is_disqualified
from harness.core.terminal import counted
from harness.core.units import s_to_ms
from harness.judge.quantities import QUANTITIES, TIME, GatedQuantity
from harness.store.conditions import NAMED_IN_CONDITIONS, comparable_conditions, key, leaves
from harness.store.frames import labelled, minibatches, profiles
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

SAYS_NOTHING = ("host_name", "memory_bytes")
"""Parts of an environment that may differ between runs that belong together.

Each container has its own host name, and the kernel reserves another share of the memory at each boot; the amount of
memory is one of the conditions. The commit of the suite must agree: a gate compares commits.
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
    figures: Dict[str, float] = {}  # by column, its further reliable figures of `QUANTITIES`
    stalls_ms: Tuple[float, ...] = ()  # the fetch stall in each of `times_ms`; empty if unknown

    def values(self, quantity: GatedQuantity) -> Tuple[float, ...]:
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
    threshold: Optional[BoardThreshold] = None  # of the board, which its newest run carries
    copies: int = dataclasses.field(default=0, compare=False)  # runs that were left out, as of `without_copies`

    @functools.cached_property
    def key(self) -> str:
        return key(self.conditions)

    @functools.cached_property
    def leaves(self) -> Dict[str, Any]:
        return leaves(self.conditions)

    @property
    def device(self) -> str:
        return str(self.conditions.get("device", ""))

    def by_run(self, quantity: GatedQuantity = TIME) -> Dict[Tuple[str, int], Tuple[float, ...]]:
        """The values of each run that has any, by run id and number of the profile within it."""
        ids = [run.run_id for run in self.runs]
        values = [run.values(quantity) for run in self.runs]
        return {(ids[place], ids[:place].count(ids[place])): own for place, own in enumerate(values) if own}

    def series(self, quantity: GatedQuantity = TIME) -> List[Tuple[float, ...]]:
        return list(self.by_run(quantity).values())


class RunsOfCase(NamedTuple):
    """The profiles of a case as rows of their frame, oldest first."""

    profiles: List[Any]  # all that have raw series
    kept: List[Any]  # those that are usable, or all if flagged ones are included
    chosen: List[Any]  # of those the runs in the environment of the newest one, and within `last`


def runs_of_cases(
    frame: pd.DataFrame, include_flagged: bool = False, last: Optional[int] = None, further: Sequence[str] = ()
) -> List[RunsOfCase]:
    """The runs that count of each case: rows with the same `key`; `further` names columns that their rows need.

    The frame includes flagged profiles. Pruned ones have no series to compare. `last` takes the newest runs of a case.
    """
    if last is not None and last < 1:
        raise InvalidValueError(f"the number of runs must be at least 1, got {last}")
    columns = [
        "key", "case_id", "device_name", "device_label", "comparable", "environment", "usable", "run_id", "created_at",
        "flag_list", "conditions", *(quantity.column for quantity in QUANTITIES),
    ]  # fmt: skip
    columns += [column for column in further if column not in columns]
    is_pruned = frame["flag_kinds"].map(lambda kinds: RAW_PRUNED in kinds).astype(bool)
    cases = []
    for _, group in frame[~is_pruned][columns].groupby("key", sort=False):
        rows = list(group.itertuples())
        kept = [row for row in rows if include_flagged or row.usable]
        newest = _telling(kept[-1].environment) if kept else {}
        alike = [row for row in kept if _telling(row.environment) == newest]
        cases.append(RunsOfCase(rows, kept, alike if last is None else alike[-last:]))
    return cases


def counted_series(
    store: ResultsStore, profile_ids: Sequence[int], *columns: str
) -> List[Dict[int, Tuple[float, ...]]]:
    """Columns of times of the minibatches that count, each by profile; profiles without any are left out."""
    steps = minibatches(store, profile_ids)
    of_profiles = steps[steps["counted"]].groupby("profile_id")
    return [{number: _rounded(series) for number, series in of_profiles[column]} for column in columns]


def _rounded(times_ms: Iterable[float]) -> Tuple[float, ...]:
    return tuple(round(time_ms, DECIMALS) for time_ms in times_ms)


def cases_of(
    store: ResultsStore, frame: pd.DataFrame, include_flagged: bool = False, last: Optional[int] = None
) -> List[CaseRuns]:
    """The cases of some profiles; of each comparable conditions the runs in the environment of the newest one.

    As in `runs_of_cases`; flagged profiles are counted, and left out unless `include_flagged`.
    """
    taken = [each for each in runs_of_cases(frame, include_flagged, last) if each.kept]
    numbers = [row.Index for each in taken for row in each.chosen]
    times_ms, stalls_ms = counted_series(store, numbers, "e2e_ms", "stall_ms")
    cases = []
    for rows, kept, chosen in taken:
        runs, newest = [], kept[-1]
        for row in chosen:
            figures = sure_figures(row.flag_list, row._asdict())
            series = times_ms.get(row.Index, ()), figures, stalls_ms.get(row.Index, ())
            runs.append(Run(row.run_id, row.created_at, row.flag_list, *series))
        counts = len(kept) - len(chosen), len(rows) - len(kept)
        distinct = without_copies(runs) if newest.comparable["provenance"] == "simulated" else runs
        case_id = labelled(newest.case_id, newest.device_name, newest.device_label)
        about = (case_id, newest.comparable, newest.environment)
        threshold = board_threshold.of_conditions(newest.conditions)
        cases.append(CaseRuns(*about, tuple(distinct), *counts, threshold, len(runs) - len(distinct)))
    return cases


def without_copies(runs: Sequence[Run]) -> List[Run]:
    """Runs, oldest first, less those that a newer one repeats to the last digit in every minibatch and figure.

    Such are runs of a simulated board with one seed: several of them say no more than one.
    """
    newest = {(run.times_ms, *sorted(run.figures.items())): place for place, run in enumerate(runs) if run.times_ms}
    kept = set(newest.values())
    return [run for place, run in enumerate(runs) if place in kept or not run.times_ms]


def copies_in_words(count: int) -> str:
    return f"{counted(count, 'run')} left out as equal to a newer one in every minibatch, as simulated with one seed"


def _telling(environment: Mapping[str, Any]) -> Dict[str, Any]:
    """The parts of an environment that must agree."""
    return {name: value for name, value in environment.items() if name not in SAYS_NOTHING}


def sure_figures(flags: Sequence[str], figures: Mapping[str, Optional[float]]) -> Dict[str, float]:
    """The reliable figures of a run, by column, of those `QUANTITIES` that have no raw series."""
    sure = {
        quantity.column: quantity.sure(flags, figures.get(quantity.column))
        for quantity in QUANTITIES
        if not quantity.of_minibatches
    }
    return {column: value for column, value in sure.items() if value is not None}


def case_of(profile: Profile) -> CaseRuns:
    """A single profile as a case of one run."""
    times_ms, stalls_ms = (
        _rounded(getattr(minibatch, column) for minibatch in profile.counted) for column in ("e2e_ms", "stall_ms")
    )
    flags = tuple(profile.flags)
    run = Run("", profile.started_at, flags, times_ms, sure_figures(flags, profile.aggregates), stalls_ms)
    conditions = comparable_conditions(profile.conditions, profile.case, profile.provenance)
    threshold = board_threshold.of_conditions(profile.conditions)
    return CaseRuns(profile.case.id, conditions, {}, (run,), threshold=threshold)


class Side(NamedTuple):
    """The cases of a file, and the number of profiles left out because of their flags."""

    path: Path
    cases: List[CaseRuns]
    flagged: int


def side_of(
    store: ResultsStore, frame: pd.DataFrame, include_flagged: bool = False, last: Optional[int] = None
) -> Side:
    """The cases of some profiles that have values to compare; `frame` as in `cases_of`."""
    flagged = 0 if include_flagged else int((~frame["usable"]).sum())
    cases = cases_of(store, frame, include_flagged, last)
    return Side(store.path, [case for case in cases if any(map(case.series, QUANTITIES))], flagged)


def comparable_profiles(store: ResultsStore) -> pd.DataFrame:
    """The profiles of a side; replayed ones are excluded, because they repeat one figure of a corpus."""
    return profiles(store, include_flagged=True, replayed=False)


def read_side(path: Path, include_flagged: bool = False) -> Side:
    """Read a results file or, if the name ends in `.json`, a baseline or a file of pytest-benchmark."""
    if path.suffix == ".json":
        document = read_object(path, "file of pytest-benchmark or baseline", _WRITE_ONE)
        if document.get("format") == FORMAT:
            return Side(path, read_baseline(path), 0)
        side = _from_pytest_benchmark(path, document, include_flagged)
    else:
        with ResultsStore(path, read_only=True) as store:
            side = side_of(store, comparable_profiles(store), include_flagged)
    if not side.cases:
        what = f"{path} has nothing to compare"
        if side.flagged:
            raise StoreError(
                f"{what}: left out {flagged_in_words(side.flagged)}", "or measure again: pytest benchmarks"
            )
        raise StoreError(what, "measure some: pytest benchmarks; pruned profiles have no series")
    return side


FORMAT, VERSION = "jetwatt-baseline", 1
_RECORD_ONE = "record one: jetwatt baseline record --results FILE --baseline FILE.json"


def stored_run(run: Run) -> Dict[str, Any]:
    """A run in the format of a baseline."""
    about = {"run_id": run.run_id, "created_at": run.created_at, "flags": list(run.flags)}
    stalls = {"fetch_stalls_ms": list(run.stalls_ms)} if run.stalls_ms else {}
    return {**about, "minibatch_times_ms": list(run.times_ms), **stalls, **run.figures}


def read_baseline(path: Path) -> List[CaseRuns]:
    """The cases of a baseline; a StoreError if the file is not a baseline, or damaged."""
    document = read_object(path, "baseline", _RECORD_ONE)
    if document.get("format") != FORMAT:
        raise StoreError(f"{path} is not a baseline: its format is not {FORMAT!r}", _RECORD_ONE)
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
            if not all(map(has_sound_figures, runs)):
                raise ValueError(f"case {case['case']} has a run with {UNSOUND}")
            about = (case["case"], dict(case["conditions"]), dict(case["environment"]))
            cases.append(CaseRuns(*about, runs, threshold=board_threshold.of_conditions(case)))
    except (KeyError, TypeError, ValueError, AttributeError, InvalidValueError, msgspec.ValidationError) as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__} {error}", _RECORD_ONE) from error
    return cases


UNSOUND = "a figure that is no number above 0, or a fetch stall longer than its minibatch"


def has_sound_figures(run: Run) -> bool:
    """Whether each figure is a number above 0, and no fetch stall longer than its minibatch.

    JSON may hold NaN and Infinity, too, which no test finds worse.
    """
    is_each_positive = all(0 < value < math.inf for value in (*run.times_ms, *run.figures.values()))
    if not run.stalls_ms:
        return is_each_positive
    is_part = [0 <= stall_ms <= time_ms for stall_ms, time_ms in zip(run.stalls_ms, run.times_ms)]
    return is_each_positive and len(run.stalls_ms) == len(run.times_ms) and all(is_part)


def _run_of(stored: Mapping[str, Any]) -> Run:
    figures = {quantity.column: stored[quantity.column] for quantity in QUANTITIES if quantity.column in stored}
    series = {"times_ms": stored["minibatch_times_ms"], "stalls_ms": stored.get("fetch_stalls_ms", ())}
    return msgspec.convert({**stored, **series, "figures": figures}, Run)


def read_object(path: Path, what: str, hint: str) -> Dict[str, Any]:
    """The JSON object in a file; a `StoreError` if it is not a `what`."""
    try:
        document = read_json(path)
    except OSError as error:
        raise StoreError(f"cannot read the {what} {path}: {error}", hint) from error
    except ValueError as error:
        raise StoreError(f"{path} is not a {what}: it is not JSON ({error})", hint) from error
    if not isinstance(document, dict):
        raise StoreError(f"{path} is not a {what}: it contains a {type(document).__name__}", hint)
    return document


def _from_pytest_benchmark(path: Path, document: Mapping[str, Any], include_flagged: bool) -> Side:
    if not {"benchmarks", "machine_info"} <= set(document):
        raise StoreError(f"{path} is not a file of pytest-benchmark: it has no benchmarks and machine_info", _WRITE_ONE)
    cases, flagged = {}, 0
    try:
        environment = _environment(document)
        for benchmark in document["benchmarks"]:
            if is_disqualified(benchmark["extra_info"].get("flags", ())) and not include_flagged:
                flagged += 1
            else:
                case = _from_benchmark(path, benchmark, environment, str(document.get("datetime")))
                cases[case.key] = case
    except (KeyError, TypeError, ValueError, AttributeError, InvalidValueError) as error:
        raise StoreError(f"{path} is damaged, or not of pytest-benchmark: {type(error).__name__} {error}") from error
    return Side(path, list(cases.values()), flagged)


def _from_benchmark(path: Path, benchmark: Mapping[str, Any], environment: Dict[str, Any], taken_at: str) -> CaseRuns:
    info, times_s = benchmark["extra_info"], benchmark["stats"].get("data")
    if not times_s:
        raise StoreError(
            f"{path} has no single times of {benchmark['name']}", f"{_WRITE_ONE}, or --benchmark-save-data"
        )
    flags = tuple(info.get("flags", ()))
    is_idle = info.get("task") == "idle"  # pytest-benchmark records the idle duration there
    times_ms = () if is_idle else tuple(s_to_ms(float(time_s)) for time_s in times_s)
    if CONDITIONS_TEXT in info:
        conditions = dict(json.loads(info[CONDITIONS_TEXT]))
    else:  # another benchmark: conditions from its file
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
    if not has_sound_figures(run):
        raise ValueError(f"{benchmark['name']} has {UNSOUND}")
    about = (info.get("case", benchmark["fullname"]), conditions, environment)
    return CaseRuns(*about, (run,), threshold=board_threshold.of_conditions(info))


def _environment(document: Mapping[str, Any]) -> Dict[str, Any]:
    machine, commit = document["machine_info"], document.get("commit_info") or {}
    fields = {
        "suite_commit": commit.get("id") and commit["id"][:_COMMIT_LENGTH] + ("+" if commit.get("dirty") else ""),
        "host_name": machine.get("node"),
        "kernel": machine.get("release"),
        "architecture": machine.get("machine"),
        "cpu_model": (machine.get("cpu") or {}).get("brand_raw"),
        "python": machine.get("python_version"),
    }
    return {name: value for name, value in fields.items() if value is not None}
