"""The papers' plots of strategies: penalties, power errors, and choices relative to the fronts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Sequence

import numpy as np

from harness.core.pareto import pareto_front
from harness.core.units import mw_to_w
from predictors.contest.judged_choices import JudgedChoice, JudgedChoices, summarise
from predictors.contest.plots import title_of
from predictors.plots import axes_to_draw_on, colour, draw_time_and_power, pyplot, save
from predictors.profiles import Profiles

if TYPE_CHECKING:
    pass

LINEAR_TO_PCT = 5

TRUTH = "brute-force"  # right by definition, not plotted


def draw(judged: JudgedChoices, targets: Sequence[Profiles], directory: Path) -> List[Path]:
    """Write the three plots of each target of a contest; returns their paths."""
    written = []
    for table in targets:
        mine = {
            f"{strategy} ({profiles})" if profiles else strategy: outcomes
            for (strategy, target, profiles), outcomes in judged.items()
            if target == table.workload and strategy != TRUTH
        }
        plots = {"penalties": draw_penalties, "power-errors": draw_power_errors, "choices": draw_choices}
        for kind, plot in plots.items():
            written.append(directory / f"{table.workload}-{kind}.png")
            plot(written[-1], table, mine)
    return written


def draw_penalties(path: Path, table: Profiles, judged: Dict[str, List[JudgedChoice]]) -> None:
    """Time penalties over all budgets and repeats as violins with marked medians (001 Fig 12)."""
    figure, axes = pyplot().subplots(figsize=(1.1 * len(judged) + 2, 4.4), constrained_layout=True)
    values = [
        np.array([outcome.penalty_pct for outcome in outcomes if outcome.penalty_pct is not None])
        for outcomes in judged.values()
    ]
    for place, column in enumerate(values):
        if np.ptp(column) > 0:
            violin = axes.violinplot([column], [place], widths=0.85, showextrema=False)
            violin["bodies"][0].set_facecolor(colour(place))
        median = float(np.median(column))
        axes.plot([place], [median], "o", color="black", markersize=3)
        axes.annotate(f"{median:.1f}", (place, median), (5, 3), textcoords="offset points", fontsize=7)
    # A good strategy is within a few percent, a bad one hundreds off: linear in the middle, logarithmic beyond.
    axes.set_yscale("symlog", linthresh=LINEAR_TO_PCT)
    ticks = [-100, -20, -LINEAR_TO_PCT, 0, LINEAR_TO_PCT, 20, 100, 500]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.set_ylim(min(-LINEAR_TO_PCT / 2, *(float(column.min()) for column in values)) * 1.1, None)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(judged)), list(judged), rotation=30, ha="right", fontsize=8)
    axes.set_ylabel("time penalty (%), dot: median")
    axes.set_title(f"{title_of(table)}; scale logarithmic beyond {LINEAR_TO_PCT} %", fontsize=10)
    save(figure, path)


def draw_power_errors(path: Path, table: Profiles, judged: Dict[str, List[JudgedChoice]]) -> None:
    """Area above the budget, and the shares of choices over it and over it by 1 W, as bars (001 Fig 13)."""
    figures = [summarise(outcomes) for outcomes in judged.values()]
    figure, axes = pyplot().subplots(figsize=(1.1 * len(judged) + 2, 4.4), constrained_layout=True)
    places = np.arange(len(judged))
    over, over_by_1_w, areas_w = (
        [figure_row[name] for figure_row in figures] for name in ("over_limit_pct", "over_limit_plus1_pct", "area_w")
    )
    axes.bar(places - 0.27, over, 0.26, label="A/L", color=colour(0))
    axes.bar(places, over_by_1_w, 0.26, label="A/L+1", color=colour(1))
    axes.set_ylabel("choices over the limit (%)")
    axes.set_ylim(0, max(5.0, *over, *over_by_1_w) * 1.1)
    second = axes.twinx()
    second.bar(places + 0.27, areas_w, 0.26, color=colour(2))
    second.set_ylabel("Area (W per choice)")
    second.set_ylim(0, max(0.5, *areas_w) * 1.1)
    axes.bar([0], [0], color=colour(2), label="Area (right)")
    axes.set_xticks(places, list(judged), rotation=30, ha="right", fontsize=8)
    axes.legend(fontsize=8)
    axes.set_title(title_of(table), fontsize=10)
    save(figure, path)


def draw_choices(path: Path, table: Profiles, judged: Dict[str, List[JudgedChoice]]) -> None:
    """All modes of a table with their front, and the choices as observed (001 Fig 11)."""
    watts = mw_to_w(table.power_mw)
    best = pareto_front(table.time_ms, table.power_mw)
    with axes_to_draw_on(None, path) as axes:
        draw_time_and_power(axes, watts, table.time_ms, "all modes")
        axes.set_title(title_of(table), fontsize=10)
        axes.step(watts[best], table.time_ms[best], "k-", where="post", linewidth=1.2, label="observed front")
        for place, (name, outcomes) in enumerate(judged.items()):
            chosen = sorted({outcome.choice.index for outcome in outcomes})
            look = "os^"[place % 3]  # colours alone would repeat
            times_ms = table.time_ms[chosen]
            axes.plot(watts[chosen], times_ms, look, markersize=4, color=colour(place), label=name, alpha=0.8)
        axes.legend(fontsize=7, ncol=2)
