"""The gate: figures of an evaluation held against recorded ones, with a tolerance that comes from their spread.

A median of n repeats whose quartiles are q1 and q3 has a standard error of about 1.253 (q3 - q1) / (1.349 sqrt(n)), and
the difference of two of them sqrt(2) times that (Kenney, Keeping: Mathematics of Statistics, 1962, on the median of
normal samples). Where a median rose by more than three such errors it is not chance.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.files import write_output
from harness.core.terminal import format_table
from predictors.evaluation import Spread, read_recorded

STANDARD_ERRORS = 3.0
LEAST_TOLERANCE = 0.05
"""Share of the recorded median that is always allowed: other versions of NumPy and scikit-learn round otherwise."""


class Kind(NamedTuple):
    """What is gated.

    Attributes:
        key: what tells an entry from others; the first two are what one test runs.
        figures: each stands in an entry as median, q1 and q3 over repeats, in points; less is better.
        least_points: how many points more than recorded are always allowed.
    """

    key: Tuple[str, ...]
    figures: Tuple[str, ...]
    least_points: float = 0.0


PREDICTORS = Kind(("corpus", "predictor", "target", "modes"), ("time_mape", "power_mape"))
STRATEGIES = Kind(("corpus", "strategy", "target", "profiles"), ("penalty", "over_limit_plus1"), least_points=1.0)
"""A choice is one of thousands of modes: another rounding may well find another one that is nearly as good."""


class GateVerdict(NamedTuple):
    """One recorded figure and what is found now.

    Attributes:
        key: the entry and the figure, in words.
        recorded: None where it was not recorded.
        found: the median now; None where there is none any more.
        tolerance: how much more than recorded is allowed, in points; None without a record.
        passed: whether it is within; also where nothing was recorded or expected.
    """

    key: str
    recorded: Optional[float]
    found: Optional[float]
    tolerance: Optional[float]
    passed: bool


def tolerance(recorded: Spread, repeats: int, least_points: float = 0.0) -> float:
    """How much a median may rise, in the unit of the spread."""
    error = 1.253 * (recorded.q3 - recorded.q1) / (1.349 * math.sqrt(repeats))
    return max(STANDARD_ERRORS * math.sqrt(2) * error, LEAST_TOLERANCE * recorded.median, least_points)


def entries_of(results: Sequence[Mapping[str, Any]], corpus: str, kind: Kind = PREDICTORS) -> List[Dict[str, Any]]:
    """What of an evaluation's results is worth recording.

    Args:
        results: with the names of `kind`, as `predictors.trials` gives them.
        corpus: a name for what they were got on.
        kind: what is gated.
    """
    parts = [f"{figure}_{part}" for figure in kind.figures for part in Spread._fields]
    return [
        {
            "corpus": corpus,
            **{name: result[name] for name in (*kind.key[1:], "repeats", "provenance")},
            **{name: None if result[name] is None else round(result[name], 4) for name in parts},
        }
        for result in results
    ]


def check(
    recorded: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], kind: Kind = PREDICTORS
) -> List[GateVerdict]:
    """Hold found entries against recorded ones.

    An entry that was never recorded passes, and says so by `recorded` being None. A recorded figure that is None now,
    or is not among what its predictor or strategy gave on that corpus now, fails.
    """
    now = {tuple(entry[name] for name in kind.key): entry for entry in found}
    before = {tuple(entry[name] for name in kind.key): entry for entry in recorded}
    tried = {key[:2] for key in now}
    verdicts = []
    for key in dict.fromkeys([*before, *now]):
        if key[:2] not in tried:
            continue  # that was not run now
        verdicts += [_verdict(key, figure, before.get(key), now.get(key), kind.least_points) for figure in kind.figures]
    return verdicts


def _verdict(
    key: Sequence[Any],
    figure: str,
    before: Optional[Mapping[str, Any]],
    now: Optional[Mapping[str, Any]],
    least_points: float,
) -> GateVerdict:
    name = " ".join(map(str, (*key, figure)))
    value = None if now is None else now[f"{figure}_median"]
    if before is None or before[f"{figure}_median"] is None:
        return GateVerdict(name, None, value, None, True)
    spread = Spread(*(before[f"{figure}_{part}"] for part in Spread._fields))
    allowed = tolerance(spread, before["repeats"], least_points)
    return GateVerdict(name, spread.median, value, allowed, value is not None and value <= spread.median + allowed)


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


def record(
    path: Path, found: Sequence[Mapping[str, Any]], environment: Mapping[str, Any], kind: Kind = PREDICTORS
) -> None:
    """Write found entries in the place of those of the same corpus and predictor or strategy; others stay.

    Raises:
        StoreError: the file cannot be written.
    """
    tried = {tuple(entry[name] for name in kind.key[:2]) for entry in found}
    kept = [entry for entry in read_recorded(path) if tuple(entry[name] for name in kind.key[:2]) not in tried]
    entries = sorted([*kept, *found], key=lambda entry: [str(entry[name]).rjust(8) for name in kind.key])
    content = {"environment": dict(environment), "entries": entries}
    write_output(path, (json.dumps(content, indent=1) + "\n").encode("utf-8"))
