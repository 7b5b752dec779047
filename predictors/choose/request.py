"""What calls that choose a power mode are asked for: a job, a budget that the mode keeps, and a search of a device."""

from __future__ import annotations

import collections.abc
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from harness.core.boards import board_of, check_media, default_medium
from harness.core.cases import DEFAULT_MINIBATCHES
from harness.core.configuration import DEFAULT_STORAGE, FILE_NAME, Configuration
from harness.core.corpus import TASKS, listed
from harness.core.device import Device
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint, counted
from harness.core.units import S_PER_HOUR, s_to_ms, w_to_mw
from predictors.goals import OBJECTIVES, Goal, budget_in_mw, check_objective
from predictors.models.base import (
    CallSettings,
    check_number,
    check_numbers,
    check_probability,
    checks_names,
    numbers_in,
)
from predictors.profiles import Profiles, find_reference
from predictors.settings import DEFAULT_BATCH_SIZE

if TYPE_CHECKING:
    from harness.workloads.command import Command
    from harness.workloads.workload import Workload
    from predictors.choose.corpora import Corpus

WorkloadLike = Union[str, "Workload"]  # a name, a user's own `module:NAME`, or the workload itself
JobLike = Union[WorkloadLike, Sequence[WorkloadLike], "Command", "Job"]
"""What calls take: a workload, several, or a job; `recommend` also a command."""

EPOCHS: Dict[str, int] = {"resnet18-imagenet": 120, "yolov8n-coco": 200, "mobilenetv3-gld23k": 148}
"""Epochs to convergence that 001 sec. 1.4 and 3.1 use."""


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Job(CallSettings):
    """What runs on a device, apart from the device and its power mode.

    Attributes:
        workload: one of the suite's, or your own as `module:NAME` or as a `Workload`; one or several. For `recommend`
            also a `Command`, alone.
        batch_size: samples per minibatch; several to choose from, by time per sample. The batch size changes how a
            network learns.
        workers: of the DataLoader; None for the papers' default: 4, or 0 for YOLO.
        storage: medium of the data set; None for `ssd`, or for the board's own medium if it has no SSD.
        task: `training` or `inference`.
        epochs: of the whole training; None for the papers' number.
    """

    workload: Union[WorkloadLike, Sequence[WorkloadLike], Command]
    batch_size: Union[int, Sequence[int]] = DEFAULT_BATCH_SIZE
    workers: Optional[int] = None
    storage: Optional[str] = None
    task: str = TASKS[0]
    epochs: Optional[float] = None

    def __post_init__(self) -> None:
        """Refuse numbers and names out of range."""
        _refuse_what_is_no_workload(workloads_of(self))
        sizes = numbers_in(self.batch_size)
        if not sizes:
            raise InvalidValueError("no batch_size= was given", f"omit it for {DEFAULT_BATCH_SIZE}")
        check_numbers(above=True, whole=True, batch_size=sizes)
        check_numbers(whole=True, workers=self.workers)
        check_numbers(above=True, epochs=self.epochs)
        if self.task not in TASKS:
            raise UnknownNameError(f"task is {self.task!r}", available_hint(str(self.task), TASKS))


def _refuse_what_is_no_workload(given: Sequence[object]) -> None:
    """Refuse an empty list, and what is neither a name nor a `Workload`; a `Command` may stand alone."""
    if not given:
        raise InvalidValueError("no workload= was given", "name one, such as 'lenet-mnist'")
    others = [each for each in given if not isinstance(each, str)]
    if not others:
        return
    from harness.workloads.command import Command
    from harness.workloads.workload import Workload

    for other in others:
        if isinstance(other, Command) and len(given) > 1:
            raise InvalidValueError("a command is searched for alone", "give one workload=")
        if not isinstance(other, (Workload, Command)):
            raise InvalidValueError(f"workload is {other!r}, expected a name or a Workload", "such as 'lenet-mnist'")


def job_of(given: JobLike) -> Job:
    """A job as it is; workloads as a job with the defaults."""
    return given if isinstance(given, Job) else Job(given)


