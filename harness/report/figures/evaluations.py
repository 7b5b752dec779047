"""E16, E20, E22, E23: evaluations by `jetwatt`: errors of predictors, cost of strategies' choices.

001 Figs 7, 8, 12 and 13; 000 sec. 4.2; 004 sec. 5.7 and Fig. 10.
"""

from __future__ import annotations

import itertools
from operator import itemgetter
from typing import Any, Iterable, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

from harness.core.metrics import quartiles
from harness.core.units import S_PER_MINUTE
from harness.report.colours import LISTED, MARKERS
from harness.report.figure import Axis, Figure, Layer, LegendEntry, Mark, Panel, Spacing, Value, figure_of, panel_of
from harness.report.material import Material, file_name, grouped

Result = Mapping[str, Any]

ERRORS = ("time", "power", "energy")
PREDICTION_COLUMNS = (
    *("predictor", "target", "device", "n_modes", "sampling", "repeats", "profiling_seconds"),
    *(f"{what}_mape_{part}" for what in ERRORS for part in ("median", "q1", "q3")),
    "provenance",
)
LINEAR = ("linear", "linear-energy")
"""Predictors that are linear regressions: of each figure separately, and of energy with the predicted time."""

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
"""Key of the figures of single choices; files without it show medians and means."""

ALL_MODES = "brute-force"  # profiles all modes: the ground truth for the others
PENALTY, POWER_ERROR = "time penalty", "power less budget"
OF_KEYS = {
    "penalty_median": PENALTY,
    "power_error_w": POWER_ERROR,
    "over_limit_pct": "choices over the budget",
    "over_limit_plus1_pct": "over it by more than 1 W",
    "area_w": "power above the budget",
}
"""Names in the legend."""

STRATEGY_LEGEND = tuple(LegendEntry(name, colour) for name, colour in zip(OF_KEYS.values(), LISTED))


def _legend(results: Iterable[Result], key: str) -> List[LegendEntry]:
    names = dict.fromkeys(result[key] for result in results)
    return [LegendEntry(*entry) for entry in zip(names, itertools.cycle(LISTED), itertools.cycle(MARKERS))]


def prediction_figures(material: Material) -> Iterator[Figure]:
    groups = grouped(material.predictors, itemgetter("target", "device", "sampling"))
    for (target, device, sampling), results in groups.items():
        panels = [_error_panel(what, results) for what in ERRORS]
        rows = [tuple(map(result.get, PREDICTION_COLUMNS)) for result in results]
        name = file_name("prediction", device, target, sampling)
        details = {"target": target, "device": device, "sampling": sampling}
        series = _legend(results, "predictor")
        yield figure_of("prediction", name, panels, series, PREDICTION_COLUMNS, rows, **details)


def _error_panel(what: str, results: Sequence[Result]) -> Panel:
    evaluated = sorted(
        (result for result in results if result.get(f"{what}_mape_median")), key=lambda result: result["n_modes"]
    )
    names = {}
    for count, alike in grouped(evaluated, itemgetter("n_modes")).items():
        took = float(np.median([result["profiling_seconds"] for result in alike])) / S_PER_MINUTE
        names[count] = f"{count}\n{took:.{1 if took < 10 else 0}f} min"
    values = [
        Value(
            *(result["predictor"], names[result["n_modes"]], result[f"{what}_mape_median"], result["provenance"]),
            *(result[f"{what}_mape_q1"], result[f"{what}_mape_q3"]),
        )
        for result in evaluated
    ]
    axes = Axis("profiled modes, and the time that takes"), Axis(f"{what} MAPE (%)", Spacing.LOG)
    return panel_of(what, *axes, Mark.CURVES, values)


def regression_figures(material: Material) -> Iterator[Figure]:
    """A figure for each device: a panel for each quantity, a violin for each target and number of modes."""
    linear = [
        result
        for result in material.predictors
        if result["predictor"] in LINEAR and isinstance(result.get("time_mape"), list)
    ]
    for device, results in grouped(linear, itemgetter("device")).items():
        panels = [_subsets_panel(what, results) for what in ERRORS]
        series = [LegendEntry(name, colour) for name, colour in zip(LINEAR, LISTED)]
        rows = [
            (*map(result.get, SUBSET_COLUMNS[:5]), subset, *errors, result["provenance"])
            for result in results
            for subset, errors in enumerate(zip(*(result[f"{what}_mape"] for what in ERRORS)))
        ]
        name = file_name("regression", device)
        yield figure_of("regression", name, panels, series, SUBSET_COLUMNS, rows, device=device)


