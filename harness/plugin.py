"""The pytest plugin: options, cases from a campaign, the fixtures that measure one, progress and the summary."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import sys
import uuid
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Type

import pytest

from harness.campaigns import Campaign, Sweep, describe_settings, expand
from harness.cases import AXES, TRAINING, Case
from harness.devices.protocol import Device
from harness.devices.registry import open_device
from harness.devices.replay import ReplayDevice
from harness.devices.simulated import INSTANCE_MARK, SimulatedDevice
from harness.environment import describe_environment
from harness.errors import (
    CannotRunError,
    ControlError,
    DependencyError,
    HarnessError,
    InvalidValueError,
    OverheatedError,
    StoreError,
)
from harness.experiments.evidence import Evidence, evidence_of
from harness.experiments.verdicts import Verdict, verdicts_of
from harness.idle import idle_cases, metered_profile, read_meter_logs
from harness.options import (
    add_options,
    campaign_from,
    chooses_workloads,
    configuration_from,
    deadline_from,
    device_root_from,
    replaces_axes,
)
from harness.power_modes import PowerMode
from harness.profiles import Profile
from harness.progress import Countdown, Progress
from harness.recorded_timer import play_back, recorded_time
from harness.results.conditions import comparable_conditions, key
from harness.results.store import ResultsStore
from harness.safe_order import in_safe_order, passes_needed
from harness.summary import describe_result, extra_info, format_summary, format_verdicts
from harness.units import ms_to_s

ON_REQUEST, IDLE_STATES, TAKEAWAYS = "on_request", "idle_states", "judged_device"
TRAINING_FILE, BASELOAD = "training", "baseload"
NO_CASE = "none"
"""Stands for the case of a test that has none in this run; such a test is deselected."""
_PLAYED_BACK = pytest.mark.benchmark(timer=recorded_time)


class RunState:
    """What one pytest run knows: its cases, the devices it opened, and what came out so far."""

    def __init__(self, config: pytest.Config) -> None:
        """Read campaign and places from the options, and expand the campaign into its cases.

        Raises:
            HarnessError: an option is wrong, or names what does not exist.
        """
        self.configuration = configuration_from(config)
        self._device_root = device_root_from(config)
        self.run_id = uuid.uuid4().hex
        self.profiles: List[Profile] = []
        self.measured: Set[str] = set()
        self.countdown = Countdown(0)
        self.progress = Progress(UncapturedStream(config))
        self._devices: Dict[str, Device] = {}
        self._modes: Dict[Tuple[str, str], PowerMode] = {}
        self.meter_logs = read_meter_logs(config.getoption("jetwatt_socket_meter"))
        self._chooses_workloads = chooses_workloads(config)
        self.campaign = campaign_from(config)
        self._replaces_axes = replaces_axes(config)
        self._deadline = deadline_from(config)
        self._named_files = {
            Path(argument.partition("::")[0]).resolve() for argument in config.invocation_params.args if argument
        }
        self._experiments: Dict[str, Points] = {}
        self._done: Dict[Tuple[str, str], Profile] = {}
        self._resumed: Set[Tuple[str, str]] = set()
        self.evidence: List[Evidence] = []
        cases = expand(self.campaign.per_device(self._narrow), self._mode_names)
        self.points = _points(cases)
        self.idle_points = _points(idle_cases(cases, config.getoption("jetwatt_idle_seconds"), self.meter_logs))

    def _narrow(self, name: str, sweep: Sweep) -> Sweep:
        device = self.device(name)
        return device.narrow(sweep, self._chooses_workloads) if isinstance(device, ReplayDevice) else sweep

    def _mode_names(self, name: str, workload: str, text: str) -> List[str]:
        device = self.device(name)
        of = {"workload": workload} if isinstance(device, ReplayDevice) else {}
        found = device.power_modes(text, **of)
        self._modes.update({(name, mode_name): mode for mode_name, mode in found})
        return [mode_name for mode_name, _ in found]

    def is_named(self, file: Path) -> bool:
        """Whether somebody asked for this very file."""
        return file.resolve() in self._named_files

    def takes_part(self, experiment: str, file: Path) -> bool:
        """Whether an experiment's file runs: it is named, or the campaign has it and nobody asked for other axes."""
        return self.is_named(file) or (experiment in self.campaign.experiments and not self._replaces_axes)

    def points_of(self, experiment: str, file: Path) -> Points:
        """The cases of a benchmark file; none of an experiment that does not take part.

        Replayed corpora have no experiments of their own: what they answer is asked by the sweeps of the campaign.
        """
        if experiment == TRAINING_FILE:
            return self.points
        if experiment not in self._experiments:
            campaign = self.campaign.of_experiment(experiment)
            sweeps = [self._among(sweep) for sweep in campaign.sweeps] if self.takes_part(experiment, file) else []
            expanded = expand(Campaign(experiment, "", tuple(filter(None, sweeps))), self._mode_names)
            self._experiments[experiment] = _points(expanded)
        return self._experiments[experiment]

    def _among(self, sweep: Sweep) -> Optional[Sweep]:
        """A sweep of the devices that it is for, and of their further instances; None where it is for none."""
        devices: List[str] = []
        for name in sweep.axes["device"]:
            device = self.device(name)
            if isinstance(device, ReplayDevice) or (sweep.boards and self.board(name) not in sweep.boards):
                continue
            can_copy = isinstance(device, SimulatedDevice) and INSTANCE_MARK not in name
            copies = range(1, sweep.instances) if can_copy else ()
            devices += [name, *(f"{name}{INSTANCE_MARK}{number}" for number in copies)]
        return dataclasses.replace(sweep, axes={**sweep.axes, "device": tuple(devices)}) if devices else None

    def board(self, name: str) -> str:
        """What kind of board a device is; its own name where it is none."""
        return str(self.device(name).identity().specification.get("board") or name)

    def devices(self) -> List[str]:
        """The devices that were asked for."""
        names = [name for sweep in self.campaign.sweeps for name in sweep.axes["device"]]
        return list(dict.fromkeys(names))

    @property
    def is_too_late(self) -> bool:
        """Whether no further case may begin."""
        return self._deadline is not None and datetime.datetime.now() >= self._deadline

    def found(self, key: str, case: Case) -> Optional[Profile]:
        """The profile of this case under these conditions that this run has made already.

        One of the same power mode by another name is another profile: take-aways ask for modes by their names.
        """
        return self._done.get((key, case.id))

    def keep(self, key: str, profile: Profile) -> None:
        """Take a new profile into the run's."""
        self.profiles.append(profile)
        self.evidence.append(evidence_of(profile))
        self._done.setdefault((key, profile.case.id), profile)

    def resume(self, key: str, case: Case, results: ResultsStore) -> None:
        """Let a profile of an earlier run, of these conditions, speak in this one's verdicts."""
        if (key, case.id) not in self._resumed:
            self._resumed.add((key, case.id))
            numbers = [record.id for record in results.records() if record.key == key]
            self.evidence.append(evidence_of(results.profile(numbers[-1]))._replace(case=case))

    def verdicts(self) -> List[Verdict]:
        """What the profiles of this run say to the papers' take-aways."""
        return verdicts_of(self.evidence)

    def case_of(self, item: pytest.Item) -> Optional[Case]:
        """The case of a test that measures; None for all others."""
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if not {*AXES, "settings"} <= set(parameters):
            return None
        return self.case_at(*(parameters[name] for name in (*AXES, "settings")))

    def case_at(self, *point: Any) -> Case:
        """The case that test parameters stand for."""
        for points in (self.points, *self._experiments.values()):
            if point in points:
                return points[point]
        return self.idle_points[point]

    def mode_of(self, case: Case) -> PowerMode:
        """The power mode that a case names."""
        return self._modes[case.device, case.power_mode]

    def clocks_only_fall(self, device: str) -> bool:
        """Whether cases of this device have to be put into a safe order."""
        return self.device(device).clocks_only_fall

    @functools.cached_property
    def environment(self) -> Dict[str, Any]:
        """Machine and software, described once a run."""
        return describe_environment()

    def device(self, name: str) -> Device:
        """The device of that name, the same object each time."""
        if name not in self._devices:
            root = Path("/") if name == "host" else self._device_root
            device = open_device(name, self.configuration, root)
            known = self._devices.setdefault(device.name, device)
            if known is not device and known.identity() != device.identity():
                raise InvalidValueError(f"two devices are called {device.name}", "rename one of the files")
            self._devices[name] = known
        return self._devices[name]


