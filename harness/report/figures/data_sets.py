"""E6: data sets of several sizes: is time linear in size, and what when the page cache is full (003 Figs 6-8)?"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from harness.core.metrics import epoch_sums
from harness.core.units import BYTES_PER_GIB, BYTES_PER_MIB, share_to_percent
from harness.report.colours import listed
from harness.report.drawing import cells, panel_of, thinned
from harness.report.figure import Axis, Curve, Figure, LegendEntry, Panel, Rule
from harness.report.material import Family, Material, Row, file_name
from harness.store.frames import minibatches, telemetry

MOST_SIZES = 3
"""Sizes whose course over time is drawn: least, middle and greatest."""

POINTS = 240
PARTS = (("end to end", "compute", "time"), ("fetch stall", "stall", "stall"))
"""Names, colours and keys of the parts of an epoch's time."""


def scaling_figures(material: Material) -> List[Figure]:
    """Two figures for each device, workload and medium: time against size, and the course over time."""
    whole = [row for row in material.trained() if row.case.settings.epochs is not None]
    figures = []
    for family in material.families(whole, "data_samples", split_by=("storage",)):
        if max(family.values) >= 1.2 * min(family.values):
            where = (family.device, family.workload, str(family.rows[0].storage))
            of = f"{family.workload} on {family.device}, {where[2]}"
            figures += [_linearity(family, file_name("scaling", *where), of)]
            figures += [_course(material, family, file_name("scaling-course", *where), of)]
    return figures


def _linearity(family: Family, name: str, of: str) -> Figure:
    sizes = [row.conditions.get("data_bytes") for row in family.rows]
    xs, x_label = [float(samples) for samples in family.values], "samples in the data set (1)"
    if None not in sizes:
        unit, unit_name = (BYTES_PER_GIB, "GiB") if max(sizes) >= BYTES_PER_GIB else (BYTES_PER_MIB, "MiB")
        xs, x_label = [size / unit for size in sizes], f"size of the data set ({unit_name})"
    panels = []
    for title, prefix in (("epoch 0", "epoch0"), ("epochs 1 and later", "epoch")):
        curves = []
        for place, (part, colour, key) in enumerate(PARTS):
            values = [getattr(row, f"{prefix}_{key}_s") for row in family.rows]
            points = [(x, value) for x, value in zip(xs, values) if value is not None]
            ends = tuple(x for x, _ in points), tuple(float(y) for _, y in points)
            dashed = family.provenance == "simulated"
            curves.append(Curve(colour, *ends, f"{part}, {title}", dashed=dashed, marker=place))
        panels.append(panel_of(title, Axis(x_label), Axis("time of an epoch (s)"), curves, family.rows, family.varies))
    caption = (
        "E6: is the time of an epoch linear in the size of the data set? End-to-end time and fetch stall of an epoch"
        " in s; dashed: simulated. What exceeds the page cache is read again in every epoch."
    )
    figures = ("epoch0_time_s", "epoch0_stall_s", "epoch_time_s", "epoch_stall_s", "provenance")
    rows = [
        (family.device, family.workload, row.storage, samples, size, *cells(row, figures))
        for samples, size, row in zip(family.values, sizes, family.rows)
    ]
    series = [LegendEntry(part, colour) for part, colour, _ in PARTS]
    columns = ("device", "workload", "storage", "data_samples", "data_bytes", *figures)
    return Figure(name, f"{of}: data sets of several sizes", caption, panels, series, columns, rows)


def _course(material: Material, family: Family, name: str, of: str) -> Figure:
    count = len(family.rows)
    panels: List[Panel] = []
    rows: List[Tuple[Any, ...]] = []
    for place in sorted({0, count // 2, count - 1}) if count > MOST_SIZES else range(count):
        row = family.rows[place]
        made, data = _course_of(material, row, _size_text(row))
        panels += made
        rows += data
    caption = (
        "E6: share of the data set in the page cache (%), read requests to the medium (1/s) and fetch stall of a"
        f" minibatch (ms) over time; dotted lines: borders of epochs. At most {POINTS} points a curve, evenly taken."
        " The CSV file has what is drawn."
    )
    columns = ("data_set", "quantity", "unit", "time_s", "value", "provenance")
    return Figure(name, f"{of}: over time", caption, panels, (), columns, rows)


def _course_of(material: Material, row: Row, size: str) -> Tuple[List[Panel], List[Tuple[Any, ...]]]:
    steps = list(minibatches(material.store, [row.id]).itertuples())
    start = steps[0].start_s
    borders = [Rule(epoch.start_s - start, vertical=True) for epoch in epoch_sums(steps)[1:]]
    samples = telemetry(material.store, [row.id], ("data_cached_share", "disk_reads_per_s"))
    curves: List[Tuple[str, str, Sequence[float], Sequence[float]]] = []
    for quantity, unit, channel, change in (
        ("cached", "%", "data_cached_share", share_to_percent),
        ("reads", "1/s", "disk_reads_per_s", float),
    ):
        known = samples[samples["channel"] == channel]
        if len(known):
            curves.append((quantity, unit, known["time_s"].tolist(), [change(value) for value in known["value"]]))
    curves.append(("fetch stall", "ms", [step.start_s for step in steps], [step.stall_ms for step in steps]))
    panels, rows = [], []
    for place, (quantity, unit, times, values) in enumerate(curves):  # telemetry begins before the first minibatch
        points = [(time - start, value) for time, value in zip(times, values) if time >= start]
        if len(points) < 2:  # too short a run for this sensor
            continue
        xs, ys = thinned([x for x, _ in points], [y for _, y in points], POINTS)
        title = f"{quantity}, {size}"
        axes = Axis("time since the first minibatch (s)"), Axis(f"{quantity} ({unit})")
        panels.append(panel_of(title, *axes, [*borders, Curve(listed(place), tuple(xs), tuple(ys), title)], [row]))
        rows += [(size, quantity, unit, x, y, row.provenance) for x, y in zip(xs, ys)]
    return panels, rows


def _size_text(row: Row) -> str:
    size = row.conditions.get("data_bytes")
    if size is None:
        return f"{row.data_samples} samples"
    return f"{size / BYTES_PER_GIB:.3g} GiB" if size >= 0.5 * BYTES_PER_GIB else f"{size / BYTES_PER_MIB:.3g} MiB"
