"""Line 3, rails: what the power sensors show while the board is idle and under load, against tegrastats and a meter."""

from __future__ import annotations

import statistics
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import DoesNotApplyError, Findings, LineResult
from harness.acceptance.load import LoadRecording, idle_for, load_for
from harness.board.power_rails import LOWEST_MW
from harness.board.sampler import SAMPLER
from harness.board.socket_meter import SocketMeter
from harness.board.source import SourceSpec
from harness.board.tegrastats import parse_log
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.metrics import POWER_CHANNEL, power_step_mw, smallest_step
from harness.core.mode_texts import MAXN
from harness.core.profiles import Series
from harness.devices.board_record import TEGRASTATS, first_lines
from harness.devices.host import source_capability

RAILS = "rails"

STRETCH_S = 60.0
INTERVAL_S = 0.1  # the sensors renew their values some ten times a second
TEGRASTATS_STARTS_S = 10.0  # at most: a rehearsal's minute may be over before a busy machine starts a program
TOLERANCE = 0.02  # of the total against tegrastats, where the sensor's step is finer
SLOPES = (0.9, 1.5)
"""Plausible growth of the power at the plug for each watt of the rails: supplies lose 5 to 20 %."""


def check_rails(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    power_source = context.device.power_source
    [spec] = context.specs([power_source])
    capability = source_capability(spec, str(context.device.root))
    if not capability.available:
        if context.control is None:
            raise DoesNotApplyError(f"this device has no power sensor that can be read: {capability.detail}")
        findings.fail(capability.detail, capability.hint)
        return findings.result(RAILS)
    seconds = context.seconds(STRETCH_S)
    interval_s = min(INTERVAL_S, seconds / 10)
    context.report(f"rails: idle for {seconds:.3g} s")
    lines: List[str] = []
    idle = idle_for(context, seconds, [power_source], interval_s, lambda s: lines.extend(_tegrastats(context, s)))
    with context.held(findings):
        context.set_mode(MAXN)
        context.report(f"rails: load for {seconds:.3g} s")
        load = load_for(context, seconds, [power_source], interval_s)
        findings.evidence["load"] = load.load
        judge_rails(findings, idle, load, context.is_emulated, context.is_rehearsal, spec.name)
        judge_tegrastats(findings, idle, lines, spec)
        if context.meter is not None:
            judge_meter(findings, context.meter, idle, load)
    return findings.result(RAILS)


def _tegrastats(context: AcceptanceContext, seconds: float) -> List[str]:
    """Lines of tegrastats of these seconds; without it the time passes all the same."""
    end_s = time.monotonic() + seconds
    executable = context.root / TEGRASTATS
    lines = []
    if executable.exists():
        interval_ms = max(100, round(1000 * context.interval_s))
        lines = first_lines([str(executable), "--interval", str(interval_ms)], seconds, TEGRASTATS_STARTS_S)
    time.sleep(max(0.0, end_s - time.monotonic()))
    return lines


class Resolution(NamedTuple):
    """How finely a sensor shows a power."""

    step_mw: Optional[float]  # between its levels; None where it shows none
    renewed_s: Optional[float]  # median time between changes; None where there are fewer than two
    lowest_mw: float
    highest_mw: float
    negatives: int

    def words(self) -> str:
        if self.lowest_mw == self.highest_mw:
            step = "constant"
        else:
            step = "no steps seen" if self.step_mw is None else f"step {self.step_mw:.4g} mW"
        step += f", renewed every {self.renewed_s:.2g} s" if self.renewed_s else ""
        below = f", {self.negatives} below 0" if self.negatives else ""
        return f"{self.lowest_mw:.0f} to {self.highest_mw:.0f} mW, {step}{below}"


def resolution_of(parts: Sequence[Series]) -> Resolution:
    """The resolution that the samples of several stretches show."""
    values = [value for part in parts for value in part.values]
    gaps_s: List[float] = []
    for part in parts:
        samples = list(zip(part.times_s, part.values))
        pairs = zip(samples, samples[1:])
        changes_s = [time_s for (_, before), (time_s, value) in pairs if value != before]
        gaps_s += [later - earlier for earlier, later in zip(changes_s, changes_s[1:])]
    return Resolution(
        smallest_step(values),
        statistics.median(gaps_s) if gaps_s else None,
        min(values),
        max(values),
        sum(value < 0 for value in values),
    )


def judge_rails(
    findings: Findings,
    idle: LoadRecording,
    load: LoadRecording,
    is_emulated: bool,
    is_rehearsal: bool = False,
    spec_name: str = "ina",
) -> None:
    """Each rail's resolution; failures are rails without values, impossible ones, and a total that ignores the load.

    Whether the total follows the load is not judged on an emulated board, whose power does not move, and in a
    rehearsal, where other programs draw more than the load.
    """
    channels = [channel for channel in idle.telemetry.series if channel.startswith("power_")]
    for name, why in {**idle.telemetry.missing, **load.telemetry.missing}.items():
        if name.startswith("power_") or name in (spec_name, SAMPLER):
            findings.fail(f"{name}: {why}")
    rails: Dict[str, Any] = {}
    for channel in sorted(channels):
        parts = [idle.series(channel), load.series(channel)]
        if not all(part.values for part in parts):
            findings.fail(f"{channel} gave no value in {'the idle minute' if not parts[0].values else 'the load'}")
            continue
        resolution = resolution_of(parts)
        rails[channel] = resolution.words()
        if resolution.lowest_mw < LOWEST_MW:
            findings.fail(
                f"{channel} reads {resolution.lowest_mw:.0f} mW, below {LOWEST_MW:.0f} mW: more than a sensor's offset"
            )
    if rails:
        findings.evidence["rails"] = rails
    totals = [stretch.series(POWER_CHANNEL) for stretch in (idle, load)]
    if not all(total.values for total in totals):
        findings.fail(
            "there are no samples of the total power", "docs/board_power.md lists which rails make up a total"
        )
        return
    idle_mw, load_mw = (statistics.mean(total.values) for total in totals)
    findings.evidence["total idle (mW)"], findings.evidence["total under load (mW)"] = round(idle_mw), round(load_mw)
    if load_mw > idle_mw:
        return
    if is_rehearsal and not is_emulated:
        findings.evidence["load"] = f"{load.load}; whether the total follows it is not judged in a rehearsal"
    elif is_emulated:
        findings.evidence["load"] = f"{load.load}, of this machine: an emulated board's power does not follow it"
    else:
        why = f"the total is {idle_mw:.0f} mW idle and {load_mw:.0f} mW under load: it does not follow the load"
        findings.fail(why, "see which rails make up the total, and whether the sensor's values are renewed")


def judge_tegrastats(findings: Findings, idle: LoadRecording, lines: Sequence[str], spec: SourceSpec) -> None:
    """The total of the same minute by tegrastats: it may differ by one step of the sensor, or 2 %."""
    if not lines:
        findings.evidence["tegrastats"] = "gives no line here"
        return
    options = {name: spec.options[name] for name in ("total", "remark", "most_mw") if name in spec.options}
    try:
        theirs = parse_log(lines, interval_s=1.0, **options).series[POWER_CHANNEL].values
    except (InvalidValueError, KeyError) as error:
        findings.evidence["tegrastats"] = f"shows no total: {error}"
        return
    ours = idle.series(POWER_CHANNEL)
    if not ours.values:
        return  # reported above
    total_mw, shown_mw = statistics.mean(ours.values), statistics.mean(theirs)
    step_mw = power_step_mw(idle.telemetry.series, [(idle.start_s, idle.end_s)])
    allowed_mw = max(step_mw or 0.0, TOLERANCE * total_mw)
    findings.evidence["tegrastats"] = f"{shown_mw:.0f} mW in {len(theirs)} lines, sensors {total_mw:.0f} mW"
    if abs(total_mw - shown_mw) > allowed_mw:
        findings.fail(
            f"the total is {total_mw:.0f} mW by the sensors and {shown_mw:.0f} mW by tegrastats, more than "
            f"{allowed_mw:.0f} mW apart",
            "another program may set the sensor's averaging, or a rail is counted twice",
        )


def judge_meter(findings: Findings, meter: SocketMeter, idle: LoadRecording, load: LoadRecording) -> None:
    """Whether the plug follows the rails; samples that the meter's file lost are in the evidence."""
    plug_mw, module_mw, dropped = [], [], []
    for stretch in (idle, load):
        try:
            samples = meter.during(stretch.start_s, stretch.end_s)
        except HarnessError as error:
            findings.fail(f"socket meter: {error.what}", error.hint)
            return
        if not samples.series.values:
            findings.fail(f"socket meter: {samples.missing}")
            return
        plug_mw.append(statistics.mean(samples.series.values))
        if samples.missing:
            dropped.append(samples.missing)
        module_mw.append(statistics.mean(stretch.series(POWER_CHANNEL).values or (0.0,)))
    line = plug_against_module(plug_mw, module_mw)
    if line is None:
        findings.fail("socket meter: the rails show no difference between idle and load")
        return
    slope, offset_mw = line
    without = f", without samples: {'; '.join(dropped)}" if dropped else ""
    findings.evidence["socket meter"] = f"plug = {slope:.3f} x total + {offset_mw:.0f} mW{without}"
    if not SLOPES[0] <= slope <= SLOPES[1]:
        findings.fail(
            f"each watt of the rails is {slope:.2f} W at the plug, expected {SLOPES[0]:g} to {SLOPES[1]:g}",
            "a rail is missing from the total or counted twice; or the meter is of another device",
        )


def plug_against_module(plug_mw: Sequence[float], module_mw: Sequence[float]) -> Optional[Tuple[float, float]]:
    """Slope and offset (mW) of the line through idle and load; None where the module shows no difference."""
    if module_mw[0] == module_mw[1]:
        return None
    slope = (plug_mw[1] - plug_mw[0]) / (module_mw[1] - module_mw[0])
    return slope, plug_mw[0] - slope * module_mw[0]