Points = Dict[Tuple[Any, ...], Case]
"""Test parameters to the case they stand for: plain values, the axes and the settings in words, so that
pytest-benchmark can store them."""


def _points(cases: Iterable[Case]) -> Points:
    return {(*(getattr(case, axis) for axis in AXES), _in_words(case)): case for case in cases}


def _in_words(case: Case) -> str:
    words = describe_settings(case.settings)
    return words if case.task == TRAINING else f"{case.task}, {words}"


def _experiment_of(file: Path) -> str:
    """The experiment that a benchmark file is for: `page_cache` of `test_page_cache.py`."""
    return file.stem.partition("_")[2]


STATE = pytest.StashKey[RunState]()


class UncapturedStream:
    """Standard output past pytest's capture, for progress while a test runs."""

    def __init__(self, config: pytest.Config) -> None:
        """Write to the terminal of `config`'s run."""
        self._config = config

    def write(self, text: str) -> None:
        """Write at once, beginning on a line of its own."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        writer = self._config.get_terminal_writer()
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if writer.width_of_current_line and not text.startswith("\r"):
                writer.line()
            writer.write(text, flush=True)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """Whether a person watches."""
        return sys.stdout.isatty()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read campaign and places; a wrong option ends the run here with what is known instead."""
    config.addinivalue_line("markers", "training: trains a network, so it needs torch")
    config.addinivalue_line("markers", "exhaustive: goes through very many cases; one Python is enough for it")
    config.addinivalue_line(
        "markers",
        f"{ON_REQUEST}: runs only when its file is named: pytest benchmarks/FILE.py",
    )
    config.addinivalue_line(
        "markers", f"{IDLE_STATES}: runs for the idle states of each device and power mode, instead of its cases"
    )
    try:
        config.stash[STATE] = RunState(config)
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that measures with every case of the campaign, or with the idle states of its devices."""
    state, file = metafunc.config.stash[STATE], metafunc.definition.path
    if TAKEAWAYS in metafunc.fixturenames:
        takes_part = state.takes_part(_experiment_of(file), file)
        metafunc.parametrize(TAKEAWAYS, state.devices() if takes_part else [NO_CASE])
    if not {*AXES, "settings"} <= set(metafunc.fixturenames):
        return
    marked = metafunc.definition.get_closest_marker
    if marked(IDLE_STATES):
        points = state.idle_points
    else:  # a corpus of thousands of modes is not expanded unless somebody asks for it
        points = {} if marked(ON_REQUEST) and not state.is_named(file) else state.points_of(_experiment_of(file), file)
    ids = [case.id for case in points.values()]
    metafunc.parametrize((*AXES, "settings"), list(points) or [(NO_CASE,) * (len(AXES) + 1)], ids=ids or [NO_CASE])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests that measure a timer that plays back what the training loop recorded."""
    if "profile" in getattr(item, "fixturenames", ()):
        item.add_marker(_PLAYED_BACK)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave out what runs on request only, unless its file was named; then order what is left, after -k and -m."""
    state = config.stash[STATE]
    left_out = {item for item in items if _is_left_out(item, state)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items[:] = in_safe_order(items, state.case_of, state.clocks_only_fall, state.mode_of)
    items.sort(key=lambda item: TAKEAWAYS in getattr(item, "fixturenames", ()))  # judged once all is measured


def _is_left_out(item: pytest.Item, state: RunState) -> bool:
    """Whether a test has no case, or runs on request only and nobody asked.

    Idle states of simulated boards take no time, so a campaign with the experiment `baseload` runs them at once.
    """
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if NO_CASE in parameters.values():
        return True
    if not item.get_closest_marker(ON_REQUEST) or state.is_named(item.path):
        return False
    case = state.case_of(item)
    at_once = case is not None and state.device(case.device).provenance == "simulated"
    return not (item.get_closest_marker(IDLE_STATES) and at_once and state.takes_part(BASELOAD, item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the cases that are to be measured."""
    state = session.config.stash[STATE]
    state.countdown = Countdown(sum("profile" in getattr(item, "fixturenames", ()) for item in session.items))


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> List[str]:
    """Say before hours go by that a sweep takes more than one pass."""
    state = config.stash[STATE]
    passes = passes_needed(items, state.case_of, state.clocks_only_fall, state.mode_of)
    texts = [
        f"{device}: these power modes have no order in which CPU and GPU clocks only fall, so they run in {count} "
        "passes. Where this release cannot raise a clock, cases from the second pass on fail: reboot then, and run the "
        "same again with --resume"
        for device, count in passes.items()
        if count > 1
    ]
    for text in texts:
        warnings.warn(text, stacklevel=1)
    return [f"jetwatt: {text}." for text in texts]


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Progress:
    """Writes to the terminal while a test runs."""
    return request.config.stash[STATE].progress


