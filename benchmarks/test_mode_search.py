"""What does a search for a power mode cost, and how good is the mode that it finds (E22; 000 sec. 4.2)?

The goal is the least time within a share of the power that MAXN draws: see `predictors.contest.mode_search`.
"""

import functools

import pytest

from harness.core.errors import SourceUnavailableError
from harness.fixtures import as_pytest_outcome, within_time_budget
from harness.judge.claims import DeviceFacts, claim, known
from harness.judging import JUDGING, judging_own_figures
from harness.outcome import OUTCOME
from harness.plan import plan_of
from predictors.choose.device_profiler import RunResults
from predictors.choose.request import Search
from predictors.contest.mode_search import (
    CLOSED_LOOP,
    HALVING,
    ModeSearches,
    closed_loop_over_halving,
    excess_of_chosen,
    profiles_of_halving,
    slowdown_by_halving,
)


@pytest.fixture(scope="session")
def searches():
    """The searches of this run; other files' tests run before they are judged."""
    return ModeSearches()


def test_mode_search(searches, case, device, results, progress, pytestconfig, request):
    """Search for the mode that is fastest within a power budget; what was measured of it keeps the budget."""
    outcome, is_alone = pytestconfig.stash[OUTCOME], plan_of(pytestconfig).is_named(request.path)
    how = {
        "results": RunResults(results, outcome.environment, outcome.run_id),
        "search": Search(resume=pytestconfig.getoption("jetwatt_resume")),
    }
    progress = plan_of(pytestconfig).watched_progress(request.node, progress)
    with as_pytest_outcome(SourceUnavailableError), within_time_budget(request.node):
        found = searches.search(device, case, progress, may_lower_clocks=is_alone, **how)
    assert all(one.over <= 1.0 for one in found)


@pytest.fixture
def outcomes(searches, judged_device):
    """The outcomes of this run's searches on a device."""
    with as_pytest_outcome():
        return searches.of(judged_device)


@pytest.fixture(name=JUDGING)
def judging(request, judged_device, outcomes):
    """Claims are judged on the outcomes of searches, in the place of profiles."""
    board = plan_of(request.config).board(judged_device)
    with as_pytest_outcome():
        return judging_own_figures(request, judged_device, DeviceFacts(board, outcomes[0].provenance))


@pytest.fixture
def searched(judging, outcomes):
    """A figure of the searches, whose comparison makes the verdict."""
    return lambda figures: judging.bound(figures(outcomes))


@claim("000 4.2", facts="F130 F131")
def test_halving_profiles_about_as_many_modes_as_log2_of_their_number(searched):
    """Search by halving profiles about as many modes as the logarithm to base 2 of the number of all modes."""
    assert searched(profiles_of_halving).within(0.5, 1.2)


@claim("000 Abstract", facts="F001")
def test_the_mode_that_halving_chooses_keeps_the_limits(searched):
    """The mode that search by halving chooses keeps the limits of power and latency, within 3 %."""
    assert searched(functools.partial(excess_of_chosen, strategy=HALVING)) < 1.03


@claim(
    "000 Abstract",
    facts="F001",
    shortfall=known(0.99, 2.5, "a candidate that one profile ruled out is never tried again"),
)
def test_halving_finds_the_best_mode(searched):
    """The mode that halving chooses takes at most 5 % longer than the best mode that keeps the limits."""
    assert searched(slowdown_by_halving) < 1.05


def test_the_mode_that_a_closed_loop_chooses_keeps_the_limits(searched):
    """Within 3 %, as that of halving."""
    assert searched(functools.partial(excess_of_chosen, strategy=CLOSED_LOOP)) < 1.03


def test_a_closed_loop_is_no_slower(searched):
    """On average over the goals, the mode that a closed loop chooses is no slower than that of halving."""
    assert searched(closed_loop_over_halving) < 1.05
