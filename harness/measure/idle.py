"""Baseload: the power of a device while nothing runs, in the idle states of E10 (004 sec. 5.6).

    (i)    idle         static clocks   all telemetry is recorded, as in training
    (ii)   idle-quiet   static clocks   only the power sensor is read, a few times in total
    (iii)  idle-quiet   dvfs            the same with free clocks
    (iv)   idle-wol                     Wake on LAN: the device is off, a socket meter measures

The paper measures (ii) and (iii) with a socket meter, so that nothing runs on the board. A board's own sensors cover
the module only and must be read by the board itself, but so rarely that the cost is negligible.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from harness.board.socket_meter import SocketMeter, read_power_log
from harness.core.cases import IDLE, IDLE_STATES, LOGGING, QUIET_READINGS, STATIC, Case, case_duration_s
from harness.core.device import Report
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.frequency_residency import clock_use
from harness.core.metrics import POWER_CHANNEL, summarise_idle
from harness.core.power_modes import PowerMode
from harness.core.profiles import Profile, Telemetry, wall_clock
from harness.measure.flags import idle_power_flags
from harness.measure.peak_memory import PeakMemory
from harness.measure.rounds import Rounds, never, nothing, run_rounds

METER_LOG = "--socket-meter STATE=FILE.csv"
SETTLING_S = 5.0  # power settles 2-3 s after a change of mode (001 sec. 2.5)


def read_meter_logs(text: str) -> Dict[str, Telemetry]:
    """The records of `--socket-meter STATE=FILE.csv,...`, by the workload that their cases have (`idle-STATE`)."""
    logs: Dict[str, Telemetry] = {}
    for part in filter(lambda part: "=" in part, (part.strip() for part in text.split(","))):
        state, _, file = part.partition("=")
        if not re.fullmatch("[a-z][a-z0-9-]*", state) or not file:
            raise InvalidValueError(
                f"--socket-meter takes STATE=FILE.csv, got {part!r}", "the state in lower case: wol=FILE.csv"
            )
        logs[f"{IDLE}-{state}"] = read_power_log(Path(file))
    return logs


def read_meter(text: str) -> Optional[SocketMeter]:
    """The meter of `--socket-meter FILE.csv`, which is read during every case; None without one."""
    files = [part.strip() for part in text.split(",") if part.strip() and "=" not in part]
    if len(files) > 1:
        raise InvalidValueError(
            f"--socket-meter names {len(files)} files: {', '.join(files)}",
            "give one FILE.csv, others as STATE=FILE.csv",
        )
    return SocketMeter(Path(files[0])) if files else None


def idle_cases(
    cases: Sequence[Case], idle_s: float, logs: Mapping[str, Telemetry], states: Sequence[Tuple[str, str]] = IDLE_STATES
) -> List[Case]:
    """The idle states of each device and power mode of a campaign; `logs` are those of `read_meter_logs`."""
    first: Dict[Any, Case] = {}
    for case in cases:
        first.setdefault((case.device, case.power_mode.name), case)
    if logs and len(first) != 1:
        raise InvalidValueError(
            f"a log of a socket meter is for one power mode, and there are {len(first)}", "give --power-mode maxn"
        )
    wanted = [(name, clocks, idle_s) for name, clocks in states]
    for name, log in logs.items():
        times_s = log.series[POWER_CHANNEL].times_s
        wanted.append((name, STATIC, times_s[-1] - times_s[0]))

    def idle(case: Case, name: str, clocks: str, idle_s: float) -> Case:
        settings = dataclasses.replace(
            case.settings,
            minibatches=None,
            epochs=None,
            cache="as-is",
            data_scale=None,
            clocks=clocks,
            idle_s=idle_s,
            duration_s=None,
            switching_ms=None,
        )
        alone = dataclasses.replace(case, inference_mode=None, task=IDLE, settings=settings)
        return dataclasses.replace(alone, workload=name, workers=0, batch_size=1)

    return [idle(case, *state) for case in first.values() for state in wanted]


def measure_idle(
    case: Case, conditions: Mapping[str, Any], instruments: Any, report: Report, rounds: Rounds = run_rounds
) -> Profile:
    """Record power while nothing runs, for `case.settings.idle_s`; `CannotRunError` without a power sensor."""
    idle_s, is_logged = case_duration_s(case), case.workload == LOGGING
    if not is_logged:
        sources = [source for source in instruments.sources if source.name == instruments.power_source]
        instruments = dataclasses.replace(instruments, sources=sources)
    power_source = instruments.power_source
    interval_s = case.settings.interval_s if is_logged else idle_s / QUIET_READINGS

    def be_idle() -> float:
        began_s = time.monotonic()
        time.sleep(idle_s)
        return time.monotonic() - began_s

    report(f"    idle for {idle_s:g} s")
    memory = PeakMemory(None, instruments.root)
    time.sleep(SETTLING_S)
    started_at = wall_clock()
    with instruments.sampler(interval_s) as sampler:
        start_s = time.monotonic()  # the sampler's own start, and its first sample, lie before
        if power_source in sampler.missing:
            why = sampler.missing[power_source]
            raise CannotRunError(f"no power sensor: {why}", f"give a meter's log: {METER_LOG}")
        rounds(nothing, be_idle, 1, never)
        end_s = time.monotonic()
        telemetry = sampler.stop()
    own = {
        **conditions,
        "logging": "on" if is_logged else f"the power sensor alone, every {interval_s:g} s",
        "clean_process": "torch" not in sys.modules,
        "clock_use": clock_use(telemetry, PowerMode(**conditions["power_mode"]), start_s, end_s),
        "power_source": power_source,
        "power_definition": telemetry.notes.get(POWER_CHANNEL, "the power sensor gave no total"),
    }
    aggregates = {**summarise_idle(telemetry, start_s, end_s), **memory.figures(telemetry)}
    return Profile(case, "measured", own, [], telemetry, aggregates, [], started_at)


def metered_profile(case: Case, conditions: Mapping[str, Any], provenance: str, log: Telemetry) -> Profile:
    """The log of a socket meter as the profile of an idle case; the name of its state implies the clocks."""
    times_s = log.series[POWER_CHANNEL].times_s
    own = {
        **{name: value for name, value in conditions.items() if name != "dvfs"},
        "logging": "none on the device",
        "power_source": "socket meter",
        "power_definition": log.notes[POWER_CHANNEL],
    }
    aggregates = summarise_idle(log, times_s[0], times_s[-1])
    flags = list(idle_power_flags(log, times_s[0], times_s[-1]))
    imported_at = wall_clock()
    return Profile(case, provenance, own, [], log, aggregates, flags, imported_at)
