"""Line 7, limits: critical trips of the thermal zones, and what throttles the board under load in its greatest mode."""

from __future__ import annotations

import time
from typing import Dict, List, Optional

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import DoesNotApplyError, Findings, LineResult
from harness.acceptance.load import load_for
from harness.board import thermal, throttling
from harness.board.kernel_file import read_int
from harness.board.source import Source
from harness.core.channels import follows_heat
from harness.core.errors import CannotRunError, HarnessError, SourceUnavailableError
from harness.core.mode_texts import MAXN

LIMITS = "limits"

LOAD_S = 60.0
PLAUSIBLE_C = (60.0, 130.0)  # critical trips of published boards: 97 to 118 C


def check_limits(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    root = str(context.root)
    try:
        throttle = throttling.open_source(root)
    except SourceUnavailableError as error:
        throttle = None
        findings.evidence["throttling"] = error.what
    try:
        criticals_c = {name: limit + thermal.MARGIN_C for name, limit in thermal.temperature_limits_c(root).items()}
        zones = thermal.open_source(root).notes
    except (CannotRunError, SourceUnavailableError) as error:
        if context.control is None:
            if throttle is None:
                raise DoesNotApplyError(f"nothing limits this device that can be read: {error.what}") from error
            criticals_c, zones = {}, {}
        else:
            findings.fail(error.what, error.hint)
            criticals_c, zones = {}, {}
    _judge_trips(findings, criticals_c, zones, is_board=context.control is not None)
    before = _counters(throttle)
    with context.held(findings):
        context.set_mode(MAXN)
        seconds = context.seconds(LOAD_S)
        context.report(f"limits: {MAXN} under load for {seconds:.3g} s")
        stretch = load_for(context, seconds, ("throttle", "thermal", context.device.power_source))
        hottest = {name: max(stretch.series(name).values, default=None) for name in criticals_c}
        warmest = max(((celsius, name) for name, celsius in hottest.items() if celsius is not None), default=None)
        if warmest is not None:
            findings.evidence["hottest under load"] = f"{warmest[1]} {warmest[0]:g} C"
        for period in throttling.throttled_times(stretch.telemetry.series):
            findings.fail(
                f"{MAXN}: {period.text(stretch.start_s)}",
                "a stronger supply, more cooling, or a lower mode: profiles of throttled runs are flagged",
            )
    after = _counters(throttle)
    if throttle is not None:
        findings.evidence["before load"] = before
        changed = {name: count for name, count in after.items() if count != before.get(name)}
        findings.evidence["after load"] = changed or "as before"
    return findings.result(LIMITS)


def _judge_trips(findings: Findings, criticals_c: Dict[str, float], zones: Dict[str, str], is_board: bool) -> None:
    by_limit: Dict[str, List[str]] = {}
    for name, celsius in criticals_c.items():
        by_limit.setdefault(f"{celsius:g} C", []).append(name)
        if is_board and not PLAUSIBLE_C[0] <= celsius <= PLAUSIBLE_C[1]:
            findings.fail(
                f"the critical trip of {name} is {celsius:g} C, expected {PLAUSIBLE_C[0]:g} to {PLAUSIBLE_C[1]:g}"
            )
    findings.evidence["critical trips"] = {celsius: f"of {len(names)} zones" for celsius, names in by_limit.items()}
    without = [name for name in zones if name not in criticals_c and follows_heat(name)]
    if without:
        findings.evidence["zones without one"] = without


def _counters(source: Optional[Source]) -> Dict[str, int]:
    """States of the cooling devices and event counters since the boot, those above 0; by their channel."""
    if source is None:
        return {}
    counts: Dict[str, int] = {}
    for channel, value in source.read(time.monotonic()).values.items():
        note = source.notes.get(channel, "")
        path = note.rpartition(" from ")[2]
        try:
            count = read_int(path) if path.startswith("/") else int(value)
        except (HarnessError, OSError, ValueError):
            continue
        if channel != throttling.OVERCURRENT:
            counts[channel] = count
    return counts
