"""The fixtures: a device, its power mode, the page cache, telemetry, measured loops; each works by itself in any test.

    @pytest.mark.parametrize("workers", [0, 1, 2, 4])
    def test_a_worker_hides_the_fetch_stall(train, baseline):
        profile = train(minibatches=40)
        assert profile.minibatch_time_ms <= baseline(profile)

Axes are `device workload power_mode workers storage batch_size cache`; `harness.plan` documents the sources of values.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple, Type, cast

import pytest

from harness.board.page_cache import residency
from harness.board.sampler import Sampler
from harness.core import cases, errors
from harness.core.campaigns import replace_settings
from harness.core.cases import Case, CaseSettings
from harness.core.device import Device, RealDevice, Report, is_self_profiling
from harness.core.environment import requeued_job
from harness.core.power_modes import PowerMode
from harness.core.profiles import Profile, Telemetry
from harness.core.terminal import Progress, available_hint, wrap
from harness.fixture_names import fixture, hidden, takes
from harness.gate import Baseline, Requirements, baseline_of, requirements_of
from harness.measure.rounds import Step, run_rounds
from harness.measure.time_budget import Allotment
from harness.options import in_words_of_pytest, selection_of
from harness.outcome import OUTCOME, PROGRESS
from harness.plan import Node, plan_of
from harness.playback import is_played_back, play_back, time_rounds
from harness.store.conditions import (
    MEASURED_ALREADY,
    comparable_conditions,
    differences,
    key,
    with_job,
    without_instance,
)
from harness.summary import describe_result, extra_info

if TYPE_CHECKING:
    from harness.store.results import ResultsStore

_READ_BYTES = 1 << 20
MOST_CHANGES = 3  # of conditions that are shown where a case is measured again
LOOP_AXES = ("workload", "workers", "storage", "batch_size")  # that differ from one measured loop of a test to the next


@contextlib.contextmanager
def as_pytest_outcome(*skipped: Type[errors.HarnessError]) -> Iterator[None]:
    """Skip a case that cannot run here (`CannotRunError`, `skipped`); other errors fail the test with their message."""
    not_here: Tuple[Type[errors.HarnessError], ...] = (errors.CannotRunError, *skipped)
    try:
        yield
    except not_here as error:
        raise pytest.skip.Exception(in_words_of_pytest(error)) from None
    except errors.HarnessError as error:
        raise pytest.fail.Exception(in_words_of_pytest(error), pytrace=False) from None


@contextlib.contextmanager
def ending_the_run(session: pytest.Session, *kinds: Type[errors.HarnessError]) -> Iterator[None]:
    """Errors that concern all cases, such as a full disk or a device in use, are reported once and end the run."""
    try:
        yield
    except kinds as error:
        session.shouldfail = error.what
        raise


@contextlib.contextmanager
def within_time_budget(node: Node) -> Iterator[None]:
    """Record cases and files that the run's time budget leaves out, and add the option that selects them."""
    try:
        yield
    except errors.OverBudgetError as error:
        case = plan_of(node.config).case_of(node)
        name = node.nodeid if case is None else case.id
        option = selection_of(node.name if case is None else case.id)
        node.config.stash[OUTCOME].over_budget[name] = option
        raise errors.OverBudgetError(error.what, f"to run it: {option}") from None


@fixture
def progress(request: pytest.FixtureRequest) -> Progress:
    """Writes lines to the terminal while tests run: `progress.line(text)`, `progress.update(text)`."""
    return request.config.stash[PROGRESS]


@fixture
def planned_case(request: pytest.FixtureRequest) -> Case:
    """A case of the plan; a test with this fixture, mostly through `case`, runs once for each of its cases."""
    return plan_of(request.config).cases[request.param]


@fixture
def case(planned_case: Case) -> Case:
    """The test's case: device, workload, power mode, workers, storage, batch size, and how it is measured."""
    return planned_case


@fixture
def workload(case: Case) -> str:
    """Axis: the workload's name; `harness.workloads.get_workload` has its model, data and loss."""
    return case.workload


@fixture
def workers(case: Case) -> Optional[int]:
    """Axis: `num_workers` of the PyTorch DataLoader."""
    return case.workers


