"""Line 6, own cost: the same minibatches with and without telemetry, at the lowest clocks with one core."""

from __future__ import annotations

import statistics
import time
from typing import Dict, List, Mapping, Optional, Tuple

from harness.acceptance.context import AcceptanceContext
from harness.acceptance.lines import Findings, LineResult
from harness.acceptance.load import run_load, sampler_of
from harness.acceptance.modes import custom_modes
from harness.core.profiles import Minibatch, counted_minibatches
from harness.stats.estimates import paired_ratio

OWN_COST = "own cost"

MOST_TIME = 0.02  # of the time of a minibatch
MOST_CORES = 0.05
REHEARSED_CORES = 0.25  # in a rehearsal the machine runs the emulation too, and often other work
ROUND_S = 20.0  # of each half of a pair
PAIRS, REHEARSED_PAIRS = 5, 2
INTERVAL_S = 1.0  # as profiles have it; a rehearsal too, or it would judge another sampler


def check_own_cost(context: AcceptanceContext) -> LineResult:
    findings = Findings()
    mode = custom_modes(context.device.power_mode_space())["lowest"]._replace(cpu_cores=1)
    with context.held(findings):
        context.set_mode(mode.name)
        seconds = context.seconds(ROUND_S)
        end_s = time.monotonic() + seconds
        calibration, load = run_load(context, lambda: time.monotonic() >= end_s)
        count = len(calibration)
        pairs = REHEARSED_PAIRS if context.is_rehearsal else PAIRS
        context.report(f"own cost: {mode.name}, {pairs} times {count} minibatches with telemetry and without")
        time_ms: Dict[bool, List[float]] = {True: [], False: []}
        cores = []
        for number in range(pairs):
            for is_sampled in (True, False) if number % 2 else (False, True):
                minibatches, used = _run(context, count, is_sampled)
                counted = counted_minibatches(minibatches, whole_epochs=False)
                time_ms[is_sampled].append(statistics.mean(minibatch.e2e_ms for minibatch in counted))
                cores += [] if used is None else [used]
        findings.evidence["mode"] = mode.name
        findings.evidence["load"] = load
        findings.evidence["minibatches of each round"] = count
        judge_cost(findings, statistics.mean(cores), time_ms, context.is_rehearsal)
    return findings.result(OWN_COST)


def _run(context: AcceptanceContext, count: int, is_sampled: bool) -> Tuple[List[Minibatch], Optional[float]]:
    """So many minibatches, and how many cores the sampler used; None without it."""
    done = 0

    def after_minibatch() -> None:
        nonlocal done
        done += 1

    if not is_sampled:
        return run_load(context, lambda: done >= count, after_minibatch)[0], None
    with sampler_of(context, (), INTERVAL_S) as sampler:
        minibatches, _ = run_load(context, lambda: done >= count, after_minibatch)
        telemetry = sampler.stop()
    # The CPU time of a sample, at the interval requested: a short stretch has its first and last sample close together,
    # and a busy machine takes samples late.
    real_interval_s = telemetry.real_interval_s or INTERVAL_S
    return minibatches, (telemetry.sampler_cpu_share or 0.0) * real_interval_s / INTERVAL_S


def judge_cost(findings: Findings, cores: float, time_ms: Mapping[bool, List[float]], is_rehearsal: bool) -> None:
    """FAIL above 2 % of the time or 0.05 cores, or if noise hides the time: then nothing was shown.

    Args:
        findings: of the line.
        cores: that the sampler, its children and the helper use.
        time_ms: mean minibatch time of each round, with telemetry (True) and without; pairs in order.
        is_rehearsal: times are not judged, and 0.25 cores are allowed.
    """
    findings.evidence["sampler (cores)"] = round(cores, 4)
    most_cores = REHEARSED_CORES if is_rehearsal else MOST_CORES
    if cores > most_cores:
        findings.fail(
            f"the sampler uses {cores:.3f} cores, at most {most_cores:g} are allowed",
            "a longer --interval; `jetwatt doctor --record` lists the files that take long to read",
        )
    if is_rehearsal:
        findings.evidence["time"] = "not judged in a rehearsal"
        return
    ratio = paired_ratio(time_ms[False], time_ms[True])
    slower, low, high = (end - 1 for end in ratio)
    findings.evidence["time with telemetry"] = f"{slower:+.2%} ({low:+.2%} to {high:+.2%})"
    if low < -2 * MOST_TIME and high > 2 * MOST_TIME:
        findings.fail(
            f"noise hides whether telemetry costs more than {MOST_TIME:.0%}: {low:+.1%} to {high:+.1%}",
            "end what else uses the CPU, then `jetwatt doctor --accept`",
        )
    elif slower > MOST_TIME:
        findings.fail(f"telemetry makes minibatches {slower:.1%} slower, at most {MOST_TIME:.0%} is allowed")