def _subsets_panel(what: str, results: Sequence[Result]) -> Panel:
    values = [
        Value(
            *(result["predictor"], tuple(map(float, result[f"{what}_mape"]))),
            *(
                f"{result['target']}, {result['n_modes']}{', energy' * (result['predictor'] != LINEAR[0])}",
                result["provenance"],
            ),
        )
        for result in results
        if all(value is not None for value in result[f"{what}_mape"])
    ]
    return panel_of(what, Axis(f"{what} MAPE (%)", Spacing.LOG), Axis(""), Mark.VIOLINS, values)


def strategy_figures(material: Material) -> Iterator[Figure]:
    for (target, device), results in grouped(material.strategies, itemgetter("target", "device")).items():
        single = all(result.get(CHOICES) for result in results)
        shown = "as a violin, logarithmic beyond 5 %" if single else "median; the CSV file has mean and greatest"
        errors = "observed power less the budget in W (violins: bar within: quartiles, dot: median), "
        rows = [tuple(map(result.get, STRATEGY_COLUMNS)) for result in results]
        panels = (
            _distributions(results) if single else [_bars(results, PENALTY, "time penalty (%)", ("penalty_median",))]
        )
        share, area = "share of choices (%)", "power above the budget (W per choice)"
        panels.append(_bars(results, "budgets broken", share, ("over_limit_pct", "over_limit_plus1_pct")))
        panels.append(_bars(results, "area above the budget", area, ("area_w",)))
        name = file_name("strategies", device, target)
        details = {"target": target, "device": device, "shown": shown, "errors": errors if single else ""}
        yield figure_of("strategies", name, panels, STRATEGY_LEGEND, STRATEGY_COLUMNS, rows, **details)


def _contender(result: Result) -> str:
    takes_some = result["profiles"] and result["strategy"] != ALL_MODES
    return f"{result['strategy']} ({result['profiles']})" if takes_some else result["strategy"]


def _distributions(results: Sequence[Result]) -> List[Panel]:
    """Violins of the penalties and of the power errors of single choices (001 Figs 12 and 13)."""
    panels = []
    for title, series, key, axis in (
        ("time penalty", PENALTY, "penalty_pct", Axis("time penalty (%)", Spacing.SYMLOG)),
        ("power error", POWER_ERROR, "power_error_w", Axis("observed power less budget (W)")),
    ):
        values = [
            Value(series, tuple(result[CHOICES][key]), _contender(result), result["provenance"])
            for result in results
            if result[CHOICES][key]
        ]
        zero = Layer(Mark.RULES, (Value("", 0.0, "", results[0]["provenance"]),))
        panels.append(panel_of(title, axis, Axis(""), Mark.VIOLINS, values, behind=[zero]))
    return panels


def _bars(results: Sequence[Result], title: str, label: str, keys: Sequence[str]) -> Panel:
    values = [
        Value(OF_KEYS[key], result[key], _contender(result), result["provenance"])
        for result in results
        for key in keys
        if result[key] is not None
    ]
    return panel_of(title, Axis(label), Axis(""), Mark.BESIDE, values)


def search_figures(material: Material) -> Iterator[Figure]:
    """A figure for each target: penalty against profiles, and against the time that these take."""
    spending = [
        result
        for result in material.strategies
        if result["profiles_spent"] and result["strategy"] != ALL_MODES and result["penalty_median"] is not None
    ]
    for (target, device), results in grouped(spending, itemgetter("target", "device")).items():
        spent = sorted(results, key=lambda result: result["profiles_spent"])
        panels = []
        for title, label, cost in (
            ("by profiles", "profiles spent (1)", lambda result: float(result["profiles_spent"])),
            ("by time", "time spent profiling (min)", lambda result: result["profiling_seconds"] / S_PER_MINUTE),
        ):
            values = [
                Value(
                    result["strategy"],
                    cost(result),
                    result["penalty_median"],
                    result["provenance"],
                    *_penalty_quartiles(result),
                )
                for result in spent
            ]
            axes = Axis(label), Axis("time penalty (%)", Spacing.SYMLOG)
            panels.append(panel_of(title, *axes, Mark.CURVES, values))
        rows = [
            (
                *(result[name] for name in SEARCH_COLUMNS[:7]),
                *(*_penalty_quartiles(result), result["over_limit_plus1_pct"], result["provenance"]),
            )
            for result in results
        ]
        name, series = file_name("search", device, target), _legend(results, "strategy")
        details = {"target": target, "device": device}
        yield figure_of("search", name, panels, series, SEARCH_COLUMNS, rows, **details)


def _penalty_quartiles(result: Result) -> Tuple[Any, Any]:
    """First and third quartile of the penalties of single choices; None for files without them."""
    penalties = result.get(CHOICES, {}).get("penalty_pct")
    if not penalties:
        return None, None
    first, _, third = quartiles(penalties)
    return first, third
