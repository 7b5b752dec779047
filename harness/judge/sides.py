"""One side of a comparison: the cases of a results file, or of a JSON file of pytest-benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from harness.core.errors import StoreError
from harness.core.units import s_to_ms
from harness.judge.baseline import CaseRuns, Run, newest_records, newest_runs, without_flagged
from harness.store.conditions import NAMED_IN_CONDITIONS, POWER_IS_UNSURE, is_disqualified, kinds
from harness.store.results import ResultsStore
from harness.store.rows import Record

CONDITIONS_TEXT = "conditions"
"""In `extra_info` of pytest-benchmark's JSON: the comparable conditions of a case of this suite, as JSON text."""

_COMMIT_LENGTH = 12  # as in `suite_commit`


RunName = Tuple[str, int]
"""A run's id, and which of its profiles of the same case this is: by it the cases of a run are found together."""


class Measured(NamedTuple):
    """A case with what its runs measured.

    Attributes:
        runs: who they are, under what conditions, and their minibatch times; a run of an idle state has none.
        powers_mw: the power of each of them; None where it has none that is sure.
    """

    runs: CaseRuns
    powers_mw: Tuple[Optional[float], ...]

    @property
    def times_ms(self) -> Dict[RunName, Tuple[float, ...]]:
        """The minibatch times of each run that has some."""
        return {name: run.times_ms for name, run in zip(self._names(), self.runs.runs) if run.times_ms}

    @property
    def power_mw(self) -> Dict[RunName, Tuple[float, ...]]:
        """The power of each run that has a sure one, as a series of one."""
        return {name: (power,) for name, power in zip(self._names(), self.powers_mw) if power}

    def _names(self) -> List[RunName]:
        ids = [run.run_id for run in self.runs.runs]
        return [(run_id, ids[:place].count(run_id)) for place, run_id in enumerate(ids)]


class Side(NamedTuple):
    """What a file holds: its cases, and how many profiles were left out because of their flags."""

    path: Path
    cases: List[Measured]
    flagged: int


def read_side(path: Path, include_flagged: bool = False) -> Side:
    """Read a results file or, where the name ends in `.json`, what pytest-benchmark wrote.

    Args:
        path: the file.
        include_flagged: keep profiles that were disturbed or throttled (`harness.store.conditions`).

    Raises:
        StoreError: it cannot be read, is neither, or holds nothing to compare.
    """
    side = _read_json(path, include_flagged) if path.suffix == ".json" else _read_store(path, include_flagged)
    if not side.cases:
        why = f": {side.flagged} profiles were left out because of their flags" if side.flagged else ""
        raise StoreError(f"{path} holds nothing to compare{why}", "measure some, or see --include-flagged")
    return side


def _read_store(path: Path, include_flagged: bool) -> Side:
    with ResultsStore(path, read_only=True) as store:
        groups: Dict[str, List[Record]] = {}
        for found in store.records():
            if found.provenance != "replayed":  # a replayed profile repeats one figure of its corpus
                groups.setdefault(found.key, []).append(found)
        kept = without_flagged(groups, include_flagged)
        cases = [
            Measured(
                newest_runs(store, records), _powers([(run.flags, run.aggregates) for run in newest_records(records)])
            )
            for records in kept.values()
        ]
    return Side(path, cases, sum(map(len, groups.values())) - sum(map(len, kept.values())))


def _powers(runs: List[Tuple[List[str], Mapping[str, Optional[float]]]]) -> Tuple[Optional[float], ...]:
    """The power of each run, from its flags and figures; None where there is none, or it is unsure."""
    return tuple(
        None if set(kinds(flags)) & set(POWER_IS_UNSURE) else figures.get("power_mw") for flags, figures in runs
    )


def _read_json(path: Path, include_flagged: bool) -> Side:
    document = _load(path)
    environment = _environment(document)
    cases: Dict[str, Measured] = {}
    flagged = 0
    try:
        for benchmark in document["benchmarks"]:
            if is_disqualified(benchmark["extra_info"].get("flags", ())) and not include_flagged:
                flagged += 1
            else:
                case = _from_benchmark(path, benchmark, environment, document)
                cases[case.runs.key] = case
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged, or not of pytest-benchmark: {type(error).__name__} {error}") from error
    return Side(path, list(cases.values()), flagged)


def _load(path: Path) -> Dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not JSON ({error})", _WRITE_ONE) from error
    if not isinstance(document, dict) or not {"benchmarks", "machine_info"} <= set(document):
        raise StoreError(f"{path} is no file of pytest-benchmark: it has no benchmarks and machine_info", _WRITE_ONE)
    return document


_WRITE_ONE = "write one: pytest benchmarks --benchmark-json FILE.json"


def _from_benchmark(
    path: Path, benchmark: Mapping[str, Any], environment: Dict[str, Any], document: Mapping[str, Any]
) -> Measured:
    info, times_s = benchmark["extra_info"], benchmark["stats"].get("data")
    if not times_s:
        raise StoreError(
            f"{path} has no single times of {benchmark['name']}", f"{_WRITE_ONE}, or --benchmark-save-data"
        )
    flags = tuple(info.get("flags", ()))
    is_idle = info.get("task") == "idle"  # what pytest-benchmark is given there is how long it was watched
    times_ms = () if is_idle else tuple(s_to_ms(float(time_s)) for time_s in times_s)
    run = Run(str(document.get("datetime")), str(document.get("datetime")), flags, times_ms)
    conditions = _conditions(benchmark, environment)
    runs = CaseRuns(info.get("case", benchmark["fullname"]), conditions, environment, (run,))
    return Measured(runs, _powers([(list(flags), info)]))


def _conditions(benchmark: Mapping[str, Any], environment: Mapping[str, Any]) -> Dict[str, Any]:
    """The comparable conditions of a case of this suite; of another benchmark what its file tells."""
    info = benchmark["extra_info"]
    if CONDITIONS_TEXT in info:
        return dict(json.loads(info[CONDITIONS_TEXT]))
    told = {name: info[name] for name in NAMED_IN_CONDITIONS if info.get(name) is not None}
    python = ".".join(str(environment.get("python", "")).split(".")[:2])
    return {
        "workload": benchmark["fullname"].partition("[")[0],
        "task": info.get("task", "benchmark"),
        "benchmark": benchmark["fullname"],
        **(benchmark.get("params") or {}),
        **told,
        "device_model": environment.get("cpu_model"),
        "python": python or None,
    }


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
