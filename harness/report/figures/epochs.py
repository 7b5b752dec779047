"""E1 to E5, E14: where the time of an epoch goes, as stacked bars of fetch stall, compute and framework overhead.

By workers, batch size and device (004 Figs 2 and 4), by storage medium (004 Fig 3, 003 sec. III.B/C), and of the first
epoch against later ones with the page cache kept and dropped (004 sec. 5.1.1, 003 sec. III.D).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import DROPPED, STATIC, parse_storage
from harness.core.units import ms_to_s, s_to_ms
from harness.report.colours import listed
from harness.report.drawing import cells, panel_of
from harness.report.figure import CATEGORY, Axis, Bar, Curve, Figure, LegendEntry, Panel
from harness.report.layout import figure_text
from harness.report.material import Family, Material, Row, bare, by_device, file_name

LATER, FIRST, MINIBATCH = "epochs 1 and later", "epoch 0", "minibatch"
LEGEND = (
    LegendEntry("fetch stall", "stall"),
    LegendEntry("compute", "compute"),
    LegendEntry("framework overhead", "overhead"),
)
_OF_CASE = ("label", "workload", "workers", "storage", "batch_size", "cache", "power_mode", "data_samples")
COLUMNS = (
    *("device", *_OF_CASE[1:], "of", "time_s", "stall_s", "compute_s", "overhead_s"),
    *("energy_mwh", "provenance", "flags"),
)
HOW = (
    "Bars: sums over the minibatches of an epoch, the mean of epochs 1 and later where whole epochs were run; else"
    " medians of a minibatch. Stall is the visible wait for a minibatch. Hatched: simulated."
)
WITH_FIRST = (
    "Epoch 0 has the first minibatch in it, in which kernels are chosen and workers start: much of a small epoch."
)

COLD_AND_KEPT = ("cold", "evicted")
"""Cache states that begin cold and keep what epoch 0 read."""

USUAL_WORKERS, USUAL_BATCH_SIZE = 4, 16  # 004 sec. 4.4
LEAST_CURVE = 3
"""Numbers of workers that a curve over them needs."""


class Parts(NamedTuple):
    """The time of an epoch or a minibatch in parts, in seconds, its energy in mWh, and what it is of."""

    stall_s: float
    compute_s: float
    overhead_s: float
    energy_mwh: Optional[float]
    of: str

    @property
    def time_s(self) -> float:
        """All parts."""
        return self.stall_s + self.compute_s + self.overhead_s


class EpochBar(NamedTuple):
    """A bar to be: its name on the axis, the profile, and whether epoch 0 is meant."""

    name: str
    row: Row
    first_epoch: bool = False


def parts_of(row: Row, first_epoch: bool = False) -> Optional[Parts]:
    """The parts of an epoch 1 or later, of a minibatch where no whole epochs were run, or of epoch 0; None without."""
    prefix, of = ("epoch0", FIRST) if first_epoch else ("epoch", LATER)
    seconds = cells(row, [f"{prefix}_{part}_s" for part in ("stall", "compute", "overhead")])
    if None not in seconds:
        return Parts(*seconds, getattr(row, f"{prefix}_energy_mwh"), of)
    medians = cells(row, ("fetch_stall_ms", "compute_ms", "overhead_ms"))
    return None if first_epoch or None in medians else Parts(*map(ms_to_s, medians), None, MINIBATCH)


def row_of(row: Row, parts: Parts) -> Tuple[Any, ...]:
    """A row of `COLUMNS`."""
    return (*cells(row, _OF_CASE), parts.of, parts.time_s, *parts[:4], row.provenance, row.flags)


def stacked_panel(
    title: str, columns: Sequence[EpochBar], x_label: str, varies: Sequence[str]
) -> Optional[Tuple[Panel, List[Tuple[Any, ...]]]]:
    """A panel with a stacked bar for each column, and its rows of `COLUMNS`; None where none has parts."""
    known = [(column, parts_of(column.row, column.first_epoch)) for column in columns]
    shown = [(column, parts) for column, parts in known if parts is not None]
    if not shown:
        return None
    of_minibatches = all(parts.of == MINIBATCH for _, parts in shown)
    change, unit = (s_to_ms, "ms") if of_minibatches else (float, "s")
    marks = []
    for place, (column, parts) in enumerate(shown):
        shares = [("stall", parts.stall_s), ("compute", parts.compute_s), ("overhead", parts.overhead_s)]
        told = ", ".join(f"{part} {figure_text(change(seconds))} {unit}" for part, seconds in shares)
        told += f", energy {figure_text(parts.energy_mwh)} mWh" if parts.energy_mwh is not None else ""
        name, provenance = column.name.replace("\n", " "), column.row.provenance
        tip = f"{name}: {figure_text(change(parts.time_s))} {unit} per {parts.of} ({told}); {provenance}"
        heights = tuple((colour, change(seconds)) for colour, seconds in shares)
        marks.append(Bar(float(place), 0.72, heights, tip, provenance == "simulated"))
    axes = (
        Axis(x_label, CATEGORY, tuple(column.name for column, _ in shown)),
        Axis(f"time of {'a minibatch' if of_minibatches else 'an epoch'} ({unit})"),
    )
    panel = panel_of(title, *axes, marks, [column.row for column, _ in shown], varies)
    return panel, [row_of(column.row, parts) for column, parts in shown]


def sizes_of(rows: Sequence[Row]) -> str:
    """A sentence with the size of each workload's data set; empty where none is known."""
    sizes = {row.workload: row.data_samples for row in rows if row.data_samples is not None}
    told = ", ".join(f"{workload} {samples:,}" for workload, samples in sizes.items())
    return f" Samples in the data set: {told}." if told else ""


