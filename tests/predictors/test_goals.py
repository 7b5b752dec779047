"""Goals: objectives, limits, and what they mean for distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError, UnknownNameError
from predictors.goals import (
    QUANTITIES,
    Goal,
    budget_goals,
    budget_in_mw,
    log_distribution,
    power_budget,
    value_of,
    within,
)

figures = st.floats(1.0, 1e6)


@given(figures, figures, st.integers(1, 512), st.sampled_from(sorted(QUANTITIES)))
def test_the_logarithm_of_a_quantity_is_the_sum_of_the_logarithms(time_ms, power_mw, batch, name):
    time, power, size = np.array([time_ms]), np.array([power_mw]), np.array([batch])
    mean, _ = log_distribution(name, (np.log(time), time * 0), (np.log(power), power * 0), size)
    assert np.exp(mean) == pytest.approx(value_of(name, time, power, size))


def test_energy_is_uncertain_by_time_and_by_power():
    one = np.array([1.0])
    _, sd = log_distribution("energy_mws", (one, 0.3 * one), (one, 0.4 * one), one)
    assert sd == pytest.approx(0.5)


def test_energy_of_a_minibatch_is_in_milliwatt_seconds():
    assert value_of("energy_mws", np.array(200.0), np.array(30_000.0), np.array(16)) == pytest.approx(6000.0)


def test_excess_is_that_of_the_worst_limit():
    goal = Goal("energy_mws", {"power_mw": 20_000.0, "time_ms": 100.0})
    assert goal.excess(np.array([50.0, 130.0]), np.array([22_000.0, 10_000.0]), np.array([16, 16])) == pytest.approx(
        [0.1, 0.3]
    )


def test_a_goal_without_limits_is_kept_by_everything():
    assert (Goal("power_mw").excess(np.ones(3), np.ones(3), np.ones(3)) < 0).all()


@pytest.mark.parametrize("limit", [0.0, float("nan"), float("inf")])
def test_a_limit_that_nothing_can_meet_is_refused(limit):
    with pytest.raises(InvalidValueError, match="power_mw"):
        Goal("time_ms", {"power_mw": limit})


@pytest.mark.parametrize(
    ("limit_mw", "power_mw", "breaks"),
    [(50_000.0, 50_900.0, False), (50_000.0, 51_100.0, True), (10_000.0, 10_300.0, True), (5_000.0, 5_140.0, False)],
)
def test_a_limit_is_broken_by_a_share_of_it_that_the_sensor_can_tell(limit_mw, power_mw, breaks):
    assert power_budget(limit_mw).breaks(100.0, power_mw, 16) == breaks
    assert Goal("power_mw", {"time_ms": 100.0}).breaks(np.array([101.0, 103.0]), power_mw, 16).tolist() == [False, True]


def test_the_worst_limit_is_named_and_where_all_are_kept_the_objective():
    goal = Goal("sample_time_ms", {"power_mw": 20_000.0, "time_ms": 100.0})
    worst = [goal.worst(*how, 16) for how in ((120.0, 22_000.0), (105.0, 22_000.0), (90.0, 19_000.0))]
    assert worst == ["time_ms", "power_mw", "sample_time_ms"]


def test_each_latency_is_a_limit_beside_each_budget():
    goals = budget_goals("20,30", "sample_time_ms", [50.0, 200.0])
    assert [goal.limits["time_ms"] for goal in goals] == [50.0, 200.0] * 2
    assert {goal.minimise for goal in goals} == {"sample_time_ms"}


def test_an_unknown_quantity_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="energy_mws"):
        Goal("joules")


def test_budgets_are_written_as_a_range_or_a_list():
    assert budget_goals("17:50:1") == [power_budget(1e3 * watts) for watts in range(17, 51)]
    assert budget_goals("15,30.5") == [power_budget(15e3), power_budget(30.5e3)]


@pytest.mark.parametrize("text", ["", "10:20", "0:5:1", "5:1:1"])
def test_budgets_that_are_none_are_refused(text):
    with pytest.raises(InvalidValueError, match="budgets"):
        budget_goals(text)


@pytest.mark.parametrize("make", [
    lambda budget_w: within(budget_w, None), lambda budget_w: budget_goals(f"{budget_w}"), budget_in_mw,
], ids=["within", "budget_goals", "budget_in_mw"])  # fmt: skip
def test_a_budget_that_no_device_draws_is_refused(make):
    make(5000.0)
    with pytest.raises(InvalidValueError) as refused:
        make(30_000.0)
    assert refused.value.hint == "budgets are in W; 30000 mW are 30 W"


@pytest.mark.parametrize(
    ("power_w", "time_ms", "of_a_minibatch", "of_a_sample"),
    [(30.0, None, "time_ms", "sample_time_ms"), (None, 50.0, "power_mw", "power_mw"),
     (30.0, 50.0, "energy_mws", "sample_energy_mws")],
)  # fmt: skip
def test_where_the_batch_size_is_free_time_and_energy_are_those_of_a_sample(
    power_w, time_ms, of_a_minibatch, of_a_sample
):
    assert within(power_w, time_ms).minimise == of_a_minibatch
    assert within(power_w, time_ms, per_sample=True).minimise == of_a_sample
