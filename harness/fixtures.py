"""Fixtures: a run's devices, each held for the whole run, the results file, and a case measured in one call."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, Sequence, Type

import pytest

from harness.core.cases import Case
from harness.core.device import Device
from harness.core.errors import CannotRunError, ControlError, DependencyError, HarnessError, OverheatedError, StoreError
from harness.core.profiles import Profile
from harness.core.terminal import Progress
from harness.core.units import ms_to_s
from harness.judge.claims import Verdict
from harness.measure.idle import metered_profile
from harness.measure.run import check, conditions, run
from harness.run_state import STATE, experiment_of
from harness.store.conditions import comparable_conditions, key
from harness.store.results import ResultsStore
from harness.summary import describe_result, extra_info, left_out_of_verdicts

_readings: Deque[float] = deque()

MAX_ROUNDS = 250
"""pytest-benchmark's JSON holds every round, and a file of 100 cases has to stay small: of more durations, as many are
taken at even distances."""


def recorded_time() -> float:
    """The next reading of the play-back; a marker `benchmark(timer=recorded_time)` makes pytest-benchmark use it."""
    return _readings.popleft()


def play_back(benchmark: object, durations_s: Sequence[float]) -> None:
    """Make a pytest-benchmark fixture record these durations, one round each, at most `MAX_ROUNDS` of them.

    pytest-benchmark calls its timer before and after a round. Minibatches are timed inside the training loop (on
    simulated devices by a virtual clock), so its timer plays back what was recorded.
    """
    count = min(len(durations_s), MAX_ROUNDS)
    _readings.clear()
    for place in range(count):
        _readings.extend((0.0, durations_s[place * len(durations_s) // count]))
    benchmark.pedantic(lambda: None, rounds=count)
    _readings.clear()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests that measure a timer that plays back what the training loop recorded."""
    if "profile" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.benchmark(timer=recorded_time))


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Progress:
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
    """A function that says what this run's profiles of a device say to the claims that the file's experiment is for.

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

    `skipped` are further errors that mean that a case cannot run here.
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