def worker_figures(material: Material) -> List[Figure]:
    """Workers of the DataLoader, a figure for each device (004 Fig 2, 003 Figs 2-5)."""
    found = material.families(_with_warm_epochs(material), "workers")
    asks = "E1: does loading in parallel hide the stall?"
    return _of_each_device(found, "workers", "Workers of the DataLoader", "workers", asks)


def batch_size_figures(material: Material) -> List[Figure]:
    """Batch sizes, a figure for each device (004 Fig 4)."""
    found = material.families(_with_warm_epochs(material), "batch_size", least=3)
    asks = "E5: what does the batch size cost and gain?"
    return _of_each_device(found, "batch-size", "Batch size", "samples per minibatch", asks)


def device_figures(material: Material) -> List[Figure]:
    """The same workload on several devices at their greatest power mode (004 sec. 5.1.7, 001 sec. 1.1)."""
    greatest = [row for row in _with_warm_epochs(material) if row.power_mode == "maxn" and not row.board_instance]
    found = material.families(greatest, "device", split_by=("workload",))
    short = [family._replace(values=tuple(map(bare, family.values))) for family in found]
    asks = "E14: how do devices compare at their greatest mode?"
    return _figure_of(short, "devices", "The same workload on several devices", "device", asks)


def _with_warm_epochs(material: Material) -> List[Row]:
    """What drops the cache before each epoch is the page cache's experiment."""
    return [row for row in material.trained() if row.cache != DROPPED[1]]


def _of_each_device(found: Sequence[Family], name: str, title: str, x_label: str, asks: str) -> List[Figure]:
    return [
        figure
        for device, members in by_device(found).items()
        for figure in _figure_of(members, file_name(name, device), f"{title} on {device}", x_label, asks)
    ]


def _figure_of(found: Sequence[Family], name: str, title: str, x_label: str, asks: str) -> List[Figure]:
    panels, rows = [], []
    kept = [_shared_settings(family) for family in found]
    shared = [one for one in kept[0] if all(one in others for others in kept)] if kept else []
    for family, ours in zip(found, kept):
        heading = ", ".join([family.workload, *(one for one in ours if one not in shared)])
        columns = [EpochBar(str(value), row) for value, row in zip(family.values, family.rows)]
        made = stacked_panel(heading, columns, x_label, family.varies)
        if made is not None:
            panels.append(made[0])
            rows += made[1]
    if not panels:
        return []
    alike = f" ({', '.join(shared)})" if shared else ""
    sizes = sizes_of([row for family in found for row in family.rows])
    caption = f"{asks} Time of an epoch or a minibatch (see the axis), in parts, for each value{alike}.{sizes} {HOW}"
    return [Figure(name, title, caption, panels, LEGEND, COLUMNS, rows)]


def _shared_settings(family: Family) -> List[str]:
    """For the caption, or for the panel's title where other panels differ."""
    told = []
    for name in ("power_mode", "storage", "workers", "batch_size"):
        values = {getattr(row, name) for row in family.rows}
        if len(values) == 1 and None not in values:
            told.append(f"{name.replace('_', ' ')} {values.pop()}")
    return told


def storage_figures(material: Material) -> List[Figure]:
    """Worst case (no workers, epoch 0) beside the expected one (workers, epochs 1 and later), for each device."""
    found = material.families(_with_warm_epochs(material), "workers", "storage")
    on_several = [family for family in found if len({storage for _, storage in family.values}) > 1]
    figures = []
    for device, members in by_device(on_several).items():
        media = sorted({storage for family in members for _, storage in family.values})
        panels, rows, signs = [], [], []
        for family in members:
            x_label = "workers and epoch; storage medium"
            made = stacked_panel(family.workload, _worst_and_expected(family), x_label, family.varies)
            if made is not None:
                panels.append(made[0])
                rows += made[1]
            curves = _over_workers(family, media)
            if curves is not None:
                panels.append(curves)
                parts = [(row, parts_of(row, first_epoch=True)) for row in family.rows]
                rows += [row_of(row, one) for row, one in parts if one is not None]
                signs = [LegendEntry(medium, _colour_of(place), place) for place, medium in enumerate(media)]
        if panels:
            sizes = sizes_of([row for family in members for row in family.rows])
            caption = (
                "E3, E4: does the storage medium matter, and how many workers hide it? Without workers in epoch 0, the"
                " worst case, and with workers in epochs 1 and later, the expected one; w: workers, e: epochs; where"
                f" enough numbers of workers were run, the time of the cold epoch 0 against them.{sizes} {WITH_FIRST}"
                f" {HOW}"
            )
            name, title = file_name("storage", device), f"Storage media on {device}"
            figures.append(Figure(name, title, caption, panels, (*LEGEND, *signs), COLUMNS, list(dict.fromkeys(rows))))
    return figures


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


