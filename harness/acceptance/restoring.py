"""Line 8, restoring: the board is as before after kill -9 and `restore`, after Ctrl-C, and after a power cut.

kill -9   child: save -- set the lowest mode -- x        this process: restore -- compare
Ctrl-C    child: save -- set the lowest mode -- restore  this process: compare
power     this process: save -- set the lowest mode -- load ... x   the next call: restore -- compare
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import SKIP, DoesNotApplyError, Findings, LineResult
from harness.acceptance.load import run_load
from harness.acceptance.modes import custom_modes
from harness.acceptance.snapshot import boot_of, differences, snapshot
from harness.board.saved_state import left_behind, restore
from harness.core.errors import CannotRunError, ControlError

RESTORING = "restoring"
POWER_CUT = "power cut"  # the part of the state that says that one was requested

CHILD_S = 300.0  # how long a child may take to set or restore the board
KILLED_S = 5.0  # how long a killed one may take to be gone
SLICE_S = 0.1  # how long it sleeps at once: a signal that comes just before a sleep begins does not end it
WAIT_S = 600.0  # for the owner to pull the plug
INTERRUPTED = 130


def check_restoring(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    if not any(knob.outlives_process for knob in getattr(context.device, "knobs", list)()):
        raise DoesNotApplyError("nothing that a run sets on this device outlives its process")
    if was_cut(context):
        findings.evidence.update(context.state.record.parts[POWER_CUT]["evidence"])
        _after_the_cut(findings, context)
        return findings.result(RESTORING)
    _killed(findings, context)
    if not findings.failures:
        _interrupted(findings, context)
    if findings.failures:
        return findings.result(RESTORING)
    if not context.reboots:
        findings.evidence["power cut"] = "not tried (--no-reboot)"
        return findings.result(RESTORING)
    context.state.store_part(POWER_CUT, {"boot": boot_of(context.root), "evidence": findings.evidence})
    _wait_for_the_cut(findings, context)
    context.state.remove_part(POWER_CUT)
    result = findings.result(RESTORING)
    if not findings.failures:
        result.verdict = SKIP
        result.reasons.append("the power was not cut in time")
        result.hints.append(f"`{context.command}` asks again; with --no-reboot it leaves this part out")
    return result


def was_cut(context: AcceptanceContext) -> bool:
    """Whether the power went while it was to: the boot is another, and the run has not put back what it set."""
    part = context.state.record.parts.get(POWER_CUT)
    return part is not None and part["boot"] != boot_of(context.root) and context.lock in left_behind()


def before_of(context: AcceptanceContext) -> Dict[str, Dict[str, Any]]:
    """The snapshot that the test began with, as it is stored."""
    before = context.state.record.before
    assert before is not None, "the runner takes it before the first line"
    return before


def compare(context: AcceptanceContext) -> List[str]:
    return differences(before_of(context), snapshot(context))


def _judge(findings: Findings, context: AcceptanceContext, what: str) -> None:
    different = compare(context)
    if context.lock in left_behind():
        different.append("the saved state is still there")
    compared = sum(map(len, before_of(context).values()))
    findings.evidence[what] = f"{compared} values compared, {len(different)} differ"
    if different:
        findings.evidence[f"{what}: different"] = different
        findings.fail(f"after {what}, {different[0]}", "see --json for all of them; `jetwatt restore`, or reboot")


def _restore_and_judge(findings: Findings, context: AcceptanceContext, what: str) -> bool:
    """Put back what a run left behind, and compare; whether it could be put back."""
    try:
        restored = restore(context.lock)
    except ControlError as error:
        findings.fail(f"restore after {what}: {error.what}", error.hint)
        return False
    findings.evidence[f"restored after {what}"] = ", ".join(restored)
    _judge(findings, context, what)
    return True


def _killed(findings: Findings, context: AcceptanceContext) -> None:
    context.report("restoring: kill -9 while a mode is set, then restore")
    _end_child(context, signal.SIGKILL)
    if context.lock not in left_behind():
        findings.fail("a run was killed and its saved state is not there")
        return
    _restore_and_judge(findings, context, "kill -9")


def _interrupted(findings: Findings, context: AcceptanceContext) -> None:
    context.report("restoring: Ctrl-C while a mode is set")
    status = _end_child(context, signal.SIGINT)
    if status != INTERRUPTED:
        findings.fail(f"a run that got Ctrl-C ended with status {status}, expected {INTERRUPTED}")
    _judge(findings, context, "Ctrl-C")


def _end_child(context: AcceptanceContext, number: signal.Signals) -> int:
    """Have a copy of this process set the lowest mode, send it a signal, and return its exit status, or -signal.

    CannotRunError: it ended before, or did not end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _set_and_wait(context, writing)
    os.close(writing)
    try:
        is_set = bool(select.select([reading], [], [], CHILD_S)[0]) and os.read(reading, 1) == b"."
        if not is_set:
            raise CannotRunError(
                f"the run that was to be ended did not set its mode{_end_by_kill(child)}", "see its message above"
            )
        os.kill(child, number)
        status = _status_within(child, CHILD_S)
        if status is None:
            raise CannotRunError(f"a run that got {number.name} did not end within {CHILD_S:g} s{_end_by_kill(child)}")
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    finally:
        os.close(reading)


def _status_within(child: int, within_s: float) -> Optional[int]:
    """The status with which a child ends; None if it does not end in that time."""
    end_s = time.monotonic() + within_s
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > end_s:
            return None
        time.sleep(0.01)


def _end_by_kill(child: int) -> str:
    """Kill a child; empty, or words for a message if the kernel holds it, so that it is left behind."""
    os.kill(child, signal.SIGKILL)
    return "" if _status_within(child, KILLED_S) is not None else f"; process {child} cannot be ended"


def _set_and_wait(context: AcceptanceContext, writing: int) -> None:
    """What the child does; it never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with context.device.session():
            context.set_mode(custom_modes(context.device.power_mode_space())["lowest"].name)
            os.write(writing, b".")
            end_s = time.monotonic() + CHILD_S
            while time.monotonic() < end_s:
                time.sleep(SLICE_S)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException as error:
        print(f"the run that was to be ended failed: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _wait_for_the_cut(findings: Findings, context: AcceptanceContext) -> None:
    """Load in the lowest mode until the power goes; what follows is the next call's."""
    seconds = context.seconds(WAIT_S)
    with context.held(findings):
        context.set_mode(custom_modes(context.device.power_mode_space())["lowest"].name)
        os.sync()
        if context.is_emulated:
            how = f"press Ctrl-\\ within {seconds:.3g} s"  # a reboot would be this machine's
        else:
            how = f"within {seconds:.3g} s (or `sudo reboot -f` in another terminal)"
        context.report(
            f"restoring: PULL THE PLUG NOW, {how}. "
            f"When the board is up again: `{context.command}`, which goes on from here"
        )
        end_s = time.monotonic() + seconds
        run_load(context, lambda: time.monotonic() >= end_s)


def _after_the_cut(findings: Findings, context: AcceptanceContext) -> None:
    context.report("restoring: after the power cut")
    if _restore_and_judge(findings, context, POWER_CUT):
        context.state.remove_part(POWER_CUT)
