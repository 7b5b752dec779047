"""The gate: figures of an evaluation held against recorded ones of the same seeds and rows.

Where software and machine compute as those that recorded, the figures are nearly equal or something has changed.
Elsewhere other rounding moves each repeat a little: repeats are paired by seed, so that the luck of the draw cancels,
and the mean of the differences may rise by three of its standard errors, at most by a quarter of what was recorded.
What is better passes.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.environment import package_version
from harness.core.files import write_output
from harness.core.terminal import format_table
from predictors.evaluation import Spread, read_recorded, spread

NEARLY_EQUAL = 0.01
NEARLY_EQUAL_POINTS = 0.02  # of what is nearly 0
STANDARD_ERRORS = 3.0
LEAST_TOLERANCE, MOST_TOLERANCE = 0.05, 0.25
"""Shares of the recorded mean that other software and machines may always, and never, make of it."""


class Kind(NamedTuple):
    """What is gated."""

    key: Tuple[str, ...]  # what tells an entry from others; the first two are what one test runs
    figures: Tuple[str, ...]  # in points, less is better; an entry has their spread over repeats and each, `by_repeat`
    least_points: float = 0.0  # how much more than recorded other software and machines may always give


PREDICTORS = Kind(("corpus", "predictor", "target", "modes"), ("time_mape", "power_mape"))
STRATEGIES = Kind(
    ("corpus", "strategy", "target", "profiles"), ("penalty", "over_limit_plus1", "violations"), least_points=1.0
)
"""A choice is one of thousands of modes: another rounding may well find another one that is nearly as good."""


class GateVerdict(NamedTuple):
    """One figure: means over repeats as recorded and as found, None where there is none; how much more is allowed."""

    key: str
    recorded: Optional[float]
    found: Optional[float]
    tolerance: Optional[float]
    passed: bool


def computed_by() -> str:
    """What the last digits of a figure depend on: versions, and what the linear algebra is written for."""
    from threadpoolctl import threadpool_info

    kinds = {f"{one['internal_api']} {one.get('architecture', '')}".strip() for one in threadpool_info()}
    versions = [f"{name} {package_version(name)}" for name in ("numpy", "scipy", "scikit-learn")]
    return ", ".join(["python " + ".".join(platform.python_version_tuple()[:2]), *versions, *sorted(kinds)])


def tolerance(recorded: Sequence[float], found: Sequence[float], alike: bool, least_points: float = 0.0) -> float:
    """How much the mean over repeats, in the order of their seeds, may rise where both are computed alike, or not."""
    mean = float(np.mean(np.abs(recorded)))
    if alike:
        return max(NEARLY_EQUAL * mean, NEARLY_EQUAL_POINTS)
    differences = np.subtract(found, recorded)
    error = float(np.std(differences, ddof=1)) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return max(min(STANDARD_ERRORS * error, MOST_TOLERANCE * mean), LEAST_TOLERANCE * mean, least_points)


def entries_of(results: Sequence[Mapping[str, Any]], corpus: str, kind: Kind = PREDICTORS) -> List[Dict[str, Any]]:
    """What of an evaluation's results, in which a figure is the list of what its repeats gave, is worth recording."""
    entries, by = [], computed_by()
    for result in results:
        entry = {"corpus": corpus, **{name: result[name] for name in (*kind.key[1:], "repeats", "provenance")}}
        for figure in kind.figures:
            values = result[figure]
            known = None if any(value is None for value in values) else spread(values)
            parts = Spread(None, None, None) if known is None else Spread(*(round(value, 4) for value in known))
            entry.update({f"{figure}_{name}": value for name, value in parts._asdict().items()})
            entry[f"{figure}_by_repeat"] = None if known is None else [round(float(value), 4) for value in values]
        entries.append({**entry, "computed_by": by})
    return entries


Entries = Sequence[Mapping[str, Any]]


def check(recorded: Entries, found: Entries, kind: Kind = PREDICTORS, part: bool = False) -> List[GateVerdict]:
    """Hold found entries against recorded ones.

    An entry that was never recorded passes. A recorded figure that is None now, has other repeats, or is not among what
    its predictor or strategy gave on that corpus now, fails; of a `part` of what was recorded only the last does not.
    """
    now = {tuple(entry[name] for name in kind.key): entry for entry in found}
    before = {tuple(entry[name] for name in kind.key): entry for entry in recorded}
    tried = {key[:2] for key in now}
    verdicts = []
    for key in dict.fromkeys([*before, *now]):
        if key[:2] not in tried or (part and key not in now):
            continue  # that was not run now
        verdicts += [_verdict(key, figure, before.get(key), now.get(key), kind.least_points) for figure in kind.figures]
    return verdicts


Entry = Optional[Mapping[str, Any]]


def _verdict(key: Sequence[Any], figure: str, before: Entry, now: Entry, least_points: float) -> GateVerdict:
    name = " ".join(map(str, (*key, figure)))
    values = None if now is None else now[f"{figure}_by_repeat"]
    mean = None if values is None else float(np.mean(values))
    if before is None or before[f"{figure}_by_repeat"] is None:
        return GateVerdict(name, None, mean, None, True)
    recorded = before[f"{figure}_by_repeat"]
    if values is None or len(values) != len(recorded):
        return GateVerdict(name, float(np.mean(recorded)), mean, None, False)
    allowed = tolerance(recorded, values, now["computed_by"] == before["computed_by"], least_points)
    return GateVerdict(name, float(np.mean(recorded)), mean, allowed, mean <= np.mean(recorded) + allowed)


def format_verdicts(verdicts: Sequence[GateVerdict]) -> str:
    """A line for each figure: recorded, found, difference, what is allowed."""
    rows = []
    for one in verdicts:
        known = one.recorded is not None and one.found is not None
        difference = f"{one.found - one.recorded:+.2f}" if known else "-"  # type: ignore[operator]
        shown = ["-" if value is None else f"{value:.2f}" for value in (one.recorded, one.found)]
        allowed = "-" if one.tolerance is None else f"+{one.tolerance:.2f}"
        verdict = "not recorded" if one.recorded is None else "ok" if one.passed else "WORSE"
        rows.append([one.key, *shown, difference, allowed, verdict])
    return format_table(["figure", ">recorded %", ">found %", ">difference", ">allowed", "verdict"], rows)


def record(path: Path, found: Entries, environment: Mapping[str, Any], kind: Kind = PREDICTORS) -> None:
    """Write found entries in the place of those of the same corpus and predictor or strategy; others stay."""
    tried = {tuple(entry[name] for name in kind.key[:2]) for entry in found}
    kept = [entry for entry in read_recorded(path) if tuple(entry[name] for name in kind.key[:2]) not in tried]
    entries = sorted([*kept, *found], key=lambda entry: [str(entry[name]).rjust(8) for name in kind.key])
    content = {"environment": dict(environment), "entries": entries}
    write_output(path, (json.dumps(content, indent=1) + "\n").encode("utf-8"))
