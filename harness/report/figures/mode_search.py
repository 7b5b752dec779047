"""E22: what a search for a power mode costs in profiles, and how good the mode is that it finds (000 sec. 4.2)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from harness.core.metrics import quartiles
from harness.core.units import S_PER_MINUTE
from harness.report.colours import listed
from harness.report.figure import SYMLOG, Axis, Curve, Figure, Panel, Series, joined
from harness.report.scales import figure_text
from harness.report.selection import Material, file_name

ALL_MODES = "brute-force"
"""Profiles everything: the truth that others are held against."""

COLUMNS = (
    *("strategy", "target", "device", "profiles", "profiles_spent", "profiling_seconds"),
    *("penalty_median", "penalty_q1", "penalty_q3", "over_limit_plus1_pct", "provenance"),
)


def search_figures(material: Material) -> List[Figure]:
    """A figure for each target: penalty against profiles, and against the time that these take."""
    groups: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for result in material.strategies:
        if result["profiles_spent"] and result["strategy"] != ALL_MODES and result["penalty_median"] is not None:
            groups.setdefault((result["target"], result["device"]), []).append(result)
    figures = []
    for (target, device), results in groups.items():
        names = list(dict.fromkeys(one["strategy"] for one in results))
        provenance = joined(one["provenance"] for one in results)
        minutes = [one["profiling_seconds"] / S_PER_MINUTE for one in results]
        spent = [float(one["profiles_spent"]) for one in results]
        penalty = Axis("time penalty (%)", SYMLOG)
        panels = (
            Panel("by profiles", Axis("profiles spent (1)"), penalty, _curves(names, results, spent), provenance),
            Panel("by time", Axis("time spent profiling (min)"), penalty, _curves(names, results, minutes), provenance),
        )
        caption = (
            "E22: what does a search for a power mode cost, and how good is what it finds? Median time penalty in %"
            " over power budgets and repeats, whiskers from first to third quartile where the file has them, against"
            " the mean number of profiles that an answer took and the minutes that they took; scale logarithmic"
            " beyond 5 %. Below 0 a choice breaks the budget; the CSV file has the share that does by more than 1 W."
        )
        series = tuple(Series(name, listed(place), place) for place, name in enumerate(names))
        rows = tuple(_row(one) for one in results)
        name, title = f"search-{file_name(device)}-{file_name(target)}", f"Search for a mode for {target} on {device}"
        figures.append(Figure(name, title, caption, panels, series, COLUMNS, rows))
    return figures


def _curves(names: Sequence[str], results: Sequence[Mapping[str, Any]], xs: Sequence[float]) -> Tuple[Curve, ...]:
    curves = []
    for place, name in enumerate(names):
        mine = sorted(((x, one) for x, one in zip(xs, results) if one["strategy"] == name), key=lambda pair: pair[0])
        told = ", ".join(
            f"{figure_text(one['penalty_median'])} % after {figure_text(one['profiles_spent'])}" for _, one in mine
        )
        quartiles = [_quartiles(one) for _, one in mine]
        curves.append(
            Curve(
                listed(place),
                tuple(x for x, _ in mine),
                tuple(one["penalty_median"] for _, one in mine),
                f"{name}: {told} profiles",
                dashed=any(one["provenance"] == "simulated" for _, one in mine),
                marker=place,
                lows=tuple(low for low, _ in quartiles),
                highs=tuple(high for _, high in quartiles),
            )
        )
    return tuple(curves)


def _quartiles(result: Mapping[str, Any]) -> Tuple[Any, Any]:
    """First and third quartile of the penalties of single choices; None from files that do not have these."""
    penalties = result.get("by_choice", {}).get("penalty_pct")
    if not penalties:
        return None, None
    first, _, third = quartiles(penalties)
    return first, third


def _row(result: Mapping[str, Any]) -> Tuple[Any, ...]:
    names = ("strategy", "target", "device", "profiles", "profiles_spent", "profiling_seconds", "penalty_median")
    return (
        *(result[name] for name in names),
        *_quartiles(result),
        *(result["over_limit_plus1_pct"], result["provenance"]),
    )
