"""The tail of minibatch times: which share of the minibatches takes longer than some time."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from harness.core.corpus import TASKS
from harness.report.figure import Axis, Figure, Mark, Panel, Spacing, Value, figure_of, panel_of
from harness.report.figures.repetition import ACROSS_WORKLOADS
from harness.report.material import Material, Row, by_defaults, cells, file_name, grouped

FEWEST_MINIBATCHES = 100  # of fewer, the slowest hundredth is not seen
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001)
COLUMNS = ("device", "workload", "task", "power_mode", "batch_size", "minibatches", "share", "time_ms", "provenance")


def tail_figures(material: Material) -> Iterator[Figure]:
    """A figure for each device, with a panel for each task and a curve for each workload: its longest profile."""
    timed = [row for row in material.rows if row.task in TASKS and row.has_raw]
    long = [row for row in timed if (row.clean_minibatches or 0) >= FEWEST_MINIBATCHES]
    for device, of_device in grouped(long, lambda row: row.label).items():
        panels: List[Panel] = []
        rows: List[Tuple[Any, ...]] = []
        entries: Dict[str, Any] = {}
        for task, of_task in grouped(of_device, lambda row: row.task).items():
            longest: Dict[str, Row] = {}
            for row in sorted(of_task, key=lambda row: (row.clean_minibatches, by_defaults(row), row.id)):
                longest[row.workload] = row
            for members in material.alike(list(longest.values()), ACROSS_WORKLOADS):
                panel, data = _tail_panel(material, task, members)
                panels.append(panel)
                rows += data
                entries.update({row.workload: material.entry(row) for row in members})
        name = file_name("tail", device)
        yield figure_of("tail", name, panels, list(entries.values()), COLUMNS, rows, device=device)


def _tail_panel(material: Material, task: str, members: List[Row]) -> Tuple[Panel, List[Tuple[Any, ...]]]:
    values, rows = [], []
    for row in members:
        steps = material.minibatches(row)
        times_ms = steps.loc[steps["counted"], "e2e_ms"].to_numpy()
        median_ms = float(np.median(times_ms))
        for share in SHARES:
            if share * len(times_ms) < 1:
                break
            time_ms = float(np.quantile(times_ms, 1 - share))
            values.append(Value(row.workload, time_ms / median_ms, share, row.provenance, apart=row.apart))
            about = cells(row, ("label", "workload", "task", "power_mode", "batch_size"))
            rows.append((*about, len(times_ms), share, time_ms, row.provenance))
    axes = Axis("time / median (1)", from_zero=False), Axis("share that takes longer (1)", Spacing.LOG)
    return panel_of(task, *axes, Mark.CURVES, values, members, ACROSS_WORKLOADS), rows
