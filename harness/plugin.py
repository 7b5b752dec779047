"""The pytest plugin: options, cases from a campaign, the fixtures that measure one, progress and the summary."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type

import pytest

from harness.core.cases import AXES, Case
from harness.core.device import Device
from harness.core.errors import CannotRunError, ControlError, DependencyError, HarnessError, OverheatedError, StoreError
from harness.core.profiles import Profile
from harness.core.terminal import Countdown, Progress
from harness.core.units import ms_to_s
from harness.judge.verdicts import Verdict
from harness.measure.idle import metered_profile
from harness.measure.run import check, conditions, run
from harness.options import add_options
from harness.recorded_timer import play_back, recorded_time
from harness.run_state import BASELOAD, RunState, experiment_of
from harness.safe_order import in_safe_order, passes_needed
from harness.store.conditions import comparable_conditions, key
from harness.store.results import ResultsStore
from harness.summary import describe_result, extra_info, format_summary, format_verdicts, left_out_of_verdicts

ON_REQUEST, IDLE_STATES, TAKEAWAYS = "on_request", "idle_states", "judged_device"
NO_CASE = "none"
"""Stands for the case of a test that has none in this run; such a test is deselected."""
STATE = pytest.StashKey[RunState]()
_PLAYED_BACK = pytest.mark.benchmark(timer=recorded_time)


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
        config.stash[STATE] = RunState(config, Progress(UncapturedStream(config)))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that measures with every case of the campaign, or with the idle states of its devices."""
    state, file = metafunc.config.stash[STATE], metafunc.definition.path
    if TAKEAWAYS in metafunc.fixturenames:
        takes_part = state.takes_part(experiment_of(file), file)
        metafunc.parametrize(TAKEAWAYS, state.devices() if takes_part else [NO_CASE])
    if not {*AXES, "settings"} <= set(metafunc.fixturenames):
        return
    marked = metafunc.definition.get_closest_marker
    if marked(IDLE_STATES):
        points = state.idle_points
    else:  # a corpus of thousands of modes is not expanded unless somebody asks for it
        points = {} if marked(ON_REQUEST) and not state.is_named(file) else state.points_of(experiment_of(file), file)
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
    state.countdown = Countdown(sum("held_device" in getattr(item, "fixturenames", ()) for item in session.items))


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
def held_device(request: pytest.FixtureRequest, case: Case, hold_device: Callable[[Device], None]) -> Device:
    """The case's device, held; skips what cannot run here, and all once the deadline has come."""
    state = request.config.stash[STATE]
    if state.is_too_late:
        request.session.shouldstop = "the deadline has come; --resume goes on where this run stopped"
        pytest.skip("the deadline has come")
    state.progress.line(f"{state.countdown.start_one()} {case.id}")
    with as_pytest_outcome():
        device = state.device(case.device)
        with ending_the_run(request.session, ControlError, DependencyError):
            check(case, device)
        request.getfixturevalue("results")  # not before: a case that cannot run here needs no file
        hold_device(device)
    return device


@pytest.fixture
def ready_device(request: pytest.FixtureRequest, case: Case, held_device: Device, results: ResultsStore) -> Device:
    """The case's device, held, with the data set in its place; skips what was measured already."""
    state = request.config.stash[STATE]
    with as_pytest_outcome():
        found = conditions(case, held_device, state.progress.update)
        known = key(comparable_conditions(found, case, held_device.provenance))
    number = results.usable(known) if request.config.getoption("jetwatt_resume") else None
    if number is not None and state.found(known, case) is None:
        state.resume(known, case, results.profile(number))
        pytest.skip(f"measured already under the same conditions, see {results.path}")
    return held_device


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
            found = conditions(case, ready_device, state.progress.update)
            known = key(comparable_conditions(found, case, ready_device.provenance))
        done = state.found(known, case)
        if done is not None:
            if repetition == 0:
                _show(done, "as measured before in this run: ")
            return done
        with as_pytest_outcome(DependencyError), ending_the_run(request.session, OverheatedError):
            log = state.meter_logs.get(case.workload)
            if log is None:
                measured = run(case, ready_device, state.progress.update)
            else:
                measured = metered_profile(case, found, ready_device.provenance, log)
            with ending_the_run(request.session, StoreError):
                results.add(measured, state.environment, state.run_id)
        state.keep(known, measured)
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
    experiment, state = experiment_of(request.path), request.config.stash[STATE]

    def judge() -> List[Verdict]:
        found = [one for one in state.verdicts() if one.experiment == experiment and one.device == judged_device]
        if not found:
            left_out = state.left_out(judged_device)
            note = f": left out {left_out_of_verdicts(left_out)}" if left_out else ""
            pytest.skip(f"no profile of {judged_device} speaks to a take-away of {experiment}{note}")
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
