"""How much epochs differ over time, and boards of a type among each other (004 sec. 5.4, 002 sec. II.4)."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from harness.core.cases import TRAINING
from harness.devices.simulated import INSTANCE_MARK
from harness.judge.evidence import MEASURED, WARM
from harness.judge.findings import Drawn, Finding
from harness.judge.takeaway import CIFAR, LENET, MOBILENET, NANO, NX, PAPERS_BOARDS, XAVIER, Takeaways, Views
from harness.judge.view import View, draw_statistic
from harness.stats.estimates import DRAWS, Estimate
from harness.stats.variability import variability
from harness.store.conditions import kinds

TAKEAWAYS = Takeaways("variability")

REPEATED = 5
"""Fewer epochs than that say nothing of how much they vary."""

LEAST_BOARDS = 3
"""Fewer boards than that say nothing of how much boards of a type vary."""

TIME = "time"


def _spread_of_epochs(view: View, **wanted: Any) -> List[Drawn]:
    """Coefficient of variation of the epoch times of each case that ran often enough, with bootstrap draws."""
    cells = []
    for one in view.where(**wanted):
        if len(one.epochs_s) < REPEATED:
            continue
        times_s = np.array(one.epochs_s)
        found = variability(one.epochs_s)
        generator = np.random.default_rng(len(times_s))
        drawn = times_s[generator.integers(len(times_s), size=(DRAWS, len(times_s)))]
        draws = (np.std(drawn, axis=1, ddof=1) / np.mean(drawn, axis=1)).tolist()
        cells.append(Drawn(one.case.id, found.coefficient, tuple(draws)))
    return cells


@TAKEAWAYS.of("004 5.4.1", "F987", "F991", boards=(XAVIER, NANO), only_there=True)
def epochs_hardly_vary_over_time(view: View, views: Views) -> Finding:
    """The coefficient of variation of epoch times is below 1 % for ResNet on AGX and LeNet on Nano.

    004 has the greatest deviation within 1 %, of which a coefficient of variation is about a third.
    """
    cells = _spread_of_epochs(view, workload=CIFAR if view.board == XAVIER else LENET, batch_size=16, workers=4)
    return Finding(cells, "coefficient of variation of epoch times", below=0.01)


@TAKEAWAYS.of("004 5.4.1", "F989", boards=PAPERS_BOARDS)
def epochs_vary_little_over_time(view: View, views: Views) -> Finding:
    """The coefficient of variation of a case's epoch times is below 5 % (004: within 5 % on NX, its worst)."""
    return Finding(_spread_of_epochs(view), "coefficient of variation of epoch times", below=0.05)


def _of_instances(view: View, views: Views, quantity: str, workload: str) -> List[Estimate]:
    """A figure of each board of a type; asked of the first of them only, where there are three or more."""
    name = view.device.partition(INSTANCE_MARK)[0]
    family = [other for device, other in views.items() if device.partition(INSTANCE_MARK)[0] == name]
    if family[0] is not view:
        return []
    found = []
    for member in family:
        of_one = [
            one.figures[quantity, WARM]
            for one in member.where(workload=workload, workers=4, batch_size=16, clocks="static", power_mode="maxn")
            if len(one.epochs_s) >= REPEATED and (quantity, WARM) in one.figures
        ]
        found += of_one[:1]
    return found if len(found) >= LEAST_BOARDS else []


def _spread_of_instances(view: View, views: Views, quantity: str, workload: str) -> List[Drawn]:
    """Greatest over least of the boards of a type."""
    means = _of_instances(view, views, quantity, workload)
    if not means:
        return []
    label = f"{workload} on {len(means)} boards"
    return [draw_statistic(label, [means], lambda values: float(values.max() / values.min()))]


@TAKEAWAYS.of("004 5.4.2", "F993", boards=(XAVIER,), only_there=True)
def boards_of_a_type_are_alike(view: View, views: Views) -> Finding:
    """On several AGX, epochs of ResNet on CIFAR differ by less than 2.5 % between the slowest and the fastest board.

    004 has 1 % between medians of 15 h; short runs of five boards add to that (0.5 % each: 1.2 % between extremes).
    """
    return Finding(_spread_of_instances(view, views, TIME, CIFAR), "slowest / fastest board", below=1.025)


@TAKEAWAYS.of("002 II.4", "F611", boards=(XAVIER,), only_there=True)
def mobilenet_hardly_varies_between_boards(view: View, views: Views) -> Finding:
    """On several AGX the coefficient of variation of MobileNet's times between boards is below 1.2 % (002: 1 %)."""
    means = _of_instances(view, views, TIME, MOBILENET)
    if not means:
        return Finding([], "")
    label = f"{MOBILENET} on {len(means)} boards"
    cells = [draw_statistic(label, [means], lambda values: float(np.std(values, ddof=1) / np.mean(values)))]
    return Finding(cells, "coefficient of variation between boards", below=0.012)


@TAKEAWAYS.of("004 5.4.2", "F995", boards=(NX,), only_there=True)
def nx_boards_differ_by_a_few_percent(view: View, views: Views) -> Finding:
    """On several NX, epochs of MobileNet differ by less than 9 % between the slowest and the fastest board.

    004 has 5.4 % between medians of 15 h, which short runs (1.5 % each) add to.
    """
    return Finding(_spread_of_instances(view, views, TIME, MOBILENET), "slowest / fastest board", below=1.09)


@TAKEAWAYS.of("004 5.4.2", "F994", boards=(NANO,), only_there=True)
def nano_boards_differ_by_a_few_percent(view: View, views: Views) -> Finding:
    """On several Nano, epochs of LeNet differ by less than 11 % between the slowest and the fastest board.

    004 has 7.8 % between medians of 15 h: with 15 %, and what short runs of two boards differ.
    """
    return Finding(_spread_of_instances(view, views, TIME, LENET), "slowest / fastest board", below=1.11)


@TAKEAWAYS.of("004 5.4.3", "F996", "F997", "F998", boards=PAPERS_BOARDS, only_there=True)
def boards_of_a_type_take_the_same_energy(view: View, views: Views) -> Finding:
    """Of several AGX or NX the energies of an epoch differ by less than 9 %, of Nano by less than 12.5 %.

    004 has 5.9 % (ResNet on CIFAR), 5.5 % (MobileNet) and 8.8 % (LeNet): these with 15 %, and what short runs of five
    boards add (1 % each: 2.3 % between extremes).
    """
    workload, bound = {XAVIER: (CIFAR, 1.09), NX: (MOBILENET, 1.09), NANO: (LENET, 1.125)}[view.board]
    return Finding(_spread_of_instances(view, views, "energy", workload), "greatest / least energy", below=bound)


@TAKEAWAYS.of("004 5.4.3", "F999", boards=("",))
def nothing_throttles(view: View, views: Views) -> Finding:
    """No profile of training was throttled by heat or current; those that are left out for it count here."""
    trained = [*view.where(), *(one for one in view.left_out if one.case.task == TRAINING)]
    if view.provenance != MEASURED or not trained:
        return Finding([], "")
    cases = {one.case for one in trained}
    throttled = {one.case for one in trained if "throttled" in kinds(one.flags)}
    share = len(throttled) / len(cases)
    return Finding([Drawn(f"{len(cases)} cases", share, ())], "share of throttled cases", below=0.001)
