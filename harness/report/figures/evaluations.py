"""E16, E20, E22, E23: what `python -m predictors` evaluates: errors of predictors, what strategies' choices cost.

001 Figs 7, 8, 12 and 13; 000 sec. 4.2; 004 sec. 5.7 and Fig. 10.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Hashable, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.core.metrics import quartiles
from harness.core.units import S_PER_MINUTE
from harness.report.colours import listed
from harness.report.drawing import Height, bars, shift
from harness.report.figure import (
    CATEGORY,
    LOG,
    SYMLOG,
    Axis,
    Curve,
    Figure,
    LegendEntry,
    Mark,
    Panel,
    Rule,
    Violin,
    joined,
)
from harness.report.layout import figure_text
from harness.report.material import Material, file_name

Result = Mapping[str, Any]

ERRORS = ("time", "power", "energy")
PREDICTION_COLUMNS = (
    *("predictor", "target", "device", "n_modes", "sampling", "repeats", "profiling_seconds"),
    *(f"{what}_mape_{part}" for what in ERRORS for part in ("median", "q1", "q3")),
    "provenance",
)
LINEAR = ("linear", "linear-energy")
"""Predictors that are linear regressions: of each figure by itself, and of energy with the predicted time."""

SUBSET_COLUMNS = (
    *("predictor", "target", "device", "sampling", "n_modes", "subset"),
    *(f"{what}_mape_pct" for what in ERRORS),
    "provenance",
)
STRATEGY_COLUMNS = (
    *("strategy", "target", "device", "profiles", "penalty_median", "penalty_mean", "penalty_max", "over_limit_pct"),
    *("over_limit_plus1_pct", "area_w", "infeasible", "choices", "profiles_spent", "profiling_seconds", "provenance"),
)
SEARCH_COLUMNS = (
    *("strategy", "target", "device", "profiles", "profiles_spent", "profiling_seconds"),
    *("penalty_median", "penalty_q1", "penalty_q3", "over_limit_plus1_pct", "provenance"),
)
CHOICES = "by_choice"
"""Key of the figures of single choices; files that were written before there was one show medians and means."""

ALL_MODES = "brute-force"
"""Profiles everything: the truth that others are held against."""

BROKEN = (
    LegendEntry("choices over the budget", "c3"),
    LegendEntry("over it by more than 1 W", "c1"),
    LegendEntry("power above the budget", "c5"),
)
MEANS = (LegendEntry("time penalty, median", "c0"), LegendEntry("time penalty, mean", "ink", 0))
SINGLE = (LegendEntry("time penalty", "c0"), LegendEntry("power less budget", "c2"))


def _grouped(results: Iterable[Result], *keys: str) -> Dict[Tuple[Hashable, ...], List[Result]]:
    groups: Dict[Tuple[Hashable, ...], List[Result]] = {}
    for result in results:
        groups.setdefault(tuple(result[key] for key in keys), []).append(result)
    return groups


def _names_of(results: Iterable[Result], key: str) -> Tuple[List[str], List[LegendEntry]]:
    """Each predictor or strategy once, and its entry of the legend."""
    names = list(dict.fromkeys(result[key] for result in results))
    return names, [LegendEntry(name, listed(place), place) for place, name in enumerate(names)]


def _panel(title: str, x: Axis, y: Axis, marks: Iterable[Mark], results: Iterable[Result]) -> Panel:
    return Panel(title, x, y, tuple(marks), joined(one["provenance"] for one in results))


def prediction_figures(material: Material) -> List[Figure]:
    """MAPE against modes with profiling time, a figure for each target."""
    figures = []
    for (target, device, sampling), results in _grouped(material.predictors, "target", "device", "sampling").items():
        names, series = _names_of(results, "predictor")
        panels = [panel for panel in (_error_panel(what, names, results) for what in ERRORS) if panel is not None]
        if panels:
            caption = (
                f"E16: how many modes must be profiled? MAPE in % on modes that were not used to fit, {sampling}"
                " sampling: median over repeats, whiskers from first to third quartile, logarithmic; dashed: simulated."
                " Below each number of modes: what profiling them takes (min; 3 s and 41 minibatches each)."
            )
            rows = [tuple(map(result.get, PREDICTION_COLUMNS)) for result in results]
            name = file_name("prediction", device, target, sampling)
            title = f"Prediction of {target} on {device}, {sampling} sampling"
            figures.append(Figure(name, title, caption, panels, series, PREDICTION_COLUMNS, rows))
    return figures


def _error_panel(what: str, names: Sequence[str], results: Sequence[Result]) -> Optional[Panel]:
    known = [result for result in results if result.get(f"{what}_mape_median")]
    counts = sorted({result["n_modes"] for result in known})
    if not known:
        return None
    curves = []
    for place, name in enumerate(names):
        mine = sorted((one for one in known if one["predictor"] == name), key=lambda one: one["n_modes"])
        if mine:
            told = ", ".join(f"{one[f'{what}_mape_median']:.1f} % of {one['n_modes']}" for one in mine)
            xs = [counts.index(one["n_modes"]) + shift(place, len(names), 0.5) for one in mine]
            ends = [(one[f"{what}_mape_q1"], one[f"{what}_mape_q3"]) for one in mine]
            curves.append(_curve(place, xs, mine, f"{what}_mape_median", f"{name}: {told} modes", ends))
    minutes = [
        float(np.median([one["profiling_seconds"] for one in known if one["n_modes"] == count])) / S_PER_MINUTE
        for count in counts
    ]
    labels = tuple(f"{count}\n{took:.{1 if took < 10 else 0}f} min" for count, took in zip(counts, minutes))
    axes = Axis("profiled modes, and the time that takes", CATEGORY, labels), Axis(f"{what} MAPE (%)", LOG)
    return _panel(what, *axes, curves, known)


def _curve(
    place: int, xs: Sequence[float], results: Sequence[Result], key: str, tip: str, ends: Sequence[Tuple[Any, Any]]
) -> Curve:
    """The curve of a predictor or a strategy, with whiskers."""
    ys, dashed = tuple(one[key] for one in results), any(one["provenance"] == "simulated" for one in results)
    lows, highs = zip(*ends)
    return Curve(listed(place), tuple(xs), ys, tip, dashed=dashed, marker=place, lows=lows, highs=highs)


def regression_figures(material: Material) -> List[Figure]:
    """A figure for each device: a panel for each quantity, a violin for each target and number of modes."""
    linear = [
        one for one in material.predictors if one["predictor"] in LINEAR and isinstance(one.get("time_mape"), list)
    ]
    figures = []
    for (device,), results in _grouped(linear, "device").items():
        panels = [panel for panel in (_subsets_panel(what, results) for what in ERRORS) if panel is not None]
        if panels:
            caption = (
                "E23: is a linear regression over power modes enough? MAPE in % (logarithmic) on the modes that it did"
                " not learn from: each value of a distribution is another subset of as many modes as stand beside the"
                " workload (004 sec. 5.7 takes 4 modes of 10). Bar within: quartiles; dot: median; hatched: simulated."
                " One regression fits time and power of a minibatch to the settings; linear-energy fits energy to"
                " settings and time, and takes power from both."
            )
            used = [name for name in LINEAR if any(one["predictor"] == name for one in results)]
            series = [LegendEntry(name, listed(LINEAR.index(name))) for name in used]
            rows = [
                (*map(one.get, SUBSET_COLUMNS[:5]), subset, *errors, one["provenance"])
                for one in results
                for subset, errors in enumerate(zip(*(one[f"{what}_mape"] for what in ERRORS)))
            ]
            name, title = file_name("regression", device), f"Linear regression over power modes of {device}"
            figures.append(Figure(name, title, caption, panels, series, SUBSET_COLUMNS, rows))
    return figures


def _subsets_panel(what: str, results: Sequence[Result]) -> Optional[Panel]:
    known = [one for one in results if all(value is not None for value in one[f"{what}_mape"])]
    marks, names = [], []
    for place, one in enumerate(known):
        values = tuple(map(float, one[f"{what}_mape"]))
        names.append(f"{one['target']}, {one['n_modes']}")
        tip = (
            f"{one['predictor']}, {names[-1]} modes: {what} MAPE {figure_text(quartiles(values)[1])} %, median of"
            f" {len(values)} subsets; {one['provenance']}"
        )
        colour = listed(LINEAR.index(one["predictor"]))
        marks.append(Violin(float(place), values, colour, tip, one["provenance"] == "simulated"))
    if not marks:
        return None
    return _panel(what, Axis(f"{what} MAPE (%)", LOG), Axis("", CATEGORY, tuple(names)), marks, known)


def strategy_figures(material: Material) -> List[Figure]:
    """Penalties and power errors, a figure for each target."""
    figures = []
    for (target, device), results in _grouped(material.strategies, "target", "device").items():
        single = all(result.get(CHOICES) for result in results)
        shown = "as a violin, logarithmic beyond 5 %" if single else "median as bar, mean as dot"
        errors = "observed power less the budget in W (violins: bar within: quartiles, dot: median), "
        caption = (
            "E20: what do chosen modes cost? Over all power budgets and repeats: time penalty in % against the best"
            f" mode within the budget ({shown}, below 0 only by breaking the budget), {errors if single else ''}"
            "the share of choices in % that break the budget and that break it by more than 1 W, and the mean power"
            " above the budget in W per choice. In parentheses: profiles that each may take; none where a strategy"
            " takes none, or all."
        )
        rows = [tuple(map(result.get, STRATEGY_COLUMNS)) for result in results]
        series = (*(SINGLE if single else MEANS), *BROKEN)
        panels = [*(_distributions(results) if single else [_penalties(results)]), *_budgets_broken(results)]
        name, title = file_name("strategies", device, target), f"Power budgets for {target} on {device}"
        figures.append(Figure(name, title, caption, panels, series, STRATEGY_COLUMNS, rows))
    return figures


def _contenders(results: Sequence[Result]) -> Tuple[str, ...]:
    return tuple(
        f"{one['strategy']} ({one['profiles']})"
        if one["profiles"] and one["strategy"] != ALL_MODES
        else one["strategy"]
        for one in results
    )


def _distributions(results: Sequence[Result]) -> List[Panel]:
    """Violins of the penalties and of the power errors of single choices (001 Figs 12 and 13)."""
    names = _contenders(results)
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
        panels.append(_panel(title, axis, Axis("", CATEGORY, names), marks, results))
    return panels


def _penalties(results: Sequence[Result]) -> Panel:
    names = _contenders(results)
    heights, dots = [], []
    for place, one in enumerate(results):
        if one["penalty_median"] is not None:
            told = ", ".join(f"{part} {figure_text(one[f'penalty_{part}'])} %" for part in ("median", "mean", "max"))
            minutes = figure_text(one["profiling_seconds"] / S_PER_MINUTE)
            tip = f"{names[place]}: time penalty {told}; {minutes} min of profiling"
            heights.append(Height(place, 0, one["penalty_median"], tip, one["provenance"]))
            dots.append(Curve("ink", (one["penalty_mean"],), (float(place),), tip, marker=0))
    marks = [*bars(heights, ["c0"], 0.62), *dots]
    return _panel("time penalty", Axis("time penalty (%)"), Axis("", CATEGORY, names), marks, results)


def _budgets_broken(results: Sequence[Result]) -> List[Panel]:
    names = _contenders(results)
    panels = []
    for title, label, quantities in (
        (
            *("budgets broken", "share of choices (%)"),
            (
                ("over_limit_pct", "c3", "% of choices over the budget"),
                ("over_limit_plus1_pct", "c1", "% of choices over it by more than 1 W"),
            ),
        ),
        (
            *("area above the budget", "power above the budget (W per choice)"),
            (("area_w", "c5", "W above the budget per choice"),),
        ),
    ):
        heights = [
            Height(category, place, one[key], f"{names[category]}: {figure_text(one[key])} {told}", one["provenance"])
            for category, one in enumerate(results)
            for place, (key, _, told) in enumerate(quantities)
            if one[key] is not None
        ]
        marks = bars(heights, [colour for _, colour, _ in quantities], 0.62 if len(quantities) == 1 else 0.76)
        panels.append(_panel(title, Axis(label), Axis("", CATEGORY, names), marks, results))
    return panels


def search_figures(material: Material) -> List[Figure]:
    """A figure for each target: penalty against profiles, and against the time that these take."""
    spending = [
        one
        for one in material.strategies
        if one["profiles_spent"] and one["strategy"] != ALL_MODES and one["penalty_median"] is not None
    ]
    figures = []
    for (target, device), results in _grouped(spending, "target", "device").items():
        names, series = _names_of(results, "strategy")
        penalty = Axis("time penalty (%)", SYMLOG)
        panels = [
            _panel("by profiles", Axis("profiles spent (1)"), penalty, _searches(names, results, _spent), results),
            _panel(
                "by time", Axis("time spent profiling (min)"), penalty, _searches(names, results, _minutes), results
            ),
        ]
        caption = (
            "E22: what does a search for a power mode cost, and how good is what it finds? Median time penalty in %"
            " over power budgets and repeats, whiskers from first to third quartile where the file has them, against"
            " the mean number of profiles that an answer took and the minutes that they took; scale logarithmic"
            " beyond 5 %. Below 0 a choice breaks the budget; the CSV file has the share that does by more than 1 W."
        )
        rows = [
            (
                *(one[name] for name in SEARCH_COLUMNS[:7]),
                *(*_penalty_quartiles(one), one["over_limit_plus1_pct"], one["provenance"]),
            )
            for one in results
        ]
        name, title = file_name("search", device, target), f"Search for a mode for {target} on {device}"
        figures.append(Figure(name, title, caption, panels, series, SEARCH_COLUMNS, rows))
    return figures


def _spent(result: Result) -> float:
    return float(result["profiles_spent"])


def _minutes(result: Result) -> float:
    return float(result["profiling_seconds"]) / S_PER_MINUTE


def _searches(names: Sequence[str], results: Sequence[Result], cost: Callable[[Result], float]) -> List[Curve]:
    curves = []
    for place, name in enumerate(names):
        mine = sorted((one for one in results if one["strategy"] == name), key=cost)
        told = ", ".join(
            f"{figure_text(one['penalty_median'])} % after {figure_text(one['profiles_spent'])}" for one in mine
        )
        ends = [_penalty_quartiles(one) for one in mine]
        curves.append(_curve(place, list(map(cost, mine)), mine, "penalty_median", f"{name}: {told} profiles", ends))
    return curves


def _penalty_quartiles(result: Result) -> Tuple[Any, Any]:
    """First and third quartile of the penalties of single choices; None from files that do not have these."""
    penalties = result.get(CHOICES, {}).get("penalty_pct")
    if not penalties:
        return None, None
    first, _, third = quartiles(penalties)
    return first, third
