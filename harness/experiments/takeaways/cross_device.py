"""How boards compare on the same workload (004 sec. 5.1.5 and 5.1.7, E14)."""

from __future__ import annotations

from typing import List

from harness.analysis.means import quotient
from harness.experiments.evidence import WARM
from harness.experiments.findings import Cell, Finding
from harness.experiments.takeaway import CIFAR, LENET, MOBILENET, NANO, NX, ORIN, XAVIER, Takeaways, Views
from harness.experiments.view import View, fields_of

TAKEAWAYS = Takeaways("cross_device")

DEFAULTS = {"workers": 4, "batch_size": 16, "clocks": "static", "power_mode": "maxn", "cache": "warm"}


def _over(view: View, views: Views, quantity: str, board: str, workloads: tuple) -> List[Cell]:
    """A quantity on this device / on the first one of another board, for cases that both ran."""
    others = [other for other in views.values() if other.evidence[0].board == board]
    if not others or view.evidence[0].board == board:
        return []
    theirs = {tuple(fields_of(one.case).values()): one for one in others[0].where(workload=workloads, **DEFAULTS)}
    cells = []
    for one in view.where(workload=workloads, **DEFAULTS):
        other = theirs.get(tuple(fields_of(one.case).values()))
        if other is not None and all((quantity, WARM) in both.figures for both in (one, other)):
            ratio = quotient(other.figures[quantity, WARM], one.figures[quantity, WARM])
            cells.append(Cell(f"{one.case.workload} on {one.case.storage}", ratio))
    return cells


@TAKEAWAYS.of("004 5.1.7", "F954", boards=(XAVIER,))
def orin_trains_faster_than_xavier(view: View, views: Views) -> Finding:
    """AGX Xavier takes 1.5 to 4.5 times as long as Orin AGX for the same epoch (004: 1.8 to 3.9 times)."""
    cells = _over(view, views, "time", ORIN, (LENET, MOBILENET, CIFAR))
    return Finding(cells, "time on AGX Xavier / on Orin AGX", above=1.5, below=4.5)


@TAKEAWAYS.of("004 5.1.5", "F934", boards=(NX,))
def compute_is_slower_on_nx_than_on_agx(view: View, views: Views) -> Finding:
    """LeNet's compute time is longer on Xavier NX than on AGX Xavier."""
    return Finding(_over(view, views, "compute", XAVIER, (LENET,)), "compute on NX / on AGX Xavier", above=1.0)


@TAKEAWAYS.of("004 5.1.5", "F934", boards=(NANO,))
def compute_is_slower_on_nano_than_on_nx(view: View, views: Views) -> Finding:
    """LeNet's compute time is longer on Nano than on Xavier NX."""
    return Finding(_over(view, views, "compute", NX, (LENET,)), "compute on Nano / on NX", above=1.0)