@pytest.fixture(scope="session")
def hold_device(request: pytest.FixtureRequest) -> Iterator[Callable[[Device], None]]:
    """A function that holds a device until the end of the run: locked, its state saved, put back at the end."""
    held: Dict[str, Device] = {}
    with contextlib.ExitStack() as stack:

        def hold(device: Device) -> None:
            if device.name not in held:
                with ending_the_run(request.session, ControlError):
                    stack.enter_context(device.session())
                held[device.name] = device

        yield hold


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[ResultsStore]:
    """The results file, opened before the first case is measured."""
    with as_pytest_outcome(), ending_the_run(request.session, StoreError):
        store = ResultsStore(Path(request.config.getoption("jetwatt_results")))
    with store:
        yield store


@pytest.fixture
def case(
    pytestconfig: pytest.Config,
    device: str,
    workload: str,
    power_mode: str,
    workers: int,
    storage: str,
    batch_size: int,
    settings: str,
) -> Case:
    """The case that this test was parametrized with."""
    return pytestconfig.stash[STATE].case_at(device, workload, power_mode, workers, storage, batch_size, settings)


@pytest.fixture
def ready_device(request: pytest.FixtureRequest, case: Case, hold_device: Callable[[Device], None]) -> Device:
    """The case's device, held, with the data set in its place; skips what cannot run here or was measured already."""
    state = request.config.stash[STATE]
    if state.is_too_late:
        request.session.shouldstop = "the deadline has come; --resume goes on where this run stopped"
        pytest.skip("the deadline has come")
    state.progress.line(f"{state.countdown.start_one()} {case.id}")
    with as_pytest_outcome():
        device = state.device(case.device)
        with ending_the_run(request.session, ControlError, DependencyError):
            device.check(case)
        results = request.getfixturevalue("results")  # not before: a case that cannot run here needs no file
        hold_device(device)
        conditions = comparable_conditions(device.conditions(case, state.progress.update), case, device.provenance)
    stored = results.keys(include_flagged=False) if request.config.getoption("jetwatt_resume") else ()
    if key(conditions) in stored and state.found(key(conditions), case) is None:
        state.resume(key(conditions), case, results)
        pytest.skip(f"measured already under the same conditions, see {results.path}")
    return device


