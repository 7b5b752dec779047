"""What a device draws while nothing runs (004 sec. 5.6, E10)."""

from __future__ import annotations

from typing import Any, Dict, List

from harness.analysis.means import quotient
from harness.cases import DVFS, IDLE, STATIC
from harness.experiments.evidence import WARM
from harness.experiments.findings import Cell, Finding
from harness.experiments.takeaway import NANO, NX, ORIN, XAVIER, Takeaways, Views
from harness.experiments.view import View
from harness.idle import LOGGING, QUIET

TAKEAWAYS = Takeaways("baseload")

LOGGED, CLEAN, FREE = (
    {"workload": workload, "clocks": clocks} for workload, clocks in ((LOGGING, STATIC), (QUIET, STATIC), (QUIET, DVFS))
)


def _power(view: View, before: Dict[str, Any], after: Dict[str, Any]) -> List[Cell]:
    """Power of one idle state / of another one, in each power mode that both were watched in."""
    found = [
        {one.case.power_mode: one.figures["power", WARM] for one in view.where(task=IDLE, **state)
         if ("power", WARM) in one.figures}
        for state in (before, after)
    ]  # fmt: skip
    return [Cell(mode, quotient(power, found[1][mode])) for mode, power in found[0].items() if mode in found[1]]


@TAKEAWAYS.of("004 5.6", "F1030", boards=(ORIN, XAVIER))
def dvfs_saves_on_large_idle_boards(view: View, views: Views) -> Finding:
    """On Orin AGX and AGX Xavier, DVFS lowers power at idle by at least 10 %."""
    return Finding(_power(view, CLEAN, FREE), "idle power with DVFS / static clocks", below=0.9)


@TAKEAWAYS.of("004 5.6", "F1030", boards=(NX, NANO))
def dvfs_saves_little_on_small_idle_boards(view: View, views: Views) -> Finding:
    """On NX and Nano, DVFS changes power at idle by less than a third."""
    return Finding(_power(view, CLEAN, FREE), "idle power with DVFS / static clocks", above=0.67, below=1.1)


@TAKEAWAYS.of("004 5.6", "F1031", boards=(ORIN, XAVIER))
def telemetry_costs_little_on_fast_boards(view: View, views: Views) -> Finding:
    """On Orin AGX and AGX Xavier, telemetry adds at most 10 % to power at idle."""
    return Finding(_power(view, CLEAN, LOGGED), "idle power with telemetry / without", below=1.1)


@TAKEAWAYS.of("004 5.6", "F1029")
def wake_on_lan_draws_least(view: View, views: Views) -> Finding:
    """Waiting for Wake on LAN draws less than half of what idling with DVFS does, at the socket."""
    return Finding(_power(view, FREE, {"workload": "idle-wol", "clocks": DVFS}), "power off, WoL on / idle", below=0.5)
