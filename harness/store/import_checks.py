"""What is wrong with rows that look right by themselves: values far from what is expected, the same case twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import Fault
from harness.core.power_modes import PowerMode

if TYPE_CHECKING:
    import pandas as pd

FAR = 100.0
"""A value that is so many times too great or too small for its row has another unit: nothing else in a corpus is.

The slowest of 4,368 modes of an Orin AGX takes 36 times as long as the fastest (001 sec. 1.1), and is compared with
what the model or its neighbours say of that very mode.
"""

NEIGHBOURS = 5

_SAME_CASE = (
    "device", "workload", "task", *PowerMode._fields, "batch_size", "provenance",
    # of an export, where they are there; `key` is the hash of all conditions
    "workers", "storage", "cache", "clocks", "minibatches", "epochs_asked", "data_scale", "seed", "tpc_mask", "key",
)  # fmt: skip

_TOO_LARGE = {"minibatch_time_ms": "us", "power_mw": "uW"}
_TOO_SMALL = {"minibatch_time_ms": "s", "power_mw": "W"}

Expected = Dict[str, Sequence[float]]
"""About what `minibatch_time_ms` and `power_mw` of some rows should be; NaN where nothing is known of one."""


def check_rows(
    table: pd.DataFrame, faults: Mapping[str, Fault], of_model: Callable[[pd.DataFrame], Optional[Expected]]
) -> Dict[str, Fault]:
    """What is wrong with rows, by their place and in their order; those with a fault before keep it.

    A row is wrong where time or power are off by a factor of 1,000 (against the physical model, or where it knows
    nothing, against the nearest modes of the same workload), or where an earlier row is of the same case.

    `of_model` says what is expected of rows of one device, workload, task and batch size; None where it knows nothing.
    """
    found = dict(faults)
    sound = table.drop(list(found))
    for _, part in sound.groupby(["device", "workload", "task", "batch_size"], sort=False):
        expected = of_model(part) or {column: _of_neighbours(part, column) for column in _TOO_LARGE}
        for column, values in expected.items():
            for place, value, about in zip(part.index, part[column].astype(float), values):
                ratio = value / about
                if place not in found and (ratio > FAR or ratio < 1 / FAR):  # neither where one of them is unknown
                    problem = f": that looks like {(_TOO_LARGE if ratio > FAR else _TOO_SMALL)[column]}"
                    text = f"{column} is {value:g}{problem}, some {about:.3g} are expected"
                    found[place] = Fault(text, column + problem)
    seen: Dict[Tuple[str, ...], str] = {}
    cases = table.reindex(columns=_SAME_CASE)
    for place, *cells in cases.drop(list(found)).itertuples(name=None):
        earlier = seen.setdefault(tuple(map(_text, cells)), place)
        if earlier != place:
            found[place] = Fault(f"the same case as {earlier}", "same case")
    return {place: found[place] for place in table.index if place in found}


def _of_neighbours(part: pd.DataFrame, column: str) -> np.ndarray:
    """The median of the nearest other modes; NaN where there are too few to tell a wrong one from a right one."""
    values = part[column].to_numpy(float)
    modes = np.log(np.maximum(part[list(PowerMode._fields)].to_numpy(float), 1))
    expected = np.full(len(values), np.nan)
    for place, mode in enumerate(modes):
        distance = np.abs(modes - mode).sum(axis=1)
        distance[place] = np.inf
        distance[np.isnan(values)] = np.inf
        near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        near = near[np.isfinite(distance[near])]
        if len(near) > 1:
            expected[place] = np.median(values[near])
    return expected


def _text(value: Any) -> str:
    """A cell as text, the same from CSV, Parquet and a results file."""
    if value is None or value == "" or value != value:  # NaN
        return ""
    try:
        return f"{float(value):g}" if not isinstance(value, bool) else str(value)
    except ValueError:
        return str(value)
