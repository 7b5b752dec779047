"""E23: how far linear regressions are off, subset by subset of the modes they learn from (004 sec. 5.7, Fig. 10)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from harness.core.metrics import quartiles
from harness.report.colours import listed
from harness.report.figure import CATEGORY, LOG, Axis, Figure, Panel, Series, Violin, joined
from harness.report.scales import figure_text
from harness.report.selection import Material, file_name

LINEAR = ("linear", "linear-energy")
"""Predictors that are linear regressions: of each figure by itself, and of energy with the predicted time."""

QUANTITIES = ("time", "power", "energy")
COLUMNS = ("predictor", "target", "device", "sampling", "n_modes", "subset", *(f"{q}_mape_pct" for q in QUANTITIES))


def regression_figures(material: Material) -> List[Figure]:
    """A figure for each device: a panel for each quantity, a violin for each target and number of modes."""
    groups: Dict[str, List[Dict[str, Any]]] = {}
    for result in material.predictors:
        if result["predictor"] in LINEAR and isinstance(result.get("time_mape"), list):
            groups.setdefault(result["device"], []).append(result)
    figures = []
    for device, results in groups.items():
        used = [name for name in LINEAR if any(one["predictor"] == name for one in results)]
        panels = [panel for panel in (_panel(what, results) for what in QUANTITIES) if panel is not None]
        if panels:
            caption = (
                "E23: is a linear regression over power modes enough? MAPE in % (logarithmic) on the modes that it did"
                " not learn from: each value of a distribution is another subset of as many modes as stand beside the"
                " workload (004 sec. 5.7 takes 4 modes of 10). Bar within: quartiles; dot: median; hatched: simulated."
                " One regression fits time and power of a minibatch to the settings; linear-energy fits energy to"
                " settings and time, and takes power from both."
            )
            series = tuple(Series(name, listed(LINEAR.index(name))) for name in used)
            rows = tuple(row for result in results for row in _rows(result))
            name, title = f"regression-{file_name(device)}", f"Linear regression over power modes of {device}"
            figures.append(Figure(name, title, caption, tuple(panels), series, (*COLUMNS, "provenance"), rows))
    return figures


def _panel(what: str, results: Sequence[Mapping[str, Any]]) -> Optional[Panel]:
    marks, names = [], []
    known = [one for one in results if all(value is not None for value in one[f"{what}_mape"])]
    for place, one in enumerate(known):
        values = tuple(float(value) for value in one[f"{what}_mape"])
        names.append(f"{one['target']}, {one['n_modes']}")
        tip = (
            f"{one['predictor']}, {names[-1]} modes: {what} MAPE {figure_text(quartiles(values)[1])} %, median of"
            f" {len(values)} subsets; {one['provenance']}"
        )
        colour = listed(LINEAR.index(one["predictor"]))
        marks.append(Violin(float(place), values, colour, tip, one["provenance"] == "simulated"))
    if not marks:
        return None
    axes = Axis(f"{what} MAPE (%)", LOG), Axis("", CATEGORY, tuple(names))
    return Panel(what, *axes, tuple(marks), joined(one["provenance"] for one in known))


def _rows(result: Mapping[str, Any]) -> List[Tuple[Any, ...]]:
    return [
        (
            *(result[name] for name in ("predictor", "target", "device", "sampling", "n_modes")),
            *(subset, *errors, result["provenance"]),
        )
        for subset, errors in enumerate(zip(*(result[f"{what}_mape"] for what in QUANTITIES)))
    ]
