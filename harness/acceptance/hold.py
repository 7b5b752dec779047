"""Line 5, hold: whether clocks and fan stay where they were set under two minutes of load in three modes."""

from __future__ import annotations

from typing import List, Sequence

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import DoesNotApplyError, Findings, LineResult
from harness.acceptance.load import LoadRecording, load_for
from harness.acceptance.modes import custom_modes_in_order, holds_clocks
from harness.board import fan
from harness.board.privileged import FULL_PWM
from harness.core.frequency_residency import clock_use

HOLD = "hold"

LOAD_S = 120.0
SOURCES = ("cpufreq", "devfreq", "nvml", "fan")


def check_hold(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    device = context.device
    sets_fan = context.control is not None and context.control.works(context.control.fan)
    if context.control is None and not holds_clocks(context):
        raise DoesNotApplyError("this device holds neither clocks nor a fan")
    seconds = context.seconds(LOAD_S)
    readings_taken = 0
    with context.held(findings):
        for custom_mode in custom_modes_in_order(device).values():
            mode = context.set_mode(custom_mode.name)
            is_held = holds_clocks(context)
            context.report(f"hold: {mode.name} under load for {seconds:.3g} s")
            stretch = load_for(context, seconds, SOURCES)
            speeds, turns = (fan_readings(stretch, unit) for unit in ("pwm", "rpm"))
            uses = clock_use(stretch.telemetry, mode, stretch.start_s, stretch.end_s)
            samples = sum(use["samples"] for use in uses.values())
            readings_taken += samples + len(speeds)
            words = [f"{len(uses)} clocks, {samples} readings"]
            for channel, use in uses.items():
                if use["off"] and is_held:
                    readings = stretch.series(channel).values
                    findings.fail(
                        f"{mode.name}: {channel} left {use['set_khz']} kHz in {use['off']} of {use['samples']} "
                        f"readings ({min(readings):.0f} to {max(readings):.0f})"
                    )
            if not uses:
                words.append("no clock can be read")
            if not is_held:
                words.append("clocks are not held on this device")
            if "fan" in stretch.telemetry.missing or not list(context.specs(["fan"])):
                words.append("no fan")
            elif not sets_fan:
                words.append("the fan cannot be set by this user")
            else:
                words += _judge_fan(findings, mode.name, speeds, turns)
            findings.evidence[mode.name] = ", ".join(words)
    if not readings_taken and not findings.failures:
        raise DoesNotApplyError("neither a clock nor a fan of this device can be read")
    return findings.result(HOLD)


def fan_readings(stretch: LoadRecording, unit: str) -> List[float]:
    """The readings of all fans, `pwm` or `rpm`."""
    named = {channel: fan.CHANNEL.fullmatch(channel) for channel in stretch.telemetry.series}
    channels = [channel for channel, match in named.items() if match and match["unit"] == unit]
    return [value for channel in channels for value in stretch.series(channel).values]


def _judge_fan(findings: Findings, mode: str, speeds: Sequence[float], turns: Sequence[float]) -> List[str]:
    """FAIL where PWM left its maximum; PWM and RPM in words."""
    if not speeds:
        findings.fail(f"{mode}: PWM cannot be read")
        return []
    away = [pwm for pwm in speeds if pwm != FULL_PWM]
    if away:
        hint = "something else sets the fan: `systemctl status nvfancontrol`, the policy of the thermal zones"
        findings.fail(
            f"{mode}: PWM left {FULL_PWM} in {len(away)} of {len(speeds)} readings, down to {min(away):g}", hint
        )
    rpm = f"{min(turns):g} to {max(turns):g} RPM" if turns else "no tachometer"
    return [f"PWM {min(speeds):g} to {max(speeds):g}", rpm]
