"""A device as a profiler: measures the candidates that a strategy requests, and keeps the profiles in a results file.

The only module through which a strategy reaches a device: a board, a simulated board or a replayed corpus. A mode that
cannot be profiled is reported as failed and the search continues; an error that concerns all modes ends it:

    one mode        it was not applied (ControlError), it cannot run (CannotRunError), it is too hot for the board,
                    the command that is profiled fails (CommandFailedError)
    all modes       a file may not be written, clocks that only fall (on boards with that limitation, if none has risen
                    yet), no power, two modes in a row too hot, temperatures that are lost twice, the results file
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Container,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np

from harness.board.sampler import Sampler
from harness.core.cases import COMMAND, TRAINING, Case
from harness.core.corpus import TASKS
from harness.core.device import Device, RealDevice, rehearses_memory
from harness.core.environment import describe_environment, requeued_job
from harness.core.errors import (
    CannotRunError,
    ControlError,
    DoesNotFitError,
    HarnessError,
    OverBudgetError,
    OverheatedError,
    OverMemoryLimitError,
    SourceUnavailableError,
    UnwatchedError,
)
from harness.core.metrics import POWER_CHANNEL, unit_time_ms
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.profiles import Profile, is_disqualified
from harness.core.units import mib_to_bytes, ms_to_s, mw_to_w
from harness.measure.command import CommandFailedError
from harness.measure.run import check, conditions, least_memory, run
from harness.simulation.parameters import SIMULATED_WORKLOADS, load_workload_parameters
from harness.store.conditions import CHOSEN_BY, comparable_conditions, key, with_job
from harness.store.frames import profiles
from harness.store.results import ResultsStore, stored_by
from harness.workloads import get_workload
from harness.workloads.workload import Workload
from predictors.choose.memory_limit import MemoryLimit
from predictors.choose.on_device import PowerPeak
from predictors.choose.request import MEDIAN, USUAL_SEARCH, Search
from predictors.sampling import profiling_seconds
from predictors.settings import Settings
from predictors.strategies.protocol import FailedMode, MeasuredMode

if TYPE_CHECKING:
    from predictors.choose.requirement_limits import WithinRequirements

USUAL_WORKERS = 4  # 003 II.B, 004 4.4
TAKES = 2  # at most so many profiles of a mode whose profiles are disturbed or throttled
COOLING_S = 60.0  # idle time of an overheated board before the next mode: chosen, not measured


@dataclasses.dataclass(frozen=True)
class RunResults:
    """The results file that a run of the suite adds its profiles to."""

    store: ResultsStore
    environment: Mapping[str, Any] = dataclasses.field(default_factory=describe_environment)  # machine and software
    run_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, profile: Profile) -> None:
        """Store a profile that a search has chosen."""
        chosen = {**profile.conditions, CHOSEN_BY: "search"}
        self.store.add(with_job(dataclasses.replace(profile, conditions=chosen)), self.environment, self.run_id)


class DeviceProfiler:
    """Profiles candidates on a device that the caller holds, and adds the profiles to `results`, if given.

    A candidate is a mode with one of `batch_sizes` (by default the case's own) and, on a discrete GPU, with one of
    `power_limits_mw` (by default none is set), which replace those of `case`. Of `search`, three settings count: with
    `resume`, a profile of the same conditions is taken from `results` instead of measured again; `percentile` selects
    the minibatch time; batch sizes that need more than `memory_limit_mib` are not started. With `needs_power`, a
    profile without power is refused; else its power is NaN.
    """

    def __init__(
        self,
        device: Device,
        case: Case,
        modes: Sequence[Tuple[str, PowerMode]],
        *,
        batch_sizes: Sequence[int] = (),
        power_limits_mw: Sequence[int] = (),
        results: Optional[RunResults] = None,
        search: Search = USUAL_SEARCH,
        needs_power: bool = True,
        report: Callable[[str], None] = lambda line: None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.device = device
        self._report = report
        self.template = case
        self.resumed = 0  # candidates whose profile came from the results file
        self.taken: Dict[int, Union[MeasuredMode, FailedMode]] = {}  # by candidate
        self.peaks: Dict[int, PowerPeak] = {}  # by candidate, if its profile has one
        self.flagged: Dict[int, List[str]] = {}  # of the best profile, if all were disturbed or throttled
        self.required: Optional[WithinRequirements] = None  # what requirements ask of the search
        self._modes = [NamedMode(name, mode) for name, mode in modes]
        sizes = tuple(batch_sizes or (case.batch_size,))
        limits = tuple(power_limits_mw) or (0,)
        each_mode = [(size, limit) for size in sizes for limit in limits]
        batch_size, limit_mw = np.tile(np.transpose(each_mode), len(modes))
        repeated = np.repeat([mode for _, mode in modes], len(each_mode), axis=0)
        task = case.task if case.task in TASKS else TASKS[0]  # of a command there is no other kind
        self.candidates = Settings.of(repeated, batch_size, task, limit_mw if power_limits_mw else None)
        self._rows = self.candidates.table
        self._per_mode = len(each_mode)
        self._results = results
        self.store = None if results is None else results.store
        self._stored: Dict[str, List[int]] = {}
        if self.store is not None and search.resume:
            self._stored = _stored_numbers(self.store)
        elif self.store is not None and requeued_job():
            self._stored = self._stored_by_job(self.store, requeued_job())
        self._needs_power = needs_power
        self.percentile = MEDIAN if search.percentile is None else search.percentile
        self._wait = wait
        self.memory: Optional[MemoryLimit] = None  # None without a limit
        if search.memory_limit_mib is not None:
            smallest = get_workload(case.workload).smallest_batch if case.task == TRAINING else 1
            template = dataclasses.replace(case, batch_size=min(sizes))
            self.memory = MemoryLimit(
                mib_to_bytes(search.memory_limit_mib),
                sizes,
                smallest,
                lambda: least_memory(template, self.device, self._report),
            )
        self._was_hot = False
        self._least_khz = np.array([np.inf, np.inf])  # of CPU and GPU, in the modes that were set so far
        self._has_risen = False

    def _stored_by_job(self, store: ResultsStore, job: str) -> Dict[str, List[int]]:
        """What this Slurm job stored before it was queued again; another board's profiles have other conditions."""
        own = stored_by(store, job)
        self._report(f"Slurm job {job} was queued again: of the {len(own)} profiles that it stored those here are used")
        return _stored_numbers(store, own)

    def case(self, index: int) -> Case:
        """The case that profiles a candidate."""
        size = int(self.candidates.batch_size[index])
        case = dataclasses.replace(self.template, batch_size=size).in_mode(self._modes[index // self._per_mode])
        limit_mw = self.candidates.limit_mw(index)
        if limit_mw is None:
            return case
        limit_w = mw_to_w(float(limit_mw))
        return dataclasses.replace(case, settings=dataclasses.replace(case.settings, power_limit_w=limit_w))

    def keep(self, profile: Profile) -> None:
        """Store a profile in the results file, if there is one."""
        if self._results is not None:
            self._results.add(profile)

    def begin(self, indices: Sequence[int]) -> None:
        """Let a pool of boards start on candidates that will be requested."""
        begin = getattr(self.device, "begin", None)
        if begin is not None:
            begin([self.case(index) for index in indices])

    def profile(self, index: int) -> Union[MeasuredMode, FailedMode]:
        """Measure a candidate, or take its profile from the results file; results are cached."""
        if index in self.taken:
            return self.taken[index]
        start_s = time.monotonic()
        others: Tuple[int, ...] = ()
        last_lines: Optional[Tuple[str, ...]] = None
        try:
            self.taken[index] = self._measure(index)
            self._was_hot = False
            return self.taken[index]
        except CommandFailedError as error:
            reason, last_lines = error.what, error.last_lines
        except (CannotRunError, ControlError, OverheatedError) as error:
            if self._concerns_every_mode(error, index):
                raise
            reason = str(error)
            self._was_hot = isinstance(error, OverheatedError)
            if self._was_hot:
                self._report(f"    {error.what}: cooling down for {COOLING_S:g} s")
                self._wait(COOLING_S)
                # A mode with higher settings draws no less power.
                at_least = (self._rows >= self._rows[index]).all(axis=1)
                others = tuple(int(place) for place in np.flatnonzero(at_least) if place != index)
                reason = f"{error.what}; the {len(others)} modes with equal or higher settings are excluded too"
            elif isinstance(error, DoesNotFitError) and self._per_mode > 1:
                size = int(self.candidates.batch_size[index])  # memory use does not depend on clocks
                others = tuple(int(place) for place in np.flatnonzero(self._rows[:, 4] >= size) if place != index)
                reason = f"{error.what}; batch sizes of {size} and more are excluded"
        self.taken[index] = FailedMode(reason, time.monotonic() - start_s, others, last_lines)
        return self.taken[index]

    def _concerns_every_mode(self, error: HarnessError, index: int) -> bool:
        """Whether an error would recur in any other mode, or the device should not continue."""
        if isinstance(error, OverBudgetError):
            return True
        if isinstance(error, OverheatedError):
            return self._was_hot  # it did not cool down
        if isinstance(error, OverMemoryLimitError):
            return self._rows[index, 4] == self._rows[:, 4].min()  # memory use does not depend on clocks
        if isinstance(error, ControlError):
            # If clocks only fall until a reboot, a mode that is refused now may work after it.
            rises = not np.isfinite(self._least_khz).all() or (self._rows[index, 1:3] > self._least_khz).any()
            takes_a_reboot = self.device.clocks_only_fall and not self._has_risen and bool(rises)
            return takes_a_reboot or isinstance(error.__cause__, PermissionError)
        try:
            check(self.case(0 if index else len(self._rows) - 1), self.device)
        except CannotRunError as another:
            return str(another) == str(error)
        return False

    def _measure(self, index: int) -> MeasuredMode:
        case = self.case(index)
        check(case, self.device)
        if self.memory is not None:
            self.memory.check(case.batch_size, lambda size: self._peak_of_size(case, size))
        case_conditions = conditions(case, self.device, self._report)
        takes = self._stored_takes(case, case_conditions)
        self.resumed += not self._wants_another(takes)
        while self._wants_another(takes):
            if takes:
                self._report(f"    profiling again: it was {'; '.join(takes[-1].flags) or 'without a sample of power'}")
            try:
                takes.append(self._run(case))
            except UnwatchedError as error:  # the machine was overloaded, which says nothing about the mode
                self._report(f"    profiling again: {error.what}")
                takes.append(self._run(case))
            khz = self._rows[index, 1:3]
            self._has_risen |= bool((khz > self._least_khz).any())
            self._least_khz = np.minimum(khz, self._least_khz)
            self.keep(takes[-1])
        best = best_of([take for take in takes if not self._lost_power(take)] or takes)
        if self.memory is not None:
            self.memory.add(case.batch_size, peak_bytes_of(best, self.device))
            # It may need more after all.
            self.memory.check(case.batch_size, lambda size: self._peak_of_size(case, size))
        if is_disqualified(best.flags):
            self.flagged[index] = list(best.flags)
        peak_mw, window_s = (best.aggregates.get(name) for name in ("power_peak_mw", "power_peak_window_s"))
        if peak_mw is not None:
            exceeded = "; ".join(flag for flag in best.flags if flag.startswith("power-peak"))
            self.peaks[index] = PowerPeak(peak_mw, window_s, exceeded)
        figures = figures_of(best, self._needs_power, self.percentile)
        if self.required is not None:
            self.required.learn(best, figures)
        return figures._replace(seconds=sum(_seconds(take, figures.time_ms) for take in takes))

    def _stored_takes(self, case: Case, case_conditions: Mapping[str, Any]) -> List[Profile]:
        """The newest profiles in the results file of a case under these conditions, oldest first."""
        if self.store is None or not self._stored:
            return []
        numbers = self._stored.get(key(comparable_conditions(case_conditions, case, self.device.provenance)), ())
        return [self.store.profile(number) for number in numbers[-TAKES:]]

    def check(self, index: int, minibatches: int) -> Tuple[Profile, MeasuredMode]:
        """A further profile of a candidate, of so many minibatches, and its figures; power may be NaN.

        It has another seed, so that it is no copy of the one that the candidate was chosen by; it is kept as those are.
        """
        case = self.case(index)
        settings = dataclasses.replace(case.settings, minibatches=minibatches, seed=case.settings.seed + 1)
        case = dataclasses.replace(case, settings=settings)
        profile = self._run_and_keep(case)
        return profile, figures_of(profile, needs_power=False, percentile=self.percentile)

    def _peak_of_size(self, case: Case, size: int) -> float:
        """The peak memory of another batch size, profiled for that alone."""
        smaller = dataclasses.replace(case, batch_size=size)
        self._report(f"    batches of {size}, to predict the memory of larger ones")
        return peak_bytes_of(self._run_and_keep(smaller), self.device)

    def _run_and_keep(self, case: Case) -> Profile:
        """A profile of a case that is no candidate's own."""
        check(case, self.device)
        conditions(case, self.device, self._report)
        profile = self._run(case)
        self.keep(profile)
        return profile

    def _run(self, case: Case) -> Profile:
        if self.memory is None:
            return run(case, self.device, self._report)
        try:
            return run(case, self.device, self._report, memory_limit_bytes=self.memory.limit_bytes)
        except OverMemoryLimitError as error:
            if error.peak_bytes is not None:
                self.memory.add(case.batch_size, error.peak_bytes)
                self.memory.check(case.batch_size, lambda size: self._peak_of_size(case, size))  # raises, with words
            raise

    def _wants_another(self, takes: Sequence[Profile]) -> bool:
        """Whether to profile a candidate (again): the disturbance may be gone."""
        if not takes or self.device.provenance != "measured":
            return not takes
        return len(takes) < TAKES and all(is_disqualified(take.flags) or self._lost_power(take) for take in takes)

    def _lost_power(self, take: Profile) -> bool:
        """Whether a profile lacks the power that is needed, although there is a sensor: the machine was overloaded."""
        has_sensor = take.conditions.get("power_source") is not None
        return self._needs_power and has_sensor and take.aggregates.get("power_mw") is None


def best_of(takes: Sequence[Profile]) -> Profile:
    """The best of several profiles of a mode, oldest first: the newest undisturbed one, else the fastest."""
    undisturbed = [take for take in takes if not is_disqualified(take.flags)]
    if undisturbed:
        return undisturbed[-1]
    times_ms = [_unit_time_ms(take) for take in takes]
    return takes[int(np.argmin([np.inf if time_ms is None else time_ms for time_ms in times_ms]))]


def _unit_time_ms(profile: Profile) -> Optional[float]:
    return unit_time_ms(profile.aggregates, profile.conditions.get("minibatch_pattern") is not None)


def peak_bytes_of(profile: Profile, device: Device) -> float:
    """The peak memory of a profile, or a simulated board's estimate; `SourceUnavailableError` without both."""
    peak_bytes = profile.aggregates.get("memory_peak_bytes")
    if peak_bytes is None and rehearses_memory(device):
        return device.peak_memory_bytes(profile.case)
    if peak_bytes is None:
        what = f"{profile.case.id} has no peak memory: it is {profile.provenance}"
        raise SourceUnavailableError(what, "omit memory_limit_mib=; it needs a device that measures")
    return peak_bytes


def figures_of(profile: Profile, needs_power: bool = True, percentile: float = MEDIAN) -> MeasuredMode:
    """Minibatch time, power and duration of a profile; power is NaN if it is not needed and was not measured.

    Of a command without a pattern of minibatches, the time is that of the whole command.
    """
    time_ms, power_mw = _unit_time_ms(profile), profile.aggregates.get("power_mw")
    if percentile != MEDIAN and time_ms is not None:
        times_ms = [minibatch.e2e_ms for minibatch in profile.counted]
        if not times_ms:
            raise CannotRunError(f"{profile.case.id} has no single minibatches", "omit percentile=")
        time_ms = float(np.percentile(times_ms, percentile))
    if time_ms is None and profile.case.task == COMMAND:
        flags = [flag for flag in profile.flags if flag.startswith("no-minibatches")]
        what = f"{profile.case.id} gave no minibatch time: {'; '.join(flags) or 'its output showed none that counts'}"
        raise CannotRunError(what, "mend minibatch_pattern=, or omit it: then the whole command counts")
    if time_ms is None:
        raise CannotRunError(f"{profile.case.id} gave no minibatch time: too few minibatches ran", "more minibatches=")
    if power_mw is None and needs_power and profile.conditions.get("power_source") is not None:
        raise SourceUnavailableError(
            f"{profile.case.id} gave no power: its sensor gave no sample while minibatches counted",
            "less load on this machine, or more minibatches=",
        )
    if power_mw is None and needs_power:
        raise SourceUnavailableError(
            f"{profile.case.id} gave no power: {profile.conditions.get('power_definition', 'its record has none')}",
            "choose power modes on a device that measures power; see `jetwatt doctor` for its sensors",
        )
    return MeasuredMode(time_ms, float("nan") if power_mw is None else power_mw, _seconds(profile, time_ms))


def _seconds(profile: Profile, time_ms: float) -> float:
    """From the start of telemetry to the end of the last minibatch; for a replayed profile, an estimate."""
    wall_time_s = profile.aggregates.get("wall_time_s")
    if wall_time_s is not None:
        return wall_time_s
    if not profile.minibatches:
        return profiling_seconds(np.array(time_ms))
    last = profile.minibatches[-1]
    starts: List[float] = [series.times_s[0] for series in profile.telemetry.series.values() if series.times_s]
    return last.start_s + ms_to_s(last.e2e_ms) - min([profile.minibatches[0].start_s, *starts])


def _stored_numbers(store: ResultsStore, among: Optional[Container[int]] = None) -> Dict[str, List[int]]:
    """For each comparable conditions the newest undisturbed profile, else all, oldest first; `among` limits them."""
    numbers: Dict[str, List[int]] = {}
    undisturbed = set()
    for row in profiles(store, include_flagged=True).itertuples():
        if among is not None and row.Index not in among:
            continue
        if row.usable:
            numbers[row.key] = [row.Index]
            undisturbed.add(row.key)
        elif row.key not in undisturbed:
            numbers.setdefault(row.key, []).append(row.Index)
    return numbers


def workload_name(given: Union[str, Workload], device: Optional[Device] = None) -> str:
    """The name of a workload, of the suite's or a user's `module:NAME`; a replayed corpus names its own."""
    is_of_corpus = device is not None and device.provenance == "replayed"
    if is_of_corpus and isinstance(given, str) and ":" not in given:
        return given
    return get_workload(given).name


def workers_of(workload: str, given: Optional[int] = None) -> int:
    """Workers of the DataLoader, by default as the papers ran it: YOLO with none (001 sec. 2.3), others with 4."""
    if given is not None:
        return given
    return load_workload_parameters(workload).default_workers if workload in SIMULATED_WORKLOADS else USUAL_WORKERS


@contextlib.contextmanager
def power_sampler(device: RealDevice, interval_s: float, root: Path, or_else: str = "") -> Iterator[Sampler]:
    """Samples a real device's own sensors; refuses a device without power."""
    with Sampler(device.telemetry_sources(Path.cwd()), interval_s, root=str(root)) as sampler:
        if sampler.first_of(POWER_CHANNEL) is None:
            why = sampler.missing.get(device.power_source, f"{device.power_source} has no total")
            raise CannotRunError(
                f"{device.name} has no readable power sensor: {why}",
                f"see `jetwatt doctor`{or_else}",
            )
        yield sampler
