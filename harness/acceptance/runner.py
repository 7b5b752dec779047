"""Runs the lines of an acceptance test, stores each as soon as it is finished, and goes on where it was left.

identity rights rails modes hold own-cost limits record -- five runs of a case -- restoring: kill -9, Ctrl-C, power cut
the next call, after the boot:                             restoring: compare -- the sixth run -- report
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Union, cast

from harness.acceptance.context import COMMAND, AcceptanceContext
from harness.acceptance.hold import HOLD, check_hold
from harness.acceptance.identity import IDENTITY, check_identity
from harness.acceptance.limits import LIMITS, check_limits
from harness.acceptance.lines import FAIL, PASS, SKIP, DoesNotApplyError, LineResult
from harness.acceptance.modes import MODES, check_modes
from harness.acceptance.own_cost import OWN_COST, check_own_cost
from harness.acceptance.rails import RAILS, check_rails
from harness.acceptance.recording import RECORD, check_record
from harness.acceptance.repeatability import REPEATABILITY, check_repeatability
from harness.acceptance.restoring import RESTORING, check_restoring, was_cut
from harness.acceptance.rights import RIGHTS, check_rights
from harness.acceptance.snapshot import snapshot
from harness.acceptance.state import open_state
from harness.board.saved_state import RESTORE_COMMAND, left_behind
from harness.board.socket_meter import SocketMeter
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import RealDevice, Report, is_self_profiling
from harness.core.errors import CannotRunError, ControlError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from harness.devices.board_record import root_of
from harness.devices.host import lock_name
from harness.measure.doctor import device_to_examine

CHECKS: Dict[str, Callable[[AcceptanceContext], LineResult]] = {
    IDENTITY: check_identity,
    RIGHTS: check_rights,
    RAILS: check_rails,
    MODES: check_modes,
    HOLD: check_hold,
    OWN_COST: check_own_cost,
    LIMITS: check_limits,
    RESTORING: check_restoring,
    RECORD: check_record,
    REPEATABILITY: check_repeatability,
}
"""The lines in the order of the report, each with its function."""

LAST = (REPEATABILITY, RESTORING)
"""The lines that are checked last, in this order: a power cut is the reboot between the runs of one case."""


def accept(
    device: Optional[str] = None,
    *,
    root: Union[str, Path] = "/",
    config: Union[str, Path] = FILE_NAME,
    start_over: bool = False,
    reboots: bool = True,
    socket_meter: Optional[Path] = None,
    scale: float = 1.0,
    lines: Optional[Sequence[str]] = None,
    command: str = COMMAND,
    report: Report = lambda line: None,
) -> Dict[str, Any]:
    """What `jetwatt doctor --accept --json` prints: every line with its verdict and evidence.

    Lines that passed in an earlier call are kept; the others are checked again.

    Args:
        device: the device to accept; None for the board if there is one, else `host`.
        root: the folder of /sys, /proc and /etc.
        config: file with the directories of storage media and data sets.
        start_over: check every line again.
        reboots: whether the owner reboots the board, or cuts its power, when requested.
        socket_meter: the file of a meter at the plug, as for `--socket-meter`.
        scale: of all times; below 1 it is a rehearsal, whose figures prove nothing about the board.
        lines: names of the lines to check; None for all.
        command: how the user goes on with the test, for hints.
        report: takes a line of progress.

    Raises:
        HarnessError: the device does not exist or is simulated, or a value is out of its range.
    """
    if not 0 < scale <= 1:
        raise InvalidValueError(f"the scale of times must be above 0 and at most 1, got {scale:g}")
    unknown = sorted(set(lines or ()) - set(CHECKS))
    if unknown:
        raise UnknownNameError(f"line {unknown[0]!r} is unknown", available_hint(unknown[0], CHECKS))
    folder = Path(os.path.abspath(root_of(Path(root))))
    if not folder.is_dir():
        raise InvalidValueError(f"--root {folder} is not a folder", "give the one that holds sys, proc and etc")
    configuration = load_configuration(Path(config))
    opened = device_to_examine(device, configuration, folder)
    if is_self_profiling(opened) or not hasattr(opened, "telemetry_sources"):
        what = f"{opened.name} is not a device that can be accepted here"
        raise CannotRunError(what, "run it on the board; `--device host` accepts this machine")
    machine = cast(RealDevice, opened)
    lock = lock_name(machine.name, folder)
    state = open_state(machine.name, lock, scale, start_over)
    meter = None if socket_meter is None else SocketMeter(socket_meter)
    context = AcceptanceContext(machine, folder, machine.configuration, state, report, scale, reboots, meter, command)
    is_after_cut = was_cut(context)
    if not is_after_cut:
        if lock in left_behind():
            what = f"a run on {machine.name} was killed before it could put back what it changed"
            raise ControlError(what, RESTORE_COMMAND)
        state.record.before = snapshot(context)
        state.save()
    order = [*(name for name in CHECKS if name not in LAST), *LAST]
    if is_after_cut:
        order.sort(key=lambda name: name != RESTORING)
    for name in order:
        if lines is None or name in lines or (is_after_cut and name == RESTORING):
            _check(name, context)
    return findings_of(context)


def _check(name: str, context: AcceptanceContext) -> None:
    stored = context.state.record.results.get(name)
    if stored is not None and stored.verdict == PASS:
        context.report(f"{name}: {PASS}, from an earlier call")
        return
    context.report(f"{name}: ...")
    try:
        result = CHECKS[name](context)
    except DoesNotApplyError as reason:
        result = LineResult(name, SKIP, {}, [str(reason)])
    except HarnessError as error:
        result = LineResult(name, FAIL, {}, [error.what], [error.hint] if error.hint else [])
    except Exception as error:  # the other lines still say something about the board
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        hint = "this is an error of the suite: please report it with this page"
        result = LineResult(name, FAIL, {"traceback": traceback.format_exc().splitlines()[-12:]}, [], [hint])
        result.reasons.append(f"{type(error).__name__}: {error} ({place})")
    context.state.store(result)
    context.report(f"{name}: {result.verdict}")


def findings_of(context: AcceptanceContext) -> Dict[str, Any]:
    """The finished lines as plain values, in the order of the report."""
    record = context.state.record
    results = [record.results[name] for name in CHECKS if name in record.results]
    verdicts = [result.verdict for result in results]
    return {
        "device": record.device,
        "emulated": context.is_emulated,
        "rehearsal": context.is_rehearsal,
        "scale": record.scale,
        "jetwatt": record.jetwatt,
        "started_at": record.started_at,
        "counts": {verdict: verdicts.count(verdict) for verdict in (PASS, FAIL, SKIP)},
        "lines": [
            {
                "name": result.name,
                "verdict": result.verdict,
                "reasons": result.reasons,
                "evidence": result.evidence,
                "hints": result.hints,
            }
            for result in results
        ],
        "state": str(context.state.path),
    }
