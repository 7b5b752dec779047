"""Line 10, repeatability: one case five times and once more after a reboot; the spread is the board's own noise."""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, List, Optional, Sequence

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import SKIP, DoesNotApplyError, Findings, LineResult
from harness.acceptance.snapshot import boot_of
from harness.core.errors import DependencyError
from harness.core.mode_texts import MAXN
from harness.core.profiles import Profile
from harness.core.units import share_to_percent
from harness.measure.run import run
from harness.stats.estimates import CONFIDENCE, student_quantile
from harness.workloads.optional_packages import require

REPEATABILITY = "repeatability"
REPEATS = "repeats"  # the part of the state with the runs so far

RUNS, REHEARSED_RUNS = 5, 2
MINIBATCHES, REHEARSED_MINIBATCHES = 200, 10
LEAST_THRESHOLD = 0.01  # fewer runs than a campaign has may by chance lie closer together
MOST_THRESHOLD = 0.05  # the gate's own default: a board with more noise hides the changes that it is to show
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
    judge_runs(findings, runs[:of_one_boot], (runs[of_one_boot:] or [None])[0], context.is_rehearsal)
    if not context.reboots:
        findings.evidence["after a reboot"] = "not tried (--no-reboot)"
    result = findings.result(REPEATABILITY)
    if awaits_reboot and not findings.failures:
        result.verdict = SKIP
        result.reasons.append("the run after a reboot is not made yet")
        result.hints.append("reboot, or pull the plug as the line `restoring` says, then `jetwatt doctor --accept`")
    else:
        context.state.remove_part(REPEATS)
    return result


def _measure(context: AcceptanceContext) -> Profile:
    case = context.case(MAXN, REHEARSED_MINIBATCHES if context.is_rehearsal else MINIBATCHES)
    return run(case, context.device)


def _figures(profile: Profile) -> Dict[str, Any]:
    return {**{name: profile.aggregates.get(name) for name in FIGURES}, "flags": profile.flags}


def judge_runs(
    findings: Findings, runs: Sequence[Dict[str, Any]], again: Optional[Dict[str, Any]], is_rehearsal: bool
) -> None:
    """The threshold of each figure, and whether the run after the reboot lies within it.

    Args:
        findings: of the line.
        runs: of one boot, with each of `FIGURES` (ms, mW) or None, and `flags`.
        again: the run after the reboot; None if there is none.
        is_rehearsal: times are not judged.
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
        is_judged = name != FIGURES[0] or not is_rehearsal
        if not is_judged:
            findings.evidence["times"] = "not judged in a rehearsal"
            continue
        if threshold > MOST_THRESHOLD:
            findings.fail(
                f"{name}: two runs of one case differ by up to {limit:.1%}; the gate is to notice {MOST_THRESHOLD:.0%}",
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
