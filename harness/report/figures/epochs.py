"""E1 to E5, E14: where time goes, as stacked bars of fetch stall, compute and framework overhead; and energy and power.

By workers, batch size and device (004 Figs 2 and 4), by storage medium (004 Fig 3, 003 sec. III.B/C), and of the first
epoch against later ones with the page cache kept and dropped (004 sec. 5.1.1, 003 sec. III.D). Times and energies are
per 1,000 samples, so that data sets and batches of any size can be compared.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import DROPPED, STATIC, parse_storage
from harness.core.units import S_PER_MINUTE, ms_to_s, mw_to_w, mwh_to_j
from harness.judge.case_frame import COLD, WARM
from harness.judge.verdict import Verdict
from harness.report.colours import INK, LISTED, MARKERS, PARTS
from harness.report.figure import (
    Axis,
    Figure,
    Layer,
    LegendEntry,
    Mark,
    Panel,
    Spacing,
    Value,
    figure_of,
    figure_text,
    panel_of,
)
from harness.report.material import OF_WORKLOAD, Family, Material, Row, cells, file_name, grouped, strip_prefix

LATER, FIRST, MINIBATCH = "epochs 1 and later", "epoch 0", "minibatch"
LEGEND = tuple(LegendEntry(part, PARTS[part]) for part in ("fetch stall", "compute", "framework overhead"))
TIME, ENERGY = "time per 1,000 samples (s)", "energy per 1,000 samples (J)"
_OF_CASE = ("workload", "workers", "storage", "batch_size", "cache", "power_mode", "data_samples")
COLUMNS = (
    "device",
    *_OF_CASE,
    "of",
    "samples",
    "time_s",
    "stall_s",
    "compute_s",
    "overhead_s",
    "energy_mwh",
    "time_per_1000_samples_s",
    "time_per_1000_samples_low_s",
    "time_per_1000_samples_high_s",
    "energy_per_1000_samples_j",
    "power_mw",
    "provenance",
    "flags",
)

COLD_AND_KEPT = ("cold", "evicted")  # cache states that begin cold and keep what epoch 0 read
REFERENCE = "orin-agx"  # the device that ratios are over, as in 001's appendix

RATIOS: Dict[str, Callable[[Row], Optional[float]]] = {
    "time": lambda row: row.minibatch_time_ms,
    "power": lambda row: row.power_mw,
    "energy": lambda row: row.power_mw and row.power_mw * row.minibatch_time_ms,
}
PAPERS, PUBLISHED = "the papers", "published"
OF_RATIO = ("device", "workload", "workers", "batch_size", "minibatch_time_ms", "power_mw")
ACROSS_DEVICES = (*OF_WORKLOAD, "device", "workers", "storage", "batch_size", "cache", "epochs")
"""Conditions in which workloads in one panel may differ; the two profiles of a ratio differ in the device."""

USUAL_WORKERS, USUAL_BATCH_SIZE = 4, 16  # 004 sec. 4.4
LEAST_CURVE = 3  # numbers of workers that a curve over them needs


class Parts(NamedTuple):
    """The time of some samples in parts, in seconds, their energy, and what they make up: an epoch or a minibatch."""

    stall_s: float
    compute_s: float
    overhead_s: float
    energy_mwh: Optional[float]
    of: str
    samples: int

    @property
    def time_s(self) -> float:
        return self.stall_s + self.compute_s + self.overhead_s

    def per_1000(self, figure: float) -> float:
        return figure * 1000 / self.samples


class EpochBar(NamedTuple):
    """A bar to draw: its name on the axis, the profile, and whether it shows epoch 0."""

    name: str
    row: Row
    first_epoch: bool = False


def parts_of(row: Row, first_epoch: bool = False) -> Optional[Parts]:
    """The parts of epochs 1 and later, of a minibatch if no whole epochs were run, or of epoch 0; None if missing."""
    prefix, of = ("epoch0", FIRST) if first_epoch else ("epoch", LATER)
    seconds = cells(row, [f"{prefix}_{part}_s" for part in ("stall", "compute", "overhead")])
    if None not in seconds and row.data_samples:
        stall_s, compute_s, overhead_s = seconds
        return Parts(stall_s, compute_s, overhead_s, getattr(row, f"{prefix}_energy_mwh"), of, row.data_samples)
    medians = cells(row, ("fetch_stall_ms", "compute_ms", "overhead_ms"))
    if first_epoch or None in medians:
        return None
    energy = row.energy_mwh / row.clean_minibatches if row.energy_mwh and row.clean_minibatches else None
    stall_s, compute_s, overhead_s = map(ms_to_s, medians)
    return Parts(stall_s, compute_s, overhead_s, energy, MINIBATCH, row.batch_size)


def row_of(material: Material, row: Row, parts: Parts) -> Tuple[Any, ...]:
    """A row of `COLUMNS`."""
    time_s = parts.per_1000(parts.time_s)
    low_s, high_s = material.ends(row.id, time_s, "time", _phase(parts))
    cells_by_column = {
        "device": row.label,
        **{name: getattr(row, name) for name in _OF_CASE},
        "of": parts.of,
        "samples": parts.samples,
        "time_s": parts.time_s,
        "stall_s": parts.stall_s,
        "compute_s": parts.compute_s,
        "overhead_s": parts.overhead_s,
        "energy_mwh": parts.energy_mwh,
        "time_per_1000_samples_s": time_s,
        "time_per_1000_samples_low_s": low_s,
        "time_per_1000_samples_high_s": high_s,
        "energy_per_1000_samples_j": energy_j(parts),
        "power_mw": row.power_mw,
        "provenance": row.provenance,
        "flags": row.flags,
    }
    return tuple(cells_by_column[column] for column in COLUMNS)


def energy_j(parts: Parts) -> Optional[float]:
    """Of 1,000 samples."""
    return None if parts.energy_mwh is None else mwh_to_j(parts.per_1000(parts.energy_mwh))


def _phase(parts: Parts) -> str:
    return COLD if parts.of == FIRST else WARM


def stacked_panel(
    material: Material, title: str, columns: Sequence[EpochBar], x_label: str, varies: Sequence[str]
) -> Tuple[Panel, List[Tuple[Any, ...]]]:
    """A panel with a stacked bar for each column that has parts, and its rows of `COLUMNS`."""
    stack, totals, rows, profiles = [], [], [], []
    for name, row, first_epoch in columns:
        parts = parts_of(row, first_epoch)
        if parts is None:
            continue
        total, energy = parts.per_1000(parts.time_s), energy_j(parts)
        note = f"{figure_text(total)} s in all, of {parts.of}"
        note += "" if energy is None else f", {figure_text(energy)} J"
        for entry, seconds in zip(LEGEND, (parts.stall_s, parts.compute_s, parts.overhead_s)):
            per_1000_s = parts.per_1000(seconds)
            stack.append(Value(entry.name, name, per_1000_s, row.provenance, apart=row.apart, note=note))
        totals.append(material.value(row, "", name, total, "time", _phase(parts)))
        rows.append(row_of(material, row, parts))
        profiles.append(row)
    behind = [Layer(Mark.STACKED, tuple(stack))]
    return panel_of(title, Axis(x_label), Axis(TIME), Mark.WHISKERS, totals, profiles, varies, behind), rows


def _energy_panels(
    material: Material, title: str, bars: Sequence[EpochBar], x_label: str, varies: Sequence[str]
) -> List[Panel]:
    """Energy: a curve for each workload, a panel for each set of other conditions; tooltips show the mean power."""
    varies = (*OF_WORKLOAD, *varies)
    ids = [bar.row.id for bar in bars]
    shared = dict(zip(ids, material.conditions(ids, varies)))
    groups, panels = grouped(bars, lambda bar: shared[bar.row.id]), []
    for alike in groups.values():
        values = []
        for name, row, first_epoch in alike:
            parts = parts_of(row, first_epoch)
            joules = None if parts is None else energy_j(parts)
            if parts is not None and joules:
                note = f"{figure_text(joules / parts.per_1000(parts.time_s))} W on average, of {parts.of}"
                values.append(material.value(row, row.workload, name, joules, "energy", _phase(parts), note))
        rows = [bar.row for bar in alike]
        heading = ", ".join([title, *dict.fromkeys(row.workload for row in rows if len(groups) > 1)])
        axes = Axis(x_label), Axis(ENERGY, Spacing.LOG)
        panels.append(panel_of(heading, *axes, Mark.CURVES, values, rows, varies))
    return panels


class CurveQuantity(NamedTuple):
    """A quantity of curves: title and axis of its panel, the quantity of its interval, and its value in a row."""

    title: str
    axis: Axis
    interval_of: str
    of: Callable[[Row], Optional[float]]


def _energy_of(row: Row) -> Optional[float]:
    parts = parts_of(row)
    return None if parts is None else energy_j(parts)


POWER_W = CurveQuantity("power", Axis("median power (W)"), "power", lambda row: row.power_mw and mw_to_w(row.power_mw))
ENERGY_AND_POWER = (CurveQuantity("energy", Axis(ENERGY, Spacing.LOG), "energy", _energy_of), POWER_W)


def curve_panels(
    material: Material, families: Sequence[Family], x_label: str, quantities: Sequence[CurveQuantity]
) -> List[Panel]:
    """A curve for each workload over the varied condition: a panel for each quantity and set of other conditions."""
    values_of = {row.id: value for family in families for value, row in zip(family.values, family.rows)}
    varies = (*OF_WORKLOAD, *(families[0].varies if families else ()))
    panels = []
    groups = material.alike([row for family in families for row in family.rows], varies)
    for alike in groups:
        alike.sort(key=lambda row: values_of[row.id])
        workloads = ", ".join(dict.fromkeys(row.workload for row in alike))
        for title, axis, interval_of, of in quantities:
            values = [
                material.value(row, row.workload, str(values_of[row.id]), figure, interval_of)
                for row in alike
                for figure in [of(row)]
                if figure
            ]
            heading = f"{title}: {workloads}" if len(groups) > 1 else title
            panels.append(panel_of(heading, Axis(x_label), axis, Mark.CURVES, values, alike, varies))
    return panels


def legend_of(material: Material, rows: Sequence[Row]) -> List[LegendEntry]:
    entries = {row.workload: material.entry(row) for row in rows}
    if len({row.device for row in rows}) > 1:  # the axis shows the devices
        return [entry._replace(marker=next(iter(MARKERS))) for entry in entries.values()]
    return list(entries.values())


def sizes_of(rows: Sequence[Row]) -> str:
    sizes = {row.workload: row.data_samples for row in rows if row.data_samples is not None}
    listed = ", ".join(f"{workload} {samples:,}" for workload, samples in sizes.items())
    return f" Samples in the data set: {listed}." if listed else ""


def sweep_figures(material: Material, kind: str, varied: str, x_label: str, least: int = 2) -> Iterator[Figure]:
    """Workers of the DataLoader (004 Fig 2, 003 Figs 2-5) or batch sizes (004 Fig 4), two figures for each device."""
    families = material.families(_with_warm_epochs(material), varied, least=least)
    for device, members in grouped(families, attrgetter("device")).items():
        yield from _figures_of(material, members, kind, file_name(kind, device), x_label, device=device)


def device_figures(material: Material) -> Iterator[Figure]:
    """The same workload on several devices at their greatest power mode (004 sec. 5.1.7, 001 sec. 1.1)."""
    greatest = [row for row in _with_warm_epochs(material) if row.power_mode == "maxn" and "@" not in row.label]
    families = material.families(greatest, "device", split_by=("workload",))
    short = [family._replace(values=tuple(map(strip_prefix, family.values))) for family in families]
    yield from _figures_of(material, short, "devices", "devices", "device")
    yield _ratio_figure(material, short)


def _ratio_figure(material: Material, families: Sequence[Family]) -> Figure:
    """Time, power and energy of each device relative to `REFERENCE`, with the papers' statements on such ratios.

    Measured profiles are compared with measured ones, simulated with simulated.
    """
    panels, rows, entries = [], [], {PAPERS: LegendEntry(PAPERS, INK)}
    pairs = []
    for family in families:
        references = {row.provenance: row for row in reversed(family.rows) if row.device == REFERENCE}
        others = [row for row in family.rows if row.device != REFERENCE]
        pairs += [(references[row.provenance], row) for row in others if row.provenance in references]
    pairs.sort(key=lambda pair: pair[1].minibatch_time_ms / pair[0].minibatch_time_ms)
    order = tuple(dict.fromkeys(strip_prefix(row.label) for _, row in pairs))
    for quantity, of in RATIOS.items():
        compared, values = [], []
        for reference, row in pairs:
            figure, reference_figure = of(row), of(reference)
            if figure and reference_figure:
                ratio = figure / reference_figure
                ends = material.ends_of_ratio(reference.id, row.id, quantity, ratio)
                note = f"against {reference.device_label}"
                values.append(
                    Value(row.workload, strip_prefix(row.label), ratio, row.provenance, *ends, row.apart, note)
                )
                compared.append(row)
                entries[row.workload] = material.entry(row)._replace(marker=next(iter(MARKERS)))
        names = {row.device_label: strip_prefix(row.label) for row in compared}
        papers = _of_papers(quantity, material.judged.verdicts, names, values)
        rows += [
            _ratio_row(quantity, value, (*cells(row, OF_RATIO), epoch_minutes(row)))
            for row, value in zip(compared, values)
        ]
        rows += [_ratio_row(quantity, value, (value.x, *[None] * len(OF_RATIO))) for value in papers]
        axes = Axis("device", names=order), Axis(f"{quantity} over that on {REFERENCE} (ratio)", Spacing.LOG)
        behind = [Layer(Mark.CURVES, (value,)) for value in papers]
        panels.append(panel_of(quantity, *axes, Mark.CURVES, values, compared, ACROSS_DEVICES, behind))
    columns = (*OF_RATIO, "epoch_min", "quantity", "ratio", "low", "high", "provenance", "note")
    details = {"about": "ratios", "reference": REFERENCE}
    return figure_of("devices", "devices-ratios", panels, list(entries.values()), columns, rows, **details)


def _ratio_row(quantity: str, value: Value, of_case: Sequence[Any]) -> Tuple[Any, ...]:
    return (*of_case, quantity, value.y, value.low, value.high, value.provenance, value.note)


def epoch_minutes(row: Row) -> Optional[float]:
    """Time of an epoch of the whole data set, from that of a minibatch (001 sec. 2.1)."""
    if not row.data_samples or not row.data_scale:
        return None
    minibatches = math.ceil(round(row.data_samples / row.data_scale) / row.batch_size)
    return ms_to_s(row.minibatch_time_ms) * minibatches / S_PER_MINUTE


def _of_papers(
    quantity: str, verdicts: Sequence[Verdict], names: Mapping[str, str], drawn: Sequence[Value]
) -> List[Value]:
    """The bounds of the papers' statements on devices, as judged; an open bound extends to the least drawn value."""
    values = []
    for verdict in verdicts:
        if (verdict.quantity, verdict.against) == (quantity, REFERENCE) and verdict.device in names:
            above, below = verdict.above, verdict.below
            is_range = above > 0
            ends = above if is_range else min([below, *(value.y for value in drawn)]), below
            middle = math.sqrt(above * below) if is_range else below
            note = f"{verdict.says} ({verdict.section})"
            values.append(Value(PAPERS, names[verdict.device], middle, PUBLISHED, *ends, note=note))
    return values


