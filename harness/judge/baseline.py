"""A baseline: what cases took when it was recorded, as a JSON file that can be committed and compared with.

The file holds, per comparable conditions, the raw series of clean minibatches of each run, so that a later check can
resample them; the median and its interval are for the reader.

History (`version`):
    1  cases: case, conditions, median_ms, interval_ms, environment, runs with minibatch_times_ms.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import write_output
from harness.core.profiles import counted_minibatches
from harness.stats.changes import median_of_runs
from harness.stats.estimates import CONFIDENCE, Interval
from harness.stats.noise import RunNoise, prior
from harness.store.conditions import LEFT_OUT, is_disqualified, key
from harness.store.results import ResultsStore
from harness.store.rows import Record

FORMAT, VERSION = "jetwatt-baseline", 1
_DECIMALS = 6  # of a millisecond: nanoseconds

SAYS_NOTHING = ("host_name", "memory_bytes")
"""Of an environment, what may differ between runs that belong together.

Each container has a host name of its own, and the kernel keeps another share of the memory for itself at each boot; how
much memory there is counts among the conditions. The commit of the suite must agree: it is what a gate compares.
"""


class Run(NamedTuple):
    """One run of a case: who it is, what its flags were, and the end-to-end times of its clean minibatches."""

    run_id: str
    created_at: str
    flags: Tuple[str, ...]
    times_ms: Tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class CaseRuns:
    """All runs of one case under the same conditions.

    Attributes:
        case_id: the case's id.
        conditions: its comparable conditions.
        environment: that of the newest run; the others' differ in `SAYS_NOTHING` at most.
        runs: oldest first.
        older: profiles of the same conditions that were not taken.
        flagged: profiles of the same conditions that were left out because of their flags.
    """

    case_id: str
    conditions: Dict[str, Any]
    environment: Dict[str, Any]
    runs: Tuple[Run, ...]
    older: int = 0
    flagged: int = dataclasses.field(default=0, compare=False)

    @property
    def key(self) -> str:
        """The hash of the conditions."""
        return key(self.conditions)

    @property
    def series(self) -> List[Tuple[float, ...]]:
        """The times of each run."""
        return [run.times_ms for run in self.runs]

    @property
    def median_ms(self) -> float:
        """The median over the times of all runs."""
        return float(np.median(np.concatenate(self.series)))

    @property
    def prior(self) -> RunNoise:
        """What is known of the noise between runs of minibatch times on such a device."""
        return prior(str(self.conditions.get("device", "")))

    def interval(self) -> Interval:
        """The median over all runs with its interval, in ms."""
        return median_of_runs(self.series, self.prior).interval()


class Recorded(NamedTuple):
    """What a recording did.

    Attributes:
        cases: what it wrote.
        dropped: the ids of cases that the file held before and holds no more.
        flagged: how many profiles were left out because of their flags.
    """

    cases: List[CaseRuns]
    dropped: List[str]
    flagged: int


def record(store: ResultsStore, path: Path, last: Optional[int] = None, include_flagged: bool = False) -> Recorded:
    """Write a baseline from the profiles of a results file.

    Of each comparable conditions the runs in the environment of the newest one are taken (`SAYS_NOTHING` aside).

    Args:
        store: the results file.
        path: the baseline; replaced whole or not at all.
        last: take at most this many runs of each, the newest.
        include_flagged: keep profiles that were disturbed or throttled (`harness.store.conditions`).

    Raises:
        StoreError: there is no profile, or `path` cannot be written or holds something else.
    """
    groups = group_records(store)
    kept = without_flagged(groups, include_flagged)
    flagged = sum(map(len, groups.values())) - sum(map(len, kept.values()))
    if not kept:
        left_out = f": left out {flagged} {LEFT_OUT}" if flagged else ""
        raise StoreError(
            f"{store.path} holds no profile with a clean minibatch{left_out}", "measure some: pytest benchmarks"
        )
    cases = [
        dataclasses.replace(newest_runs(store, records, last), flagged=len(groups[key]) - len(records))
        for key, records in kept.items()
    ]
    before = read_baseline(path) if path.exists() else []
    keys = {case.key for case in cases}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "created_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "confidence": CONFIDENCE,
        "cases": [_to_json(case) for case in cases],
    }
    write_output(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))
    return Recorded(cases, [case.case_id for case in before if case.key not in keys], flagged)


def read_baseline(path: Path) -> List[CaseRuns]:
    """Read a baseline.

    Raises:
        StoreError: the file cannot be read, is no baseline, or a newer version wrote it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read the baseline {path}: {error}", _RECORD_ONE) from error
    except ValueError as error:
        raise StoreError(f"{path} is no baseline: it is not JSON ({error})", _RECORD_ONE) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StoreError(f"{path} is no baseline: it does not say format {FORMAT!r}", _RECORD_ONE)
    if document.get("version") != VERSION:
        raise StoreError(
            f"{path} is a baseline of version {document.get('version')!r}; this version of jetwatt reads {VERSION}",
            "update jetwatt, or record a new one",
        )
    try:
        return [_from_json(case) for case in document["cases"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__} {error}", _RECORD_ONE) from error


_RECORD_ONE = "record one: python -m harness baseline record --results FILE --baseline FILE.json"


def group_records(store: ResultsStore) -> Dict[str, List[Record]]:
    """The profiles that have a clean minibatch, by key, oldest first; a replayed one has a median alone."""
    groups: Dict[str, List[Record]] = {}
    for found in store.records():
        if found.aggregates.get("minibatch_time_ms") is not None and found.provenance != "replayed":
            groups.setdefault(found.key, []).append(found)
    return groups


def without_flagged(groups: Mapping[str, Sequence[Record]], include_flagged: bool) -> Dict[str, List[Record]]:
    """The groups without profiles that have to be measured again, unless they are to be kept; none is empty."""
    kept = {
        key: [found for found in group if include_flagged or not is_disqualified(found.flags)]
        for key, group in groups.items()
    }
    return {key: group for key, group in kept.items() if group}


def newest_records(records: Sequence[Record], last: Optional[int] = None) -> List[Record]:
    """Those among profiles of one key that share the environment of the newest, at most `last` of them."""
    if last is not None and last < 1:
        raise InvalidValueError(f"the number of runs must be at least 1, got {last}")
    chosen = [found for found in records if _telling(found.environment) == _telling(records[-1].environment)]
    return chosen if last is None else chosen[-last:]


def newest_runs(store: ResultsStore, records: Sequence[Record], last: Optional[int] = None) -> CaseRuns:
    """The runs of `newest_records`."""
    newest, chosen = records[-1], newest_records(records, last)
    return CaseRuns(
        case_id=newest.case_id,
        conditions=newest.comparable,
        environment=newest.environment,
        runs=tuple(_run(store, found) for found in chosen),
        older=len(records) - len(chosen),
    )


def _telling(environment: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in environment.items() if name not in SAYS_NOTHING}


def _run(store: ResultsStore, found: Record) -> Run:
    counted = counted_minibatches(store.minibatches(found.id), whole_epochs=found.case.settings.epochs is not None)
    times_ms = tuple(round(minibatch.e2e_ms, _DECIMALS) for minibatch in counted)
    return Run(found.run_id, found.created_at, tuple(found.flags), times_ms)


def _to_json(case: CaseRuns) -> Dict[str, Any]:
    estimate = case.interval()
    return {
        "case": case.case_id,
        "conditions": case.conditions,
        "median_ms": round(estimate.value, _DECIMALS),
        "interval_ms": [round(estimate.low, _DECIMALS), round(estimate.high, _DECIMALS)],
        "environment": case.environment,
        "runs": [
            {
                "run_id": run.run_id,
                "created_at": run.created_at,
                "flags": run.flags,
                "minibatch_times_ms": run.times_ms,
            }
            for run in case.runs
        ],
    }


def _from_json(case: Mapping[str, Any]) -> CaseRuns:
    runs = tuple(
        Run(run["run_id"], run["created_at"], tuple(run["flags"]), tuple(map(float, run["minibatch_times_ms"])))
        for run in case["runs"]
    )
    if not runs or not all(run.times_ms and min(run.times_ms) > 0 for run in runs):
        raise ValueError(f"case {case['case']} has a run without minibatch times, or one of 0")
    return CaseRuns(case["case"], dict(case["conditions"]), dict(case["environment"]), runs)
