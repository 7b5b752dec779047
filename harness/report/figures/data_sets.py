"""E6: data sets of several sizes: is time linear in size, and what if the page cache is full (003 Figs 6-8)?"""

from __future__ import annotations

from typing import Any, Iterator, List, Sequence, Set, Tuple

import numpy as np

from harness.core.units import BYTES_PER_GIB, BYTES_PER_MIB, mwh_to_wh, share_to_percent
from harness.judge.case_frame import COLD, WARM
from harness.report.colours import PARTS as COLOURS
from harness.report.figure import Axis, Figure, Layer, LegendEntry, Mark, Panel, Value, figure_of, panel_of
from harness.report.material import Family, Material, Row, cells, file_name

MOST_SIZES = 3  # sizes whose time series are drawn: smallest, middle and largest
POINTS = 240
LEGEND = (
    LegendEntry("end to end", COLOURS["compute"], "circle"),
    LegendEntry("fetch stall", COLOURS["fetch stall"], "triangle-up"),
    LegendEntry("energy", COLOURS["incremental energy"], "diamond"),
)
EPOCHS = (("epoch 0", "epoch0", COLD), ("epochs 1 and later", "epoch", WARM))


def scaling_figures(material: Material) -> Iterator[Figure]:
    """Two figures for each device, workload and medium: time and energy against size, and the course over time."""
    whole = [row for row in material.trained() if row.case.settings.epochs is not None]
    for family in material.families(whole, "data_samples", split_by=("storage",)):
        if max(family.values) >= 1.2 * min(family.values):
            where = (family.device, family.workload, str(family.rows[0].storage))
            of = f"{family.workload} on {family.device}, {where[2]}"
            yield _linearity(material, family, file_name("scaling", *where), of)
            yield _course(material, family, file_name("scaling-course", *where), of)


def _linearity(material: Material, family: Family, name: str, of: str) -> Figure:
    sizes = [row.conditions.get("data_bytes") for row in family.rows]
    xs, x_label = [float(samples) for samples in family.values], "samples in the data set (1)"
    if None not in sizes:
        unit, unit_name = (BYTES_PER_GIB, "GiB") if max(sizes) >= BYTES_PER_GIB else (BYTES_PER_MIB, "MiB")
        xs, x_label = [size / unit for size in sizes], f"size of the data set ({unit_name})"
    panels = []
    for label, parts in (
        ("time of an epoch (s)", (("end to end", "time_s", "time"), ("fetch stall", "stall_s", "stall"))),
        ("energy of an epoch (Wh)", (("energy", "energy_mwh", "energy"),)),
    ):
        for title, prefix, phase in EPOCHS:
            values = []
            for part, key, quantity in parts:
                for x, row in zip(xs, family.rows):
                    figure = getattr(row, f"{prefix}_{key}")
                    if figure is not None:
                        figure = mwh_to_wh(figure) if quantity == "energy" else figure
                        values.append(material.value(row, part, x, figure, quantity, phase))
            panels.append(panel_of(title, Axis(x_label), Axis(label), Mark.CURVES, values, family.rows, family.varies))
    figures = ("epoch0_time_s", "epoch0_stall_s", "epoch_time_s", "epoch_stall_s", "provenance")
    rows = [
        (family.device, family.workload, row.storage, samples, size, *cells(row, figures))
        for samples, size, row in zip(family.values, sizes, family.rows)
    ]
    columns = ("device", "workload", "storage", "data_samples", "data_bytes", *figures)
    return figure_of("scaling", name, panels, LEGEND, columns, rows, of=of)


def _course(material: Material, family: Family, name: str, of: str) -> Figure:
    count = len(family.rows)
    panels: List[Panel] = []
    rows: List[Tuple[Any, ...]] = []
    for place in sorted({0, count // 2, count - 1}) if count > MOST_SIZES else range(count):
        row = family.rows[place]
        if not row.has_raw:
            continue
        course_panels, data = _course_of(material, row, _size_text(row))
        panels += course_panels
        rows += data
    columns = ("data_set", "quantity", "unit", "time_s", "value", "provenance")
    colours = (LegendEntry("cached", "#0072b2"), LegendEntry("reads", "#6b51a8"), LEGEND[1]._replace(marker="square"))
    return figure_of("scaling-course", name, panels, colours, columns, rows, of=of, points=POINTS)


def _course_of(material: Material, row: Row, size: str) -> Tuple[List[Panel], List[Tuple[Any, ...]]]:
    steps, samples = material.minibatches(row), material.telemetry(row)
    start = steps["start_s"].iloc[0]
    later_epochs_s = steps.groupby("epoch")["start_s"].min().iloc[1:]
    borders = [Value("", float(begin_s - start), 0.0, row.provenance) for begin_s in later_epochs_s]
    curves: List[Tuple[str, str, Sequence[float], Sequence[float]]] = []
    for quantity, unit, channel, change in (
        ("cached", "%", "data_cached_share", share_to_percent),
        ("reads", "1/s", "disk_reads_per_s", float),
    ):
        own = samples[samples["channel"] == channel]
        if len(own):
            curves.append((quantity, unit, own["time_s"].tolist(), [change(value) for value in own["value"]]))
    curves.append(("fetch stall", "ms", steps["start_s"].tolist(), steps["stall_ms"].tolist()))
    panels, rows = [], []
    for quantity, unit, times, values in curves:  # telemetry begins before the first minibatch
        points = [(time - start, value) for time, value in zip(times, values) if time >= start]
        if len(points) < 2:  # too short a run for this sensor
            continue
        xs, ys = thinned([x for x, _ in points], [y for _, y in points], POINTS)
        curve = tuple(Value(quantity, x, y, row.provenance) for x, y in zip(xs, ys))
        layers = (Layer(Mark.RULES, tuple(borders)), Layer(Mark.CURVES, curve))
        axes = Axis("time since the first minibatch (s)"), Axis(f"{quantity} ({unit})")
        panels.append(Panel(f"{quantity}, {size}", *axes, layers, (row.id,)))
        rows += [(size, quantity, unit, x, y, row.provenance) for x, y in zip(xs, ys)]
    return panels, rows


def thinned(xs: Sequence[float], ys: Sequence[float], most: int) -> Tuple[List[float], List[float]]:
    """At most `most` points of a curve: the least and the greatest y of each stretch, so that peaks are kept."""
    if len(xs) <= most:
        return list(xs), list(ys)
    kept: Set[int] = set()
    for stretch in np.array_split(np.arange(len(xs)), most // 2):
        values = [ys[place] for place in stretch]
        kept.update((int(stretch[int(np.argmin(values))]), int(stretch[int(np.argmax(values))])))
    places = sorted(kept)
    return [xs[place] for place in places], [ys[place] for place in places]


def _size_text(row: Row) -> str:
    size = row.conditions.get("data_bytes")
    if size is None:
        return f"{row.data_samples} samples"
    return f"{size / BYTES_PER_GIB:.3g} GiB" if size >= 0.5 * BYTES_PER_GIB else f"{size / BYTES_PER_MIB:.3g} MiB"