def refuse_command(job: Job, call: str) -> None:
    """InvalidValueError for a call that trains its workloads itself."""
    if command_of(job) is not None:
        raise InvalidValueError(f"{call} runs no command as its workload", "recommend and run_command do")


def command_of(job: Job) -> Optional[Command]:
    """The command that is the workload of a job; None for other workloads."""
    if isinstance(job.workload, str):
        return None
    from harness.workloads.command import Command

    return job.workload if isinstance(job.workload, Command) else None


def workloads_of(job: Job) -> List[WorkloadLike]:
    """The workloads of a job, also if it has one; of a command that alone, which few calls take (`command_of`)."""
    if isinstance(job.workload, str) or not isinstance(job.workload, collections.abc.Sequence):
        return [cast("WorkloadLike", job.workload)]
    return list(job.workload)


def batch_sizes_of(job: Job) -> List[int]:
    """The batch sizes of a job, each once, also if it has one."""
    return list(dict.fromkeys(map(int, numbers_in(job.batch_size))))


def minibatches_of_training(workload: str, batch_size: int, epochs: Optional[float] = None) -> Optional[float]:
    """Minibatches of a whole training on the real data set, by default of as many epochs as the papers use.

    None if the number of epochs is unknown.
    """
    from harness.workloads import get_workload

    epochs = epochs if epochs is not None else EPOCHS.get(workload)
    return None if epochs is None else epochs * (get_workload(workload).real_samples // batch_size)


def storage_of(job: Job, device: Device, configuration: Configuration, report: Callable[[str], None]) -> str:
    """The medium of a job's data set, by default `ssd` or the board's own; a medium that is unknown is refused."""
    if job.storage is not None:
        if device.provenance != "replayed":
            check_media([job.storage], configuration)
        return job.storage
    storage = default_medium(board_of(device), configuration)
    if storage != DEFAULT_STORAGE:
        report(f"storage {storage}: {device.name} has no {DEFAULT_STORAGE}")
    return storage


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Budget(CallSettings):
    """The limits that a power mode has to keep; None for no limit.

    Attributes:
        power_w: maximum module power in W; several share one set of profiles.
        time_ms: maximum minibatch time in ms.
        peak_w: maximum power sample in W in the chosen mode's profile.
        deadline_h: maximum time of the whole training in hours.
        energy_wh: maximum energy of the whole training in Wh.
        require: a requirements file, whose limits on such cases are kept too.
    """

    power_w: Union[float, Sequence[float], None] = None
    time_ms: Optional[float] = None
    peak_w: Optional[float] = None
    deadline_h: Optional[float] = None
    energy_wh: Optional[float] = None
    require: Union[str, Path, None] = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range, among them powers that look like mW."""
        check_numbers(above=True, power_w=numbers_in(self.power_w), time_ms=self.time_ms, peak_w=self.peak_w)
        check_numbers(above=True, deadline_h=self.deadline_h, energy_wh=self.energy_wh)
        for power_w in numbers_in(self.power_w):
            budget_in_mw(power_w)
        if self.peak_w is not None:
            budget_in_mw(self.peak_w, "peak budget")


NO_BUDGET = Budget()
"""The default of calls."""

NOTHING_REQUIRED: Mapping[str, float] = {}


def peak_mw_of(budget: Budget) -> Optional[float]:
    """The greatest power sample in mW; None for any."""
    return None if budget.peak_w is None else w_to_mw(budget.peak_w)


def limits_training(budget: Budget) -> bool:
    """Whether the whole training has a limit."""
    return budget.deadline_h is not None or budget.energy_wh is not None


def joined(
    budget: Budget,
    power_w: Union[float, Sequence[float], None],
    time_ms: Optional[float],
    require: Union[str, Path, None] = None,
) -> Budget:
    """A budget with the limits that a call takes besides it; refused if it has them already."""
    given: Dict[str, Any] = {"power_w": power_w, "time_ms": time_ms, "require": require}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if getattr(budget, name) is not None:
            raise InvalidValueError(f"{name}= was given twice, once in budget=", "omit one of them")
    return dataclasses.replace(budget, **given)


def goals_of(
    budget: Budget,
    goal: Union[str, Goal, None],
    minibatches: Optional[float],
    sizes: Sequence[int],
    arguments: str = "power_w=, peak_w=, time_ms=, deadline_h= or energy_wh=",
    required: Mapping[str, float] = NOTHING_REQUIRED,
) -> List[Goal]:
    """The goals of a search within a budget, one for each power.

    With several batch sizes to choose from, the time of a sample replaces that of a minibatch.

    Args:
        budget: the limits.
        goal: what to minimise, by its name in `OBJECTIVES`, or a goal whose limits are joined with the budget's; None
            for the time.
        minibatches: of the whole training; None if unknown.
        sizes: the batch sizes to choose from.
        arguments: those of the call that set a limit, for an error.
        required: further limits, by quantity.
    """
    quantity, limits = _objective(goal, len(sizes) > 1)
    if budget.time_ms is not None:
        limits["time_ms"] = min(budget.time_ms, limits.get("time_ms", math.inf))
    for name, limit in (*_of_a_minibatch(budget, minibatches, sizes).items(), *required.items()):
        limits[name] = min(limit, limits.get(name, math.inf))
    powers_w = numbers_in(budget.power_w)
    if powers_w:
        power_mw = limits.pop("power_mw", math.inf)
        return [Goal(quantity, {"power_mw": min(w_to_mw(power_w), power_mw), **limits}) for power_w in powers_w]
    peak_mw = peak_mw_of(budget)
    if peak_mw is not None:
        limits["power_mw"] = min(peak_mw, limits.get("power_mw", math.inf))  # a peak is no less than the power
    if not limits and quantity in ("time_ms", "power_mw"):
        extreme, name = ("greatest", "time") if quantity == "time_ms" else ("least", "power")
        raise InvalidValueError(
            f"the least {name} without any limit is always that of the {extreme} mode",
            f"give {arguments}",
        )
    return [Goal(quantity, limits)]


def _of_a_minibatch(budget: Budget, minibatches: Optional[float], sizes: Sequence[int]) -> Dict[str, float]:
    """The limits of the whole training as those of a minibatch, or of a sample if there are several sizes."""
    limits: Dict[str, float] = {}
    if not limits_training(budget):
        return limits
    if minibatches is None:
        name = "deadline_h" if budget.deadline_h is not None else "energy_wh"
        raise InvalidValueError(f"{name}= limits the whole training, whose length is unknown", "give epochs=")
    several = len(sizes) > 1
    samples = sizes[0] if several else 1
    if budget.deadline_h is not None:
        total_ms = s_to_ms(budget.deadline_h * S_PER_HOUR)
        limits["sample_time_ms" if several else "time_ms"] = total_ms / minibatches / samples
    if budget.energy_wh is not None:
        total_mws = w_to_mw(budget.energy_wh * S_PER_HOUR)
        limits["sample_energy_mws" if several else "energy_mws"] = total_mws / minibatches / samples
    return limits


def _objective(goal: Union[str, Goal, None], several: bool) -> Tuple[str, Dict[str, float]]:
    """The quantity to minimise, and the limits that the goal has itself."""
    if isinstance(goal, Goal):
        return goal.minimise, dict(goal.limits)
    name = goal or ("throughput" if several else "time")
    check_objective(name)
    if several and name in ("time", "energy", "edp"):
        raise InvalidValueError(
            f"goal={name!r} is per minibatch, so the smallest batch size always wins",
            "use throughput, sample-energy, or one batch_size=",
        )
    return OBJECTIVES[name], {}


ON_DEVICE = "closed-loop"
MEDIAN = 50.0  # of the times of minibatches, in %: the percentile of a search, unless given
PROFILES = 15  # unless a call has a default of its own
RISK = 0.05  # the probability of breaking a limit that a choice by prediction accepts, unless given


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Search(CallSettings):
    """How a device is searched for power modes, and where its profiles are kept.

    Attributes:
        strategy: `closed-loop`, `mdbs`, `presets` or another of docs/strategies.md; None for `closed-loop`, or for
            `one-shot` if a risk is given.
        profiles: the number that may be taken; None for 15, or for 30 of both workloads of `concurrent`.
        minibatches: per profile.
        seed: the same seed starts with the same modes.
        risk: choose by prediction, from profiles of random modes, at this probability of breaking a limit; `one-shot`
            takes 0.05 if None.
        batch: modes chosen at once, at most `profiles`; None for 1, or for one per board of a pool.
        unprofiled: also choose modes with settings outside the profiled range.
        percentile: of minibatch times, also for limits (None: 50), or of the latencies in `concurrent` (None: 95).
        corpus: profiles of other workloads to start from, as for `fit`.
        reference: which of its workloads; empty for all except the requested ones.
        max_temperature_c: modes in which a sensor exceeds it, in degrees Celsius, are excluded.
        memory_limit_mib: maximum peak memory; a batch size that needs more, as predicted from smaller ones, is never
            started.
        check_s: duration of the run that checks a plan of `concurrent`, or the most of one that judges requirements.
        results: a file that keeps the profiles; None keeps none, or for a pool uses its default file.
        resume: use profiles of the same conditions in `results`.
        config: the configuration file, with the paths of storage media and data sets.
        root: root of an emulated board's /sys, /proc and /etc.
    """

    strategy: Optional[str] = None
    profiles: Optional[int] = None
    minibatches: int = DEFAULT_MINIBATCHES
    seed: int = 0
    risk: Optional[float] = None
    batch: Optional[int] = None
    unprofiled: bool = False
    percentile: Optional[float] = None
    corpus: Optional[Corpus] = None
    reference: Union[str, Sequence[str]] = ()
    max_temperature_c: Optional[float] = None
    memory_limit_mib: Optional[float] = None
    check_s: float = 30.0
    results: Union[str, Path, None] = None
    resume: bool = False
    config: Union[str, Path] = FILE_NAME
    root: Union[str, Path] = "/"

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and settings that contradict each other."""
        check_numbers(above=True, whole=True, profiles=self.profiles, batch=self.batch, minibatches=self.minibatches)
        check_number("seed", self.seed, whole=True)
        check_numbers(above=True, percentile=self.percentile, max_temperature_c=self.max_temperature_c)
        check_numbers(above=True, memory_limit_mib=self.memory_limit_mib, check_s=self.check_s)
        check_probability("risk", self.risk, certain=False)
        if self.percentile is not None and self.percentile >= 100:
            raise InvalidValueError(f"percentile is {self.percentile:g}, expected less than 100")
        if self.risk is not None and self.strategy not in (None, "one-shot"):
            what = f"risk= applies to one-shot only, and strategy= is {self.strategy}"
            raise InvalidValueError(what, "omit one of them")
        if self.reference and self.corpus is None:
            raise InvalidValueError("reference= names a workload of a corpus", "add corpus='FILE'")
        most = most_profiles(self)
        if self.batch is not None and self.batch > most:
            hint = f"for samples per minibatch, give batch_size={self.batch}; otherwise, more profiles="
            raise InvalidValueError(f"batch is {self.batch}, more than the {counted(most, 'profile')} allowed", hint)


def most_profiles(search: Search, default: int = PROFILES) -> int:
    """The number of profiles that may be taken, with a call's own default."""
    return default if search.profiles is None else search.profiles


USUAL_SEARCH = Search()
"""The default of calls."""


def strategy_of(search: Search) -> str:
    """The name of the strategy, with its default."""
    return search.strategy or (ON_DEVICE if search.risk is None else "one-shot")


def references_of(search: Search, workloads: Sequence[str], task: str, device: str) -> Tuple[Profiles, ...]:
    """The tables of a task in the corpus: of the named workloads, or of all that are not searched for."""
    if search.corpus is None:
        return ()
    from predictors.choose.corpora import load_tables

    tables = load_tables(search.corpus)
    if search.reference:
        return tuple(find_reference(tables, name, task, device) for name in listed(search.reference))
    others = [table for table in tables if table.task == task and table.workload not in workloads]
    here = {table.workload for table in others if table.device == device}
    kept = [table for table in others if table.device == device or table.workload not in here]
    return tuple(table.usable() for table in kept)