def _with_warm_epochs(material: Material) -> List[Row]:
    """Excludes profiles that drop the cache before each epoch: they belong to the page-cache experiment."""
    return [row for row in material.trained() if row.cache != DROPPED[1]]


def _figures_of(
    material: Material, families: Sequence[Family], kind: str, name: str, x_label: str, **details: str
) -> Iterator[Figure]:
    """Time in parts, a panel for each workload; energy and power, a curve for each workload."""
    panels, rows = [], []
    kept = [_shared_settings(family) for family in families]
    shared = [setting for setting in kept[0] if all(setting in others for others in kept)] if kept else []
    for family, ours in zip(families, kept):
        heading = ", ".join([family.workload, *(setting for setting in ours if setting not in shared)])
        columns = [EpochBar(str(value), row) for value, row in zip(family.values, family.rows)]
        panel, data = stacked_panel(material, heading, columns, x_label, family.varies)
        panels.append(panel)
        rows += data
    members = [row for family in families for row in family.rows]
    details.update(alike=f" ({', '.join(shared)})" if shared else "", sizes=sizes_of(members))
    yield figure_of(kind, name, panels, LEGEND, COLUMNS, rows, **details)
    curves, legend = curve_panels(material, families, x_label, ENERGY_AND_POWER), legend_of(material, members)
    yield figure_of(kind, f"{name}-energy", curves, legend, COLUMNS, rows, about="energy and power", **details)