def _colour_of(medium: int) -> str:
    """The colour of a medium's curve; those of stall and compute are left to the bars."""
    return listed(medium + 2)


def _over_workers(family: Family, media: Sequence[str]) -> Optional[Panel]:
    """Time of epoch 0 against workers, a curve for each medium; None for too few."""
    workers = sorted({count for count, _ in family.values})
    curves = []
    for place, medium in enumerate(media):
        known = [
            (float(workers.index(count)), parts.time_s)
            for (count, storage), row in zip(family.values, family.rows)
            for parts in [parts_of(row, first_epoch=True)]
            if storage == medium and parts is not None
        ]
        if len(known) >= LEAST_CURVE:
            tip, dashed = f"{medium}: time of epoch 0", family.provenance == "simulated"
            curves.append(Curve(_colour_of(place), *zip(*known), tip, dashed=dashed, marker=place))
    if len(curves) < 2:
        return None
    axes = Axis("workers", CATEGORY, tuple(map(str, workers))), Axis("time of epoch 0 (s)")
    return panel_of(f"{family.workload}: workers", *axes, curves, family.rows, family.varies)


def page_cache_figures(material: Material) -> List[Figure]:
    """Epoch 0 against later ones, whole epochs in the greatest mode (004 sec. 4.4), a figure for each device."""
    varies = ("cache", "epochs")
    usual = [
        row
        for row in material.trained()
        if None not in (row.epoch0_time_s, row.epoch_time_s) and (row.power_mode, row.clocks) == ("maxn", STATIC)
    ]
    shown: Dict[str, Dict[str, Tuple[Any, ...]]] = {}
    for group in material.alike(usual, varies):
        kept = [row for row in group if row.cache in COLD_AND_KEPT]
        dropped = [row for row in group if row.cache == DROPPED[1]]
        if kept:
            row, other = kept[-1], (dropped or [None])[-1]
            of_device = shown.setdefault(row.label, {})
            rank = _rank_of_cache(row, other is not None)
            if row.workload not in of_device or rank >= of_device[row.workload][0]:
                of_device[row.workload] = (rank, row, other)
    figures = []
    for device, chosen in shown.items():
        panels, rows = [], []
        for workload, (_, row, other) in chosen.items():
            columns = [EpochBar("epoch 0\ncold", row, True), EpochBar("epochs 1+\ncache kept", row)]
            columns += [EpochBar("epochs 1+\ndropped", other)] if other else []
            title = f"{workload}, {row.storage}" if row.storage else workload
            if (row.workers, row.batch_size) != (USUAL_WORKERS, USUAL_BATCH_SIZE):
                title += f", w{row.workers or 0}, bs {row.batch_size or 0}"
            made = stacked_panel(title, columns, "epoch, and what was done to the page cache", varies)
            if made is not None:
                panels.append(made[0])
                rows += made[1]
        sizes = sizes_of([row for _, row, _ in chosen.values()])
        caption = (
            "E2: what does the page cache save? Epoch 0 begins with a cold cache; later epochs read from memory what"
            " fits, or, where the cache is dropped before each, from the medium again. 4 workers, batch size 16, or"
            " what the title says (w: workers, bs: batch size); each panel is of one medium, which its title names."
            f"{sizes} {WITH_FIRST} {HOW}"
        )
        name, title = file_name("page-cache", device), f"First and later epochs on {device}"
        figures.append(Figure(name, title, caption, panels, LEGEND, COLUMNS, rows))
    return figures


def _rank_of_cache(row: Row, is_dropped: bool) -> Tuple[bool, bool, float, bool, bool]:
    """Which of several to show: the papers' defaults, with a dropped cache, much data, a slow medium, no workers."""
    storage = row.storage or ""
    is_slow = storage == "hdd" or parse_storage(storage).limit_bytes_per_s is not None
    defaults = (row.workers, row.batch_size) == (USUAL_WORKERS, USUAL_BATCH_SIZE)
    return defaults, is_dropped, row.data_scale_asked or 0.0, is_slow, not row.workers
