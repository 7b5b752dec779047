"""E3, E4: storage media, without workers and cold, and with workers and warm (004 Fig 3, 003 sec. III.B/C)."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from harness.core.cases import DROPPED
from harness.report.colours import listed
from harness.report.figure import CATEGORY, Axis, Curve, Figure, Panel, Series
from harness.report.figures.stacks import COLUMNS, HOW, LEGEND, WITH_FIRST, Column, parts_of, row_of, stacked_panel
from harness.report.selection import Family, Material, by_device, families, file_name, trained
from harness.store.rows import Record

USUAL_WORKERS = 4  # 004 sec. 4.4
LEAST_CURVE = 3
"""Numbers of workers that a curve over them needs."""


def storage_figures(material: Material) -> List[Figure]:
    """Worst case (no workers, epoch 0) beside the expected one (workers, epochs 1 and later), for each device."""
    records = [record for record in trained(material.records) if record.case.settings.cache != DROPPED[1]]
    found = families(records, "workers and storage", _workers_and_storage)
    on_several = [family for family in found if len({storage for _, storage in family.values}) > 1]
    figures = []
    for device, members in by_device(on_several).items():
        media = sorted({storage for family in members for _, storage in family.values})
        panels: List[Panel] = []
        rows: List[Tuple[Any, ...]] = []
        for family in members:
            made = stacked_panel(family.workload, _columns(family), "workers and epoch; storage medium")
            curve = _curve(family, media)
            panels += [panel for panel in (made[0] if made else None, curve) if panel is not None]
            rows += made[1] if made else []
            rows += _rows(family) if curve else []
        if panels:
            caption = (
                "E3, E4: does the storage medium matter, and how many workers hide it? Without workers in epoch 0, the"
                " worst case, and with workers in epochs 1 and later, the expected one; w: workers, e: epochs; where"
                f" enough numbers of workers were run, the time of the cold epoch 0 against them. {WITH_FIRST} {HOW}"
            )
            name, title = f"storage-{file_name(device)}", f"Storage media on {device}"
            curves = any(isinstance(mark, Curve) for panel in panels for mark in panel.marks)
            signs = tuple(Series(medium, _colour(place), place) for place, medium in enumerate(media)) if curves else ()
            series = (*LEGEND, *signs)
            figures.append(Figure(name, title, caption, tuple(panels), series, COLUMNS, tuple(dict.fromkeys(rows))))
    return figures


def _workers_and_storage(record: Record) -> Optional[Tuple[int, str]]:
    case = record.case
    return None if case.workers is None or case.storage is None else (case.workers, case.storage)


def _columns(family: Family) -> List[Column]:
    """Epoch 0 of no workers, and later epochs of the usual number or the greatest; both epochs where all are alike."""
    workers = sorted({count for count, _ in family.values})
    many = USUAL_WORKERS if USUAL_WORKERS in workers else workers[-1]
    shown = [(workers[0], True), (many, False)]
    return [
        Column(f"{storage}\nw{count} e{'0' if first_epoch else '1+'}", record, first_epoch)
        for wanted, first_epoch in shown
        for (count, storage), record in zip(family.values, family.records)
        if count == wanted
    ]


def _colour(place: int) -> str:
    """The colour of a medium's curve; those of stall and compute are left to the bars."""
    return listed(place + 2)


def _curve(family: Family, media: Sequence[str]) -> Optional[Panel]:
    """Time of epoch 0 against workers, a curve for each medium; None for too few."""
    workers = sorted({count for count, _ in family.values})
    curves = []
    for place, medium in enumerate(media):
        known = [
            (workers.index(count), parts.time_s)
            for (count, storage), record in zip(family.values, family.records)
            for parts in [parts_of(record, first_epoch=True)]
            if storage == medium and parts is not None
        ]
        if len(known) >= LEAST_CURVE:
            xs, ys = tuple(float(x) for x, _ in known), tuple(y for _, y in known)
            tip, dashed = f"{medium}: time of epoch 0", family.provenance == "simulated"
            curves.append(Curve(_colour(place), xs, ys, tip, dashed=dashed, marker=place))
    if len(curves) < 2:
        return None
    axes = Axis("workers", CATEGORY, tuple(map(str, workers))), Axis("time of epoch 0 (s)")
    return Panel(f"{family.workload}: workers", *axes, tuple(curves), family.provenance)


def _rows(family: Family) -> List[Tuple[Any, ...]]:
    parts = [(record, parts_of(record, first_epoch=True)) for record in family.records]
    return [row_of(record, one) for record, one in parts if one is not None]
