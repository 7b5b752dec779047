"""E1, E5, E14: time of an epoch against workers, batch size and device, as stacked bars (004 Figs 2 and 4)."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

from harness.core.cases import DROPPED
from harness.devices.simulated import INSTANCE_MARK
from harness.report.figure import Figure, Panel
from harness.report.figures.stacks import COLUMNS, HOW, LEGEND, family_columns, stacked_panel
from harness.report.selection import Family, Material, bare, by_device, families, file_name, trained
from harness.store.rows import Record


def worker_figures(material: Material) -> List[Figure]:
    """Workers of the DataLoader, a figure for each device (004 Fig 2, 003 Figs 2-5)."""
    found = families(_usual(material), "workers", lambda record: record.case.workers)
    return _figures(
        found, "workers", "Workers of the DataLoader", "workers", "E1: does loading in parallel hide the stall?"
    )


def batch_size_figures(material: Material) -> List[Figure]:
    """Batch sizes, a figure for each device (004 Fig 4)."""
    found = families(_usual(material), "batch_size", lambda record: record.case.batch_size, least=3)
    return _figures(
        found, "batch-size", "Batch size", "samples per minibatch", "E5: what does the batch size cost and gain?"
    )


def device_figures(material: Material) -> List[Figure]:
    """The same workload on several devices at their greatest power mode (004 sec. 5.1.7, 001 sec. 1.1)."""
    greatest = [
        record
        for record in _usual(material)
        if record.case.power_mode == "maxn" and INSTANCE_MARK not in record.case.device
    ]
    found = families(greatest, "device", lambda record: record.case.device, split_by=("workload",))
    short = [family._replace(values=tuple(bare(value) for value in family.values)) for family in found]
    return _figure_of(
        short,
        "devices",
        "The same workload on several devices",
        "device",
        "E14: how do devices compare at their greatest mode?",
    )


def _usual(material: Material) -> List[Record]:
    """Records whose later epochs are warm: what drops the cache before each epoch is the page cache's experiment."""
    return [record for record in trained(material.records) if record.case.settings.cache != DROPPED[1]]


def _figures(found: Sequence[Family], name: str, title: str, x_label: str, asks: str) -> List[Figure]:
    made: List[Figure] = []
    for device, members in by_device(found).items():
        made += _figure_of(members, f"{name}-{file_name(device)}", f"{title} on {device}", x_label, asks)
    return made


def _figure_of(found: Sequence[Family], name: str, title: str, x_label: str, asks: str) -> List[Figure]:
    panels: List[Panel] = []
    rows: List[Tuple[Any, ...]] = []
    kept = [_kept(family) for family in found]
    shared = [one for one in kept[0] if all(one in others for others in kept)] if kept else []
    for family, ours in zip(found, kept):
        heading = ", ".join([family.workload, *(one for one in ours if one not in shared)])
        made = stacked_panel(heading, family_columns(family), x_label)
        if made is not None:
            panels.append(made[0])
            rows += made[1]
    if not panels:
        return []
    alike = f" ({', '.join(shared)})" if shared else ""
    caption = f"{asks} Time of an epoch or a minibatch (see the axis), in parts, for each value{alike}. {HOW}"
    return [Figure(name, title, caption, tuple(panels), LEGEND, COLUMNS, tuple(rows))]


def _kept(family: Family) -> List[str]:
    """What the records of a family share, for the caption, or the panel's title where other panels differ."""
    told: List[str] = []
    questions: Sequence[Tuple[str, Callable[[Record], Optional[Any]]]] = (
        ("power mode", lambda record: record.case.power_mode),
        ("storage", lambda record: record.case.storage),
        ("workers", lambda record: record.case.workers),
        ("batch size", lambda record: record.case.batch_size),
    )
    for name, ask in questions:
        answers = {ask(record) for record in family.records}
        if len(answers) == 1 and None not in answers:
            told.append(f"{name} {answers.pop()}")
    return told
