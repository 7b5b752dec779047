"""E2: the first epoch against the later ones, with the page cache kept and dropped (004 sec. 5.1.1, 003 sec. III.D)."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from harness.cases import DROPPED, STATIC
from harness.report.figure import Figure, Panel
from harness.report.figures.stacks import COLUMNS, HOW, LEGEND, WITH_FIRST, Column, stacked_panel
from harness.report.selection import Material, device_name, file_name, trained
from harness.results.rows import Record

KEPT = ("cold", "evicted")
"""Cache states that begin cold and keep what epoch 0 read."""

Place = Tuple[str, str, str, float]
"""Device, workload, storage and scale of the data set: bars side by side are of the same."""


def page_cache_figures(material: Material) -> List[Figure]:
    """Epoch 0 against epochs 1 and later, a figure for each device."""
    kept: Dict[Place, Record] = {}
    dropped: Dict[Place, Record] = {}
    for record in filter(_usual, trained(material.records)):
        case = record.case
        place = (device_name(record), case.workload, case.storage or "", case.settings.data_scale or 0.0)
        if case.settings.cache in KEPT:
            kept[place] = record
        elif case.settings.cache == DROPPED[1]:
            dropped[place] = record
    shown: Dict[Tuple[str, str], Place] = {}
    for place in sorted(kept, key=lambda place: (place in dropped, place[3], place[2] == "hdd")):  # the last one stays
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
            made = stacked_panel(title, columns, "epoch, and what was done to the page cache")
            if made is not None:
                panels.append(made[0])
                rows += made[1]
        caption = (
            "E2: what does the page cache save? Epoch 0 begins with a cold cache; later epochs read from memory what"
            " fits, or, where the cache is dropped before each, from the medium again. 4 workers, batch size 16; each"
            " panel is of one medium, which its title names."
            f" {WITH_FIRST} {HOW}"
        )
        name, title = f"page-cache-{file_name(device)}", f"First and later epochs on {device}"
        figures.append(Figure(name, title, caption, tuple(panels), LEGEND, COLUMNS, tuple(rows)))
    return figures


def _usual(record: Record) -> bool:
    """Whether whole epochs were run at the papers' defaults (004 sec. 4.4)."""
    case, found = record.case, record.aggregates
    whole = found.get("epoch0_time_s") is not None and found.get("epoch_time_s") is not None
    defaults = (case.workers, case.batch_size, case.power_mode, case.settings.clocks) == (4, 16, "maxn", STATIC)
    return whole and defaults
