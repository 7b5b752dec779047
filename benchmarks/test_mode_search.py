"""What does a search for a power mode cost, and how good is the mode that it finds (E22; 000 sec. 4.2)?

The goal is the least time within a share of the power that MAXN draws: see `predictors.cli.mode_search`.
"""

from __future__ import annotations

from typing import Callable, Dict, List

import pytest

from harness.core.cases import CONCURRENT, INFERENCE, Case
from harness.core.device import Device
from harness.core.errors import SourceUnavailableError
from harness.core.terminal import Progress
from harness.fixtures import as_pytest_outcome
from harness.run_state import STATE
from harness.store.results import ResultsStore
from predictors.cli.device_profiler import DeviceProfiler
from predictors.cli.mode_search import BATCHES, SearchOutcome, judge_searches, plan, search


@pytest.fixture(scope="session")
def outcomes() -> Dict[str, List[SearchOutcome]]:
    """What the searches of this run came to, by device; other files' tests run before they are judged."""
    return {}


@pytest.fixture
def search_modes(
    request: pytest.FixtureRequest, case: Case, held_device: Device, results: ResultsStore
) -> Callable[[], List[SearchOutcome]]:
    """A function that searches for a case's mode; skips where there is no power, or clocks may only fall."""
    state = request.config.stash[STATE]
    only_falls = held_device.clocks_only_fall and held_device.provenance == "measured"

    def run() -> List[SearchOutcome]:
        if only_falls and not state.is_named(request.path):
            pytest.skip("a search raises clocks, which this board may refuse: name this file to run it alone")
        if case.task == CONCURRENT:
            return plan(held_device, case, state.progress.update)
        sizes = BATCHES if case.task == INFERENCE else (case.batch_size,)
        profiler = DeviceProfiler(
            held_device,
            case,
            held_device.power_modes("all", case.workload),
            batch_sizes=sizes,
            store=results,
            environment=state.environment,
            run_id=state.run_id,
            resume=request.config.getoption("jetwatt_resume"),
            report=state.progress.update,
        )
        return search(held_device, case, profiler, sizes)

    def run_or_skip() -> List[SearchOutcome]:
        with as_pytest_outcome(SourceUnavailableError):
            return run()

    return run_or_skip


def test_mode_search(
    search_modes: Callable[[], List[SearchOutcome]],
    case: Case,
    outcomes: Dict[str, List[SearchOutcome]],
    progress: Progress,
) -> None:
    """Search for the mode that is fastest within a power budget; what was measured of it keeps the budget."""
    found = search_modes()
    for one in found:
        progress.line(one.text)
    outcomes.setdefault(case.device, []).extend(found)
    missed = [one.goal for one in found if one.over > 1.0 and one.slower is None]
    if missed or not found:
        pytest.skip(f"no mode is known to keep the limits: {'; '.join(missed) or case.workload}")
    assert all(one.over <= 1.0 for one in found)


def test_takeaways(
    judged_device: str, outcomes: Dict[str, List[SearchOutcome]], progress: Progress, pytestconfig: pytest.Config
) -> None:
    """000 sec. 4.2."""
    told = judge_searches(judged_device, outcomes.get(judged_device, []))
    if not told:
        pytest.skip(f"on {judged_device} no search was asked for, or none came to an end")
    for line, _ in told:
        progress.line(f"    {line}")
    wrong = [line for line, is_wrong in told if is_wrong]
    if wrong and pytestconfig.getoption("jetwatt_assert_takeaways"):
        pytest.fail("\n".join(wrong), pytrace=False)
