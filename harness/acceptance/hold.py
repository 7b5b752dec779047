"""Line 5, hold: whether clocks and fan stay where they were set under two minutes of load in three modes."""

from __future__ import annotations

import time
from typing import List

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import DoesNotApplyError, Findings, LineResult
from harness.acceptance.load import load_for
from harness.acceptance.modes import custom_modes, holds_clocks
from harness.board.kernel_file import numbered, read_int_setting
from harness.board.privileged import FULL_PWM, KINDS, nodes
from harness.core.errors import ControlError
from harness.core.frequency_residency import clock_use

HOLD = "hold"

LOAD_S = 120.0
FAN_EVERY_S = 1.0
SPEEDS = ("sys/class/hwmon/hwmon*/fan1_input", "sys/class/hwmon/hwmon*/rpm", "sys/devices/pwm-fan/rpm_measured")
"""Where boards show revolutions per minute: Orin, Xavier, and Nano."""


class FanWatch:
    """Reads PWM and RPM of the fans once a second."""

    def __init__(self, root: str, interval_s: float) -> None:
        self._pwm = list(nodes(KINDS["fan-pwm"], root).values()) or list(nodes(KINDS["fan-target"], root).values())
        self._rpm = [path for pattern in SPEEDS for path in numbered(f"{root}/{pattern}")]
        self._interval_s = interval_s
        self._next_s = 0.0
        self.pwm: List[int] = []
        self.rpm: List[int] = []

    def read(self) -> None:
        """Take readings, at most one per interval."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._interval_s
        for paths, readings in ((self._pwm, self.pwm), (self._rpm, self.rpm)):
            for path in paths:
                try:
                    readings.append(read_int_setting(path))
                except ControlError:
                    continue  # a tachometer without a fan gives an error

    @property
    def has_fan(self) -> bool:
        return bool(self._pwm)


def check_hold(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    device = context.device
    custom = custom_modes(device.power_mode_space())
    order = ["highest", "middle", "lowest"] if device.clocks_only_fall else ["lowest", "middle", "highest"]
    sets_fan = context.control is not None and context.control.works(context.control.fan)
    if context.control is None and not holds_clocks(context):
        raise DoesNotApplyError("this device holds neither clocks nor a fan")
    seconds = context.seconds(LOAD_S)
    readings_taken = 0
    with context.held(findings):
        for which in order:
            mode = context.set_mode(custom[which].name)
            is_held = holds_clocks(context)
            context.report(f"hold: {mode.name} under load for {seconds:.3g} s")
            fan = FanWatch(str(context.root), context.scale * FAN_EVERY_S)
            stretch = load_for(context, seconds, ("cpufreq", "devfreq", "nvml"), meanwhile=fan.read)
            uses = clock_use(stretch.telemetry, mode, stretch.start_s, stretch.end_s)
            samples = sum(use["samples"] for use in uses.values())
            readings_taken += samples + len(fan.pwm)
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
            words += _judge_fan(findings, mode.name, fan, sets_fan)
            findings.evidence[mode.name] = ", ".join(words)
    if not readings_taken and not findings.failures:
        raise DoesNotApplyError("neither a clock nor a fan of this device can be read")
    return findings.result(HOLD)


def _judge_fan(findings: Findings, mode: str, fan: FanWatch, sets_fan: bool) -> List[str]:
    if not fan.has_fan:
        return ["no fan"]
    if not sets_fan:
        return ["the fan cannot be set by this user"]
    away = [pwm for pwm in fan.pwm if pwm != FULL_PWM]
    if away:
        hint = "something else sets the fan: `systemctl status nvfancontrol`, the policy of the thermal zones"
        findings.fail(
            f"{mode}: PWM left {FULL_PWM} in {len(away)} of {len(fan.pwm)} readings, down to {min(away)}", hint
        )
    if not fan.pwm:
        findings.fail(f"{mode}: PWM cannot be read")
    rpm = f"{min(fan.rpm)} to {max(fan.rpm)} RPM" if fan.rpm else "no tachometer"
    return [f"PWM {min(fan.pwm, default=0)} to {max(fan.pwm, default=0)}", rpm]
