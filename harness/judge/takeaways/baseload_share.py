"""How much of an epoch's energy a board would have drawn anyhow, in each power mode (004 sec. 5.6.2, E11)."""

from __future__ import annotations

from typing import List

from harness.core.cases import IDLE
from harness.judge.evidence import WARM
from harness.judge.findings import Cell, Finding
from harness.judge.takeaway import CIFAR, LENET, MOBILENET, XAVIER, Takeaways, Views
from harness.judge.takeaways.idle import LOGGED
from harness.judge.takeaways.power_modes import LETTERS, PROFILED
from harness.judge.view import View
from harness.stats.estimates import quotient

TAKEAWAYS = Takeaways("power_modes")


def _shares(view: View, letters: str, *workloads: str) -> List[Cell]:
    """Power in idle state (i) / while training, in the same mode: baseload's share of the energy of an epoch (M13)."""
    idle = {
        one.case.power_mode: one.figures["power", WARM]
        for one in view.where(task=IDLE, **LOGGED)
        if ("power", WARM) in one.figures
    }
    return [
        Cell(f"{one.case.workload} in {one.case.power_mode}", quotient(one.figures["power", WARM], power))
        for one in view.where(workload=workloads, workers=4, power_mode=tuple(letters), **PROFILED)
        for power in [idle.get(one.case.power_mode)]
        if ("power", WARM) in one.figures and power is not None
    ]


@TAKEAWAYS.of("004 5.6.2", "F1117", boards=(XAVIER,))
def baseload_dominates_the_energy_of_a_small_network(view: View, views: Views) -> Finding:
    """In each of modes a to n at least 65 % of LeNet's energy is baseload (004: 65 to 80 %)."""
    return Finding(_shares(view, LETTERS, LENET), "baseload's share of energy", above=0.65)


@TAKEAWAYS.of("004 5.6.2", "F1118", boards=(XAVIER,))
def baseload_is_less_than_half_of_the_energy_of_large_networks(view: View, views: Views) -> Finding:
    """In each of modes a to j 20 to 45 % of the energy of ResNet on CIFAR and MobileNet is baseload."""
    return Finding(_shares(view, LETTERS[:10], CIFAR, MOBILENET), "baseload's share of energy", above=0.20, below=0.45)
