"""The papers' plots of an evaluation: errors and profiling time, predicted against observed, and fronts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.pareto import pareto_front
from harness.core.units import mw_to_w, s_to_minutes
from predictors.contest.trials import TrialPlan
from predictors.evaluation import Target
from predictors.forecast import Forecast
from predictors.plots import colour, panels, pyplot, save, use_log_scale
from predictors.profiles import Profiles


def write_plots(directory: Path, plan: TrialPlan, results: Sequence[Mapping[str, Any]]) -> List[Path]:
    """Write the three plots of each target to a directory, created if it is missing; returns their paths.

    Predictors are fitted once more, on the modes of the first repeat; scatter and fronts use the greatest number of
    modes of the plan.
    """
    written = []
    for target in plan.targets:
        mine = [result for result in results if result["target"] == target.name]
        if not mine:
            continue
        name = target.name.replace("/", "-").replace(" ", "-")
        paths = [directory / f"{name}-{kind}.png" for kind in ("errors", "predicted", "fronts")]
        plot_errors(paths[0], mine)
        predictions = _predictions(plan, target, list(dict.fromkeys(result["predictor"] for result in mine)))
        if predictions:
            plot_predicted(paths[1], target, predictions)
            plot_fronts(paths[2], target, predictions)
        written += paths if predictions else paths[:1]
    return written


def plot_errors(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """MAPE against the number of modes: bars with quartile whiskers, profiling time on the second axis (001 Figs 7, 8).

    All results must be of the same target.
    """
    names = list(dict.fromkeys(result["predictor"] for result in results))
    counts = sorted({result["n_modes"] for result in results})
    seconds = [[result["profiling_seconds"] for result in results if result["n_modes"] == count] for count in counts]
    minutes = [s_to_minutes(np.median(times)) for times in seconds]
    width = 0.8 / len(names)
    figure, grid = pyplot().subplots(1, 2, figsize=(12, 4.8))
    figure.subplots_adjust(left=0.06, right=0.94, top=0.91, bottom=0.2, wspace=0.3)
    for axes, what in zip(grid, ("time_mape", "power_mape")):
        for place, name in enumerate(names):
            with_median = [
                result for result in results if result["predictor"] == name and result[f"{what}_median"] is not None
            ]
            x = [counts.index(result["n_modes"]) + (place - (len(names) - 1) / 2) * width for result in with_median]
            median, q1, q3 = (
                np.array([result[f"{what}_{part}"] for result in with_median]) for part in ("median", "q1", "q3")
            )
            whiskers = {"yerr": [median - q1, q3 - median], "capsize": 2, "error_kw": {"linewidth": 0.8}}
            axes.bar(x, median, width, color=colour(place), label=name, **whiskers)
        axes.set_ylabel(f"{what.partition('_')[0]} MAPE (%), modes not used to fit")
        axes.set_xlabel("profiled modes")
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        _limit_outliers(axes, [result[f"{what}_q3"] for result in results])
        second = axes.twinx()
        second.plot(range(len(counts)), minutes, "k.--", linewidth=0.9)
        second.set_ylabel("profiling time (min, dashed)")
        second.set_ylim(bottom=0)
    figure.legend(*grid[1].get_legend_handles_labels(), ncol=len(names), loc="lower center", frameon=False, fontsize=9)
    first = results[0]
    figure.suptitle(f"{first['target']} on {first['device']}, {first['provenance']}; bars: median, whiskers: Q1 to Q3")
    save(figure, path)


def plot_predicted(path: Path, target: Target, predictions: Mapping[str, Forecast]) -> None:
    """Predicted against observed time and power of every mode of the target, a column for each predictor."""
    table = target.table
    with panels(path, title_of(table, target.name), 2, len(predictions), (3.1, 3.1)) as grid:
        for place, (name, prediction) in enumerate(predictions.items()):
            pairs = (
                ("time (ms)", table.time_ms, prediction.time_ms),
                ("power (W)", mw_to_w(table.power_mw), mw_to_w(prediction.power_mw)),
            )
            for axes, (what, observed, predicted) in zip(grid[:, place], pairs):
                axes.plot(observed, predicted, ".", markersize=2, alpha=0.4, color=colour(place), rasterized=True)
                ends = [observed.min(), observed.max()]
                axes.plot(ends, ends, "k-", linewidth=0.8)
                if what.startswith("time"):
                    use_log_scale(axes, "x", "y")
                axes.set(xlabel=f"observed {what}", ylabel=f"predicted {what}")
                axes.set_title(name, fontsize=10)


def plot_fronts(path: Path, target: Target, predictions: Mapping[str, Forecast]) -> None:
    """All observed modes, their Pareto front, and the modes of each predicted front as observed."""
    table, columns = target.table, min(3, len(predictions))
    watts, best = mw_to_w(table.power_mw), pareto_front(table.time_ms, table.power_mw)
    title = f"{title_of(table, target.name)}: the modes on each front, as observed"
    lines = -(-len(predictions) // columns)
    with panels(path, title, lines, columns, (4.6, 3.4), sharex=True, sharey=True) as grid:
        for axes in grid.flat[len(predictions) :]:
            axes.axis("off")
        for place, (axes, (name, prediction)) in enumerate(zip(grid.flat, predictions.items())):
            axes.plot(watts, table.time_ms, ".", color="#cccccc", markersize=2, label="all modes", rasterized=True)
            axes.step(watts[best], table.time_ms[best], "k-", where="post", linewidth=1.2, label="observed front")
            use_log_scale(axes, "y")
            chosen = pareto_front(prediction.time_ms, prediction.power_mw)
            dots = {"markersize": 3.5, "color": colour(place), "label": "predicted front"}
            axes.plot(watts[chosen], table.time_ms[chosen], "o", **dots)
            axes.set_title(name, fontsize=10)
        for axes in grid[-1]:
            axes.set_xlabel("observed power (W)")
        for axes in grid[:, 0]:
            axes.set_ylabel("observed minibatch time (ms)")
        grid[0, 0].legend(fontsize=8)


def title_of(table: Profiles, name: str = "") -> str:
    return f"{name or table.workload} on {table.device}, {table.provenance}"


def _predictions(plan: TrialPlan, target: Target, names: Sequence[str]) -> Mapping[str, Forecast]:
    """The predictions of those predictors that have both time and power, on the modes of the first repeat."""
    table, predictions = target.table, {}
    count = max((count for count in plan.counts if count is not None), default=None)
    for name in names:
        predictor = target.make(name, plan.seed)
        try:
            predictor.fit(table.take(target.rows(count, plan.sampling, 0, plan.seed)).applied())
        except InvalidValueError:  # too few modes: reported by the evaluation already
            continue
        prediction = predictor.predict(table)
        if not (np.isnan(prediction.time_ms).any() or np.isnan(prediction.power_mw).any()):
            predictions[name] = prediction
    return predictions


def _limit_outliers(axes: Any, values: Sequence[Optional[float]]) -> None:
    """Truncate the axis if a few very large errors would flatten all others."""
    available = sorted(value for value in values if value is not None)
    if available and available[-1] > 4 * available[len(available) // 2]:
        axes.set_ylim(0, 4 * available[len(available) // 2])
        axes.annotate("taller bars are cut", (0.99, 0.98), xycoords="axes fraction", ha="right", va="top", fontsize=8)
