"""E9: clocks that are held against clocks that may fall (004 Fig 6)."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import DVFS, STATIC
from harness.core.profiles import Profile
from harness.core.units import share_to_percent
from harness.report.colours import listed
from harness.report.figure import CATEGORY, Axis, Bar, Figure, Mark, Panel, Series
from harness.report.scales import figure_text
from harness.report.selection import Family, Material, by_device, families, file_name, trained

CHANGES = (("time", "minibatch_time_ms"), ("power", "power_mw"), ("energy", "energy_per_sample_mws"))
STEPS = (0, 20, 40, 60, 80, 100)


def dvfs_figures(material: Material) -> List[Figure]:
    """Change by DVFS, and where clocks then stay, a figure for each device."""
    found = families(trained(material.records), "clocks", lambda record: record.case.settings.clocks)
    figures = []
    for device, members in by_device(found).items():
        panels, rows = [], []
        for family in members:
            pair = dict(zip(family.values, family.records))
            if set(pair) == {STATIC, DVFS}:
                panels.append(_change(family, rows))
                residency = _residency(material.store.profile(pair[DVFS].id), family.workload, rows)
                panels += [residency] if residency else []
        if panels:
            caption = (
                "E9: what does DVFS change? By workload: change in % of the median time of a minibatch, of median"
                " power and of energy per sample when clocks may fall, against clocks held at the power mode's; and"
                " the share of the run's time (%) that clocks spent in each fifth of their greatest value."
            )
            series = tuple(Series(name, listed(place)) for place, name in enumerate(("CPU clock", "GPU clock")))
            columns = ("device", "workload", "quantity", "clocks_pct_of_max", "value_pct", "provenance")
            name, title = f"dvfs-{file_name(device)}", f"DVFS on {device}"
            figures.append(Figure(name, title, caption, tuple(panels), series, columns, tuple(rows)))
    return figures


def _change(family: Family, rows: List[Tuple[Any, ...]]) -> Panel:
    static, free = (dict(zip(family.values, family.records))[name] for name in (STATIC, DVFS))
    marks, names = [], []
    for name, key in CHANGES:
        before, after = static.aggregates.get(key), free.aggregates.get(key)
        if before and after is not None:
            change = share_to_percent(after / before - 1)
            tip = f"{name}: {change:+.2g} % with DVFS"
            marks.append(Bar(float(len(names)), 0.6, (("c5", change),), tip, family.provenance == "simulated"))
            names.append(name)
            rows.append((family.device, family.workload, f"change of {name}", None, change, family.provenance))
    axes = Axis("with DVFS against without", CATEGORY, tuple(names)), Axis("change (%)")
    return Panel(family.workload, *axes, tuple(marks), family.provenance)


def _residency(profile: Profile, workload: str, rows: List[Tuple[Any, ...]]) -> Optional[Panel]:
    mode: Dict[str, int] = profile.conditions.get("power_mode") or {}
    marks: List[Mark] = []
    names = tuple(f"{low}-{high}" for low, high in zip(STEPS, STEPS[1:]))
    for place, (name, pattern, key) in enumerate((("CPU", r"cpu\d+_khz", "cpu_khz"), ("GPU", r"gpu_khz", "gpu_khz"))):
        values = [
            value
            for channel, one in profile.telemetry.series.items()
            if re.fullmatch(pattern, channel)
            for value in one.values
        ]
        if not values or not mode.get(key):
            continue
        for step, share in enumerate(_shares(values, mode[key])):
            tip = f"{name} clock at {names[step]} % of its greatest for {figure_text(share)} % of the time"
            marks.append(
                Bar(
                    step + (place - 0.5) * 0.36, 0.34, ((listed(place), share),), tip, profile.provenance == "simulated"
                )
            )
            rows.append((profile.case.device, workload, f"{name} clock", names[step], share, profile.provenance))
    if not marks:
        return None
    axes = Axis("clock (% of the power mode's)", CATEGORY, names), Axis("share of time (%)")
    return Panel(f"{workload}: clocks with DVFS", *axes, tuple(marks), profile.provenance)


def _shares(values: Sequence[float], greatest: float) -> List[float]:
    percents = np.clip([share_to_percent(value / greatest) for value in values], 0, 100)
    counts, _ = np.histogram(percents, STEPS)
    return [float(share_to_percent(count / len(values))) for count in counts]
