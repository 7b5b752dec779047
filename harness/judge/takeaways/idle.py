"""What a device draws while nothing runs (004 sec. 5.6, E10)."""

from __future__ import annotations

from typing import Any, Dict, List

from harness.core.cases import DVFS, IDLE, LOGGING, QUIET, STATIC
from harness.core.units import mw_to_w
from harness.judge.evidence import WARM
from harness.judge.findings import Cell, Drawn, Finding
from harness.judge.takeaway import NANO, NX, ORIN, XAVIER, Takeaways, Views
from harness.judge.view import View, draw_statistic
from harness.stats.estimates import quotient

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


def _saved_w(view: View) -> List[Drawn]:
    """What DVFS saves at idle in each power mode, in W, with draws by the noise of both."""
    found = []
    for static in view.where(task=IDLE, **CLEAN):
        for free in view.where(task=IDLE, power_mode=static.case.power_mode, **FREE):
            if ("power", WARM) in static.figures and ("power", WARM) in free.figures:
                means = [[static.figures["power", WARM]], [free.figures["power", WARM]]]
                label = f"{view.device} {static.case.power_mode}"
                found.append(draw_statistic(label, means, lambda held, let: mw_to_w(float(held[0] - let[0]))))
    return found


@TAKEAWAYS.of("004 5.6", "F1030", boards=(ORIN, XAVIER), only_there=True)
def dvfs_saves_on_large_idle_boards(view: View, views: Views) -> Finding:
    """On Orin AGX and AGX Xavier, DVFS saves at least 2 W at idle."""
    return Finding(_saved_w(view), "W that DVFS saves at idle", above=2.0)


@TAKEAWAYS.of("004 5.6", "F1030", boards=(NX, NANO), only_there=True)
def dvfs_saves_little_on_small_idle_boards(view: View, views: Views) -> Finding:
    """On NX and Nano, DVFS saves less than 1.5 W at idle, less than on any large board."""
    return Finding(_saved_w(view), "W that DVFS saves at idle", above=-1.5, below=1.5)


@TAKEAWAYS.of("004 5.6", "F1031", boards=(ORIN, XAVIER), only_there=True)
def telemetry_costs_little_on_fast_boards(view: View, views: Views) -> Finding:
    """On Orin AGX and AGX Xavier, telemetry adds at most 7 % to power at idle: 5 %, and what two single runs differ."""
    return Finding(_power(view, CLEAN, LOGGED), "idle power with telemetry / without", below=1.07)


@TAKEAWAYS.of("004 5.6", "F1031", boards=(NANO,), only_there=True)
def telemetry_costs_more_on_nano(view: View, views: Views) -> Finding:
    """On Nano telemetry adds at least 7 % to power at idle."""
    return Finding(_power(view, CLEAN, LOGGED), "idle power with telemetry / without", above=1.07)


@TAKEAWAYS.of("004 5.6", "F1029")
def wake_on_lan_draws_least(view: View, views: Views) -> Finding:
    """Waiting for Wake on LAN draws less than half of what idling with DVFS does, at the socket."""
    return Finding(_power(view, FREE, {"workload": "idle-wol", "clocks": DVFS}), "power off, WoL on / idle", below=0.5)
