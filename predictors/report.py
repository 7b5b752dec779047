"""What an evaluation found, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from harness.core.environment import describe_environment
from harness.core.files import write_output
from harness.core.terminal import format_table
from predictors.trials import Results

HEADER = (
    *("predictor", "target", ">modes", ">time MAPE %", ">Q1-Q3", ">power MAPE %", ">Q1-Q3", ">all modes"),
    *(">without slice", ">80 % holds", ">profiling min", ">fit s", ">predict s"),
)

LEGEND = """\
time and power MAPE: on the modes that were not used to fit, median over repeats
all modes: time / power with those used to fit included, as the papers have it
without slice: time / power on modes not used to fit, outside the part of the table that is known to be odd
80 % holds: share of the observed times / powers that lie within the 80 % interval
profiling: 3 s and 41 minibatches for each mode"""


def format_results(results: Sequence[Mapping[str, Any]]) -> str:
    """A line for each result, its provenance above them."""
    rows = []
    for result in results:
        without = result["without_slice"] or {}
        rows.append(
            [
                result["predictor"],
                result["target"],
                str(result["n_modes"]),
                _figure(result["time_mape_median"]),
                _range(result, "time_mape"),
                _figure(result["power_mape_median"]),
                _range(result, "power_mape"),
                _pair(result["all_modes"], "time_mape_median", "power_mape_median"),
                _pair(without, "time_mape_median", "power_mape_median"),
                _pair(result["coverage"], "time_80", "power_80", digits=0),
                f"{result['profiling_seconds'] / 60:.1f}",
                f"{result['fit_seconds']:.2f}",
                f"{result['predict_seconds']:.2f}",
            ]
        )
    kinds = ", ".join(sorted({result["provenance"] for result in results}))
    return f"tested on {kinds} corpora\n{format_table(HEADER, rows)}\n{LEGEND}"


def format_skipped(skipped: Sequence[Mapping[str, Any]]) -> str:
    """A line for each reason why something was skipped."""
    reasons: Dict[str, List[str]] = {}
    for one in skipped:
        reasons.setdefault(f"{one['predictor']}: {one['reason']}", []).append(
            f"{one['target']} at {one['modes']} modes"
        )
    return "\n".join(f"skipped {reason} ({', '.join(where)})" for reason, where in reasons.items())


def write_results(path: Path, found: Results, **further: Any) -> None:
    """Write results as JSON, whole or not at all.

    Args:
        path: of the file.
        found: what to write.
        further: plain values that go with it: the corpora with their hashes, the options.

    Raises:
        StoreError: the file cannot be written.
    """
    content = {
        **further,
        "environment": describe_environment(),
        "results": found.results,
        "skipped": found.skipped,
    }
    write_output(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode("utf-8"))


def _figure(value: Optional[float], digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _range(result: Mapping[str, Any], what: str) -> str:
    if result[f"{what}_q1"] is None:
        return "-"
    return f"{_figure(result[f'{what}_q1'], 1)}-{_figure(result[f'{what}_q3'], 1)}"


def _pair(values: Mapping[str, Any], first: str, second: str, digits: int = 2) -> str:
    return f"{_figure(values.get(first), digits)} / {_figure(values.get(second), digits)}"