def _shared_settings(family: Family) -> List[str]:
    """For the caption, or for the panel's title if other panels differ."""
    settings = []
    for name in ("power_mode", "storage", "workers", "batch_size"):
        values = {getattr(row, name) for row in family.rows}
        if len(values) == 1 and None not in values:
            settings.append(f"{name.replace('_', ' ')} {values.pop()}")
    return settings


def storage_figures(material: Material) -> Iterator[Figure]:
    """Worst case (no workers, epoch 0) and expected case (workers, epochs 1 and later), for each device."""
    families = material.families(_with_warm_epochs(material), "workers", "storage")
    on_several = [family for family in families if len({storage for _, storage in family.values}) > 1]
    for device, members in grouped(on_several, attrgetter("device")).items():
        media = sorted({storage for family in members for _, storage in family.values})
        signs = [
            LegendEntry(medium, LISTED[place + 2], marker) for place, (medium, marker) in enumerate(zip(media, MARKERS))
        ]
        panels, rows = [], []
        bars: Dict[str, List[EpochBar]] = {}  # by the workers and epoch that a panel shows
        for family in members:
            columns = _worst_and_expected(family)
            x_label = "storage medium; workers (w), epoch (e)"
            panel, data = stacked_panel(material, family.workload, columns, x_label, family.varies)
            for bar in columns:
                medium, of = bar.name.split("\n")
                bars.setdefault(of, []).append(bar._replace(name=medium))
            curves = _over_workers(material, family)
            panels += [panel, curves]
            rows += data
            if curves.values:
                parts = [(row, parts_of(row, first_epoch=True)) for row in family.rows]
                rows += [row_of(material, row, row_parts) for row, row_parts in parts if row_parts is not None]
        details = {"device": device, "sizes": sizes_of([row for family in members for row in family.rows])}
        name, unique = file_name("storage", device), list(dict.fromkeys(rows))
        yield figure_of("storage", name, panels, (*LEGEND, *signs), COLUMNS, unique, **details)
        energies = [
            panel
            for of, group in bars.items()
            for panel in _energy_panels(material, of, group, "storage medium", members[0].varies)
        ]
        legend = legend_of(material, [row for family in members for row in family.rows])
        yield figure_of("storage", f"{name}-energy", energies, legend, COLUMNS, unique, about="energy", **details)


