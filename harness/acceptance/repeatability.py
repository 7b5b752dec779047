"""Line 10, repeatability: one case five times and once more after a reboot; the spread is the board's own noise."""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, List, Optional, Sequence

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import SKIP, DoesNotApplyError, Findings, LineResult
from harness.acceptance.snapshot import boot_of
from harness.board.saved_state import default_state_dir
from harness.core.board_threshold import MOST_SHARE, SOFTWARE, BoardThreshold, path_of, write
from harness.core.errors import DependencyError
from harness.core.mode_texts import MAXN
from harness.core.profiles import Profile, wall_clock
from harness.core.units import percent_to_share, share_to_percent
from harness.measure.run import run
from harness.stats.estimates import CONFIDENCE, student_quantile
from harness.workloads.optional_packages import require

REPEATABILITY = "repeatability"
REPEATS = "repeats"  # the part of the state with the runs so far

RUNS, REHEARSED_RUNS = 5, 2
MINIBATCHES, REHEARSED_MINIBATCHES = 200, 10
LEAST_THRESHOLD = 0.01  # fewer runs than a campaign has may by chance lie closer together
FIGURES = ("minibatch_time_ms", "power_mw")


def check_repeatability(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    try:
        require("harness.measure.training_loop")
    except DependencyError as error:
        raise DoesNotApplyError(f"a case needs torch: {error.what}") from error
    part = context.state.record.parts.get(REPEATS) or {"boot": boot_of(context.root), "runs": []}
    runs: List[Dict[str, Any]] = part["runs"]
    is_new_boot = part["boot"] != boot_of(context.root)
    of_one_boot = REHEARSED_RUNS if context.is_rehearsal else RUNS
    wanted = of_one_boot + 1 if is_new_boot else of_one_boot
    if is_new_boot and len(runs) < of_one_boot:
        part, runs, wanted = {"boot": boot_of(context.root), "runs": []}, [], of_one_boot
    with context.held(findings):
        while len(runs) < wanted:
            context.report(f"repeatability: run {len(runs) + 1} of {of_one_boot + context.reboots}")
            runs.append(_figures(_measure(context)))
            context.state.store_part(REPEATS, {**part, "runs": runs})
    if findings.failures:
        return findings.result(REPEATABILITY)
    awaits_reboot = context.reboots and len(runs) == of_one_boot
    judged: Sequence[str] = FIGURES
    if context.is_rehearsal:  # other work moves this machine's times and power, but not the power of an emulated board
        judged = FIGURES[1:] if context.is_emulated else ()
    again = runs[of_one_boot] if len(runs) > of_one_boot else None
    judge_runs(findings, runs[:of_one_boot], again, judged)
    if not context.reboots:
        findings.evidence["after a reboot"] = "not tried (--no-reboot)"
    result = findings.result(REPEATABILITY)
    if not awaits_reboot or findings.failures:
        _store_threshold(findings, context, runs)
    if awaits_reboot and not findings.failures:
        result.verdict = SKIP
        result.reasons.append("the run after a reboot is not made yet")
        result.hints.append(f"reboot, or pull the plug as the line `restoring` says, then `{context.command}`")
    else:
        context.state.remove_part(REPEATS)
    return result


def _measure(context: AcceptanceContext) -> Profile:
    case = context.case(MAXN, REHEARSED_MINIBATCHES if context.is_rehearsal else MINIBATCHES)
    return run(case, context.device)


def _figures(profile: Profile) -> Dict[str, Any]:
    versions = {name: profile.conditions.get(name) for name in SOFTWARE}
    software = {name: None if version is None else str(version) for name, version in versions.items()}
    about = {"case": profile.case.id, "software": software, "flags": profile.flags}
    return {**{name: profile.aggregates.get(name) for name in FIGURES}, **about}


def _store_threshold(findings: Findings, context: AcceptanceContext, runs: Sequence[Dict[str, Any]]) -> None:
    """Keep the board's threshold where profiles find it; without a passing test there is none."""
    if context.is_rehearsal:
        findings.evidence["stored"] = "no: it is a rehearsal"
        return
    device = context.device
    path = path_of(default_state_dir(), device.name, device.board_instance)
    if findings.failures:
        path.unlink(missing_ok=True)
        return
    shares = {
        name: percent_to_share(findings.evidence[name]["threshold (%)"])
        for name in FIGURES
        if isinstance(findings.evidence[name], dict)
    }
    identity = (device.name, device.board_instance, device.provenance)
    last = runs[-1]
    write(path, BoardThreshold(shares, *identity, last["case"], len(runs), wall_clock(), last["software"]))
    findings.evidence["stored"] = str(path)


def judge_runs(
    findings: Findings,
    runs: Sequence[Dict[str, Any]],
    again: Optional[Dict[str, Any]],
    judged: Sequence[str] = FIGURES,
) -> None:
    """The threshold of each figure, and whether the run after the reboot lies within it.

    Args:
        findings: of the line.
        runs: of one boot, with each of `FIGURES` (ms, mW) or None, and `flags`.
        again: the run after the reboot; None if there is none.
        judged: those of `FIGURES` that may fail the line.
    """
    for name in FIGURES:
        values = [each[name] for each in runs if each[name]]
        if len(values) < len(runs):
            findings.evidence[name] = "not measured"
            continue
        limit = repeatability_limit(values)
        threshold = max(limit, LEAST_THRESHOLD)
        mean = statistics.mean(values)
        findings.evidence[name] = {
            "mean": round(mean, 3),
            "spread (%)": round(share_to_percent(spread(values)), 2),
            "threshold (%)": math.ceil(10 * share_to_percent(threshold)) / 10,
        }
        if name not in judged:
            findings.evidence[name]["judged"] = "no: a rehearsal"
            continue
        if threshold > MOST_SHARE:
            findings.fail(
                f"{name}: two runs of one case differ by up to {limit:.1%}; the gate is to notice {MOST_SHARE:.0%}",
                "see the flags of the runs: a desktop, other programs, heat; then `jetwatt doctor --accept`",
            )
        elif again is not None and again[name] and abs(math.log(again[name] / mean)) > threshold:
            findings.fail(
                f"{name} was {mean:.4g} and is {again[name]:.4g} after the reboot, more than {threshold:.1%} apart",
                "see what the boot changed: power mode, masks (identity), temperature; reboot before each campaign",
            )
        if again is not None and again[name]:
            findings.evidence[name]["after the reboot"] = round(again[name], 3)
    flags = sorted({flag.partition(":")[0] for each in runs for flag in each["flags"]})
    if flags:
        findings.evidence["flags"] = flags


def spread(values: Sequence[float]) -> float:
    """Standard deviation between runs, as a share of the figure."""
    return statistics.stdev([math.log(value) for value in values])


def repeatability_limit(values: Sequence[float]) -> float:
    """What two runs of one case differ by at most, 95 times in 100, as a share (ISO 5725: the repeatability limit)."""
    return student_quantile(len(values) - 1, (1 + CONFIDENCE) / 2) * math.sqrt(2) * spread(values)