@fixture
def batch_size(case: Case) -> int:
    """Axis: samples per minibatch."""
    return case.batch_size


@fixture
def cache(case: Case) -> str:
    """Axis: the state of the page cache: cold, evicted, warm, as-is or drop-each-epoch."""
    return case.settings.cache


@fixture(scope="session")
def hold_device(request: pytest.FixtureRequest) -> Iterator[Callable[[Device], None]]:
    """A function that holds a device until the end of the run: locked, its state saved, restored at the end."""
    held: Dict[str, Device] = {}
    with contextlib.ExitStack() as stack:
        # pytest skips the remaining finalizers where Ctrl-C ends one of them; this is then done at the very end.
        request.config.add_cleanup(stack.close)

        def hold(device: Device) -> None:
            if device.name not in held:
                with ending_the_run(request.session, errors.ControlError):
                    stack.enter_context(device.session())
                held[device.name] = device

        yield hold


@fixture
def device(request: pytest.FixtureRequest, case: Case, hold_device: Callable[[Device], None]) -> Device:
    """The device, held until the end of the run: locked, its state saved on disk, restored in any case."""
    opened = plan_of(request.config).device(case.device)
    with as_pytest_outcome():
        hold_device(opened)
    return opened


@fixture
def power_mode(case: Case, device: Device) -> PowerMode:
    """The power mode that the device runs in, set and read back; the device is restored at the end of the run."""
    with as_pytest_outcome():
        return device.apply(case.power_mode.mode)


class DataOnStorage(NamedTuple):
    """The data set of a workload on the storage under test."""

    name: Optional[str]  # of the storage; None if a replayed corpus has no such column
    directory: Optional[Path]  # None for a simulated board, and for data in memory
    files: Tuple[Path, ...]
    medium: Dict[str, Any]  # the medium of the directory: device, file system, whether it rotates


@fixture
def storage(case: Case, device: Device, progress: Progress) -> DataOnStorage:
    """The data set of the workload on the storage medium under test: its directory and files."""
    if is_self_profiling(device):
        return DataOnStorage(case.storage, None, (), {})
    from harness.measure.run import bench_of

    machine = cast(RealDevice, device)
    with as_pytest_outcome(errors.DependencyError):
        bench = bench_of(case, machine, progress.update)
    data = bench.data
    if data is None or not data.files:  # an idle state, or data in memory
        return DataOnStorage(case.storage, None, (), {})
    return DataOnStorage(case.storage, data.directory, tuple(data.files), bench.conditions["storage_medium"])


class CacheState(NamedTuple):
    """The state of the page cache, and the share of the data set in it, 0 to 1; None if unknown."""

    state: str
    method: str
    residency_before: Optional[float]
    residency: Optional[float]


@fixture
def page_cache(storage: DataOnStorage, cache: str, device: Device) -> CacheState:
    """The page cache in the state requested by `cache`; the share of the data set in it, before and now.

    `train` and `infer` set the state again before each loop.
    """
    if not storage.files:
        return CacheState(cache, "simulated" if is_self_profiling(device) else "in-memory", None, None)
    from harness.measure.run import set_cache

    root = cast(RealDevice, device).root

    def read_once() -> str:
        for path in storage.files:
            with path.open("rb") as file:
                while file.read(_READ_BYTES):
                    pass
        return "every file read once"

    with as_pytest_outcome():
        before = residency(storage.files, str(root)).share
        method = set_cache(cache, storage.files, read_once, root)
        return CacheState(cache, method, before, residency(storage.files, str(root)).share)


class Recording:
    """Telemetry of a test: runs from the fixture's set-up to `stop`, around your own loop.

    `train` and similar fixtures record theirs from before the first minibatch to after the last; `stop` returns it.
    """

    def __init__(self, sampler: Optional[Sampler]) -> None:
        self._sampler = sampler
        self.telemetry: Optional[Telemetry] = None

    def stop(self) -> Telemetry:
        """Ends the recording and returns it: `series` by channel, `missing` channels with reasons."""
        if self._sampler is not None:
            self.telemetry, self._sampler = self._sampler.stop(), None
        if self.telemetry is None:
            raise errors.CannotRunError("this device has no wall clock", "call train() or infer() first")
        return self.telemetry


