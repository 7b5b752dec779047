"""E16: how far predictors are off, against the number of profiled modes (001 Figs 7 and 8)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.core.units import S_PER_MINUTE
from harness.report.colours import listed
from harness.report.figure import CATEGORY, LOG, Axis, Curve, Figure, Panel, Series, joined
from harness.report.selection import Material, file_name

QUANTITIES = ("time", "power", "energy")
COLUMNS = (
    *("predictor", "target", "device", "n_modes", "sampling", "repeats", "profiling_seconds"),
    *(f"{what}_mape_{part}" for what in QUANTITIES for part in ("median", "q1", "q3")),
    "provenance",
)


def prediction_figures(material: Material) -> List[Figure]:
    """MAPE against modes with profiling time, a figure for each target."""
    groups: Dict[Tuple[str, str, str], List[Dict[str, Any]]] = {}
    for result in material.predictors:
        groups.setdefault((result["target"], result["device"], result["sampling"]), []).append(result)
    figures = []
    for (target, device, sampling), results in groups.items():
        names = list(dict.fromkeys(result["predictor"] for result in results))
        panels = [panel for panel in (_panel(what, names, results) for what in QUANTITIES) if panel is not None]
        if panels:
            caption = (
                f"E16: how many modes must be profiled? MAPE in % on modes that were not used to fit, {sampling}"
                " sampling: median over repeats, whiskers from first to third quartile, logarithmic; dashed: simulated."
                " Below each number of modes: what profiling them takes (min; 3 s and 41 minibatches each)."
            )
            title = f"Prediction of {target} on {device}, {sampling} sampling"
            series = tuple(Series(name, listed(place), place) for place, name in enumerate(names))
            rows = tuple(tuple(result.get(name) for name in COLUMNS) for result in results)
            name = f"prediction-{file_name(device)}-{file_name(target)}-{file_name(sampling)}"
            figures.append(Figure(name, title, caption, tuple(panels), series, COLUMNS, rows))
    return figures


def _panel(what: str, names: Sequence[str], results: Sequence[Mapping[str, Any]]) -> Optional[Panel]:
    known = [result for result in results if result.get(f"{what}_mape_median")]
    counts = sorted({result["n_modes"] for result in known})
    if not known:
        return None
    curves = []
    for place, name in enumerate(names):
        mine = sorted((one for one in known if one["predictor"] == name), key=lambda one: one["n_modes"])
        if mine:
            shift = (place - (len(names) - 1) / 2) * 0.5 / len(names)
            told = ", ".join(f"{one[f'{what}_mape_median']:.1f} % of {one['n_modes']}" for one in mine)
            curves.append(
                Curve(
                    listed(place),
                    tuple(counts.index(one["n_modes"]) + shift for one in mine),
                    tuple(one[f"{what}_mape_median"] for one in mine),
                    f"{name}: {told} modes",
                    dashed=any(one["provenance"] == "simulated" for one in mine),
                    marker=place,
                    lows=tuple(one[f"{what}_mape_q1"] for one in mine),
                    highs=tuple(one[f"{what}_mape_q3"] for one in mine),
                )
            )
    labels = tuple(f"{count}\n{_minutes(count, known)} min" for count in counts)
    axes = Axis("profiled modes, and the time that takes", CATEGORY, labels), Axis(f"{what} MAPE (%)", LOG)
    return Panel(what, *axes, tuple(curves), joined(one["provenance"] for one in known))


def _minutes(count: int, results: Sequence[Mapping[str, Any]]) -> str:
    minutes = float(np.median([one["profiling_seconds"] for one in results if one["n_modes"] == count])) / S_PER_MINUTE
    return f"{minutes:.1f}" if minutes < 10 else f"{minutes:.0f}"