def _worst_and_expected(family: Family) -> List[EpochBar]:
    """Epoch 0 of the fewest workers, and later epochs of the usual number or the greatest."""
    workers = sorted({count for count, _ in family.values})
    many = USUAL_WORKERS if USUAL_WORKERS in workers else workers[-1]
    return [
        EpochBar(f"{storage}\nw{count} e{'0' if first_epoch else '1+'}", row, first_epoch)
        for wanted, first_epoch in ((workers[0], True), (many, False))
        for (count, storage), row in zip(family.values, family.rows)
        if count == wanted
    ]


def _over_workers(material: Material, family: Family) -> Panel:
    """Time of epoch 0 against workers, a curve for each medium with enough of them; empty for fewer than two curves."""
    curves: Dict[str, List[Value]] = {}
    for (count, medium), row in zip(family.values, family.rows):
        parts = parts_of(row, first_epoch=True)
        if parts is not None:
            value = material.value(row, medium, str(count), parts.per_1000(parts.time_s), "time", COLD)
            curves.setdefault(medium, []).append(value)
    long = [curve for curve in curves.values() if len(curve) >= LEAST_CURVE]
    values = [value for curve in long for value in curve] if len(long) > 1 else []
    axes = Axis("workers"), Axis(f"epoch 0: {TIME}")
    return panel_of(f"{family.workload}: workers", *axes, Mark.CURVES, values, family.rows, family.varies)