@pytest.fixture
def profile(
    request: pytest.FixtureRequest, case: Case, ready_device: Device, results: ResultsStore, benchmark: Any
) -> Callable[[], Profile]:
    """A function that measures the case, stores its profile, hands it to pytest-benchmark and returns it.

    A case that this run has measured already, for another experiment, is not measured again. A repetition differs in
    its seed: the weights, and the order of samples.
    """
    state = request.config.stash[STATE]
    asked = case

    def measure(repetition: int = 0) -> Profile:
        settings = dataclasses.replace(asked.settings, seed=asked.settings.seed + repetition)
        case = dataclasses.replace(asked, settings=settings)
        with as_pytest_outcome():
            known = comparable_conditions(
                ready_device.conditions(case, state.progress.update), case, ready_device.provenance
            )
        done = state.found(key(known), case)
        if done is not None:
            if repetition == 0:
                _show(done, "as measured before in this run: ")
            return done
        with as_pytest_outcome(DependencyError), ending_the_run(request.session, OverheatedError):
            log = state.meter_logs.get(case.workload)
            if log is None:
                measured = ready_device.profile(case, state.progress.update)
            else:
                conditions = ready_device.conditions(case, state.progress.update)
                measured = metered_profile(case, conditions, ready_device.provenance, log)
            with ending_the_run(request.session, StoreError):
                results.add(measured, state.environment, state.run_id)
        state.keep(key(known), measured)
        if repetition == 0:
            _show(measured)
        else:
            state.progress.line(f"    repetition {repetition}: {describe_result(measured)}")
        return measured

    def _show(measured: Profile, remark: str = "") -> None:
        state.measured.add(request.node.nodeid)
        play_back(benchmark, _durations_s(measured))
        benchmark.extra_info.update(extra_info(measured))
        state.countdown.finish_one()
        state.progress.line(f"    {remark}{describe_result(measured)}")

    return measure


