"""E2: the first epoch against the later ones, with the page cache kept and dropped (004 sec. 5.1.1, 003 sec. III.D)."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from harness.core.cases import DROPPED, STATIC, parse_storage
from harness.report.figure import Figure, Panel
from harness.report.figures.stacks import COLUMNS, HOW, LEGEND, WITH_FIRST, Column, stacked_panel
from harness.report.selection import Material, device_name, file_name, trained
from harness.store.rows import Record

KEPT = ("cold", "evicted")
"""Cache states that begin cold and keep what epoch 0 read."""

DEFAULTS = (4, 16)
"""Workers and batch size (004 sec. 4.4)."""

Place = Tuple[str, str, str, float, int, int]
"""Device, workload, storage, scale of the data set, workers, batch size: bars side by side are of the same."""


def page_cache_figures(material: Material) -> List[Figure]:
    """Epoch 0 against epochs 1 and later, a figure for each device."""
    kept: Dict[Place, Record] = {}
    dropped: Dict[Place, Record] = {}
    for record in filter(_usual, trained(material.records)):
        case = record.case
        how = (case.storage or "", case.settings.data_scale or 0.0, case.workers or 0, case.batch_size or 0)
        place = (device_name(record), case.workload, *how)
        if case.settings.cache in KEPT:
            kept[place] = record
        elif case.settings.cache == DROPPED[1]:
            dropped[place] = record
    shown: Dict[Tuple[str, str], Place] = {}
    for place in sorted(kept, key=lambda place: _rank(place, place in dropped)):  # the last one stays
        shown[place[:2]] = place
    figures = []
    for device in dict.fromkeys(device for device, *_ in kept):
        panels: List[Panel] = []
        rows: List[Tuple[Any, ...]] = []
        for workload in dict.fromkeys(workload for one, workload, *_ in kept if one == device):
            place = shown[device, workload]
            record, other = kept[place], dropped.get(place)
            columns = [Column("epoch 0\ncold", record, True), Column("epochs 1+\ncache kept", record)]
            columns += [Column("epochs 1+\ndropped", other)] if other else []
            title = f"{workload}, {place[2]}" if place[2] else workload
            title += "" if place[4:] == DEFAULTS else f", w{place[4]}, bs {place[5]}"
            made = stacked_panel(title, columns, "epoch, and what was done to the page cache")
            if made is not None:
                panels.append(made[0])
                rows += made[1]
        caption = (
            "E2: what does the page cache save? Epoch 0 begins with a cold cache; later epochs read from memory what"
            " fits, or, where the cache is dropped before each, from the medium again. 4 workers, batch size 16, or"
            " what the title says (w: workers, bs: batch size); each panel is of one medium, which its title names."
            f" {WITH_FIRST} {HOW}"
        )
        name, title = f"page-cache-{file_name(device)}", f"First and later epochs on {device}"
        figures.append(Figure(name, title, caption, tuple(panels), LEGEND, COLUMNS, tuple(rows)))
    return figures


def _rank(place: Place, is_dropped: bool) -> Tuple[bool, bool, float, bool, bool]:
    """Which of several to show: the papers' defaults, with a dropped cache, much data, a slow medium, no workers."""
    _, _, storage, scale, workers, batch_size = place
    is_slow = storage == "hdd" or parse_storage(storage).limit_bytes_per_s is not None
    return (workers, batch_size) == DEFAULTS, is_dropped, scale, is_slow, not workers


def _usual(record: Record) -> bool:
    """Whether whole epochs were run in the greatest mode (004 sec. 4.4)."""
    case, found = record.case, record.aggregates
    whole = found.get("epoch0_time_s") is not None and found.get("epoch_time_s") is not None
    return whole and (case.power_mode, case.settings.clocks) == ("maxn", STATIC)
