"""What does a search for a power mode cost, and how good is the mode that it finds (E22; 000 sec. 4.2)?

The goal is the least time within a share of the power that MAXN draws: see `predictors.search.mode_search`.
"""

import pytest

from harness.core.errors import SourceUnavailableError
from harness.fixtures import as_pytest_outcome, within_time_budget
from harness.outcome import OUTCOME
from harness.plan import plan_of
from predictors.search.mode_search import ModeSearches


@pytest.fixture(scope="session")
def searches():
    """The searches of this run; other files' tests run before they are judged."""
    return ModeSearches()


def test_mode_search(searches, case, device, results, progress, pytestconfig, request):
    """Search for the mode that is fastest within a power budget; what was measured of it keeps the budget."""
    outcome, is_alone = pytestconfig.stash[OUTCOME], plan_of(pytestconfig).is_named(request.path)
    how = {"store": results, "environment": outcome.environment, "run_id": outcome.run_id}
    progress = plan_of(pytestconfig).watched_progress(request.node, progress)
    with as_pytest_outcome(SourceUnavailableError), within_time_budget(request.node):
        found = searches.search(
            device, case, progress, resume=pytestconfig.getoption("jetwatt_resume"), may_lower_clocks=is_alone, **how
        )
    assert all(one.over <= 1.0 for one in found)


def test_takeaways(searches, judged_device, progress, pytestconfig):
    """000 sec. 4.2."""
    told = searches.judge(judged_device)
    if not told:
        pytest.skip(f"on {judged_device} no search was asked for, or none came to an end")
    for line, _ in told:
        progress.line(f"    {line}")
    wrong = [line for line, is_wrong in told if is_wrong]
    is_asserted = pytestconfig.getoption("jetwatt_assert_takeaways") or judged_device.startswith("sim:")
    assert not (wrong and is_asserted), "\n".join(wrong)
