"""Claims in a run: the devices they are judged on, the statistics that their tests take, and their verdicts.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, List, Optional, Tuple, cast

import pytest

from harness.core.errors import CannotRunError, HarnessError
from harness.core.terminal import Progress
from harness.fixture_names import fixture, hidden, takes
from harness.fixtures import as_pytest_outcome
from harness.options import in_words_of_pytest, is_judging
from harness.outcome import OUTCOME, PROGRESS, Outcome
from harness.plan import JUDGED_DEVICE, NO_CASE, plan_of
from harness.summary import left_out_of_verdicts

if TYPE_CHECKING:
    import pandas as pd

    from harness.judge.claims import Claim, ClaimOnDevice, DeviceFacts
    from harness.judge.query import Cases
    from harness.judge.verdict import CaseFigures, Verdict


JUDGING = hidden("judging")  # the fixture that a file overrides whose claims are judged on figures of its own


class ClaimsOfRun:
    """The profiles that a run judges, and their verdicts: its own, or those of the file of `--judge`."""

    def __init__(self, config: pytest.Config) -> None:
        given = config.getoption("jetwatt_judge")
        self.judged_file = None if given is None else Path(given)
        self.results = self.judged_file or Path(config.getoption("jetwatt_results"))
        self.is_asserted = bool(config.getoption("jetwatt_assert_takeaways"))
        self.decided: Dict[Tuple[str, str], Optional[Verdict]] = {}  # by device and claim; None without data
        self._outcome: Outcome = config.stash[OUTCOME]
        self.not_stored = ""  # why the verdicts could not be put into the file
        self._cases_of_run: Tuple[int, Optional[Cases]] = (0, None)
        self._chosen = config.getoption("jetwatt_device")
        self._progress: Progress = config.stash[PROGRESS]

    @property
    def verdicts(self) -> List[Verdict]:
        return [verdict for verdict in self.decided.values() if verdict is not None]

    @functools.cached_property
    def devices(self) -> List[str]:
        """The devices of the file on which claims are judged, limited to those of `--device` if given."""
        from harness.core.cases import INSTANCE_MARK
        from harness.judge.claims import judged_devices

        devices = judged_devices(self._read_file["device_label"])
        if self._chosen is not None:
            chosen = [name.strip() for name in self._chosen.split(",")]
            devices = [name for name in devices if {name, name.partition(INSTANCE_MARK)[0]} & set(chosen)]
        if not devices:
            whose = f" of {self._chosen}" if self._chosen else ""
            raise CannotRunError(f"{self.judged_file} has no profile{whose}", "measure some: pytest benchmarks")
        return devices

    @functools.cached_property
    def _read_file(self) -> pd.DataFrame:
        from harness.judge.case_frame import read_frame
        from harness.store.results import ResultsStore

        assert self.judged_file is not None
        with ResultsStore(self.judged_file, read_only=True) as store:
            self._progress.line(f"reading {self.judged_file}")
            return read_frame(store)

    @property
    def cases(self) -> Cases:
        """What is judged, pooled, as statistics take it."""
        if self.judged_file is not None:
            return self._cases_of_file
        count, cases = self._cases_of_run
        if cases is None or count != len(self._outcome.judged):
            cases = self._read_run()
            self._cases_of_run = (len(self._outcome.judged), cases)
        return cases

    @functools.cached_property
    def _cases_of_file(self) -> Cases:
        from harness.judge.case_frame import of_experiments, pooled
        from harness.judge.query import Cases

        return Cases(pooled(of_experiments(self._read_file)))

    def _read_run(self) -> Cases:
        """What this run measured and resumed, as it calls cases; it has one board of each name."""
        from harness.judge.case_frame import pooled, read_frame
        from harness.judge.query import Cases
        from harness.store.results import ResultsStore

        if not self._outcome.judged:
            return Cases()
        numbers, cases = zip(*self._outcome.judged)
        with ResultsStore(self.results, read_only=True) as store:
            frame = read_frame(store, numbers)
        return Cases(pooled(frame.assign(device_label=frame["device_name"], case=list(cases))))

    def keep(self, claim: Optional[Claim], device: str, verdict: Optional[Verdict]) -> None:
        if claim is not None:
            self.decided[device, claim.name] = verdict

    def accepts(self, verdict: Verdict) -> bool:
        return not verdict.fails(self.is_asserted)

    def store(self) -> None:
        """Store the verdicts in the results file. A run keeps verdicts on profiles that it did not measure."""
        from harness.judge.claims import store_verdicts
        from harness.store.results import ResultsStore

        is_whole = self.judged_file is not None
        kept = {place: verdict for place, verdict in self.decided.items() if is_whole or verdict is not None}
        try:
            if kept:
                with ResultsStore(self.results) as store:
                    store_verdicts(store, kept)
        except HarnessError as error:
            self.not_stored = str(error)


_CLAIMS = pytest.StashKey[ClaimsOfRun]()


def claims_of_run(config: pytest.Config) -> ClaimsOfRun:
    if _CLAIMS not in config.stash:
        config.stash[_CLAIMS] = ClaimsOfRun(config)
    return config.stash[_CLAIMS]


def is_claim(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "function", None), "claim")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A file that cannot be judged ends the run here."""
    if is_judging(config):
        try:
            claims_of_run(config).devices  # noqa: B018
        except HarnessError as error:
            raise pytest.UsageError(in_words_of_pytest(error)) from error


