"""`concurrent`: how to train fastest while requests are answered in time."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.cli.options import output_file, whole_numbers, write_json
from harness.core.cases import CONCURRENT, INFERENCE, INTERLEAVED, WAYS, Case, Mix, Settings, concurrent_case
from harness.core.configuration import load_configuration
from harness.core.device import Device, is_self_profiling
from harness.core.errors import CannotRunError, HarnessError, ProcessEndedError, UnknownNameError
from harness.core.profiles import Profile
from harness.core.terminal import Progress, format_duration, format_table
from harness.core.units import mw_to_w, s_to_ms, w_to_mw
from harness.devices.registry import open_device
from harness.measure.run import check
from harness.measure.run import run as run_case
from harness.store import frames
from harness.store.results import ResultsStore
from predictors.cli.device_profiler import DeviceProfiler, board_of
from predictors.cli.options import add_search_arguments, numbers, refuse_below, workers_of, workload_name
from predictors.strategies.closed_loop import design_for
from predictors.strategies.concurrent import SEARCHES, ConcurrentChoice, ConcurrentGoal, choose_concurrent
from predictors.strategies.protocol import History
from predictors.strategies.registry import StrategySetting, unfitted

MEASURED = "measured"
SWITCHES = 5  # changes of mode there and back, of which the median time is taken
SLOWDOWNS = ("training_slowdown", "inference_slowdown")
_TRIES = 3  # so often a plan whose promise was not kept is made again, with room for what it promised too little


class Attempt(NamedTuple):
    """A plan and what came of it when it was run."""

    choice: ConcurrentChoice
    profile: Profile

    def figure(self, name: str) -> float:
        value = self.profile.aggregates.get(name)
        return float("inf") if value is None else value

    def shortfalls(self, goal: ConcurrentGoal) -> Tuple[float, float]:
        """Latency over what is allowed, and power (0 where it is not limited): 1 and below keeps the limit."""
        latency = self.figure(f"latency_p{goal.percentile}_ms") / goal.latency_ms
        return latency, 0.0 if goal.power_mw is None else self.figure("power_mw") / goal.power_mw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", required=True, help="host, a board, sim:orin-agx")
    add("--training", required=True, metavar="W", help="workload that is trained; your own as module:NAME")
    add("--inference", required=True, metavar="W", help="workload that answers requests; likewise")
    add("--arrival-rate", type=float, required=True, metavar="N", help="requests per second")
    add("--latency-limit", type=float, required=True, metavar="MS", help="--percentile of the requests are to keep it")
    add("--percentile", type=int, choices=(95, 99), default=95, help="in %% (default: %(default)s)")
    add("--power-budget", type=float, metavar="W", help="greatest mean power")
    add("--batch-size", default="16", metavar="LIST", help="of the training; several to choose from (default: 16)")
    add("--inference-batches", default="1,4,16", metavar="LIST", help="to choose from (default: 1,4,16)")
    add("--workers", type=int, help="num_workers of the training (default: as the papers ran it: 4, or 0 for YOLO)")
    add(
        "--switching-ms", metavar="MS",
        help=f"allow a mode for each kind of work, at this cost of a change, or `{MEASURED}` for what it costs here",
    )  # fmt: skip
    add(
        "--ways", default=",".join(WAYS), metavar="LIST",
        help="how both may run, of %(default)s (default: all that this device has)",
    )  # fmt: skip
    add("--strategy", choices=SEARCHES, default=SEARCHES[0], help="how to find it (default: %(default)s)")
    add("--duration", type=float, default=30.0, metavar="S", help="of the run that checks (default: 30)")
    add_search_arguments(parser, profiles=30)
    add("--resume", action="store_true", help="take profiles of the same conditions from --results")
    add("--json", type=output_file, metavar="OUT", help="write goal, choice and what came out")


def run(arguments: argparse.Namespace) -> int:
    refuse_below(0, arguments, "duration", above=True)
    refuse_below(0, arguments, "seed", "workers")
    ways = arguments.ways.split(",")
    for way in ways:
        if way not in WAYS:
            raise UnknownNameError(f"--ways names {way!r}", f"known: {', '.join(WAYS)}")
    device = open_device(arguments.device, load_configuration(arguments.config))
    training_sizes = whole_numbers("--batch-size", arguments.batch_size, "4,16,64")
    sizes = whole_numbers("--inference-batches", arguments.inference_batches, "1,4,16")
    name = workload_name(arguments.training, device)
    workers = workers_of(name, arguments.workers)
    settings = Settings(minibatches=arguments.minibatches, seed=arguments.seed)
    training = Case(device.name, name, "maxn", workers, "ssd", training_sizes[0], settings)
    inference = workload_name(arguments.inference, device)
    progress = Progress(sys.stderr)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is put back
    found: Dict[str, List[Attempt]] = {}
    refused: Dict[str, HarnessError] = {}
    with ResultsStore(arguments.results) as store, device.session():
        goal = ConcurrentGoal(
            arguments.arrival_rate,
            arguments.latency_limit,
            None if arguments.power_budget is None else w_to_mw(arguments.power_budget),
            switching_ms(arguments.switching_ms, device, store),
            percentile=arguments.percentile,
        )
        histories = histories_of(
            *(device, training, inference, goal, sizes, progress, store, training_sizes),
            *(arguments.resume, arguments.profiles),
        )
        for way in ways:
            try:
                found[way] = find_plan(histories, goal, arguments.duration, progress, arguments.strategy, way)
            except (CannotRunError, ProcessEndedError) as error:
                refused[way] = error
        for profiler in (history.profiler for history in histories):
            for index, flags in profiler.flagged.items():
                progress.line(f"note: {profiler.case(index).id} was profiled twice: {'; '.join(flags)}")
    progress.clear()
    if not found:
        raise next(iter(refused.values()))
    best = best_way(goal, found)
    attempts = found[best]
    print(format_attempts(training, inference, goal, attempts))
    print(format_ways(goal, found))
    for way, error in refused.items():
        print(f"not run: {way}: {error}")
    if len(training_sizes) > 1:
        print("note: the training batch size changes how a network learns, and how many epochs it takes")
    if arguments.json:
        told = {way: describe(device, training, inference, goal, some) for way, some in found.items()}
        reasons = {way: str(error) for way, error in refused.items()}
        write_json(arguments.json, {**told[best], "way": best, "ways": told, "ways_not_run": reasons})
    if max(best_of(goal, attempts).shortfalls(goal)) > 1:
        raise CannotRunError("no plan is known that keeps the limits", "the nearest one stands above; allow more")
    return 0


def switching_ms(text: Optional[str], device: Device, store: ResultsStore) -> Optional[float]:
    """What a change of mode costs: as given, or as measured here, by runs in the results file or else now."""
    if text != MEASURED:
        return None if text is None else numbers("--switching-ms", text, "20")[0]
    if is_self_profiling(device):
        raise CannotRunError(f"{device.name} changes no mode, so nothing can be measured", "--switching-ms 20")
    if device.clocks_only_fall:  # the least mode would be its only one until a reboot
        raise CannotRunError(f"clocks of {device.name} may not rise again", "leave out --switching-ms")
    rows = frames.profiles(store, tasks=[CONCURRENT])
    known = rows.loc[rows["device_name"] == device.name, "switching_ms"].dropna()
    if len(known):
        return float(known.iloc[-1])
    modes = [mode for _, mode in device.power_modes("all")]
    times_ms = []
    for mode in [max(modes), min(modes)] * SWITCHES:
        began_s = time.monotonic()
        device.apply(mode)
        times_ms.append(s_to_ms(time.monotonic() - began_s))
    return float(np.median(times_ms))


def histories_of(
    device: Device,
    template: Case,
    inference: str,
    goal: ConcurrentGoal,
    sizes: Sequence[int],
    progress: Progress,
    store: Optional[ResultsStore] = None,
    training_sizes: Sequence[int] = (),
    resume: bool = False,
    profiles: int = 30,
) -> Tuple[History, History]:
    """What profiles training and inference alone on a device that is held; so many `profiles` may be taken of both.

    `template` is the training: its power mode is replaced, and its batch size by `training_sizes`, where there are
    some; `sizes` are those of the inference. With `resume`, profiles of the same conditions are taken from `store`.
    """
    modes = device.power_modes("all", template.workload)
    serving = dataclasses.replace(template, workload=inference, workers=0, task=INFERENCE)
    needs_power = goal.power_mw is not None or goal.switching_ms is not None
    trainer, server = (
        DeviceProfiler(
            *(device, case, modes), batch_sizes=batches, store=store, needs_power=needs_power,
            resume=resume, report=progress.update,
        )
        for case, batches in ((template, training_sizes), (serving, sizes))
    )  # fmt: skip
    history = History(trainer, profiles, progress.line)
    return history, History(server, profiles, progress.line, beside=history)


def find_plan(
    histories: Tuple[History, History],
    goal: ConcurrentGoal,
    duration_s: float,
    progress: Progress,
    search: str = SEARCHES[0],
    way: str = INTERLEAVED,
) -> List[Attempt]:
    """Plans on a device that is held, each with what it gave; another is made where a promise was not kept.

    `histories` are of training and of inference, and keep what they have profiled; a plan is checked for `duration_s`.
    `search` is one of `SEARCHES`, `way` one of `WAYS`: where both overlap, what that costs is taken from the results
    file, or from the first plan.
    """
    trainer, server = profilers = tuple(history.profiler for history in histories)
    device, seed = trainer.device, trainer.template.settings.seed
    make, first = unfitted(StrategySetting(board_of(device)), seed), design_for(seed)
    found: List[Attempt] = []
    wanted = goal
    if way != INTERLEAVED:
        wanted = dataclasses.replace(goal, switching_ms=None, slowdowns=slowdowns_before(profilers, way))
    changes_mode = wanted.switching_ms is not None
    answers = server.case(-1 if changes_mode else 0)  # their modes are the same, in one order
    charged_ms = wanted.switching_ms if is_self_profiling(device) else None  # real boards take the time that it takes
    rate = goal.arrivals_per_s
    before_profiling = concurrent_case(trainer.case(0), answers, rate, duration_s, way, charged_ms)
    check(before_profiling, device)
    for _ in range(_TRIES):
        choice = choose_concurrent(histories, wanted, make, first, search=search)
        training, answering = trainer.case(choice.training), server.case(choice.inference)
        if not changes_mode or choice.training_mode == choice.inference_mode:
            answering = dataclasses.replace(answering, power_mode=training.power_mode)
        both = concurrent_case(training, answering, rate, duration_s, way, charged_ms)
        check(both, device)
        progress.line(f"training and inference, {way}, for {duration_s:g} s in {choice.training_mode.name}")
        try:
            profile = run_case(both, device, progress.update)
        except (CannotRunError, ProcessEndedError) as error:
            if not found:
                raise
            progress.line(f"note: plan {len(found) + 1} could not be run: {error}")
            break
        trainer.keep(profile)
        found.append(Attempt(choice, profile))
        latency, power = found[-1].shortfalls(goal)
        if max(latency, power) <= 1 or not np.isfinite(latency + power):
            break
        costs = [profile.aggregates[name] for name in SLOWDOWNS]
        if latency > 1:
            promised_ms = min(choice.expected.latency_ms, wanted.latency_ms)
            wanted = dataclasses.replace(wanted, latency_ms=promised_ms / latency)
        if power > 1:
            promised_mw = min(choice.expected.power_mw, wanted.power_mw)
            wanted = dataclasses.replace(wanted, power_mw=promised_mw / power)
        wanted = dataclasses.replace(
            wanted,
            switching_ms=profile.aggregates["switching_ms"] or wanted.switching_ms,
            slowdowns=wanted.slowdowns if way == INTERLEAVED or None in costs else tuple(costs),
        )
    return found


def slowdowns_before(profilers: Tuple[DeviceProfiler, DeviceProfiler], way: str) -> Tuple[float, float]:
    """By how much training and inference slowed each other down the last time both ran this way; 1 where none did."""
    trainer, server = profilers
    if trainer.store is not None:
        for row in frames.profiles(trainer.store, tasks=[CONCURRENT])[::-1].itertuples():
            mix = Mix.parse(row.workload)
            if (row.device_name, *mix.workloads, mix.way) == (
                trainer.device.name, trainer.template.workload, server.template.workload, way
            ) and row.training_slowdown > 0 and row.inference_slowdown > 0:  # fmt: skip
                return row.training_slowdown, row.inference_slowdown
    return 1.0, 1.0


def best_way(goal: ConcurrentGoal, found: Mapping[str, Sequence[Attempt]]) -> str:
    """The way that keeps the limits and trains the most, or comes nearest."""
    best = {way: best_of(goal, attempts) for way, attempts in found.items()}
    worst = {way: max(*attempt.shortfalls(goal), 1.0) for way, attempt in best.items()}
    return min(best, key=lambda way: (worst[way], -best[way].figure("training_samples_per_s")))


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
            "training_batch": best.choice.training_batch,
            "expected": {name: None if np.isnan(value) else value for name, value in expected.items()},
            "feasible": max(best.shortfalls(goal)) <= 1,
            "profiles": last.profiles,
            "profiling_seconds": last.profiling_s,
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
    drawn, way = profile.aggregates.get("power_mw"), Mix.parse(profile.case.workload).way
    lines = [
        f"goal:     train {training.workload} as fast as possible while {goal.arrivals_per_s:g} requests/s of "
        f"{inference} take at most {goal.latency_ms:g} ms{power}",
        f"choice:   {way}, {best.choice.training_mode.name}{inference_mode}, batches of "
        f"{best.choice.training_batch} in training and {best.choice.inference_batch} in inference "
        f"({last.profiles} profiles, {format_duration(last.profiling_s)}; "
        f"{len(attempts)} plans)",
        f"expected: {expected.training_per_s * best.choice.training_batch:.1f} trained samples/s, latency up to "
        f"{expected.latency_ms:.0f} ms",
        f"outcome ({profile.provenance}, {profile.case.settings.duration_s:g} s {way}): "
        f"{best.figure('training_samples_per_s'):.1f} trained samples/s, latency "
        f"{best.figure('latency_median_ms'):.0f} ms median, {best.figure('latency_p95_ms'):.0f} ms at 95 %, "
        f"{best.figure('latency_p99_ms'):.0f} ms at 99 %" + ("" if drawn is None else f", {mw_to_w(drawn):.1f} W"),
    ]
    lines += [f"failed:   {mode.name}: {reason}" for mode, reason in last.failed]
    if goal.switching_ms is not None and profile.provenance != MEASURED:
        lines.append(
            f"a change of mode takes the {goal.switching_ms:g} ms given; power is at once that of the new mode"
        )
    return "\n".join(lines)


def format_ways(goal: ConcurrentGoal, found: Mapping[str, Sequence[Attempt]]) -> str:
    """A line for each way of doing both, and one for both alone, in the plan of the best way."""
    best = {way: best_of(goal, attempts).profile.aggregates for way, attempts in found.items()}
    columns = {
        "trained/s": ("training_samples_per_s", "training_alone_per_s"),
        "slowdown": ("training_slowdown", ""),
        "batch ms": ("inference_time_ms", "inference_alone_ms"),
        "slowdown of it": ("inference_slowdown", ""),
        **{f"{name} ms": (f"latency_{key}_ms", f"latency_alone_{key}_ms")
           for name, key in (("median", "median"), ("95 %", "p95"), ("99 %", "p99"))},
        "speedup": ("speedup", ""),
        "mJ/request": ("energy_per_request_mws", "energy_per_request_alone_mws"),
        "mWh/epoch": ("energy_per_epoch_mwh", "energy_per_epoch_alone_mwh"),
        "switch ms": ("switching_ms", ""),
    }  # fmt: skip
    rows = {way: [figures.get(name) for name, _ in columns.values()] for way, figures in best.items()}
    rows["each alone"] = [best[best_way(goal, found)].get(name) for _, name in columns.values()]
    told = [place for place in range(len(columns)) if any(row[place] is not None for row in rows.values())]
    return format_table(
        ["", *(f">{list(columns)[place]}" for place in told)],
        [[name, *("-" if row[place] is None else f"{row[place]:.4g}" for place in told)] for name, row in rows.items()],
    )
