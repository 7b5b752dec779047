"""E21, E22: inference alone, and inference in between training (000 sec. 4.1)."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from harness.core.cases import CONCURRENT, INFERENCE, Mix
from harness.report.colours import listed
from harness.report.drawing import Height, bars, cells, panel_of
from harness.report.figure import CATEGORY, LOG, Axis, Curve, Figure, LegendEntry, Panel
from harness.report.layout import figure_text
from harness.report.material import OF_WORKLOAD, Family, Material, Row, by_device, file_name

RATES = (("training", "training_samples_per_s"), ("inference", "inference_per_s"))
LATENCIES = (("median latency", "latency_median_ms"), ("95 % latency", "latency_p95_ms"))
KEYS = (*(key for _, key in (*RATES, *LATENCIES)), "power_mw")
OF_MIXES = ("workload", "batch_size", "power_mode", "duration_s")
"""Conditions that mixes differ in: batch size and arrivals are in their names."""

OF_CURVES = (*OF_WORKLOAD, "batch_size")


def concurrent_figures(material: Material) -> List[Figure]:
    """Throughput and latency of each mix of training and inference, a figure for each device."""
    groups: Dict[Tuple[str, str, str], List[Row]] = {}
    for row in material.rows:
        if row.task == CONCURRENT and row.training_samples_per_s is not None:
            groups.setdefault((row.label, *Mix.parse(row.workload).workloads), []).append(row)
    figures = []
    for (device, training, inference), rows in groups.items():
        panels = []
        for alike in material.alike(rows, OF_MIXES):
            panels.append(_mixes_panel("throughput", "samples (1/s)", RATES, alike, 0))
            panels.append(_mixes_panel("latency of a request", "latency (ms)", LATENCIES, alike, len(RATES)))
        caption = (
            "E21: what does training cost requests, and the other way round? Samples trained and requests answered"
            " per second, and from a request's arrival to its answer (ms: median and 95 % quantile), while"
            f" {training} is trained and {inference} answers; bs: requests that are answered together, /s: requests"
            " that arrive per second."
        )
        series = [LegendEntry(name, listed(place)) for place, (name, _) in enumerate((*RATES, *LATENCIES))]
        columns = ("device", "mix", "power_mode", *KEYS, "provenance")
        data = [cells(row, ("label", "workload", "power_mode", *KEYS, "provenance")) for row in rows]
        name = file_name("concurrent", device, training, inference)
        title = f"{training} trained and {inference} answering on {device}"
        figures.append(Figure(name, title, caption, panels, series, columns, data))
    return figures


def _mixes_panel(
    title: str, label: str, quantities: Sequence[Tuple[str, str]], rows: Sequence[Row], first: int
) -> Panel:
    """Lying bars: the names of mixes are long."""
    heights: List[Height] = []
    names = []
    for category, row in enumerate(rows):
        mix = Mix.parse(row.workload)
        in_mode = "" if row.power_mode == "maxn" else f", {row.power_mode}"
        names.append(f"bs{mix.batch_size}, {mix.arrivals_per_s:g}/s{in_mode}")
        for place, (name, key) in enumerate(quantities):
            value = getattr(row, key)
            if value is not None:
                tip = f"{row.workload} in {row.power_mode}: {name} {figure_text(value)}; {row.provenance}"
                heights.append(Height(category, place, value, tip, row.provenance))
    marks = bars(heights, [listed(first + place) for place in range(len(quantities))])
    return panel_of(title, Axis(label), Axis("", CATEGORY, tuple(names)), marks, rows, OF_MIXES)


def inference_figures(material: Material) -> List[Figure]:
    """Time of an inference batch against its size, a figure for each device."""
    answered = [row for row in material.rows if row.task == INFERENCE and row.minibatch_time_ms is not None]
    figures = []
    for device, members in by_device(material.families(answered, "batch_size")).items():
        families = {row.id: family for family in members for row in family.rows}
        panels: List[Panel] = []
        for alike in material.alike([row for family in members for row in family.rows], OF_CURVES):
            ours = list(dict.fromkeys(members.index(families[row.id]) for row in alike))
            axis = Axis("samples per batch", LOG)
            for title, label, key in (
                ("time of a batch", "time of a batch (ms)", "minibatch_time_ms"),
                ("throughput", "samples (1/s)", "samples_per_s"),
            ):
                curves = [_batch_curve(members[place], place, key) for place in ours]
                panels.append(panel_of(title, axis, Axis(label, LOG), curves, alike, OF_CURVES))
        caption = (
            "E22: how long does inference take by itself? Median time of a batch (ms) and samples per second against"
            " the batch size, both logarithmic; dashed: simulated."
        )
        series = [LegendEntry(family.workload, listed(place), place) for place, family in enumerate(members)]
        columns = ("workload", "batch_size", "minibatch_time_ms", "samples_per_s", "power_mw", "provenance")
        rows: List[Tuple[Any, ...]] = [(device, *cells(row, columns)) for family in members for row in family.rows]
        name, title = file_name("inference", device), f"Inference on {device}"
        figures.append(Figure(name, title, caption, panels, series, ("device", *columns), rows))
    return figures


def _batch_curve(family: Family, place: int, key: str) -> Curve:
    xs, ys = tuple(map(float, family.values)), tuple(float(getattr(row, key) or 0.0) for row in family.rows)
    return Curve(listed(place), xs, ys, family.workload, dashed=family.provenance == "simulated", marker=place)
