"""`recommend`: profile a few power modes on a device, or a pool of boards, and name the one that meets a goal best."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.boards import board_of
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import DEFAULT_RESULTS, Configuration, load_configuration
from harness.core.corpus import TASKS
from harness.core.device import Device, is_pool, is_real, limits_of, named_mode, rehearses_memory
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.terminal import Countdown, Progress, available_hint, counted
from predictors.choose.answer import Answer
from predictors.choose.on_device import WithinPeak, profiler_of
from predictors.choose.request import (
    MEDIAN,
    NO_BUDGET,
    NOTHING_REQUIRED,
    RISK,
    USUAL_SEARCH,
    Budget,
    Job,
    JobLike,
    Search,
    batch_sizes_of,
    command_of,
    goals_of,
    job_of,
    joined,
    limits_training,
    minibatches_of_training,
    most_profiles,
    peak_mw_of,
    references_of,
    storage_of,
    strategy_of,
    workloads_of,
)
from predictors.choose.whole_training import refuse_more_than_an_epoch, training_of
from predictors.goals import Goal, check_objective
from predictors.models.base import check_kind, checks_names, refuse_unread
from predictors.profiles import Profiles
from predictors.settings import Settings
from predictors.strategies.fixed import VendorPreset, presets_of
from predictors.strategies.protocol import History
from predictors.strategies.recommendation import Recommendation, choose_and_describe
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_on_device, unfitted

if TYPE_CHECKING:
    from harness.judge.requirements import Origin
    from harness.store.results import ResultsStore
    from harness.workloads.command import Command
    from predictors.choose.requirement_limits import Required


LEAST_GAIN = 0.002  # the search ends when another profile promises less than this share of the time

POOL, LAB = "pool:", "lab.toml"
LOCKED_CLOCKS = 8  # of a discrete GPU that are candidates, from the least to the greatest


@checks_names
def recommend(
    device: str,
    *,
    workload: JobLike,
    power_w: Union[float, Sequence[float], None] = None,
    time_ms: Optional[float] = None,
    require: Union[str, Path, None] = None,
    goal: Union[str, Goal, None] = None,
    budget: Budget = NO_BUDGET,
    search: Search = USUAL_SEARCH,
    writes_conf: bool = False,
    progress: Optional[Progress] = None,
) -> Answer:
    """Profile a few power modes on a device and recommend the best one for a goal, as `jetwatt recommend` does.

    Args:
        device: `sim:orin-agx`, `host`, a board's name on that board, or `replay:CORPUS.csv`; `pool:NAME` for boards of
            the fleet that lab.toml describes, `pool:NAME@LAB` for that of another file.
        workload: one of the suite's, your own as `module:NAME` or as a `Workload`, or several, which are searched for
            in turn; or a `Job`, which also has batch sizes, workers, storage, epochs and task; or a `Command`, whose
            time is that of the whole command unless its output shows minibatches.
        power_w: maximum module power in W; several share one set of profiles.
        time_ms: maximum minibatch time in ms.
        require: a requirements file, whose limits on such cases the mode keeps, at the least energy unless there is a
            goal; the mode is profiled once more, and judged by them.
        goal: what to minimise: `time`, `power`, `energy`, `edp`, `throughput` or `sample-energy`; or a `Goal`.
        budget: further limits: on the peak power, or on time and energy of the whole training.
        search: how to search, and where profiles are kept.
        writes_conf: whether the mode will be written as an nvpmodel conf, which a device without one refuses.
        progress: receives the progress, and the text of each workload's recommendation when it is ready; None prints
            the progress on standard error.

    Raises:
        HarnessError: the device is not available or has no power sensor, or arguments contradict each other. If no mode
            is expected to keep the limits, the answer has the nearest one, and `keeps_limits` is false.
    """
    # What opens and measures devices is loaded when a search begins.
    from harness.judge.requirements import read_requirements
    from harness.measure.contention import report_others
    from harness.store.results import ResultsStore
    from predictors.choose.device_profiler import workers_of, workload_name

    check_kind(Budget, budget=budget)
    check_kind(Search, search=search)
    job, budget = job_of(workload), joined(budget, power_w, time_ms, require)
    _refuse(device, goal, budget, search)
    origins = [] if budget.require is None else read_requirements(Path(budget.require))  # refused before any work
    command = command_of(job)
    if command is not None:
        _refuse_beside_command(job, device, budget, search, writes_conf)
    progress = progress or Progress(sys.stderr)
    configuration = load_configuration(Path(search.config))
    opened = _opened(device, search, configuration, progress)
    if command is not None:
        return _recommend_for_command(opened, command, goals_of(budget, goal, None, [1]), budget, search, progress)
    if is_real(opened):
        report_others(progress.line)
    storage = storage_of(job, opened, configuration, progress.line)
    _refuse_on(opened, search, writes_conf)
    sizes = batch_sizes_of(job)
    names = [workload_name(each, opened) for each in workloads_of(job)]
    if limits_training(budget):
        refuse_more_than_an_epoch(names, max(sizes))
    lengths = [minibatches_of_training(name, sizes[0], job.epochs) for name in names]
    case_device = opened.name if device.startswith(POOL) else device
    answer = Answer(opened, case_device, budget)
    device_in_corpus = board_of(opened) or getattr(opened, "board", opened.name)
    references = references_of(search, names, job.task, device_in_corpus)
    settings = CaseSettings(
        minibatches=search.minibatches, seed=search.seed, max_temperature_c=search.max_temperature_c
    )
    where = storage, sizes[0], settings, job.task
    cases = [
        Case(case_device, name, named_mode(opened, MAXN, name), workers_of(name, job.workers), *where) for name in names
    ]
    required = [_required_of(origins, case, sizes, opened, search) for case in cases]
    if origins and goal is None:
        goal = "sample-energy" if len(sizes) > 1 else "energy"
    minimised = _of_samples(goal, sizes, opened)
    goals = [
        goals_of(budget, minimised, length, sizes, required=NOTHING_REQUIRED if asked is None else asked.limits)
        for length, asked in zip(lengths, required)
    ]
    results = None if is_pool(opened) else search.results  # a pool keeps its profiles itself
    with contextlib.nullcontext() if results is None else ResultsStore(Path(results)) as store:
        for name, case, length, wanted, asked in zip(names, cases, lengths, goals, required):
            recommendations = recommend_mode(
                opened,
                case,
                wanted,
                search,
                batch_sizes=sizes,
                references=(*references, *(profiles_of(earlier[0], opened) for earlier in answer.recommendations)),
                store=store,
                samples=None if length is None else length * sizes[0],
                progress=progress,
                within=Within(peak_mw_of(budget), asked),
            )
            training = training_of(name, job.epochs, budget, search.risk) if limits_training(budget) else None
            progress.result(answer.add(name, recommendations, training))
    if len(names) > 1:
        progress.result(answer.share())
    return answer


def _required_of(
    origins: Sequence[Origin], case: Case, sizes: Sequence[int], device: Device, search: Search
) -> Optional[Required]:
    """What a requirements file asks of the search for a workload; None without one."""
    if not origins:
        return None
    from predictors.choose.requirement_limits import required_of

    cases = [dataclasses.replace(case, batch_size=size) for size in sizes]
    return required_of(origins, cases, _candidates(device, case.workload, strategy_of(search))[0], device)


def _recommend_for_command(
    device: Device, command: Command, goals: Sequence[Goal], budget: Budget, search: Search, progress: Progress
) -> Answer:
    """The same for a command as the workload, in whose place a workload is rehearsed on a simulated board."""
    from harness.measure.command_device import CommandDevice, command_case
    from harness.store.results import ResultsStore
    from predictors.choose.device_profiler import power_sampler

    opened = CommandDevice(device, command, keeps_lines=True)
    if is_real(device):
        with power_sampler(device, 1.0, device.root):
            pass  # refuse a device without power before the first run
    case_device = device.name
    settings = CaseSettings(max_temperature_c=search.max_temperature_c, seed=search.seed)
    case = command_case(case_device, command, named_mode(opened, MAXN), settings)
    references = references_of(search, [command.workload], TASKS[0], board_of(opened) or device.name)
    answer = Answer(opened, case_device, budget)
    with contextlib.nullcontext() if search.results is None else ResultsStore(Path(search.results)) as store:
        recommendations = recommend_mode(
            opened,
            case,
            goals,
            search,
            references=references,
            store=store,
            progress=progress,
            within=Within(peak_mw_of(budget)),
        )
        progress.result(answer.add(command.workload, recommendations))
    return answer


def _refuse_beside_command(job: Job, device: str, budget: Budget, search: Search, writes_conf: bool) -> None:
    """Refuse what a search for a command does not read."""
    refuse_unread(job, "a command", "batch_size", "workers", "storage", "task", "epochs")
    refuse_unread(search, "a command", "minibatches", "memory_limit_mib")
    refuse_unread(budget, "a command", "deadline_h", "energy_wh", "require")
    if search.percentile not in (None, MEDIAN):
        raise InvalidValueError("a command has no percentiles", "omit percentile=")
    if device.startswith(POOL):
        raise InvalidValueError("a pool runs no commands", "search on one device")
    if writes_conf:
        raise InvalidValueError("writes_conf= does not apply to a command", "jetwatt nvpmodel-conf writes its mode")


def _refuse(device: str, goal: Union[str, Goal, None], budget: Budget, search: Search) -> None:
    """Refuse names and combinations before anything is opened."""
    if not isinstance(device, str):
        raise InvalidValueError(f"device is a {type(device).__name__}, expected a name", "such as 'sim:orin-agx'")
    if isinstance(goal, str):
        check_objective(goal)
    if search.strategy is not None and search.strategy not in STRATEGIES:
        raise InvalidValueError(f"strategy is {search.strategy!r}", available_hint(search.strategy, STRATEGIES))
    if budget.require is None:
        refuse_unread(search, "recommend without require=", "check_s")
    elif device.startswith(POOL):
        raise InvalidValueError("require= does not apply to a pool", "search on one device")
    if device.startswith(POOL) and search.resume:
        raise InvalidValueError("resume= does not apply to a pool", "omit it, or search on one device")


def _opened(device: str, search: Search, configuration: Configuration, progress: Progress) -> Device:
    """The device, or the pool of boards, of that name."""
    if not device.startswith(POOL):
        from harness.devices.registry import open_device

        return open_device(device, configuration, Path(search.root))
    from harness.fleet.pool import open_pool

    pool, _, lab = device[len(POOL) :].partition("@")
    kept = DEFAULT_RESULTS if search.results is None else Path(search.results)
    return open_pool(Path(lab or LAB), pool, kept, configuration, progress.update)


def _refuse_on(device: Device, search: Search, writes_conf: bool) -> None:
    """Refuse what a device does not have."""
    if search.percentile not in (None, MEDIAN) and device.provenance == "replayed":
        raise InvalidValueError("a corpus has medians only", "omit percentile=")
    has_memory = device.provenance == "measured" or rehearses_memory(device)
    if search.memory_limit_mib is not None and not has_memory:
        what = f"{device.name} has no peak memory to limit: its profiles are {device.provenance}"
        where = "run on a board, on a simulated one, or with device='host', where there is a power sensor"
        raise InvalidValueError(what, f"{where}; or omit memory_limit_mib=")
    if writes_conf and not board_of(device):
        raise InvalidValueError(f"{device.name} has no nvpmodel", "omit writes_conf=")


def profiles_of(recommendation: Recommendation, device: Device) -> Profiles:
    """The profiles of a recommendation, as a table that other searches may start from."""
    history = recommendation.history
    return dataclasses.replace(
        history.profiles,
        device=board_of(device),
        workload=profiler_of(history).template.workload,
        provenance=device.provenance,
    )


class Within(NamedTuple):
    """Limits of a search on figures that no predictor models."""

    peak_mw: Optional[float] = None  # of the chosen mode's power samples
    required: Optional[Required] = None  # by a requirements file


NO_FURTHER_LIMITS = Within()


def recommend_mode(
    device: Device,
    case: Case,
    goals: Sequence[Goal],
    search: Search,
    *,
    batch_sizes: Sequence[int] = (),
    references: Tuple[Profiles, ...] = (),
    store: Optional[ResultsStore] = None,
    samples: Optional[float] = None,
    progress: Progress,
    within: Within = NO_FURTHER_LIMITS,
) -> List[Recommendation]:
    """Hold a device, profile some of its modes, and recommend the best one for each goal.

    `case` is profiled with its power mode and, if there are `batch_sizes`, its batch size replaced. `samples` are those
    of the whole training; None counts savings over an hour. `within` are limits on what no predictor models.
    """
    from predictors.choose.device_profiler import DeviceProfiler, RunResults, power_sampler

    if is_real(device):
        with power_sampler(device, 1.0, device.root):
            pass  # refuse a device without power before the first profile
    if device.clocks_only_fall and device.provenance == "measured":
        progress.line(
            f"note: some releases of {device.name} can only lower clocks; if a mode is refused, reboot and resume"
        )
    if within.required is not None and within.required.memory_mib is not None:
        least_mib = min(within.required.memory_mib, search.memory_limit_mib or math.inf)
        search = dataclasses.replace(search, memory_limit_mib=least_mib)
    board, limits_mw = board_of(device), limits_of(device)
    modes, presets = _candidates(device, case.workload, strategy_of(search))
    setting = StrategySetting(
        board, references, presets, RISK if search.risk is None else search.risk, search.unprofiled
    )
    if limits_mw:
        setting = setting._replace(
            device=getattr(device, "board", device.name),
            space=Settings.of([mode for _, mode in modes]).space(),
            workload=case.workload,
        )
    seed = case.settings.seed
    batch = search.batch or (len(device.boards) if is_pool(device) else 1)
    chooser = strategy_on_device(strategy_of(search), setting, seed, LEAST_GAIN, batch)
    with device.session():
        profiler = DeviceProfiler(
            device,
            case,
            modes,
            batch_sizes=batch_sizes,
            power_limits_mw=limits_mw,
            results=None if store is None else RunResults(store),
            search=search,
            report=progress.update,
        )
        profiles = most_profiles(search)
        countdown = Countdown(min(profiles, len(profiler.candidates.modes)))

        def show(line: str) -> None:
            countdown.start_one()
            countdown.finish_one()
            left = countdown.left()
            progress.line(f"{line}{left and f' ({left})'}")

        history = History(profiler, profiles, show)
        try:
            predictor = unfitted(setting, seed)()
            if within.peak_mw is not None:
                chooser = WithinPeak(chooser, within.peak_mw, profiler.peaks)
            if within.required is not None:
                from predictors.choose.requirement_limits import WithinRequirements

                chooser = WithinRequirements(chooser, within.required, profiler, search.check_s, progress.update)
            recommendations = choose_and_describe(
                history, goals, chooser, predictor, setting.presets, samples, search.unprofiled
            )
        except (KeyboardInterrupt, HarnessError):
            if history.taken and store is not None:
                kept = counted(len(history.taken), "profile")
                progress.line(f"{kept} kept in {store.path}: resume to continue from there")
            raise
    progress.clear()
    return recommendations


def _candidates(
    device: Device, workload: str, strategy: str
) -> Tuple[List[Tuple[str, PowerMode]], Tuple[VendorPreset, ...]]:
    """The modes to choose from, by their names, and the vendor's presets among which strategies may fall back."""
    presets = presets_of(board_of(device))
    if device.provenance == "replayed":
        return device.power_modes("all", workload), presets
    if strategy == "presets":
        # By name they are the vendor's complete modes: GPU clusters that a preset switches off are off.
        presets = tuple(preset._replace(has_less_gpu=False) for preset in presets)
        return [mode for preset in presets for mode in device.power_modes(preset.name, workload)], presets
    return locked_clocks(device) if limits_of(device) else device.power_modes("all", workload), presets


def locked_clocks(device: Device) -> List[Tuple[str, PowerMode]]:
    """The modes of a discrete GPU to choose from beside its power limit: up to `LOCKED_CLOCKS` of its GPU clocks.

    CPU and memory keep their greatest clocks: they would hold the GPU up, and save little of its power.
    """
    space = device.power_mode_space()
    last, count = len(space.gpu_khz) - 1, min(LOCKED_CLOCKS, len(space.gpu_khz))
    places = [round(last * (number + 1) / count) if last else 0 for number in range(count)]
    modes = [space.greatest._replace(gpu_khz=space.gpu_khz[place]) for place in sorted(set(places))]
    return [(mode.name, mode) for mode in modes]


def _of_samples(goal: Union[str, Goal, None], sizes: Sequence[int], device: Device) -> Union[str, Goal, None]:
    """On a discrete GPU `energy` with several batch sizes is the energy to the end of an epoch, so that of a sample."""
    return "sample-energy" if goal == "energy" and len(sizes) > 1 and limits_of(device) else goal
