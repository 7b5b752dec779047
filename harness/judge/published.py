"""What the papers print of a comparison (`baselines/published/figures.csv`), beside what profiles of that board say."""

from __future__ import annotations

import functools
import math
from typing import Any, Dict, List, NamedTuple, Tuple

from harness.judge.evidence import COLD, WARM
from harness.judge.findings import Cell, Finding
from harness.judge.published_figures import CHANGE, CLOSE, Condition, Figure, load_figures
from harness.judge.view import View

QUANTITIES = {
    "epoch_time": "time",
    "stall_time": "stall",
    "compute_time": "compute",
    "minibatch_stall": "stall",
    "minibatch_compute": "compute",
    "energy": "energy",
    "power": "power",
    "gpu_utilisation": "gpu_load",
}
"""Metric of a figure to quantity of evidence."""

_PER_EPOCH = ("epoch_time", "stall_time", "compute_time", "energy")
_AXES = ("workers", "storage", "batch_size", "power_mode", "clocks")
_DEFAULT_MODES = {"xavier-nx": "6c-1420.8-1109.25-1600"}


def default_mode(board: str) -> str:
    """The power mode that 004 takes as a board's default: the greatest, but 15 W of NX (sec. 4.4 and Table 3)."""
    return _DEFAULT_MODES.get(board, "maxn")


class Comparison(NamedTuple):
    """A quantity in one condition over the same in another one, as printed: from least to greatest."""

    fact: str
    metric: str
    before: Condition
    after: Condition
    least: float
    greatest: float


def comparisons(fact: str) -> List[Comparison]:
    """What is printed.

    Args:
        fact: id of a ratio or a change; or two ids of values, `F919/F918`: the first over the second.
    """
    numerator, _, denominator = fact.partition("/")
    if denominator:
        (after,), (before,) = _figures()[numerator], _figures()[denominator]
        ratio = (after.least / before.greatest, after.greatest / before.least)
        return [Comparison(fact, after.metric, before.condition, after.condition, *ratio)]
    return [
        Comparison(fact, figure.metric, figure.versus, figure.condition, *_ratio(figure))
        for figure in _figures()[fact]
        if figure.versus is not None
    ]


def beside(view: View, *facts: str) -> Finding:
    """The ratios of a device over those that the papers print of its board; expected to be 1 within 15 %.

    A ratio within a printed range counts as 1; outside of it, it is compared with the nearer end.
    """
    cells = [
        cell._replace(mean=cell.mean._replace(value=cell.mean.value / min(max(cell.mean.value, low), high)))
        for fact in facts
        for comparison in comparisons(fact)
        if comparison.after.device == view.board
        for low, high in [(comparison.least, comparison.greatest)]
        for cell in _seen(view, comparison)
    ]
    return Finding(cells, "ratio / the paper's", above=1.0 - CLOSE, below=1.0 + CLOSE)


def boards_of(*facts: str) -> Tuple[str, ...]:
    """The boards that these figures are of."""
    return tuple(dict.fromkeys(one.after.device for fact in facts for one in comparisons(fact)))


def _seen(view: View, comparison: Comparison) -> List[Cell]:
    """The ratio in profiles of a device, from every two cases that are as in the paper."""
    before, after = comparison.before, comparison.after
    cold = [condition.cache == COLD for condition in (before, after)]
    wanted: Dict[str, Any] = {"workload": after.workload, "cache": (COLD,) if any(cold) else (WARM, COLD)}
    phases = tuple(COLD if is_cold else WARM for is_cold in cold)
    if before.data_scale == after.data_scale:
        wanted["data_scale"] = (None, 1.0) if after.data_scale == 1.0 else after.data_scale
        sizes = ({}, {})
    else:
        sizes = ({"data_scale": before.data_scale}, {"data_scale": after.data_scale})
    axes = [{name: _axis(condition, name) for name in _AXES} for condition in (before, after)]
    cells = view.compare(
        QUANTITIES[comparison.metric],
        {**axes[0], **sizes[0]},
        {**axes[1], **sizes[1]},
        phases=(phases[0], phases[1]),
        **wanted,
    )
    scale = after.data_scale / before.data_scale if comparison.metric in _PER_EPOCH else 1.0
    return [
        Cell(f"{comparison.fact}, {cell.label}", cell.mean._replace(value=cell.mean.value * scale)) for cell in cells
    ]


def _axis(condition: Condition, name: str) -> Any:
    if name == "power_mode" and condition.power_mode == "default":
        return default_mode(condition.device)
    return getattr(condition, name)


def _ratio(figure: Figure) -> Tuple[float, float]:
    """The least and the greatest ratio that the figure stands for."""
    ends = (figure.least, figure.greatest)
    low, high = (1.0 + end / 100.0 for end in ends) if figure.relation == CHANGE else ends
    if figure.comparator in ("<", "<="):
        return 0.0, high
    return (low, math.inf) if figure.comparator in (">", ">=") else (low, high)


@functools.lru_cache(maxsize=1)
def _figures() -> Dict[str, List[Figure]]:
    """The figures by their ids."""
    found: Dict[str, List[Figure]] = {}
    for figure in load_figures():
        found.setdefault(figure.fact, []).append(figure)
    return found
