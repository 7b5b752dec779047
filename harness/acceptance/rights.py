"""Line 2, rights: every file that a channel needs is read, twice, as the user who will measure."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Union

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import Findings, LineResult
from harness.board.privileges import ASK_FOR_RULE
from harness.board.source import MIN_WINDOW_S, Reading, open_source
from harness.core.errors import HarnessError

RIGHTS = "rights"

BETWEEN_S = 1.1  # readings: jtop's service samples once a second
CLOSED = ("Permission denied", "Operation not permitted", "may not be read", "may not speak", "needs root")


def check_rights(context: AcceptanceContext) -> LineResult:
    """Open every source and read it twice, after a first reading that rates and counters of energy need."""
    findings = Findings()
    power_source = context.device.power_source
    sources: Dict[str, Any] = {}
    for spec in context.specs():
        try:
            sources[spec.name] = open_source(spec, str(context.device.root))
        except (HarnessError, OSError, ImportError) as error:
            what = str(getattr(error, "what", error))
            findings.evidence[spec.name] = f"not available: {what}"
            if _is_closed(what) or (spec.name == power_source and context.control is not None):
                findings.fail(f"{spec.name}: {what}", getattr(error, "hint", ""))
    rounds = []
    for _ in range(3):
        rounds.append({name: _read(source) for name, source in sources.items()})
        time.sleep(max(context.seconds(BETWEEN_S), 2 * MIN_WINDOW_S))
    channels = 0
    silent: List[str] = []
    for name, source in sources.items():
        getattr(source, "close", lambda: None)()
        first, second = (each[name] for each in rounds[1:])
        if isinstance(second, str):
            findings.fail(f"{name} cannot be read: {second}", ASK_FOR_RULE if _is_closed(second) else "")
            continue
        values = {*second.values, *(first.values if isinstance(first, Reading) else ())}
        channels += len(values)
        failed_before = first.failed if isinstance(first, Reading) else second.failed
        failed = {channel: why for channel, why in second.failed.items() if channel in failed_before}
        for channel, why in failed.items():
            if name == power_source or _is_closed(why):
                findings.fail(f"{channel} gives no value twice: {why}", ASK_FOR_RULE if _is_closed(why) else "")
            else:
                silent.append(f"{channel} ({why.replace(str(context.root).rstrip('/'), '')})")
        if name == power_source and not values:
            findings.fail(f"{name} gives no power in two readings")
    findings.evidence = {"user": os.geteuid(), "channels read twice": channels, **findings.evidence}
    if silent:
        findings.evidence["without a value"] = silent
    return findings.result(RIGHTS)


def _is_closed(why: str) -> bool:
    return any(words in why for words in CLOSED)


def _read(source: Any) -> Union[Reading, str]:
    """A reading, or why there is none."""
    try:
        return source.read(time.monotonic())
    except (HarnessError, OSError, ValueError) as error:
        return str(error)
