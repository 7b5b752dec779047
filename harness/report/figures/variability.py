"""E7: how much repetitions of the same work differ (004 Fig 5; 002 sec. II.4)."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np

from harness.core.metrics import epoch_sums
from harness.core.profiles import Minibatch
from harness.core.units import s_to_ms, share_to_percent
from harness.report.colours import listed
from harness.report.figure import CATEGORY, LINEAR, SYMLOG, Axis, Figure, Panel, Rule, Violin
from harness.report.scales import figure_text
from harness.report.selection import Material, device_name, file_name, trained
from harness.report.violins import FEWEST
from harness.stats.variability import variability
from harness.store.rows import Record

LEAST_VALUES = 20
MOST_VALUES = 2000
WIDE_PCT = 50.0
"""Deviations beyond this would flatten all others on a linear axis."""


def variability_figures(material: Material) -> List[Figure]:
    """A figure for each kind of board: a violin for each workload and device."""
    chosen: Dict[Tuple[str, str, str], Record] = {}
    for record in trained(material.records):
        if (record.aggregates.get("clean_minibatches") or 0) >= LEAST_VALUES and record.case.batch_size == 16:
            board = str(record.conditions.get("board") or device_name(record))
            place = (board, record.case.workload, device_name(record))
            before = chosen.get(place)
            if before is None or _rank(record) >= _rank(before):
                chosen[place] = record
    figures = []
    for board in dict.fromkeys(board for board, _, _ in chosen):
        panels: List[Panel] = []
        rows: List[Tuple[Any, ...]] = []
        for workload in dict.fromkeys(workload for one, workload, _ in chosen if one == board):
            members = [
                (device, record) for (one, name, device), record in chosen.items() if (one, name) == (board, workload)
            ]
            panel, data = _panel(material, workload, members)
            panels.append(panel)
            rows += data
        columns = (
            "device",
            "workload",
            "of",
            "count",
            "median_ms",
            "deviation_pct",
            "iqr_pct",
            "variation_pct",
            "provenance",
        )
        caption = (
            "E7: how much do repetitions differ? Deviation from the median in %: of the end-to-end time of epochs 1"
            f" and later where there are {FEWEST} or more of them, else of clean minibatches without the first of"
            " each epoch. Bar within: quartiles; dot: median; cut at the 0.5 and 99.5 % quantiles. Where some deviate"
            f" by more than {WIDE_PCT:g} %, the scale is logarithmic beyond 5 %. The CSV file has the greatest"
            " deviation, the interquartile range and the coefficient of variation."
        )
        title = f"Variability on {board}"
        figures.append(
            Figure(f"variability-{file_name(board)}", title, caption, tuple(panels), (), columns, tuple(rows))
        )
    return figures


def _within_epochs(minibatches: List[Minibatch]) -> List[float]:
    """Times in ms, without an epoch's first minibatch, which waits for workers to start; all if there is no other."""
    later = [one.e2e_ms for before, one in zip(minibatches, minibatches[1:]) if one.epoch == before.epoch]
    return later or [one.e2e_ms for one in minibatches]


def _rank(record: Record) -> Tuple[int, float]:
    """The papers' defaults first, then what was repeated more often."""
    case = record.case
    return int(case.workers == 4 and case.storage in ("ssd", None)), record.aggregates.get("epochs") or 0.0


def _panel(material: Material, workload: str, members: List[Tuple[str, Record]]) -> Tuple[Panel, List[Tuple[Any, ...]]]:
    marks, rows = [], []
    for place, (device, record) in enumerate(members):
        counted = material.store.profile(record.id).counted
        epochs = [s_to_ms(epoch.e2e_s) for epoch in epoch_sums(counted) if epoch.epoch > 0]
        of, values = ("epochs", epochs) if len(epochs) >= FEWEST else ("minibatches", _within_epochs(counted))
        found = variability(values)
        assert found is not None
        low, high = np.quantile(values, [0.005, 0.995])
        shown = [value for value in values if low <= value <= high]
        shown = shown[:: max(1, len(shown) // MOST_VALUES)]
        percents = tuple(share_to_percent(value / found.median - 1) for value in shown)
        variation = None if found.coefficient is None else share_to_percent(found.coefficient)
        tip = (
            f"{device}: {len(values)} {of}, interquartile range {figure_text(share_to_percent(found.interquartile))} %"
        )
        marks.append(
            Violin(
                float(place), percents, listed(place), f"{tip}; {record.provenance}", record.provenance == "simulated"
            )
        )
        rows.append(
            (
                *(device, workload, of, found.count, found.median, share_to_percent(found.deviation)),
                *(share_to_percent(found.interquartile), variation, record.provenance),
            )
        )
    names = tuple(device for device, _ in members)
    widest = max(abs(value) for mark in marks for value in mark.values)
    kind = SYMLOG if widest > WIDE_PCT else LINEAR
    provenance = ", ".join(sorted({record.provenance for _, record in members}))
    axes = Axis("device", CATEGORY, names), Axis("deviation from the median (%)", kind)
    return Panel(workload, *axes, (Rule(0.0), *marks), provenance), rows
