"""`concurrent`: searches, runs and describes plans for training with interleaved inference."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import board_of
from harness.core.cases import (
    CONCURRENT,
    INFERENCE,
    INTERLEAVED,
    TRAINING,
    WAYS,
    Case,
    CaseSettings,
    Mix,
    concurrent_case,
)
from harness.core.configuration import load_configuration
from harness.core.device import Device, is_real, is_self_profiling, named_mode
from harness.core.errors import (
    CannotRunError,
    HarnessError,
    InvalidValueError,
    OverBudgetError,
    ProcessEndedError,
    UnknownNameError,
)
from harness.core.mode_texts import MAXN
from harness.core.profiles import Profile
from harness.core.terminal import Progress, available_hint, counted, format_duration, format_table
from harness.core.units import mw_to_w, s_to_ms
from harness.devices.registry import open_device
from harness.measure.contention import report_others
from harness.measure.run import check
from harness.measure.run import run as run_case
from harness.store import frames
from harness.store.results import ResultsStore
from predictors.choose.device_profiler import DeviceProfiler, RunResults, workers_of, workload_name
from predictors.choose.on_device import profiler_of
from predictors.choose.request import (
    USUAL_SEARCH,
    Job,
    JobLike,
    Search,
    batch_sizes_of,
    job_of,
    most_profiles,
    refuse_command,
    storage_of,
    workloads_of,
)
from predictors.goals import budget_in_mw
from predictors.models.base import (
    changed_in,
    check_kind,
    check_numbers,
    checks_names,
    refuse_unread,
    unread_in,
)
from predictors.plans.choice import SEARCHES, ConcurrentChoice, ConcurrentGoal, choose_concurrent
from predictors.strategies.closed_loop import design_for
from predictors.strategies.protocol import History
from predictors.strategies.registry import StrategySetting, unfitted

MEASURED = "measured"
PERCENTILES = (95, 99)  # of latencies, which a profile has
INFERENCE_BATCHES = (1, 4, 16)
PROFILES_OF_BOTH = 30  # of training and inference together, unless given
UNUSED = unread_in(
    Search,
    *("strategy", "profiles", "minibatches", "seed", "percentile", "check_s"),
    *("results", "resume", "config", "root"),
)
"""Settings of a search that have no effect on plans: all but these."""

SWITCHES = 5  # changes of mode there and back, of which the median time is taken
SLOWDOWNS = ("training_slowdown", "inference_slowdown")
_TRIES = 3  # attempts at a plan that keeps its limits, each with a margin for the last one's error


class Attempt(NamedTuple):
    """A plan and its profile when it was run."""

    choice: ConcurrentChoice
    profile: Profile

    def figure(self, name: str) -> float:
        value = self.profile.aggregates.get(name)
        return float("inf") if value is None else value

    def shortfalls(self, goal: ConcurrentGoal) -> Tuple[float, float]:
        """Latency and power over their limits (0 for unlimited power): at most 1 keeps the limit."""
        latency = self.figure(f"latency_p{goal.percentile}_ms") / goal.latency_ms
        return latency, 0.0 if goal.power_mw is None else self.figure("power_mw") / goal.power_mw


@checks_names
def concurrent(
    device: str,
    *,
    training: JobLike,
    inference: JobLike,
    arrival_rate: float,
    latency_ms: float,
    power_w: Optional[float] = None,
    switching_ms: Union[float, str, None] = None,
    ways: Sequence[str] = WAYS,
    search: Search = USUAL_SEARCH,
    progress: Optional[Progress] = None,
) -> Plans:
    """Plan the fastest training on a device that also serves inference requests in time, as `jetwatt concurrent` does.

    Args:
        device: `host`, a board on that board, or `sim:orin-agx`.
        training: the workload that is trained; your own as `module:NAME` or as a `Workload`; or a `Job`, which also
            has batch sizes to choose from, workers and storage.
        inference: the workload that serves requests, with batches of 1, 4 or 16; or a `Job` with its own batch sizes,
            such as `[16]` for that one only.
        arrival_rate: requests per second.
        latency_ms: maximum latency in ms of the requests, at the percentile of `search`.
        power_w: maximum mean power in W.
        switching_ms: allow a mode for each kind of work, at this cost of a mode change in ms, or `measured` here.
        ways: how both may run: `interleaved`, `processes`, `streams`.
        search: how to search: by `closed-loop`, `mdbs` or `brute-force`; at the 95th or 99th percentile of latencies.
        progress: receives the progress; None prints it on standard error.

    Raises:
        HarnessError: the device is not available, or cannot run the workloads or any of the ways.
    """
    check_kind(Search, search=search)
    train, serve = job_of(training), serving_job(inference)
    _refuse(train, serve, switching_ms, ways, search)
    check_numbers(above=True, arrival_rate=arrival_rate, latency_ms=latency_ms, power_w=power_w)
    budget_mw = None if power_w is None else budget_in_mw(power_w)
    configuration = load_configuration(Path(search.config))
    opened = open_device(device, configuration, Path(search.root))
    progress = progress or Progress(sys.stderr)
    if is_real(opened):
        report_others(progress.line)
    training_sizes = batch_sizes_of(train)
    name, served = (workload_name(workloads_of(job)[0], opened) for job in (train, serve))
    settings = CaseSettings(minibatches=search.minibatches, seed=search.seed)
    medium = storage_of(train, opened, configuration, progress.line)
    at_maxn = named_mode(opened, MAXN, name)
    template = Case(opened.name, name, at_maxn, workers_of(name, train.workers), medium, training_sizes[0], settings)
    attempts: Dict[str, List[Attempt]] = {}
    refused: Dict[str, HarnessError] = {}
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(ResultsStore(Path(search.results))) if search.results is not None else None
        stack.enter_context(opened.session())
        switch_ms = measured_switching_ms(opened, store) if isinstance(switching_ms, str) else switching_ms
        percentile = int(search.percentile or PERCENTILES[0])
        goal = ConcurrentGoal(arrival_rate, latency_ms, budget_mw, switch_ms, percentile=percentile)
        sizes = batch_sizes_of(serve)
        histories = histories_of(opened, template, served, goal, sizes, progress, store, training_sizes, search)
        for way in ways:
            try:
                attempts[way] = find_plan(histories, goal, progress, search, way)
            except (CannotRunError, ProcessEndedError) as error:
                refused[way] = error
        for profiler in map(profiler_of, histories):
            for index, flags in profiler.flagged.items():
                progress.line(
                    f"note: {profiler.case(index).id} was flagged in both of its profiles: {'; '.join(flags)}"
                )
    progress.clear()
    if not attempts:
        raise next(iter(refused.values()))
    return Plans(opened, template, served, goal, attempts, refused, len(training_sizes) > 1)


def serving_job(inference: JobLike) -> Job:
    """The job of inference, with several batch sizes to choose from unless it has its own."""
    job = inference if isinstance(inference, Job) else Job(inference, task=INFERENCE)
    return job if "batch_size" in changed_in(job) else dataclasses.replace(job, batch_size=INFERENCE_BATCHES)


def _refuse(
    training: Job, inference: Job, switching_ms: Union[float, str, None], ways: Sequence[str], search: Search
) -> None:
    """Refuse values and combinations before a device is opened."""
    for way in ways:
        if way not in WAYS:
            raise UnknownNameError(f"ways= names {way!r}", available_hint(way, WAYS))
    for name, job in (("training", training), ("inference", inference)):
        refuse_command(job, "concurrent")
        if len(workloads_of(job)) > 1:
            raise InvalidValueError(f"{name}= has several workloads, expected one", "plan for each of them in turn")
    if training.task != TRAINING:
        raise InvalidValueError(f"the job of training= has the task {training.task}", f"omit it, or give {TRAINING!r}")
    if isinstance(switching_ms, str) and switching_ms != MEASURED:
        what = f"the cost of a mode change is {switching_ms!r}"
        raise InvalidValueError(what, f"give it in ms, or {MEASURED!r} to measure it on this device")
    refuse_unread(training, "the training of concurrent", "epochs")
    refuse_unread(inference, "the inference of concurrent", "workers", "storage", "epochs")
    refuse_unread(search, "concurrent", *UNUSED)
    if search.strategy is not None and search.strategy not in SEARCHES:
        raise UnknownNameError(f"strategy is {search.strategy!r}", available_hint(search.strategy, SEARCHES))
    if search.percentile is not None and search.percentile not in PERCENTILES:
        what = f"percentile is {search.percentile:g}"
        raise InvalidValueError(what, f"latencies have percentiles {' and '.join(map(str, PERCENTILES))}")


class Plans:
    """The best plan of each way of running both, with its outcome; printed, it shows all of them."""

    def __init__(
        self,
        device: Device,
        training: Case,
        inference: str,
        goal: ConcurrentGoal,
        attempts: Mapping[str, Sequence[Attempt]],
        refused: Mapping[str, HarnessError],
        several_sizes: bool,
    ) -> None:
        self.goal = goal
        self.attempts = attempts  # by way, the plans that were run
        self.refused = refused  # by way, the reason why it was not run
        self.way = best_way(goal, attempts)
        self.best = best_of(goal, attempts[self.way])
        self.keeps_limits = max(self.best.shortfalls(goal)) <= 1
        self._device, self._training, self._inference = device, training, inference
        self._several_sizes = several_sizes

    def __repr__(self) -> str:
        # Unless told, every way is tried: that a simulated board has only one of them is no news.
        is_by_default = {*self.attempts, *self.refused} == {*WAYS}
        refused = {} if is_by_default and self._device.provenance == "simulated" else self.refused
        lines = [
            format_attempts(self._training, self._inference, self.goal, self.attempts[self.way]),
            format_ways(self.goal, self.attempts),
            *(f"not run: {way}: {error}" for way, error in refused.items()),
        ]
        if self._several_sizes:
            lines.append("note: the training batch size changes how a network learns, and how many epochs it needs")
        return "\n".join(lines)

    def plain(self) -> Dict[str, Any]:
        """Goal, choice and outcome of the best way, and of each in `ways`, as plain values for JSON."""
        ways = {
            way: describe(self._device, self._training, self._inference, self.goal, plans)
            for way, plans in self.attempts.items()
        }
        reasons = {way: str(error) for way, error in self.refused.items()}
        return {**ways[self.way], "way": self.way, "ways": ways, "ways_not_run": reasons}


def measured_switching_ms(device: Device, store: Optional[ResultsStore]) -> float:
    """The cost of a mode change on this device, from runs in the results file or else measured now."""
    if is_self_profiling(device):
        raise CannotRunError(f"{device.name} has no mode changes to measure", "give a value: switching_ms=20")
    if device.clocks_only_fall:  # the least mode would be its only one until a reboot
        raise CannotRunError(f"clocks of {device.name} may not rise again", "omit switching_ms=")
    if store is not None:
        rows = frames.profiles(store, tasks=[CONCURRENT])
        costs_ms = rows.loc[rows["device_name"] == device.name, "switching_ms"].dropna()
        if len(costs_ms):
            return float(costs_ms.iloc[-1])
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
    search: Search = USUAL_SEARCH,
) -> Tuple[History, History]:
    """Histories of training and of inference alone on a device that is held, with a common limit of their profiles.

    `template` is the training: its power mode is replaced, and its batch size by `training_sizes`, if any; `sizes` are
    those of the inference. The profiles are kept in `store`, and taken from there if `search` resumes.
    """
    of_profiles = dataclasses.replace(search, percentile=None)  # its percentile is that of latencies
    modes = device.power_modes("all", template.workload)
    serving = dataclasses.replace(template, workload=inference, workers=0, task=INFERENCE)
    needs_power = goal.power_mw is not None or goal.switching_ms is not None
    trainer, server = (
        DeviceProfiler(
            device,
            case,
            modes,
            batch_sizes=batches,
            results=None if store is None else RunResults(store),
            search=of_profiles,
            needs_power=needs_power,
            report=progress.update,
        )
        for case, batches in ((template, training_sizes), (serving, sizes))
    )
    profiles = most_profiles(search, PROFILES_OF_BOTH)
    history = History(trainer, profiles, progress.line)
    return history, History(server, profiles, progress.line, beside=history)


def find_plan(
    histories: Tuple[History, History],
    goal: ConcurrentGoal,
    progress: Progress,
    search: Search = USUAL_SEARCH,
    way: str = INTERLEAVED,
) -> List[Attempt]:
    """Plans on a device that is held, each with its outcome; a plan that misses its limits is followed by another.

    `histories` are of training and of inference, and keep their profiles. `way` is one of `WAYS`: if both overlap, the
    slowdown is taken from the results file, or from the first plan.
    """
    trainer, server = (profiler_of(history) for history in histories)
    device, seed = trainer.device, trainer.template.settings.seed
    make, first = unfitted(StrategySetting(board_of(device)), seed), design_for(seed)
    duration_s = search.check_s
    attempts: List[Attempt] = []
    wanted = goal
    if way != INTERLEAVED:
        wanted = dataclasses.replace(goal, switching_ms=None, slowdowns=slowdowns_before((trainer, server), way))
    changes_mode = wanted.switching_ms is not None
    answers = server.case(-1 if changes_mode else 0)  # their modes are the same, in one order
    charged_ms = wanted.switching_ms if is_self_profiling(device) else None  # real boards take their own time
    rate = goal.arrivals_per_s
    before_profiling = concurrent_case(trainer.case(0), answers, rate, duration_s, way, charged_ms)
    check(before_profiling, device)
    for _ in range(_TRIES):
        choice = choose_concurrent(histories, wanted, make, first, search=search.strategy or SEARCHES[0])
        training, answering = trainer.case(choice.training), server.case(choice.inference)
        if not changes_mode or choice.training_mode == choice.inference_mode:
            answering = answering.in_mode(training.power_mode)
        both = concurrent_case(training, answering, rate, duration_s, way, charged_ms)
        check(both, device)
        progress.line(f"training and inference, {way}, for {duration_s:g} s in {choice.training_mode.name}")
        try:
            profile = run_case(both, device, progress.update)
        except OverBudgetError:
            raise
        except (CannotRunError, ProcessEndedError) as error:
            if not attempts:
                raise
            progress.line(f"note: plan {len(attempts) + 1} could not be run: {error}")
            break
        trainer.keep(profile)
        attempts.append(Attempt(choice, profile))
        latency, power = attempts[-1].shortfalls(goal)
        if max(latency, power) <= 1 or not np.isfinite(latency + power):
            break
        if latency > 1:
            promised_ms = min(float(choice.expected.latency_ms), wanted.latency_ms)
            wanted = dataclasses.replace(wanted, latency_ms=promised_ms / latency)
        if power > 1 and wanted.power_mw is not None:
            promised_mw = min(float(choice.expected.power_mw), wanted.power_mw)
            wanted = dataclasses.replace(wanted, power_mw=promised_mw / power)
        wanted = dataclasses.replace(wanted, switching_ms=profile.aggregates["switching_ms"] or wanted.switching_ms)
        of_training, of_inference = (profile.aggregates[name] for name in SLOWDOWNS)
        if way != INTERLEAVED and of_training is not None and of_inference is not None:
            wanted = dataclasses.replace(wanted, slowdowns=(of_training, of_inference))
    return attempts


def slowdowns_before(profilers: Tuple[DeviceProfiler, DeviceProfiler], way: str) -> Tuple[float, float]:
    """Slowdowns of training and inference in the last run of both this way; 1 without a run."""
    trainer, server = profilers
    if trainer.store is not None:
        for row in frames.profiles(trainer.store, tasks=[CONCURRENT])[::-1].itertuples():
            mix = Mix.parse(row.workload)
            if (row.device_name, *mix.workloads, mix.way) == (
                trainer.device.name, trainer.template.workload, server.template.workload, way
            ) and row.training_slowdown > 0 and row.inference_slowdown > 0:  # fmt: skip
                return row.training_slowdown, row.inference_slowdown
    return 1.0, 1.0


def best_way(goal: ConcurrentGoal, attempts_by_way: Mapping[str, Sequence[Attempt]]) -> str:
    """The way that keeps the limits and trains fastest, or comes nearest to them."""
    best = {way: best_of(goal, attempts) for way, attempts in attempts_by_way.items()}
    worst = {way: max(*attempt.shortfalls(goal), 1.0) for way, attempt in best.items()}
    return min(best, key=lambda way: (worst[way], -best[way].figure("training_samples_per_s")))


def best_of(goal: ConcurrentGoal, attempts: Sequence[Attempt]) -> Attempt:
    """The attempt that kept the limits, or came nearest to them."""
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
    """Goal, choice and outcome, for people."""
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
        f"{counted(len(attempts), 'plan')})",
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


def format_ways(goal: ConcurrentGoal, attempts_by_way: Mapping[str, Sequence[Attempt]]) -> str:
    """A line for each way of running both, and one for each alone, in the plan of the best way."""
    best = {way: best_of(goal, attempts).profile.aggregates for way, attempts in attempts_by_way.items()}
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
    rows["each alone"] = [best[best_way(goal, attempts_by_way)].get(name) for _, name in columns.values()]
    columns_with_values = [
        place for place in range(len(columns)) if any(row[place] is not None for row in rows.values())
    ]
    return format_table(
        ["", *(f">{list(columns)[place]}" for place in columns_with_values)],
        [
            [name, *("-" if row[place] is None else f"{row[place]:.4g}" for place in columns_with_values)]
            for name, row in rows.items()
        ],
    )