def parametrize_judged(metafunc: pytest.Metafunc) -> None:
    """A test that takes a statistic runs for each device: of the campaign, or of the file of `--judge`."""
    if is_judging(metafunc.config):
        devices = claims_of_run(metafunc.config).devices
    else:
        plan = plan_of(metafunc.config)
        devices = plan.devices() if plan.takes_part(metafunc.definition.path) else [NO_CASE]
    metafunc.parametrize(JUDGED_DEVICE, devices, indirect=True)


@fixture
def judged_device(request: pytest.FixtureRequest) -> str:
    """The device whose profiles are judged, one after the other."""
    return str(request.param)


@fixture
def judging(request: pytest.FixtureRequest, judged_device: str) -> ClaimOnDevice:
    """The cases of one device, to which the statistics of a claim are bound."""
    from harness.judge.claims import ClaimOnDevice, claim_of

    run = claims_of_run(request.config)
    with as_pytest_outcome():
        bound = ClaimOnDevice(claim_of(request.function), run.cases, judged_device, run.accepts)
        try:
            bound.check()
        except CannotRunError:
            run.keep(bound.claim, judged_device, None)
            raise
    return bound


def judging_own_figures(request: pytest.FixtureRequest, name: str, facts: DeviceFacts) -> ClaimOnDevice:
    """What `judging` is in a file whose claims are judged on figures of its own, and not on profiles."""
    from harness.judge.claims import ClaimOnDevice, claim_of
    from harness.judge.query import Cases

    own = ClaimOnDevice(claim_of(request.function), Cases(), name, claims_of_run(request.config).accepts, facts)
    own.check()
    return own


class ClaimHooks:
    """Hooks around the tests of a run with claims; registered if some were collected."""

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        """Run a claim: its verdict is kept, and fails the test according to the rules of the run.

        It is skipped if there are no profiles to judge, or no sensor.
        """
        bound = cast("Optional[ClaimOnDevice]", pyfuncitem.funcargs.get(JUDGING))
        if bound is None:
            return (yield)
        run, result = claims_of_run(pyfuncitem.config), None
        with as_pytest_outcome():
            try:
                result = yield
                verdict = None if bound.claim is None else bound.checked_verdict()
            except CannotRunError as error:
                run.keep(bound.claim, bound.device, None)
                left_out = bound.device_facts.left_out
                raise CannotRunError(
                    f"{error}; left out: {left_out_of_verdicts(left_out)}" if left_out else str(error)
                ) from None
            except AssertionError:
                verdict = bound.verdict
                if verdict is None or run.accepts(verdict):
                    raise
        if verdict is not None:
            run.keep(bound.claim, bound.device, verdict)
            if not run.accepts(verdict):
                pytest.fail(verdict.text, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Claims that are skipped for one reason are one line of the summary: there are more than a hundred."""
        report: pytest.TestReport = yield
        if report.skipped and is_claim(item) and isinstance(report.longrepr, tuple):
            report.longrepr = (str(item.path.parent), None, report.longrepr[2])  # type: ignore[assignment]
        return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Register the hooks of claims if a test is a claim, or takes a statistic as claims do."""
    if any(is_claim(item) or takes("judged_device", item) for item in items):
        config.pluginmanager.register(ClaimHooks())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _CLAIMS in session.config.stash:
        session.config.stash[_CLAIMS].store()


def _bound(name: str) -> Any:
    def statistic(judging: ClaimOnDevice) -> Callable[..., CaseFigures]:
        return judging.statistic(name)

    statistic.__name__ = name
    statistic.__doc__ = f"`harness.judge.statistics.{name}`, of the device that is judged: `assert {name}(...) < 1`."
    return fixture(statistic)


value, ratio, correlation = _bound("value"), _bound("ratio"), _bound("correlation")
over_epochs, over_boards, over_modes = _bound("over_epochs"), _bound("over_boards"), _bound("over_modes")
as_printed, watts_saved = _bound("as_printed"), _bound("watts_saved")
time_over_data_sizes, throttled_share = _bound("time_over_data_sizes"), _bound("throttled_share")
error_of_short_profiles = _bound("error_of_short_profiles")
share_without_power_sample = _bound("share_without_power_sample")
