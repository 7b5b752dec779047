"""E21, E22: inference alone, and inference in between training (000 sec. 4.1)."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from harness.core.cases import CONCURRENT, INFERENCE, Mix
from harness.report.colours import listed
from harness.report.figure import CATEGORY, LOG, Axis, Bar, Curve, Figure, Panel, Series, joined
from harness.report.scales import figure_text
from harness.report.selection import Material, device_name, families, file_name
from harness.store.rows import Record

RATES = (("training", "training_samples_per_s"), ("inference", "inference_per_s"))
LATENCIES = (("median latency", "latency_median_ms"), ("95 % latency", "latency_p95_ms"))


def concurrent_figures(material: Material) -> List[Figure]:
    """Throughput and latency of each mix of training and inference, a figure for each device."""
    groups: Dict[Tuple[str, str, str], List[Record]] = {}
    for record in material.records:
        if record.case.task == CONCURRENT and record.aggregates.get("training_samples_per_s") is not None:
            groups.setdefault((device_name(record), *Mix.parse(record.case.workload).workloads), []).append(record)
    figures = []
    for (device, training, inference), records in groups.items():
        keys = ("training_samples_per_s", "inference_per_s", "latency_median_ms", "latency_p95_ms", "power_mw")
        rows = tuple(
            (device, record.case.workload, record.case.power_mode, *map(record.aggregates.get, keys), record.provenance)
            for record in records
        )
        panels = (
            _bars("throughput", "samples (1/s)", RATES, records, 0),
            _bars("latency of a request", "latency (ms)", LATENCIES, records, len(RATES)),
        )
        caption = (
            "E21: what does training cost requests, and the other way round? Samples trained and requests answered"
            " per second, and from a request's arrival to its answer (ms: median and 95 % quantile), while"
            f" {training} is trained and {inference} answers; bs: requests that are answered together, /s: requests"
            " that arrive per second."
        )
        names = [name for name, _ in (*RATES, *LATENCIES)]
        series = tuple(Series(name, listed(place)) for place, name in enumerate(names))
        columns = ("device", "mix", "power_mode", *keys, "provenance")
        title = f"{training} trained and {inference} answering on {device}"
        name = f"concurrent-{file_name(device)}-{training}-{inference}"
        figures.append(Figure(name, title, caption, panels, series, columns, rows))
    return figures


def inference_figures(material: Material) -> List[Figure]:
    """Time of an inference batch against its size, a figure for each device."""
    answered = [
        record
        for record in material.records
        if record.case.task == INFERENCE and record.aggregates.get("minibatch_time_ms") is not None
    ]
    found = families(answered, "batch_size", lambda record: record.case.batch_size)
    figures = []
    for device in dict.fromkeys(family.device for family in found):
        members = [family for family in found if family.device == device]
        times, rates, rows = [], [], []
        for place, family in enumerate(members):
            batches = tuple(float(value) for value in family.values)
            ms = tuple(float(record.aggregates["minibatch_time_ms"] or 0.0) for record in family.records)
            per_s = tuple(float(record.aggregates["samples_per_s"] or 0.0) for record in family.records)
            dashed = family.provenance == "simulated"
            times.append(Curve(listed(place), batches, ms, family.workload, dashed=dashed, marker=place))
            rates.append(Curve(listed(place), batches, per_s, family.workload, dashed=dashed, marker=place))
            power = [record.aggregates.get("power_mw") for record in family.records]
            rows += [
                (device, family.workload, *values, family.provenance) for values in zip(family.values, ms, per_s, power)
            ]
        provenance = joined(family.provenance for family in members)
        axis = Axis("samples per batch", LOG)
        panels = (
            Panel("time of a batch", axis, Axis("time of a batch (ms)", LOG), tuple(times), provenance),
            Panel("throughput", axis, Axis("samples (1/s)", LOG), tuple(rates), provenance),
        )
        caption = (
            "E22: how long does inference take by itself? Median time of a batch (ms) and samples per second against"
            " the batch size, both logarithmic; dashed: simulated."
        )
        series = tuple(Series(family.workload, listed(place), place) for place, family in enumerate(members))
        columns = ("device", "workload", "batch_size", "minibatch_time_ms", "samples_per_s", "power_mw", "provenance")
        name, title = f"inference-{file_name(device)}", f"Inference on {device}"
        figures.append(Figure(name, title, caption, panels, series, columns, tuple(rows)))
    return figures


def _bars(
    title: str, label: str, quantities: Sequence[Tuple[str, str]], records: Sequence[Record], first: int
) -> Panel:
    """Lying bars: the names of mixes are long."""
    width = 0.8 / len(quantities)
    marks: List[Any] = []
    for place, record in enumerate(records):
        for offset, (name, key) in enumerate(quantities):
            value = record.aggregates.get(key)
            if value is not None:
                what = f"{record.case.workload} in {record.case.power_mode}"
                tip = f"{what}: {name} {figure_text(value)}; {record.provenance}"
                where = place + (offset - (len(quantities) - 1) / 2) * width
                part = ((listed(first + offset), value),)
                marks.append(Bar(where, width * 0.92, part, tip, record.provenance == "simulated"))
    names = tuple(_short(record.case.workload, record.case.power_mode) for record in records)
    return Panel(title, Axis(label), Axis("", CATEGORY, names), tuple(marks), joined(one.provenance for one in records))


def _short(workload: str, power_mode: str) -> str:
    """What tells a mix from others of the same workloads."""
    mix = Mix.parse(workload)
    return f"bs{mix.batch_size}, {mix.arrivals_per_s:g}/s" + ("" if power_mode == "maxn" else f", {power_mode}")
