"""Line 4, modes: the board's own modes and custom ones, each read back in every way that the board has."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from harness.acceptance.context import AcceptanceContext, telemetry_of
from harness.acceptance.lines import Findings, LineResult
from harness.board.bounded_process import run_bounded
from harness.board.jetson_clocks import is_held
from harness.board.privileged import NVPMODEL, NVPMODEL_TIMEOUT_S
from harness.core.device import RealDevice
from harness.core.errors import ControlError, HarnessError
from harness.core.frequency_residency import clock_use
from harness.core.power_modes import PowerMode, PowerModeSpace, clock_at_cap
from harness.core.units import HZ_PER_KHZ
from harness.devices.jetson_control import JetsonControl

MODES = "modes"

ROUNDED = 0.1  # share by which a clock without a table (DLA, PVA) may differ from its cap
NO_CAP = ("-1", "0", "2147483647")  # conf values of clocks that mean no limit


class Shown(NamedTuple):
    """A line of `nvpmodel -q --verbose`."""

    param: str
    argument: str
    real: str
    conf: str


def check_modes(context: AcceptanceContext) -> LineResult:
    """Set each mode and read it back; at last whether clocks rise again without a reboot."""
    findings = Findings()
    custom = custom_modes_in_order(context.device)
    with context.held(findings):
        for name in own_modes(context, findings):
            _set_and_look(findings, context, name)
        for mode in custom.values():
            _set_and_look(findings, context, mode.name)
        _check_rise(findings, context, custom)
    for name in ("modes that need a reboot", "clocks rise again"):
        if name in findings.evidence:
            findings.evidence = {name: findings.evidence.pop(name), **findings.evidence}
    return findings.result(MODES)


def custom_modes(space: PowerModeSpace) -> Dict[str, PowerMode]:
    """The lowest, the middle and the highest value of every dimension."""
    middle = PowerMode(*(values[len(values) // 2] for values in space.dimensions))
    lowest = PowerMode(*(values[0] for values in space.dimensions))
    return {"lowest": lowest, "middle": middle, "highest": space.greatest}


def custom_modes_in_order(device: RealDevice) -> Dict[str, PowerMode]:
    """The custom modes in an order that the device can run: the highest first where clocks only fall."""
    modes = custom_modes(device.power_mode_space())
    return dict(reversed(list(modes.items()))) if device.clocks_only_fall else modes


def own_modes(context: AcceptanceContext, findings: Findings) -> List[str]:
    """Names of the board's own modes that need no reboot; those that do are listed in the evidence."""
    control = context.control
    if control is None or control.conf is None or not control.works(control.nvpmodel):
        return []
    names, rebooting = [], []
    for model in control.conf.models:
        other_masks = control.needs_reboot(model.name)
        if other_masks:
            rebooting.append(f"{model.name} ({other_masks})")
        else:
            names.append(model.name)
    if rebooting:
        findings.evidence["modes that need a reboot"] = rebooting
    if context.device.clocks_only_fall:
        modes = dict(zip(names, (context.device.power_modes(name)[0][1] for name in names)))
        names.sort(key=lambda name: (modes[name].cpu_khz, modes[name].gpu_khz), reverse=True)
    return names


def _set_and_look(findings: Findings, context: AcceptanceContext, name: str) -> None:
    context.report(f"modes: {name}")
    try:
        mode = context.set_mode(name)
        wrong, seen = look_at(context, mode)
    except HarnessError as error:
        findings.fail(f"{name}: {error.what}", error.hint)
        return
    findings.evidence[name] = ", ".join([*([] if mode.name == name else [mode.name]), *seen])
    for why in wrong:
        findings.fail(f"{name}: {why}")