@fixture
def telemetry(case: Case, device: Device) -> Iterator[Recording]:
    """The board's sensors, recorded in a separate process: `telemetry.stop().series["power_total_mw"]`."""
    if is_self_profiling(device):
        yield Recording(None)
        return
    machine = cast(RealDevice, device)
    with as_pytest_outcome(), contextlib.ExitStack() as stack:
        sampler = Sampler(
            machine.telemetry_sources(Path.cwd()),
            case.settings.interval_s,
            root=str(machine.root),
            cpus=machine.sampler_cpus(case.power_mode.mode),
        )
        yield Recording(stack.enter_context(sampler))


@fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[ResultsStore]:
    """The results file (`--results`), opened before the first case is measured."""
    from harness.store.results import ResultsStore

    with as_pytest_outcome(), ending_the_run(request.session, errors.StoreError):
        store = ResultsStore(Path(request.config.getoption("jetwatt_results")))
    with store:
        yield store


Measure = Callable[..., Profile]


@fixture
def measure(
    request: pytest.FixtureRequest, case: Case, results: ResultsStore, progress: Progress, benchmark: Any
) -> Measure:
    """A function that measures a case, stores its profile, lets pytest-benchmark time it and returns it.

    Skips cases that cannot run here before anything is changed, and all cases after `--deadline`.
    """
    from harness.measure.run import check

    plan, outcome, session = plan_of(request.config), request.config.stash[OUTCOME], request.session
    if plan.deadline is not None and datetime.datetime.now() >= plan.deadline:
        session.shouldstop = "the deadline has come; --resume continues where this run stopped"
        pytest.skip("the deadline has come")
    planned_device = plan.device(case.device)
    is_played = is_self_profiling(planned_device)
    if not is_played:
        outcome.report_others(progress, case.settings.disturbance_cores)
    progress.line(f"{outcome.countdown.start_one(plan.weight(request.node))} {case.id}")
    # A missing torch concerns all cases that train; on simulated boards only networks that are first counted by it.
    skipping = (errors.DependencyError,) if is_played else ()
    ending = (errors.ControlError,) if is_played else (errors.ControlError, errors.DependencyError)
    with as_pytest_outcome(*skipping), ending_the_run(session, *ending):
        check(case, planned_device)
    return CaseMeasurement(request, case, request.getfixturevalue(hidden("device")), results, progress, benchmark)


