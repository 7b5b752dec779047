"""How much epochs differ over time, and boards of a type among each other (004 sec. 5.4, 002 sec. II.4)."""

from __future__ import annotations

from typing import List

import numpy as np

from harness.analysis.variability import variability
from harness.experiments.evidence import WARM
from harness.experiments.findings import Drawn, Finding
from harness.experiments.takeaway import CIFAR, MOBILENET, NANO, NX, XAVIER, Takeaways, Views
from harness.experiments.view import View, draw_statistic

TAKEAWAYS = Takeaways("variability")

REPEATED = 5
"""Fewer epochs than that say nothing of how much they vary."""

INSTANCE_MARK = "@"
_DRAWS = 400


def _spread_of_epochs(view: View) -> List[Drawn]:
    """Coefficient of variation of the epoch times of each case that ran often enough, with bootstrap draws."""
    cells = []
    for one in view.where():
        if len(one.epochs_s) < REPEATED:
            continue
        times_s = np.array(one.epochs_s)
        found = variability(one.epochs_s)
        generator = np.random.default_rng(len(times_s))
        drawn = times_s[generator.integers(len(times_s), size=(_DRAWS, len(times_s)))]
        draws = (np.std(drawn, axis=1, ddof=1) / np.mean(drawn, axis=1)).tolist()
        cells.append(Drawn(one.case.id, found.coefficient, tuple(draws)))
    return cells


@TAKEAWAYS.of("004 5.4.1", "F987", "F991", boards=(XAVIER, NANO))
def epochs_hardly_vary_over_time(view: View, views: Views) -> Finding:
    """The coefficient of variation of a case's epoch times on one board is below 1.5 % (004: within 1 %)."""
    return Finding(_spread_of_epochs(view), "coefficient of variation of epoch times", below=0.015)


@TAKEAWAYS.of("004 5.4.1", "F989", boards=(NX,))
def epochs_vary_little_over_time_on_nx(view: View, views: Views) -> Finding:
    """On NX the coefficient of variation of a case's epoch times is below 5 % (004: within 5 %)."""
    return Finding(_spread_of_epochs(view), "coefficient of variation of epoch times", below=0.05)


def _spread_of_instances(view: View, views: Views, workload: str) -> List[Drawn]:
    """Greatest over least time of boards of one type; asked of the first of them only."""
    name = view.device.partition(INSTANCE_MARK)[0]
    family = [other for device, other in views.items() if device.partition(INSTANCE_MARK)[0] == name]
    if len(family) < 3 or family[0] is not view:
        return []
    means = []
    for member in family:
        found = [
            one.figures["time", WARM]
            for one in member.where(workload=workload, workers=4, batch_size=16, clocks="static", power_mode="maxn")
            if len(one.epochs_s) >= REPEATED
        ]
        means += found[:1]
    if len(means) < 3:
        return []
    return [draw_statistic(f"{workload} on {len(means)} boards", [means], lambda times: times.max() / times.min())]


@TAKEAWAYS.of("004 5.4.2", "F993", boards=(XAVIER,))
def boards_of_a_type_are_alike(view: View, views: Views) -> Finding:
    """On several AGX, epochs of ResNet on CIFAR differ by less than 5 % between the slowest and the fastest board."""
    return Finding(_spread_of_instances(view, views, CIFAR), "slowest / fastest board", below=1.05)


@TAKEAWAYS.of("004 5.4.2", "F995", boards=(NX,))
def nx_boards_differ_by_a_few_percent(view: View, views: Views) -> Finding:
    """On several NX, epochs of MobileNet differ by less than 12 % between the slowest and the fastest board."""
    return Finding(_spread_of_instances(view, views, MOBILENET), "slowest / fastest board", below=1.12)


@TAKEAWAYS.of("004 5.4.3", "F999", boards=("",))
def nothing_throttles(view: View, views: Views) -> Finding:
    """No profile of training was throttled by heat or current."""
    trained = view.where()
    if view.evidence[0].provenance != "measured" or not trained:
        return Finding([], "")
    share = sum(any(flag.startswith("throttled") for flag in one.flags) for one in trained) / len(trained)
    return Finding([Drawn(f"{len(trained)} cases", share, ())], "share of throttled cases", below=0.001)
