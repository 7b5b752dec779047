"""The papers' claims, each on simulated boards; those known to fail stand in `baselines/published/claims.csv`."""

import dataclasses

import pytest

from harness.judge.simulation_claims import CLAIMS, judge
from harness.judge.simulation_claims.published import known_shortfalls, load_statements
from tools.quantities import Boards, Parameters

STATEMENTS = load_statements()
SHORTFALLS = known_shortfalls()


@pytest.fixture(scope="module")
def boards():
    return Boards()


def case(claim):
    reason = SHORTFALLS.get(claim.name)
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(claim, marks=marks, id=claim.name)


@pytest.mark.parametrize("claim", [case(claim) for claim in CLAIMS])
def test_simulated_boards_behave_as_the_papers_say(boards, claim):
    finding = claim.check(boards)
    assert finding.holds, f"{claim.says} Found: {finding.found}"


def test_there_are_claims_enough_and_most_hold():
    assert len(CLAIMS) >= 35
    assert len(SHORTFALLS) < 0.2 * len(CLAIMS)


def test_no_statement_of_the_papers_is_dropped_silently():
    assert [statement.fact for statement in STATEMENTS if bool(statement.check) == bool(statement.unchecked)] == []


def test_checks_and_statements_name_each_other():
    stated = {(statement.fact, statement.check) for statement in STATEMENTS if statement.check}
    assert {(fact, claim.name) for claim in CLAIMS for fact in claim.facts} == stated


def test_every_claim_says_what_it_is_judged_by():
    assert [claim.name for claim in CLAIMS if len(claim.says.split()) < 10] == []


def wrong_boards(**changes):
    fitted = Parameters.fitted()
    boards = {name: dataclasses.replace(board, **changes) for name, board in fitted.boards.items()}
    return Boards(fitted._replace(boards=boards))


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"hdd_ms_per_mb": 0.1, "sd_ms_per_mb": 0.1}, "cold_stalls_follow_the_speed_of_the_medium"),
        ({"ram_bytes": 1e12}, "nx_caches_a_smaller_share_of_a_larger_data_set"),
        ({"wol_mw": 1e5}, "wake_on_lan_draws_least"),
        ({"time_noise": 0.1}, "minibatches_hardly_vary"),
        ({"cpu_speed": 0.02}, "one_worker_hides_an_ssd"),
        ({"gpu_mw": 10.0}, "power_and_time_are_inverse"),
    ],
)
def test_a_claim_fails_on_boards_that_are_built_wrong(changes, broken):
    claims = {claim.name: claim for claim in CLAIMS}
    assert not claims[broken].check(wrong_boards(**changes)).holds


def test_a_verdict_tells_what_is_known_from_what_is_new():
    verdicts = judge(wrong_boards(wol_mw=1e5))
    found = {verdict.claim.name: verdict for verdict in verdicts}
    assert [verdict.claim for verdict in verdicts] == list(CLAIMS)
    assert not found["wake_on_lan_draws_least"].is_as_known
    assert found["minibatches_hardly_vary"].is_as_known
    assert not found["minibatches_hardly_vary"]._replace(shortfall="a reason").is_as_known
