"""`concurrent`: how to train fastest while requests are answered in time."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.cli.options import output_file, whole_numbers, write_json
from harness.core.cases import INFERENCE, Case, Settings, concurrent_case
from harness.core.configuration import load_configuration
from harness.core.device import Device
from harness.core.errors import CannotRunError
from harness.core.profiles import Profile
from harness.core.terminal import Progress, format_duration
from harness.core.units import mw_to_w, w_to_mw
from harness.devices.registry import open_device
from harness.measure.run import check
from harness.measure.run import run as run_case
from harness.store.results import ResultsStore
from predictors.cli.device_profiler import DeviceProfiler
from predictors.cli.options import add_search_arguments, refuse_below, workload_name
from predictors.strategies.closed_loop import design_for
from predictors.strategies.concurrent import SEARCHES, ConcurrentChoice, ConcurrentGoal, choose_concurrent
from predictors.strategies.registry import StrategySetting, unfitted

_TRIES = 3  # so often a plan whose promise was not kept is made again, with as much more room as it lacked


class Attempt(NamedTuple):
    """A plan and what came of it when it was run."""

    choice: ConcurrentChoice
    profile: Profile

    def figure(self, name: str) -> float:
        value = self.profile.aggregates.get(name)
        return float("inf") if value is None else value

    def shortfalls(self, goal: ConcurrentGoal) -> Tuple[float, float]:
        """Latency over what is allowed, and power (0 where it is not limited): 1 and below keeps the limit."""
        latency = self.figure("latency_p95_ms") / goal.latency_ms
        return latency, 0.0 if goal.power_mw is None else self.figure("power_mw") / goal.power_mw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", required=True, help="host, a board, sim:orin-agx")
    add("--training", required=True, metavar="W", help="workload that is trained; your own as module:NAME")
    add("--inference", required=True, metavar="W", help="workload that answers requests; likewise")
    add("--arrival-rate", type=float, required=True, metavar="N", help="requests per second")
    add("--latency-limit", type=float, required=True, metavar="MS", help="95 %% of requests are to keep it")
    add("--power-budget", type=float, metavar="W", help="greatest mean power")
    add("--batch-size", type=int, default=16, help="of the training (default: 16)")
    add("--inference-batches", default="1,4,16", metavar="LIST", help="to choose from (default: 1,4,16)")
    add("--workers", type=int, default=4, help="num_workers of the training (default: 4)")
    add("--switching-ms", type=float, metavar="MS", help="a mode for each kind of work, at this cost of a change")
    add("--strategy", choices=SEARCHES, default=SEARCHES[0], help="how to find it (default: %(default)s)")
    add("--duration", type=float, default=30.0, metavar="S", help="of the run that checks (default: 30)")
    add_search_arguments(parser, profiles=30)
    add("--json", type=output_file, metavar="OUT", help="write goal, choice and what came out")


def run(arguments: argparse.Namespace) -> int:
    refuse_below(0, arguments, "duration", above=True)
    goal = ConcurrentGoal(
        arguments.arrival_rate,
        arguments.latency_limit,
        None if arguments.power_budget is None else w_to_mw(arguments.power_budget),
        arguments.switching_ms,
    )
    device = open_device(arguments.device, load_configuration(arguments.config))
    training = Case(
        device.name,
        workload_name(arguments.training, device),
        "maxn",
        arguments.workers,
        "ssd",
        arguments.batch_size,
        Settings(minibatches=arguments.minibatches, seed=arguments.seed),
    )
    sizes = whole_numbers("--inference-batches", arguments.inference_batches, "1,4,16")
    inference = workload_name(arguments.inference, device)
    progress = Progress(sys.stderr)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is put back
    with ResultsStore(arguments.results) as store, device.session():
        attempts = find_plan(
            device, training, inference, goal, sizes, arguments.duration, progress, arguments.profiles, store,
            arguments.strategy,
        )  # fmt: skip
    progress.clear()
    print(format_attempts(training, inference, goal, attempts))
    if arguments.json:
        write_json(arguments.json, describe(device, training, inference, goal, attempts))
    if max(best_of(goal, attempts).shortfalls(goal)) > 1:
        raise CannotRunError("no plan is known that keeps the limits", "the nearest one stands above; allow more")
    return 0


def find_plan(
    device: Device,
    template: Case,
    inference: str,
    goal: ConcurrentGoal,
    sizes: Sequence[int],
    duration_s: float,
    progress: Progress,
    profiles: int = 30,
    store: Optional[ResultsStore] = None,
    search: str = SEARCHES[0],
) -> List[Attempt]:
    """Plans on a device that is held, each with what it gave; another is made where a promise was not kept.

    Args:
        device: that is held.
        template: the training; its power mode is replaced.
        inference: name of the workload that answers.
        goal: what is wanted.
        sizes: batch sizes of the inference to choose from.
        duration_s: of the run that checks a plan.
        progress: where lines go while this works.
        profiles: of both kinds of work together.
        store: keeps all profiles; None keeps none.
        search: one of `SEARCHES`.
    """
    modes = device.power_modes("all", template.workload)
    names = {mode: name for name, mode in modes}
    serving = dataclasses.replace(template, workload=inference, workers=0, task=INFERENCE)
    needs_power = goal.power_mw is not None or goal.switching_ms is not None
    trainer, server = (
        DeviceProfiler(
            device, case, modes, batch_sizes=batches, store=store, needs_power=needs_power, report=progress.update
        )
        for case, batches in ((template, ()), (serving, sizes))
    )
    seed = template.settings.seed
    make, first = unfitted(StrategySetting(), seed), design_for((), None, seed)
    found: List[Attempt] = []
    wanted = goal
    for _ in range(_TRIES):
        choice = choose_concurrent(
            trainer, server, wanted, make, first, profiles=profiles, search=search, report=progress.line
        )
        progress.line(f"training with inference in between for {duration_s:g} s in {choice.training_mode.name}")
        mode = names.get(modes[choice.training][1], choice.training_mode.name)
        training = dataclasses.replace(template, power_mode=mode)
        answering = dataclasses.replace(serving, batch_size=choice.inference_batch)
        both = concurrent_case(training, answering, goal.arrivals_per_s, duration_s)
        check(both, device)
        profile = run_case(both, device, progress.update)
        trainer.keep(profile)
        found.append(Attempt(choice, profile))
        latency, power = found[-1].shortfalls(goal)
        if max(latency, power) <= 1 or not np.isfinite(latency + power) or goal.switching_ms is not None:
            break
        wanted = dataclasses.replace(
            wanted,
            latency_ms=wanted.latency_ms / max(latency, 1.0),
            power_mw=None if wanted.power_mw is None else wanted.power_mw / max(power, 1.0),
        )
    for profiler in (trainer, server):
        for index, flags in profiler.flagged.items():
            progress.line(f"note: {profiler.case(index).id} was profiled twice: {'; '.join(flags)}")
    return found


def best_of(goal: ConcurrentGoal, attempts: Sequence[Attempt]) -> Attempt:
    """The attempt that kept the limits, or came nearest."""
    return min(attempts, key=lambda attempt: max(*attempt.shortfalls(goal), 1.0))


def describe(
    device: Device, training: Case, inference: str, goal: ConcurrentGoal, attempts: Sequence[Attempt]
) -> Dict[str, Any]:
    """Goal, choice and outcome as plain values."""
    best, last = best_of(goal, attempts), attempts[-1].choice
    expected = {name: float(value) for name, value in dataclasses.asdict(best.choice.expected).items()}
    return {
        "device": device.name,
        "provenance": device.provenance,
        "training": training.workload,
        "inference": inference,
        "goal": dataclasses.asdict(goal),
        "choice": {
            "training_mode": best.choice.training_mode.name,
            "inference_mode": best.choice.inference_mode.name,
            "inference_batch": best.choice.inference_batch,
            "expected": {name: None if np.isnan(value) else value for name, value in expected.items()},
            "feasible": max(best.shortfalls(goal)) <= 1,
            "profiles": last.profiles,
            "profiling_seconds": last.seconds,
        },
        "outcome": {name: value for name, value in best.profile.aggregates.items() if value is not None},
        "flags": best.profile.flags,
        "failed": [{"mode": mode.name, "reason": reason} for mode, reason in last.failed],
        "attempts": len(attempts),
    }


def format_attempts(training: Case, inference: str, goal: ConcurrentGoal, attempts: Sequence[Attempt]) -> str:
    """Goal, choice and what came out, for people."""
    best, last = best_of(goal, attempts), attempts[-1].choice
    expected, profile = best.choice.expected, best.profile
    power = "" if goal.power_mw is None else f", mean power at most {mw_to_w(goal.power_mw):g} W"
    inference_mode = "" if goal.switching_ms is None else f", inference in {best.choice.inference_mode.name}"
    drawn = profile.aggregates.get("power_mw")
    lines = [
        f"goal:     train {training.workload} as fast as possible while {goal.arrivals_per_s:g} requests/s of "
        f"{inference} take at most {goal.latency_ms:g} ms{power}",
        f"choice:   {best.choice.training_mode.name}{inference_mode}, inference batches of "
        f"{best.choice.inference_batch} ({last.profiles} profiles, {format_duration(last.seconds)}; "
        f"{len(attempts)} plans)",
        f"expected: {expected.training_per_s * training.batch_size:.1f} trained samples/s, latency up to "
        f"{expected.latency_ms:.0f} ms",
        f"outcome ({profile.provenance}, {profile.case.settings.duration_s:g} s interleaved): "
        f"{best.figure('training_samples_per_s'):.1f} trained samples/s, latency "
        f"{best.figure('latency_median_ms'):.0f} ms median, {best.figure('latency_p95_ms'):.0f} ms at 95 %"
        + ("" if drawn is None else f", {mw_to_w(drawn):.1f} W"),
    ]
    lines += [f"failed:   {mode.name}: {reason}" for mode, reason in last.failed]
    if goal.switching_ms is not None:
        lines.append("the outcome is of training's mode alone: no device here changes the mode between minibatches yet")
    return "\n".join(lines)
