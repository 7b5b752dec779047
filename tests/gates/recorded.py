"""The gate: figures of an evaluation held against recorded ones of the same seeds and rows.

Where software and machine compute as those that recorded, the figures are nearly equal or something has changed: what
is suddenly better fails too, until it is recorded. Elsewhere other rounding moves each repeat a little: repeats are
paired by seed, so that the luck of the draw cancels, and the mean of the differences may move by three of its standard
errors, within bounds. There a smaller error passes; a bias or a coverage fails either way.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.environment import package_version
from harness.core.errors import InvalidValueError, StoreError
from harness.core.files import read_json, write_output
from harness.core.terminal import format_table

NEARLY_EQUAL = 0.002
NEARLY_EQUAL_POINTS = 0.01  # of what is nearly 0
STANDARD_ERRORS = 3.0
LEAST_SHARE, MOST_SHARE = 0.05, 0.25
"""Shares of a recorded mean error that other software and machines may always, and never, make of it."""
USELESS = 100.0
"""A mean error above this, in %, is not recorded: a quarter of it is so much that it would guard nothing."""
DECIMALS = 3


class Figure(NamedTuple):
    """A figure in points, a value for each repeat, and by how much its mean may move on other software or machines."""

    name: str
    least_points: float = 0.0  # always
    most_points: Optional[float] = None  # never more; None: `MOST_SHARE` of the recorded mean, and `LEAST_SHARE` always
    either_way: bool = False  # whether it can be wrong either way; else less is better


class Kind(NamedTuple):
    """What is gated."""

    key: Tuple[str, ...]  # what tells an entry from others; the first two are what one test runs
    figures: Tuple[Figure, ...]


# On another processor `mlp` moves by up to 0.2 points of bias and 2 of coverage, and nothing else in the third digit:
# `powertrain` trains in double precision here. A factor of 0.9 on times is 10.5 points, one of 1.05 on powers 4.9.
PREDICTORS = Kind(
    ("corpus", "predictor", "target", "modes"),
    (
        Figure("time_mape"),
        Figure("power_mape"),
        Figure("time_bias", 3.0, 6.0, either_way=True),
        Figure("power_bias", 1.0, 4.0, either_way=True),
        Figure("time_80", 8.0, 15.0, either_way=True),
        Figure("power_80", 8.0, 15.0, either_way=True),
    ),
)

# A choice is one of thousands of modes: another rounding may well lead to another one that is nearly as good.
STRATEGIES = Kind(
    ("corpus", "strategy", "target", "profiles"),
    (
        Figure("penalty", 1.0),
        Figure("over_limit_plus1", 1.0),
        Figure("violations", 1.0),
        Figure("power_bias", 1.0, 4.0, either_way=True),
    ),
)

# Of `concurrent`: training that is lost against the best plan, the share of the worst limit that is used.
PLANS = Kind(
    ("corpus", "plan", "profiles"),
    (Figure("lost", 1.0), Figure("violations", 1.0), Figure("used", 1.0, 2.0, either_way=True)),
)

Entry = Mapping[str, Any]


class GateVerdict(NamedTuple):
    """One figure: means over repeats as recorded and as found, None where there is none; how far it may move."""

    key: str
    recorded: Optional[float]
    found: Optional[float]
    tolerance: Optional[float]
    passed: bool


COMPUTES = """
import numpy, scipy.linalg, threadpoolctl
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
pools = threadpoolctl.threadpool_info()
blas = {f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
        for pool in pools if pool["user_api"] == "blas"}