class CaseMeasurement:
    """Measures the cases of one test: its own, its repetitions, and those that `train` and similar fixtures request."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        case: Case,
        device: Device,
        results: ResultsStore,
        progress: Progress,
        benchmark: Any,
    ) -> None:
        self._request, self._case, self._device = request, case, device
        self._results, self._progress, self._benchmark = results, progress, benchmark
        self._plan, self._outcome = plan_of(request.config), request.config.stash[OUTCOME]
        self._is_timed = False  # pytest-benchmark times one loop of a test

    def __call__(self, case: Case, repetition: int = 0, is_new: bool = False) -> Profile:
        """Measure a case, or return its profile if this run has it; `is_new` always measures it."""
        from harness.measure.run import check, conditions

        seed = case.settings.seed + repetition
        case = dataclasses.replace(case, settings=dataclasses.replace(case.settings, seed=seed))
        if not self._is_timed:
            self._benchmark.params = _parameters(case)
        with as_pytest_outcome(), within_time_budget(self._request.node):
            if is_new:  # the test's own case was checked before anything was changed
                check(case, self._device)
            allotment, report = self._allot(case)
            case_conditions = conditions(case, self._device, report)
            comparable = comparable_conditions(case_conditions, case, self._device.provenance)
            comparable_key = key(comparable)
        done = None if is_new else self._outcome.measured(comparable_key, case)
        if done is not None:
            if repetition == 0:
                self._show(done, "as measured before in this run: ")
            self._outcome.of_test.append(done)
            return done
        if not is_new and repetition == 0:
            self._skip_if_job_has_it(case, comparable_key)
            if self._request.config.getoption("jetwatt_resume"):
                self._skip_if_stored(case, comparable)
        measured, number = self._measured(case, case_conditions, allotment)
        self._outcome.keep(comparable_key, measured, number)
        self._outcome.of_test.append(measured)
        if repetition == 0:
            self._show(measured)
        else:
            self._progress.line(f"    repetition {repetition}: {describe_result(measured)}")
        return measured

    def _allot(self, case: Case) -> Tuple[Optional[Allotment], Report]:
        """The case's part of the run's time budget, and a report of progress that ends its preparation in time.

        None on a device whose cases take no time, or without a budget; OverBudgetError if the case cannot fit.
        """
        if self._plan.time_budget is None or is_self_profiling(self._device):
            return None, self._progress.update
        portion = self._plan.portions.get(self._request.node.nodeid, 1.0)
        allotment = self._plan.time_budget.allot(case, portion)
        allotment.refuse_early()
        return allotment, allotment.watched(self._progress.update)

    def _skip_if_stored(self, case: Case, comparable: Dict[str, Any]) -> None:
        comparable_key = key(comparable)
        number = self._results.usable(comparable_key) or self._results.usable(key(without_instance(comparable)))
        if number is not None:
            self._outcome.resume(comparable_key, case, number)
            pytest.skip(f"{MEASURED_ALREADY}, see {self._results.path}")
        before = self._results.comparable_of(case)
        if before is not None:
            changed = differences(before, comparable)
            more = f" and {len(changed) - MOST_CHANGES} more" if len(changed) > MOST_CHANGES else ""
            self._progress.line(
                wrap(f"{case.id} is measured again, under other conditions: {'; '.join(changed[:MOST_CHANGES])}{more}")
            )

    def _skip_if_job_has_it(self, case: Case, comparable_key: str) -> None:
        """Skip a case that this Slurm job measured before it was queued again, perhaps on another board."""
        job = requeued_job()
        number = self._results.measured_by(job, case) if job else None
        if number is not None:
            self._outcome.resume(comparable_key, case, number)
            pytest.skip(f"Slurm job {job} measured it before it was queued again, see {self._results.path}")

    def _measured(
        self, case: Case, case_conditions: Dict[str, Any], allotment: Optional[Allotment]
    ) -> Tuple[Profile, int]:
        from harness.measure.idle import metered_profile
        from harness.measure.run import run

        log = self._plan.meter_logs.get(case.workload)
        of_all = (errors.OverheatedError, errors.UnwatchedError, errors.StoreError)
        with as_pytest_outcome(errors.DependencyError), within_time_budget(self._request.node), ending_the_run(
            self._request.session, *of_all
        ):
            if log is None:
                measured = run(case, self._device, self._progress.update, self._rounds, self._plan.meter, allotment)
            else:
                measured = metered_profile(case, case_conditions, self._device.provenance, log)
            measured = with_job(measured)
            number = self._results.add(measured, self._outcome.environment, self._outcome.run_id)
        return measured, number

    def _rounds(self, prepare: Callable[[], None], step: Step, count: int, goes_on: Callable[[], bool]) -> None:
        if self._is_timed:
            run_rounds(prepare, step, count, goes_on)
        else:
            self._is_timed = True
            time_rounds(self._benchmark, prepare, step, count, goes_on)

    def _show(self, measured: Profile, remark: str = "") -> None:
        if not self._is_timed and not remark and is_played_back(self._device, self._case):
            self._is_timed = True
            play_back(self._benchmark, measured)
        self._benchmark.extra_info.update(extra_info(measured))
        if self._request.node.nodeid not in self._outcome.shown:
            self._outcome.shown.add(self._request.node.nodeid)
            self._outcome.countdown.finish_one()
        self._progress.line(f"    {remark}{describe_result(measured)}")


def _parameters(case: Case) -> Dict[str, Any]:
    """A case's parameters for pytest-benchmark, which can group by them: plain values, the settings as text."""
    words = case.settings.describe()
    settings = words if case.task == cases.TRAINING else f"{case.task}, {words}"
    axes = {axis: getattr(case, axis) for axis in cases.AXES}
    return {**axes, "power_mode": case.power_mode.name, "settings": settings}


@fixture
def profile(case: Case, measure: Measure) -> Measure:
    """A function that measures the test's case, all in one call: `profile()`.

    A case that this run has already measured is not measured again. `profile(repetition=1)` has another seed, for
    weights and the order of samples.
    """
    return lambda repetition=0: measure(case, repetition)


