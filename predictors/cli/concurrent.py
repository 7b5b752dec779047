"""`concurrent`: how to train fastest while requests are answered in time."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from harness.cli.options import whole_numbers, write_json
from harness.core.cases import DEFAULT_MINIBATCHES, INFERENCE, Case, Settings
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Device
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.profiles import Profile
from harness.core.terminal import Progress, format_duration
from harness.core.units import mw_to_w, w_to_mw
from harness.devices.registry import open_device
from harness.measure.run import run_concurrent
from harness.workloads import get_workload
from predictors.cli.device_profiler import DeviceProfiler
from predictors.models.base import make_predictor, predictor_class
from predictors.strategies.closed_loop import design_for
from predictors.strategies.concurrent import ConcurrentChoice, ConcurrentGoal, choose_concurrent
from predictors.strategies.registry import OURS

_TRIES = 3
"""So often a plan whose promise was not kept is made again, with as much more room as it lacked."""

Attempt = Tuple[ConcurrentChoice, Profile]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", required=True, help="host, a board, sim:orin-agx")
    add("--training", required=True, metavar="W", help="workload that is trained")
    add("--inference", required=True, metavar="W", help="workload that answers requests")
    add("--arrival-rate", type=float, required=True, metavar="N", help="requests per second")
    add("--latency-limit", type=float, required=True, metavar="MS", help="95 %% of requests are to keep it")
    add("--power-budget", type=float, metavar="W", help="greatest mean power")
    add("--batch-size", type=int, default=16, help="of the training (default: 16)")
    add("--inference-batches", default="1,4,16", metavar="LIST", help="to choose from (default: 1,4,16)")
    add("--workers", type=int, default=4, help="num_workers of the training (default: 4)")
    add("--switching-ms", type=float, metavar="MS", help="a mode for each kind of work, at this cost of a change")
    add("--profiles", type=int, default=30, help="of both kinds of work together (default: 30)")
    add("--duration", type=float, default=30.0, metavar="S", help="of the run that checks (default: 30)")
    add("--minibatches", type=int, default=DEFAULT_MINIBATCHES, help="per profile (default: 40)")
    add("--seed", type=int, default=0)
    add("--config", type=Path, default=Path(FILE_NAME), help="places of storage media and data sets")
    add("--json", type=Path, metavar="OUT", help="write goal, choice and what came out")


def run(arguments: argparse.Namespace) -> int:
    goal = ConcurrentGoal(
        arguments.arrival_rate,
        arguments.latency_limit,
        None if arguments.power_budget is None else w_to_mw(arguments.power_budget),
        arguments.switching_ms,
    )
    if not arguments.duration > 0:
        raise InvalidValueError(f"--duration is {arguments.duration:g}, expected seconds above 0")
    for workload in (arguments.training, arguments.inference):
        get_workload(workload)
    device = open_device(arguments.device, load_configuration(arguments.config))
    progress = Progress(sys.stderr)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is put back
    with device.session():
        attempts = attempt(arguments, device, goal, progress)
    progress.clear()
    print(format_attempts(arguments, goal, attempts, device))
    if arguments.json:
        write_json(arguments.json, describe(arguments, goal, attempts, device))
    if _short_of(goal, best_of(goal, attempts)[1]) > 1:
        raise CannotRunError("no plan is known that keeps the limits", "the nearest one stands above; allow more")
    return 0


def attempt(arguments: argparse.Namespace, device: Device, goal: ConcurrentGoal, progress: Progress) -> List[Attempt]:
    """Plans and what they gave, the last one the answer; another is made where a promise was not kept."""
    template = Case(
        device.name,
        arguments.training,
        "maxn",
        arguments.workers,
        "ssd",
        arguments.batch_size,
        Settings(minibatches=arguments.minibatches, seed=arguments.seed),
    )
    answering = dataclasses.replace(template, workload=arguments.inference, workers=0, task=INFERENCE)
    modes = device.power_modes("all", arguments.training)
    names = {mode: name for name, mode in modes}
    needs_power = goal.power_mw is not None or goal.switching_ms is not None
    sizes = whole_numbers("--inference-batches", arguments.inference_batches, "1,4,16")
    training = DeviceProfiler(device, template, modes, needs_power=needs_power, report=progress.update)
    inference = DeviceProfiler(
        device, answering, modes, batch_sizes=sizes, needs_power=needs_power, report=progress.update
    )

    make = functools.partial(make_predictor, predictor_class(OURS), seed=arguments.seed)
    first = design_for((), None, arguments.seed)
    found: List[Attempt] = []
    wanted = goal
    for _ in range(_TRIES):
        choice = choose_concurrent(
            training, inference, wanted, make, first, profiles=arguments.profiles, report=progress.line
        )
        place = choice.plan.training
        progress.line(f"training with inference in between for {arguments.duration:g} s in {choice.training_mode.name}")
        mode = names.get(modes[place][1], choice.training_mode.name)
        profile = run_concurrent(
            device,
            dataclasses.replace(template, power_mode=mode),
            dataclasses.replace(answering, power_mode=mode, batch_size=choice.inference_batch),
            goal.arrivals_per_s,
            arguments.duration,
            progress.update,
        )
        found.append((choice, profile))
        latency, power = _shortfalls(goal, profile)
        if max(latency, power) <= 1 or not np.isfinite(latency + power) or goal.switching_ms is not None:
            break
        wanted = dataclasses.replace(
            wanted,
            latency_ms=wanted.latency_ms / max(latency, 1.0),
            power_mw=None if wanted.power_mw is None else wanted.power_mw / max(power, 1.0),
        )
    for profiler in (training, inference):
        for index, flags in profiler.flagged.items():
            progress.line(f"note: {profiler.case(index).id} was profiled twice: {'; '.join(flags)}")
    return found


def best_of(goal: ConcurrentGoal, attempts: List[Attempt]) -> Attempt:
    """The attempt that kept the limits, or came nearest."""
    return min(attempts, key=lambda attempt: max(_short_of(goal, attempt[1]), 1.0))


def _short_of(goal: ConcurrentGoal, profile: Profile) -> float:
    """The worst ratio of what came out to what is allowed: 1 and below keeps all limits."""
    return max(_shortfalls(goal, profile))


def _shortfalls(goal: ConcurrentGoal, profile: Profile) -> Tuple[float, float]:
    """That ratio of latency, and of power (0 where it is not limited)."""
    latency = _figure(profile, "latency_p95_ms") / goal.latency_ms
    return latency, 0.0 if goal.power_mw is None else _figure(profile, "power_mw") / goal.power_mw


def _figure(profile: Profile, name: str) -> float:
    value = profile.aggregates.get(name)
    return float("inf") if value is None else value


def describe(
    arguments: argparse.Namespace, goal: ConcurrentGoal, attempts: List[Attempt], device: Device
) -> Dict[str, Any]:
    """Goal, choice and outcome as plain values."""
    choice, profile = best_of(goal, attempts)
    expected = {name: float(value) for name, value in dataclasses.asdict(choice.plan.expected).items()}
    return {
        "device": device.name,
        "provenance": device.provenance,
        "training": arguments.training,
        "inference": arguments.inference,
        "goal": dataclasses.asdict(goal),
        "choice": {
            "training_mode": choice.training_mode.name,
            "inference_mode": choice.inference_mode.name,
            "inference_batch": choice.inference_batch,
            "expected": {name: value if value == value else None for name, value in expected.items()},
            "feasible": _short_of(goal, profile) <= 1,
            "profiles": attempts[-1][0].profiles,
            "profiling_seconds": attempts[-1][0].seconds,
        },
        "outcome": {name: value for name, value in profile.aggregates.items() if value is not None},
        "flags": profile.flags,
        "failed": [{"mode": mode.name, "reason": reason} for mode, reason in attempts[-1][0].failed],
        "attempts": len(attempts),
    }


def format_attempts(
    arguments: argparse.Namespace, goal: ConcurrentGoal, attempts: List[Attempt], device: Device
) -> str:
    """Goal, choice and what came out, for people."""
    choice, profile = best_of(goal, attempts)
    expected = choice.plan.expected
    last = attempts[-1][0]
    power = "" if goal.power_mw is None else f", mean power at most {mw_to_w(goal.power_mw):g} W"
    inference_mode = "" if goal.switching_ms is None else f", inference in {choice.inference_mode.name}"
    drawn = profile.aggregates.get("power_mw")
    lines = [
        f"goal:     train {arguments.training} as fast as possible while {goal.arrivals_per_s:g} requests/s of "
        f"{arguments.inference} take at most {goal.latency_ms:g} ms{power}",
        f"choice:   {choice.training_mode.name}{inference_mode}, inference batches of {choice.inference_batch} "
        f"({last.profiles} profiles, {format_duration(last.seconds)}; {len(attempts)} plans)",
        f"expected: {expected.training_per_s * arguments.batch_size:.1f} trained samples/s, latency up to "
        f"{expected.latency_ms:.0f} ms",
        f"outcome ({device.provenance}, {arguments.duration:g} s interleaved): "
        f"{_figure(profile, 'training_samples_per_s'):.1f} trained samples/s, latency "
        f"{_figure(profile, 'latency_median_ms'):.0f} ms median, {_figure(profile, 'latency_p95_ms'):.0f} ms at 95 %"
        + ("" if drawn is None else f", {mw_to_w(drawn):.1f} W"),
    ]
    lines += [f"failed:   {mode.name}: {reason}" for mode, reason in last.failed]
    if goal.switching_ms is not None:
        lines.append("the outcome is of training's mode alone: no device here changes the mode between minibatches yet")
    return "\n".join(lines)