print(", ".join(sorted(blas)), "|", *(name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)))
"""


@functools.lru_cache(maxsize=None)
def computed_by() -> str:
    """What the last digits of a figure depend on: versions, the BLAS that NumPy and SciPy link to, vector instructions.

    A Python of its own is asked, which imports these two alone: what other tests have loaded here has no part in it.
    """
    asked = subprocess.run([sys.executable, "-c", COMPUTES], stdout=subprocess.PIPE, check=True, text=True)
    blas, instructions = asked.stdout.strip().split(" |")
    versions = [f"{name} {package_version(name)}" for name in ("numpy", "scipy", "scikit-learn")]
    python = "python " + ".".join(platform.python_version_tuple()[:2])
    machine = " ".join(filter(None, (platform.machine(), instructions.strip(), *platform.libc_ver())))
    return ", ".join([python, *versions, blas, machine])


def tolerance(recorded: Sequence[float], found: Sequence[float], alike: bool, figure: Figure) -> float:
    """How far the mean over repeats, in the order of their seeds, may move where both are computed alike, or not."""
    mean = float(np.mean(np.abs(recorded)))
    if alike:
        return max(NEARLY_EQUAL * mean, NEARLY_EQUAL_POINTS)
    differences = np.subtract(found, recorded)
    error = float(np.std(differences, ddof=1)) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    most = MOST_SHARE * mean if figure.most_points is None else figure.most_points
    least = LEAST_SHARE * mean if figure.most_points is None else 0.0
    return max(min(STANDARD_ERRORS * error, most), least, figure.least_points)


def entries_of(results: Sequence[Entry], corpus: str, kind: Kind = PREDICTORS) -> List[Dict[str, Any]]:
    """What of an evaluation's results, in which a figure is the list of what its repeats gave, is gated.

    A figure that a repeat lacks (None or NaN) is None.
    """
    entries = []
    for result in results:
        entry = {"corpus": corpus, **{name: result[name] for name in (*kind.key[1:], "provenance")}}
        for figure in kind.figures:
            values = np.array(result[figure.name], dtype=float)
            lacks = not len(values) or np.isnan(values).any()
            entry[figure.name] = None if lacks else [round(value, DECIMALS) for value in values.tolist()]
        entries.append({**entry, "computed_by": computed_by()})
    return entries


def worth_recording(entry: Entry, kind: Kind) -> Dict[str, Any]:
    """An entry without the figures that are too great to guard anything."""
    useless = [one.name for one in kind.figures if entry[one.name] and abs(np.mean(entry[one.name])) > USELESS]
    return {**entry, **dict.fromkeys(useless)}


def check(recorded: Sequence[Entry], found: Sequence[Entry], kind: Kind, part: bool = False) -> List[GateVerdict]:
    """Hold found entries against recorded ones.

    An entry that was never recorded passes, and so does a figure that was not. A recorded figure that is None now, has
    other repeats, or is not among what its predictor or strategy gave on that corpus now, fails; of a `part` of what
    was recorded only the last does not.
    """
    now = {tuple(entry[name] for name in kind.key): entry for entry in found}
    before = {tuple(entry[name] for name in kind.key): entry for entry in recorded}
    tried = {key[:2] for key in now}
    verdicts = []
    for key in dict.fromkeys([*before, *now]):
        if key[:2] not in tried or (part and key not in now):
            continue  # that was not run now
        verdicts += [_verdict(key, figure, before.get(key), now.get(key)) for figure in kind.figures]
    return verdicts


def _verdict(key: Sequence[Any], figure: Figure, before: Optional[Entry], now: Optional[Entry]) -> GateVerdict:
    name = " ".join(map(str, (*key, figure.name)))
    values = None if now is None else now[figure.name]
    mean = None if values is None else float(np.mean(values))
    recorded = None if before is None else before[figure.name]
    if before is None or recorded is None:
        return GateVerdict(name, None, mean, None, True)
    if now is None or values is None or len(values) != len(recorded):
        return GateVerdict(name, float(np.mean(recorded)), mean, None, False)
    alike = now["computed_by"] == before["computed_by"]
    allowed, moved = tolerance(recorded, values, alike, figure), mean - float(np.mean(recorded))
    passed = (abs(moved) if alike or figure.either_way else moved) <= allowed
    return GateVerdict(name, float(np.mean(recorded)), mean, allowed, passed)


def format_verdicts(verdicts: Sequence[GateVerdict]) -> str:
    """A line for each figure that there is: recorded, found, difference, what is allowed."""
    rows = []
    for one in verdicts:
        if one.recorded is None and one.found is None:
            continue
        both = one.recorded is not None and one.found is not None
        difference = one.found - one.recorded if both else None  # type: ignore[operator]
        shown = ["-" if value is None else f"{value:.2f}" for value in (one.recorded, one.found)]
        shown.append("-" if difference is None else f"{difference:+.2f}")
        shown.append("-" if one.tolerance is None else f"{one.tolerance:.2f}")
        failed = "CHANGED" if difference is not None and difference < 0 else "WORSE"
        verdict = "not recorded" if one.recorded is None else "ok" if one.passed else failed
        rows.append([one.key, *shown, verdict])
    return format_table(["figure", ">recorded %", ">found %", ">difference", ">allowed", "verdict"], rows)


def record(path: Path, found: Sequence[Entry], environment: Mapping[str, Any], kind: Kind) -> None:
    """Write found entries in the place of those of the same corpus and predictor or strategy; others stay.

    An entry is a line, so that a change of the file reads as what changed.
    """
    tried = {tuple(entry[name] for name in kind.key[:2]) for entry in found}
    kept = [entry for entry in read_recorded(path) if tuple(entry[name] for name in kind.key[:2]) not in tried]
    entries = [*kept, *(worth_recording(entry, kind) for entry in found)]
    entries.sort(key=lambda entry: [str(entry[name]).rjust(8) for name in kind.key])
    computers = sorted({entry["computed_by"] for entry in entries})
    lines = [
        json.dumps({**entry, "computed_by": computers.index(entry["computed_by"])}, separators=(", ", ":"))
        for entry in entries
    ]
    head = json.dumps({"environment": dict(environment), "computed_by": computers}, indent=1)
    text = head[: head.rindex("}")].rstrip() + ',\n "entries": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    write_output(path, text.encode("utf-8"))


def read_recorded(path: Path) -> List[Dict[str, Any]]:
    """The entries of `baselines/recorded`, each with what computed it; none without a file."""
    if not path.exists():
        return []
    try:
        content = read_json(path)
        computers = content["computed_by"]
        return [{**entry, "computed_by": computers[entry["computed_by"]]} for entry in content["entries"]]
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidValueError(f"{path} holds no recorded errors: {error!r}", "record them again") from error