@pytest.fixture
def takeaways(request: pytest.FixtureRequest, judged_device: str) -> Callable[[], List[Verdict]]:
    """A function that says what this run's profiles of a device say to the take-aways of the file's experiment.

    With `--assert-takeaways` it fails where measured profiles contradict one, and where simulated ones do not confirm
    one that the model should. Skips where there is nothing to judge.
    """
    experiment, state = _experiment_of(request.path), request.config.stash[STATE]

    def judge() -> List[Verdict]:
        found = [one for one in state.verdicts() if one.experiment == experiment and one.device == judged_device]
        if not found:
            pytest.skip(f"no profile of {judged_device} speaks to a take-away of {experiment}")
        wrong = [one.text for one in found if one.is_violated]
        if wrong and request.config.getoption("jetwatt_assert_takeaways"):
            pytest.fail("\n".join(wrong), pytrace=False)
        return found

    return judge


def _durations_s(measured: Profile) -> List[float]:
    """What pytest-benchmark is given, which has no table without times.

    Of an idle state that is how long it was watched, of a replayed case the one median that there is.
    """
    if measured.case.settings.idle_s is not None:
        return [measured.case.settings.idle_s]
    times_ms = [minibatch.e2e_ms for minibatch in measured.counted]
    return [ms_to_s(time_ms) for time_ms in times_ms or [measured.aggregates["minibatch_time_ms"]]]


@contextlib.contextmanager
def as_pytest_outcome(*skipped: Type[HarnessError]) -> Iterator[None]:
    """A case that cannot run here is skipped; what went wrong fails the test with its message alone.

    Args:
        skipped: further errors that mean that a case cannot run here.
    """
    try:
        yield
    except (CannotRunError, *skipped) as error:
        raise pytest.skip.Exception(str(error)) from None
    except HarnessError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@contextlib.contextmanager
def ending_the_run(session: pytest.Session, *errors: Type[HarnessError]) -> Iterator[None]:
    """What stands in the way of every case, such as a full disk or a device in use, is said once and ends the run."""
    try:
        yield
    except errors as error:
        session.shouldfail = error.what
        raise


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> Optional[Tuple[str, str, str]]:
    """No dot for a case that was measured: its line of figures stands there already."""
    measured = report.when == "call" and report.passed and report.nodeid in config.stash[STATE].measured
    return ("passed", "", "PASSED") if measured else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of this run's profiles."""
    state = terminalreporter.config.stash[STATE]
    if state.profiles:
        terminalreporter.section("jetwatt")
        terminalreporter.write_line(format_summary(state.profiles))
        verdicts = state.verdicts()
        if verdicts:
            terminalreporter.section("take-aways of the papers")
            terminalreporter.write_line(format_verdicts(verdicts))
        terminalreporter.write_line(f"results: {terminalreporter.config.getoption('jetwatt_results')}")