def _loop(request: pytest.FixtureRequest, case: Case, measure: Measure, task: str) -> Callable[..., Profile]:
    from harness.workloads import get_workload

    def take(**changes: Any) -> Profile:
        axes = {name: changes.pop(name) for name in LOOP_AXES if name in changes}
        with as_pytest_outcome():
            if "workload" in axes:
                axes["workload"] = get_workload(axes["workload"]).name
            changeable = [field.name for field in dataclasses.fields(CaseSettings)]
            unknown = [name for name in changes if name not in changeable]
            if unknown:
                changeable = [*LOOP_AXES, *changeable]
                raise errors.InvalidValueError(
                    f"{unknown[0]!r} cannot be changed here", available_hint(unknown[0], changeable)
                )
            settings = replace_settings(case.settings, changes)
            wanted = dataclasses.replace(case, task=task, settings=settings, **axes)
        return _recorded(request, measure(wanted, is_new=True))

    return take


def _recorded(request: pytest.FixtureRequest, measured: Profile) -> Profile:
    if takes("telemetry", request):
        request.getfixturevalue(hidden("telemetry")).telemetry = measured.telemetry
    return measured


@fixture
def train(request: pytest.FixtureRequest, case: Case, measure: Measure) -> Callable[..., Profile]:
    """A function that trains and returns the profile: `train(minibatches=40)`.

    Takes changes to the test's case: workload, workers, storage, batch_size, minibatches, epochs, cache, data_scale,
    seed, interval_s, limit_s, clocks.
    """
    return _loop(request, case, measure, cases.TRAINING)


@fixture
def infer(request: pytest.FixtureRequest, case: Case, measure: Measure) -> Callable[..., Profile]:
    """A function that runs forward passes only and returns the profile; takes the arguments of `train`."""
    return _loop(request, case, measure, cases.INFERENCE)


@fixture
def interleave(request: pytest.FixtureRequest, case: Case, measure: Measure) -> Callable[..., Profile]:
    """A function that trains while another workload serves: `interleave("lenet-mnist", batch_size=4, per_s=20)`.

    `way="processes"` or `"streams"` runs both at once.
    """
    from harness.workloads import get_workload

    def take(
        workload: str, batch_size: int = 1, per_s: float = 10.0, duration_s: float = 10.0, way: str = cases.INTERLEAVED
    ) -> Profile:
        with as_pytest_outcome():
            answering = dataclasses.replace(case, workload=get_workload(workload).name, batch_size=batch_size)
            wanted = cases.concurrent_case(case, answering, per_s, duration_s, way)
        return _recorded(request, measure(wanted, is_new=True))

    return take


@fixture
def idle(request: pytest.FixtureRequest, case: Case, measure: Measure) -> Callable[..., Profile]:
    """A function that idles and records power: `idle(seconds=60)`; `quiet=True` reads the power sensor only."""
    from harness.measure.idle import idle_cases

    def take(seconds: float = cases.DEFAULT_IDLE_S, quiet: bool = False) -> Profile:
        with as_pytest_outcome():
            state = (cases.QUIET if quiet else cases.LOGGING, cases.STATIC)
            (wanted,) = [case] if case.task == cases.IDLE else idle_cases([case], seconds, {}, [state])
        return _recorded(request, measure(wanted, is_new=True))

    return take


@fixture(scope="session")
def baseline(request: pytest.FixtureRequest) -> Baseline:
    """The figures of `--baseline`: `baseline.check(profile)` fails if a profile takes more time, power or memory.

    `assert profile.minibatch_time_ms <= baseline(profile)` checks the time only. Without `--baseline` nothing is
    compared, as the end of the run states. With `--strict`, an inconclusive comparison fails too; `--by` names
    conditions that may differ.
    """
    with as_pytest_outcome():
        return baseline_of(request.config)


@fixture
def requirements(request: pytest.FixtureRequest) -> Requirements:
    """The limits of `--require` and of the test's marks: `requirements.check(profile)` fails if one is not kept.

    What the suite's fixtures measure in a test is checked after it without a call. `check` returns the verdicts; with
    `--strict`, inconclusive ones fail too.
    """
    with as_pytest_outcome():
        return requirements_of(request.node)
