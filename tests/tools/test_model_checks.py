"""Checks of the simulation's model: claims that no profile of a campaign tells."""

import msgspec
import pytest

from tools.model_checks import CHECKS, check_model, load_statements
from tools.simulated_answers import BOARD, Boards, fitted_parameters

SHORTFALLS = {one.check: one.shortfall for one in load_statements() if one.check and one.shortfall}


@pytest.fixture(scope="module")
def results():
    return {one.name: one for one in check_model()}


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_the_model_behaves_as_the_papers_say_or_as_is_known(results, name):
    found = results[name]
    assert found.holds == (name not in SHORTFALLS), f"{found.says} Found: {found.found}"
    assert found.is_as_known
    assert len(found.says.split()) >= 10
    assert found.facts


def wrong_boards(**changes):
    return Boards(
        {
            owner: msgspec.structs.replace(one, **changes) if owner[0] == BOARD else one
            for owner, one in fitted_parameters().items()
        }
    )


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"wol_mw": 1e5}, "wake_on_lan_of_the_model_draws_least"),
        ({"wol_mw": 1e5}, "waking_for_a_job_saves_energy"),
        ({"system_bytes": 1e12}, "a_larger_model_leaves_less_cache_and_stalls_more"),
    ],
)
def test_a_check_fails_on_boards_that_are_built_wrong(changes, broken):
    check = next(check for check in CHECKS if check.__name__ == broken)
    assert not check(wrong_boards(**changes))[0]
