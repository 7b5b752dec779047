"""E21: inference alone, and inference interleaved with training (000 sec. 4.1)."""

from __future__ import annotations

from operator import attrgetter
from typing import Iterator, Sequence, Tuple

from harness.core.cases import CONCURRENT, INFERENCE, Mix
from harness.core.units import mws_to_j
from harness.report.colours import LISTED
from harness.report.figure import Axis, Figure, LegendEntry, Mark, Panel, Spacing, Value, figure_of, panel_of
from harness.report.figures.epochs import ENERGY, POWER_W, CurveQuantity, curve_panels, legend_of
from harness.report.material import Material, Row, cells, file_name, grouped

RATES = (("training", "training_samples_per_s"), ("inference", "inference_per_s"))
LATENCIES = (("median latency", "latency_median_ms"), ("95 % latency", "latency_p95_ms"))
KEYS = (*(key for _, key in (*RATES, *LATENCIES)), "power_mw")
OF_MIXES = ("workload", "batch_size", "power_mode", "duration_s")
"""Conditions that mixes differ in: batch size and arrivals are in their names."""

OF_BATCHES = (
    CurveQuantity(
        "time of a batch", Axis("time of a batch (ms)", Spacing.LOG), "time", lambda row: row.minibatch_time_ms
    ),
    CurveQuantity("throughput", Axis("samples (1/s)", Spacing.LOG), "time", lambda row: row.samples_per_s),
    CurveQuantity(
        *("energy", Axis(ENERGY, Spacing.LOG), "energy"),
        lambda row: row.energy_per_sample_mws and mws_to_j(1000 * row.energy_per_sample_mws),
    ),
    POWER_W,
)


def concurrent_figures(material: Material) -> Iterator[Figure]:
    """Throughput and latency of each mix of training and inference, a figure for each device."""
    mixed = [row for row in material.rows if row.task == CONCURRENT and row.training_samples_per_s is not None]
    groups = grouped(mixed, lambda row: (row.label, *Mix.parse(row.workload).workloads))
    for (device, training, inference), rows in groups.items():
        panels = []
        for alike in material.alike(rows, OF_MIXES):
            panels.append(_mixes_panel(material, "throughput", "samples (1/s)", RATES, alike))
            panels.append(_mixes_panel(material, "latency of a request", "latency (ms)", LATENCIES, alike))
        series = [LegendEntry(name, colour) for (name, _), colour in zip((*RATES, *LATENCIES), LISTED)]
        columns = ("device", "mix", "power_mode", *KEYS, "provenance")
        data = [cells(row, ("label", "workload", "power_mode", *KEYS, "provenance")) for row in rows]
        name = file_name("concurrent", device, training, inference)
        details = {"device": device, "training": training, "inference": inference}
        yield figure_of("concurrent", name, panels, series, columns, data, **details)


def _mixes_panel(
    material: Material, title: str, label: str, quantities: Sequence[Tuple[str, str]], rows: Sequence[Row]
) -> Panel:
    """Horizontal bars: the names of mixes are long."""
    values = []
    for row in rows:
        mix = Mix.parse(row.workload)
        in_mode = "" if row.power_mode == "maxn" else f", {row.power_mode}"
        name = f"bs{mix.batch_size}, {mix.arrivals_per_s:g}/s{in_mode}"
        for series, key in quantities:
            figure = getattr(row, key)
            if figure is not None:
                ends = material.ends(row.id, figure, key)
                values.append(Value(series, figure, name, row.provenance, *ends, row.apart))
    return panel_of(title, Axis(label), Axis(""), Mark.BESIDE, values, rows, OF_MIXES)


def inference_figures(material: Material) -> Iterator[Figure]:
    """Time, energy and power of an inference batch against its size, a figure for each device."""
    measured = [row for row in material.rows if row.task == INFERENCE and row.minibatch_time_ms is not None]
    for device, members in grouped(material.families(measured, "batch_size"), attrgetter("device")).items():
        panels = curve_panels(material, members, "samples per batch", OF_BATCHES)
        columns = ("workload", "batch_size", "minibatch_time_ms", "samples_per_s", "power_mw", "provenance")
        shown = [row for family in members for row in family.rows]
        rows = [(device, *cells(row, columns)) for row in shown]
        name, legend = file_name("inference", device), legend_of(material, shown)
        yield figure_of("inference", name, panels, legend, ("device", *columns), rows, device=device)
