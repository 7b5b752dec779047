"""E6: data sets of several sizes: is time linear in size, and what when the page cache is full (003 Figs 6-8)?"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from harness.core.metrics import epoch_sums
from harness.core.profiles import Profile
from harness.core.units import BYTES_PER_GIB, BYTES_PER_MIB, share_to_percent
from harness.report.colours import listed
from harness.report.figure import Axis, Curve, Figure, Mark, Panel, Rule, Series
from harness.report.figures.thinning import thinned
from harness.report.selection import Family, Material, families, file_name, trained

MOST_SIZES = 3
"""Sizes whose course over time is drawn: least, middle and greatest."""

POINTS = 240


def scaling_figures(material: Material) -> List[Figure]:
    """Two figures for each device, workload and medium: time against size, and the course over time."""
    whole = [record for record in trained(material.records) if record.case.settings.epochs is not None]
    found = families(whole, "data_samples", lambda record: record.conditions.get("data_samples"), split_by=("storage",))
    figures = []
    for family in found:
        if max(family.values) >= 1.2 * min(family.values):
            figures += [_linearity(family), _course(material, family)]
    return figures


def _linearity(family: Family) -> Figure:
    sizes = [record.conditions.get("data_bytes") for record in family.records]
    xs, x_label = tuple(map(float, family.values)), "samples in the data set (1)"
    if all(size is not None for size in sizes):
        unit, name = (BYTES_PER_GIB, "GiB") if max(sizes) >= BYTES_PER_GIB else (BYTES_PER_MIB, "MiB")
        xs, x_label = tuple(size / unit for size in sizes), f"size of the data set ({name})"
    marks: List[Mark] = []
    shown = (("epoch 0", "epoch0_time_s", "epoch0_stall_s"), ("epochs 1 and later", "epoch_time_s", "epoch_stall_s"))
    panels = []
    for title, time, stall in shown:
        marks = []
        for place, (name, key) in enumerate((("end to end", time), ("fetch stall", stall))):
            points = [
                (x, record.aggregates[key])
                for x, record in zip(xs, family.records)
                if record.aggregates.get(key) is not None
            ]
            marks.append(
                Curve(
                    ("compute", "stall")[place],
                    tuple(x for x, _ in points),
                    tuple(float(y or 0) for _, y in points),
                    f"{name}, {title}",
                    dashed=family.provenance == "simulated",
                    marker=place,
                )
            )
        panels.append(Panel(title, Axis(x_label), Axis("time of an epoch (s)"), tuple(marks), family.provenance))
    rows = tuple(
        (
            *(family.device, family.workload, record.case.storage, samples, record.conditions.get("data_bytes")),
            *(record.aggregates.get(key) for _, *keys in shown for key in keys),
            record.provenance,
        )
        for samples, record in zip(family.values, family.records)
    )
    storage = family.records[0].case.storage
    columns = (
        *("device", "workload", "storage", "data_samples", "data_bytes"),
        *("epoch0_time_s", "epoch0_stall_s", "epoch_time_s", "epoch_stall_s", "provenance"),
    )
    return Figure(
        f"scaling-{file_name(family.device)}-{family.workload}-{storage}",
        f"{family.workload} on {family.device}, {storage}: data sets of several sizes",
        "E6: is the time of an epoch linear in the size of the data set? End-to-end time and fetch stall of an epoch"
        " in s; dashed: simulated. What exceeds the page cache is read again in every epoch.",
        tuple(panels),
        (Series("end to end", "compute"), Series("fetch stall", "stall")),
        columns,
        rows,
    )


def _course(material: Material, family: Family) -> Figure:
    count = len(family.records)
    chosen = sorted({0, count // 2, count - 1}) if count > MOST_SIZES else range(count)
    panels: List[Panel] = []
    rows: List[Tuple[Any, ...]] = []
    for place in chosen:
        profile = material.store.profile(family.records[place].id)
        size = _size_text(family.records[place].conditions.get("data_bytes"), family.values[place])
        made, data = _course_of(profile, size)
        panels += made
        rows += data
    storage = family.records[0].case.storage
    return Figure(
        f"scaling-course-{file_name(family.device)}-{family.workload}-{storage}",
        f"{family.workload} on {family.device}, {storage}: over time",
        "E6: share of the data set in the page cache (%), read requests to the medium (1/s) and fetch stall of a"
        f" minibatch (ms) over time; dotted lines: borders of epochs. At most {POINTS} points a curve, evenly taken."
        " The CSV file has what is drawn.",
        tuple(panels),
        (),
        ("data_set", "quantity", "unit", "time_s", "value", "provenance"),
        tuple(rows),
    )


def _course_of(profile: Profile, size: str) -> Tuple[List[Panel], List[Tuple[Any, ...]]]:
    start = profile.minibatches[0].start_s
    borders = [Rule(epoch.start_s - start, vertical=True) for epoch in epoch_sums(profile.minibatches)[1:]]
    series = profile.telemetry.series
    curves: List[Tuple[str, str, Sequence[float], Sequence[float]]] = []
    if "data_cached_share" in series:
        cached = series["data_cached_share"]
        curves.append(("cached", "%", cached.times_s, [share_to_percent(value) for value in cached.values]))
    if "disk_reads_per_s" in series:
        curves.append(("reads", "1/s", series["disk_reads_per_s"].times_s, series["disk_reads_per_s"].values))
    stalls = [minibatch.stall_ms for minibatch in profile.minibatches]
    curves.append(("fetch stall", "ms", [minibatch.start_s for minibatch in profile.minibatches], stalls))
    panels, rows = [], []
    for place, (name, unit, times, values) in enumerate(curves):  # telemetry begins before the first minibatch
        points = [(time - start, value) for time, value in zip(times, values) if time >= start]
        if len(points) < 2:  # too short a run for this sensor
            continue
        xs, ys = thinned([x for x, _ in points], [y for _, y in points], POINTS)
        marks = (*borders, Curve(listed(place), tuple(xs), tuple(ys), f"{name}, {size}"))
        title = f"{name}, {size}"
        panels.append(
            Panel(
                title, Axis("time since the first minibatch (s)"), Axis(f"{name} ({unit})"), marks, profile.provenance
            )
        )
        rows += [(size, name, unit, x, y, profile.provenance) for x, y in zip(xs, ys)]
    return panels, rows


def _size_text(size: Optional[float], samples: int) -> str:
    if size is None:
        return f"{samples} samples"
    return f"{size / BYTES_PER_GIB:.3g} GiB" if size >= 0.5 * BYTES_PER_GIB else f"{size / BYTES_PER_MIB:.3g} MiB"