def page_cache_figures(material: Material) -> Iterator[Figure]:
    """Epoch 0 against later ones, whole epochs in the greatest mode (004 sec. 4.4), a figure for each device."""
    varies, x_label = ("cache", "epochs"), "epoch, and what was done to the page cache"
    usual = [
        row
        for row in material.trained()
        if None not in (row.epoch0_time_s, row.epoch_time_s) and (row.power_mode, row.clocks) == ("maxn", STATIC)
    ]
    pairs = []
    for group in material.alike(usual, varies):
        kept = [row for row in group if row.cache in COLD_AND_KEPT]
        dropped = [row for row in group if row.cache == DROPPED[1]]
        pairs += [(kept[-1], (dropped or [None])[-1])] if kept else []
    for device, of_device in grouped(pairs, lambda pair: pair[0].label).items():
        alike = grouped(of_device, lambda pair: pair[0].workload)
        chosen = {workload: sorted(candidates, key=_rank_of_cache)[-1] for workload, candidates in alike.items()}
        panels, rows = [], []
        bars: Dict[str, List[EpochBar]] = {}
        for workload, (row, other) in chosen.items():
            columns = [EpochBar("epoch 0\ncold", row, True), EpochBar("epochs 1+\ncache kept", row)]
            columns += [EpochBar("epochs 1+\ndropped", other)] if other else []
            settings = [row.storage] if row.storage else []
            if (row.workers, row.batch_size) != (USUAL_WORKERS, USUAL_BATCH_SIZE):
                settings += [f"w{row.workers or 0}", f"bs {row.batch_size or 0}"]
            panel, data = stacked_panel(material, ", ".join([workload, *settings]), columns, x_label, varies)
            panels.append(panel)
            bars.setdefault(", ".join(settings) or "energy", []).extend(columns)
            rows += data
        sizes = sizes_of([row for row, _ in chosen.values()])
        name = file_name("page-cache", device)
        yield figure_of("page-cache", name, panels, LEGEND, COLUMNS, rows, device=device, sizes=sizes)
        energies = [
            panel for title, group in bars.items() for panel in _energy_panels(material, title, group, x_label, varies)
        ]
        legend = legend_of(material, [row for row, _ in chosen.values()])
        details = {"about": "energy", "device": device, "sizes": sizes}
        yield figure_of("page-cache", f"{name}-energy", energies, legend, COLUMNS, rows, **details)


def _rank_of_cache(pair: Tuple[Row, Optional[Row]]) -> Tuple[bool, bool, float, bool, bool]:
    """Ranks the candidates to show: papers' defaults, then a dropped cache, much data, a slow medium, no workers."""
    row, dropped = pair
    storage = row.storage or ""
    is_slow = storage == "hdd" or parse_storage(storage).limit_bytes_per_s is not None
    defaults = (row.workers, row.batch_size) == (USUAL_WORKERS, USUAL_BATCH_SIZE)
    return defaults, dropped is not None, row.data_scale_asked or 0.0, is_slow, not row.workers