def look_at(context: AcceptanceContext, mode: PowerMode) -> Tuple[List[str], List[str]]:
    """What disagrees with a mode that was set, and what was looked at, in words."""
    wrong, seen = [], []
    control = context.control
    if control is not None and control.works(control.nvpmodel):
        lines = query(context.root, control)
        space = context.device.power_mode_space()
        disagreeing = [line for line in lines if disagrees(line, space)]
        seen.append(f"{len(lines)} values of nvpmodel")
        for line in disagreeing[:3]:
            wrong.append(f"nvpmodel has {line.param} {line.argument} {line.real}, conf {line.conf}")
        if not lines:
            wrong.append("`nvpmodel -q --verbose` shows no REAL_VAL")
    if control is not None and control.works(control.clocks):
        held = is_held(control.clocks.read()["shown"])
        seen.append("--show: held" if held else "--show: not held")
        if not held:
            wrong.append("`jetson_clocks --show`: a minimum differs from its maximum")
    uses = clocks_now(context, mode)
    seen.append(f"{len(uses)} clocks")
    if holds_clocks(context):
        wrong += [f"{channel} is {use['now']:g}, set {use['set_khz']}" for channel, use in uses.items() if use["off"]]
    return wrong, seen


def holds_clocks(context: AcceptanceContext) -> bool:
    """Whether clocks can be held at the mode's; a Thor's only with --hold-thor-clocks, a host's with cpufreq."""
    conditions = context.device.conditions(context.case("maxn"))
    return conditions.get("dvfs") == "off"


def clocks_now(context: AcceptanceContext, mode: PowerMode) -> Dict[str, Dict[str, Any]]:
    """One reading of each clock against the mode, by channel, as in `clock_use`, with the reading as `now`."""
    names = [spec.name for spec in context.specs() if spec.name in ("cpufreq", "devfreq", "nvml")]
    sources = {}
    for name in names:
        try:
            sources.update(context.sources([name]))
        except (HarnessError, OSError):
            continue  # the line `rights` reports it
    now_s = time.monotonic()
    telemetry = telemetry_of(sources, now_s)
    uses = clock_use(telemetry, mode, now_s, now_s)
    return {channel: {**use, "now": telemetry.series[channel].values[0]} for channel, use in uses.items()}


def query(root: Path, control: JetsonControl) -> List[Shown]:
    """The values of the mode in effect, as the kernel has them and as its conf has them."""
    conf = control.nvpmodel.read()["conf"]
    command = [str(root / NVPMODEL), "-q", "--verbose", "-f", conf]
    return parse_values(run_bounded(command, timeout_s=NVPMODEL_TIMEOUT_S, answer="n\n").output)


_VALUES = re.compile(r"PARAM (\S+): ARG (\S+): PATH (\S*): REAL_VAL: (\S+) CONF_VAL: (\S+)")


def parse_values(text: str) -> List[Shown]:
    return [Shown(match[1], match[2], match[4], match[5]) for match in _VALUES.finditer(text)]


def disagrees(line: Shown, space: PowerModeSpace) -> bool:
    """Whether the kernel has another value than the conf.

    Minima do not count, as jetson_clocks raises them. A clock may be a neighbour of its cap in the board's table.
    """
    if "MIN_FREQ" in line.argument or not re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", line.real):
        return False
    try:
        real, conf = int(line.real, 0), int(line.conf, 0)
    except ValueError:
        return line.real != line.conf
    if "FREQ" not in line.argument:
        return real != conf
    if line.conf in NO_CAP:
        return False
    tables_khz = {"CPU": space.cpu_khz, "GPU": space.gpu_khz, "EMC": space.mem_khz}
    unit = 1 if line.param.startswith("CPU") else HZ_PER_KHZ  # of the conf, per kHz
    table = [unit * khz for khz in tables_khz.get(line.param[:3], ())]
    if any(table) and real in (clock_at_cap(conf, table, up) for up in (False, True)):
        return False
    return abs(real - conf) > ROUNDED * conf


def _check_rise(findings: Findings, context: AcceptanceContext, custom: Dict[str, PowerMode]) -> None:
    """From the lowest mode up again: on some releases clocks only fall until the next boot."""
    context.report("modes: up again")
    device = context.device
    try:
        context.set_mode(custom["lowest"].name)
        mode = context.set_mode(custom["highest"].name)
        wrong, _ = look_at(context, mode)
        rises = not wrong
        why_not = "; ".join(wrong)
    except ControlError as error:
        rises, why_not = False, str(error)
    findings.evidence["clocks rise again"] = "yes" if rises else f"no: {why_not}"
    if not rises and not device.clocks_only_fall:
        findings.fail(f"clocks do not rise from {custom['lowest'].name} to {custom['highest'].name}: {why_not}")
    if rises and device.clocks_only_fall:
        findings.advise("clocks rise on this release, so modes may run in any order: please report it with the record")
