"""E20: what the modes that strategies choose under power budgets cost in time and power (001 Figs 12 and 13)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from harness.core.metrics import quartiles
from harness.report.figure import CATEGORY, SYMLOG, Axis, Bar, Curve, Figure, Mark, Panel, Rule, Series, Violin, joined
from harness.report.scales import figure_text
from harness.report.selection import Material, file_name

COLUMNS = (
    *("strategy", "target", "device", "profiles", "penalty_median", "penalty_mean", "penalty_max", "over_limit_pct"),
    *("over_limit_plus1_pct", "area_w", "infeasible", "choices", "profiles_spent", "profiling_seconds", "provenance"),
)
CHOICES = "by_choice"
"""Key of the figures of single choices; files that were written before there was one show medians and means."""

DISTRIBUTED = "observed power less the budget in W (violins: bar within: quartiles, dot: median), "

BROKEN = (
    Series("choices over the budget", "c3"),
    Series("over it by more than 1 W", "c1"),
    Series("power above the budget", "c5"),
)
MEANS = (Series("time penalty, median", "c0"), Series("time penalty, mean", "ink", 0))
SINGLE = (Series("time penalty", "c0"), Series("power less budget", "c2"))


def strategy_figures(material: Material) -> List[Figure]:
    """Penalties and power errors, a figure for each target."""
    groups: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for result in material.strategies:
        groups.setdefault((result["target"], result["device"]), []).append(result)
    figures = []
    for (target, device), results in groups.items():
        single = all(result.get(CHOICES) for result in results)
        shown = "as a violin, logarithmic beyond 5 %" if single else "median as bar, mean as dot"
        caption = (
            "E20: what do chosen modes cost? Over all power budgets and repeats: time penalty in % against the best"
            f" mode within the budget ({shown}, below 0 only by breaking the budget), {DISTRIBUTED if single else ''}"
            "the share of choices in % that break the budget and that break it by more than 1 W, and the mean power"
            " above the budget in W per choice. In parentheses: profiles that each may take; none where a strategy"
            " takes none, or all."
        )
        rows = tuple(tuple(result.get(name) for name in COLUMNS) for result in results)
        series = (*(SINGLE if single else MEANS), *BROKEN)
        first = _distributions(results) if single else (_penalties(results),)
        panels = (*first, _broken(results), _area(results))
        name, title = f"strategies-{file_name(device)}-{file_name(target)}", f"Power budgets for {target} on {device}"
        figures.append(Figure(name, title, caption, panels, series, COLUMNS, rows))
    return figures


def _names(results: Sequence[Mapping[str, Any]]) -> Tuple[str, ...]:
    return tuple(
        f"{one['strategy']} ({one['profiles']})"
        if one["profiles"] and one["strategy"] != "brute-force"
        else one["strategy"]
        for one in results
    )


def _distributions(results: Sequence[Mapping[str, Any]]) -> Tuple[Panel, ...]:
    """Violins of the penalties and of the power errors of single choices (001 Figs 12 and 13)."""
    names, provenance = _names(results), joined(one["provenance"] for one in results)
    panels = []
    for title, key, axis, colour, unit in (
        ("time penalty", "penalty_pct", Axis("time penalty (%)", SYMLOG), "c0", "%"),
        ("power error", "power_error_w", Axis("observed power less budget (W)"), "c2", "W"),
    ):
        marks: List[Mark] = [Rule(0.0, vertical=True)]
        for place, one in enumerate(results):
            values = tuple(one[CHOICES][key])
            if values:
                first, median, third = map(figure_text, quartiles(values))
                tip = f"{names[place]}: {title} {median} {unit}, quartiles {first} and {third}, {len(values)} choices"
                marks.append(Violin(float(place), values, colour, tip, one["provenance"] == "simulated"))
        panels.append(Panel(title, axis, Axis("", CATEGORY, names), tuple(marks), provenance))
    return tuple(panels)


def _penalties(results: Sequence[Mapping[str, Any]]) -> Panel:
    marks: List[Mark] = []
    names = _names(results)
    for place, one in enumerate(results):
        if one["penalty_median"] is None:
            continue
        told = ", ".join(f"{part} {figure_text(one[f'penalty_{part}'])} %" for part in ("median", "mean", "max"))
        minutes = figure_text(one["profiling_seconds"] / 60)
        tip = f"{names[place]}: time penalty {told}; {minutes} min of profiling"
        marks.append(Bar(float(place), 0.62, (("c0", one["penalty_median"]),), tip, one["provenance"] == "simulated"))
        marks.append(Curve("ink", (one["penalty_mean"],), (float(place),), tip, marker=0))
    axes = Axis("time penalty (%)"), Axis("", CATEGORY, names)
    return Panel("time penalty", *axes, tuple(marks), joined(one["provenance"] for one in results))


def _broken(results: Sequence[Mapping[str, Any]]) -> Panel:
    marks = []
    names = _names(results)
    for place, one in enumerate(results):
        for offset, key, colour, what in (
            (-0.19, "over_limit_pct", "c3", "over the budget"),
            (0.19, "over_limit_plus1_pct", "c1", "over it by more than 1 W"),
        ):
            if one[key] is not None:
                tip = f"{names[place]}: {figure_text(one[key])} % of choices {what}"
                marks.append(Bar(place + offset, 0.36, ((colour, one[key]),), tip, one["provenance"] == "simulated"))
    axes = Axis("share of choices (%)"), Axis("", CATEGORY, names)
    return Panel("budgets broken", *axes, tuple(marks), joined(one["provenance"] for one in results))


def _area(results: Sequence[Mapping[str, Any]]) -> Panel:
    names = _names(results)
    marks = tuple(
        Bar(
            float(place),
            0.62,
            (("c5", one["area_w"]),),
            f"{names[place]}: {figure_text(one['area_w'])} W above the budget per choice",
            one["provenance"] == "simulated",
        )
        for place, one in enumerate(results)
        if one["area_w"] is not None
    )
    axes = Axis("power above the budget (W per choice)"), Axis("", CATEGORY, names)
    return Panel("area above the budget", *axes, marks, joined(one["provenance"] for one in results))
