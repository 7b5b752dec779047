"""Whole trainings under a deadline and an energy budget: figures worked out by hand, and boards that miss a limit."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from harness.core.errors import InvalidValueError
from harness.workloads import get_workload
from jetwatt import Budget, Job, Search, recommend
from predictors.choose.whole_training import Training, forecast, format_forecasts, on_another_board, plain_forecasts
from predictors.forecast import Forecast
from predictors.settings import Settings
from tests.messages import says

MODES = np.array([(4, 1_000_000, 500_000, 800_000), (8, 2_000_000, 1_000_000, 1_600_000)])
CANDIDATES = Settings.of(MODES)
# 3,600 samples in batches of 16 are 225 minibatches: of 100 ms, 160 epochs take an hour.
EPOCHS, SAMPLES = 160.0, 3600


def posterior(time_ms=(200.0, 100.0), power_w=(10.0, 30.0), sd=0.1, measured=(False, False), freedom=math.inf):
    """Two modes: the slow one takes 2 h and 20 Wh, the fast one 1 h and 30 Wh."""
    sds = np.full(2, sd)
    return Forecast(CANDIDATES, np.log(time_ms), sds, np.log(np.array(power_w) * 1e3), sds, freedom, np.array(measured))


def forecast_of(deadline_h=None, energy_wh=None, risk=0.05, found=None, **limits):
    training = Training(EPOCHS, SAMPLES, deadline_h, energy_wh, risk)
    board = "board1", "sim:orin-agx@1"
    return forecast(found or posterior(), CANDIDATES, np.array([True, True]), training, *board, limits)


def test_the_fastest_and_the_cheapest_mode_take_what_can_be_worked_out_by_hand():
    board = forecast_of(deadline_h=3.0, energy_wh=50.0, risk=0.2)
    assert board.feasible
    assert (board.fastest.power_mode.cpu_cores, board.cheapest.power_mode.cpu_cores) == (8, 4)
    assert board.fastest.hours.value == pytest.approx(1.0)
    assert board.fastest.energy_wh.value == pytest.approx(30.0)
    assert board.fastest.epoch_s.value == pytest.approx(22.5)
    assert (board.cheapest.hours.value, board.cheapest.energy_wh.value) == pytest.approx((2.0, 20.0))
    eighty = math.exp(norm.ppf(0.9) * 0.1)
    assert (board.fastest.hours.low, board.fastest.hours.high) == pytest.approx((1 / eighty, eighty))
    assert board.fastest.energy_wh.high == pytest.approx(30 * eighty ** math.sqrt(2))


def test_the_risk_is_the_probability_that_the_likelier_limit_is_missed():
    board = forecast_of(deadline_h=math.exp(0.1), energy_wh=30 * math.exp(0.2), risk=0.2)
    assert board.fastest.deadline_risk == pytest.approx(norm.sf(1.0))
    assert board.fastest.energy_risk == pytest.approx(norm.sf(math.sqrt(2)))
    assert board.fastest.risk == board.fastest.deadline_risk
    heavy = forecast_of(deadline_h=math.exp(0.1), risk=0.2, found=posterior(freedom=4.0))
    assert heavy.fastest.risk == pytest.approx(t(4.0).sf(1.0))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"deadline_h": 0.5}, "its fastest mode, 8c-.*, takes 1 h"),
        ({"energy_wh": 15.0}, "its cheapest mode, 4c-.*, takes 20 Wh"),
        ({"deadline_h": 0.5, "energy_wh": 15.0}, "fastest .*; its cheapest"),
        ({"deadline_h": 1.1, "energy_wh": 25.0}, "the safest mode, .* misses a limit with"),
        ({"deadline_h": 1.01}, "the safest mode, 8c-.* misses a limit with 46 %"),
    ],
)
def test_a_board_that_cannot_keep_the_limits_says_which_and_by_how_much(limits, words):
    board = forecast_of(**limits)
    assert not board.feasible
    assert board.fastest is board.cheapest is None
    assert len(re.findall(words, board.why_not)) == 1


def test_a_slower_board_misses_a_deadline_that_the_first_one_keeps():
    slower = on_another_board(posterior(sd=0.005, measured=(True, True)), 1.2, 0.9)
    board = forecast_of(deadline_h=1.1, found=slower)
    assert "takes 1.2 h" in board.why_not
    assert forecast_of(deadline_h=1.1, found=posterior(sd=0.005, measured=(True, True))).feasible
    cheap = forecast_of(energy_wh=23.0, found=slower).cheapest
    assert (cheap.hours.value, cheap.energy_wh.value) == pytest.approx((2.4, 20 * 1.2 * 0.9))
    # A profile of another board, and the two that its scale comes from, differ by half a percent each.
    assert math.log(cheap.hours.high / cheap.hours.value) == pytest.approx(norm.ppf(0.9) * 0.005 * math.sqrt(3))


@pytest.mark.parametrize("measured", [True, False])
def test_limits_of_power_and_minibatch_time_hold_for_the_forecast_too(measured):
    found = posterior(sd=0.05, measured=(measured, measured))
    assert forecast_of(deadline_h=3.0, found=found).fastest.power_mode.cpu_cores == 8
    frugal = forecast_of(deadline_h=3.0, found=found, power_mw=20e3)
    assert frugal.fastest == frugal.cheapest
    assert frugal.fastest.power_mode.cpu_cores == 4
    assert "its fastest mode, 4c-" in forecast_of(deadline_h=1.2, found=found, power_mw=20e3).why_not
    nothing = forecast_of(deadline_h=3.0, found=found, power_mw=20e3, time_ms=150.0)
    assert says(nothing.why_not, "no mode", "power at most 20 W", "minibatch time at most 150 ms")


@pytest.mark.exhaustive
def test_a_recommendation_forecasts_within_its_power_budget():
    options = {"budget": Budget(deadline_h=9000), "search": Search(profiles=8)}
    answer = recommend("sim:orin-nano", workload="resnet18-imagenet", power_w=10, **options)
    [[board]] = answer.boards
    assert board.fastest.energy_wh.value / board.fastest.hours.value <= 10.0


@given(st.floats(0.5, 4), st.floats(10, 60), st.floats(0.01, 0.5), st.floats(1, 3))
def test_looser_limits_never_make_a_board_infeasible_nor_its_modes_worse(deadline_h, energy_wh, risk, factor):
    tight = forecast_of(deadline_h, energy_wh, risk)
    loose = forecast_of(deadline_h * factor, energy_wh * factor, risk)
    if tight.feasible:
        assert loose.fastest.hours.value <= tight.fastest.hours.value
        assert loose.cheapest.energy_wh.value <= tight.cheapest.energy_wh.value
        assert tight.fastest.risk <= risk


def test_boards_are_a_table_and_plain_values():
    training = Training(EPOCHS, SAMPLES, 1.5, 50.0, 0.05)
    boards = [
        forecast(posterior(sd=sd), CANDIDATES, np.ones(2, bool), training, name, name)
        for sd, name in ((0.1, "a"), (0.5, "b"))
    ]
    text = format_forecasts(training, boards, "simulated")
    assert says(text, "160 epochs", "1.5 h", "50 Wh", "5 %", "simulated")
    assert "8c-2000-1000-1600 (predicted)" in text
    plain = json.loads(json.dumps(plain_forecasts(training, boards), allow_nan=False))
    assert [one["feasible"] for one in plain["boards"]] == [True, False]
    assert plain["boards"][0]["fastest"]["hours"]["value"] == pytest.approx(1.0)
    assert plain["boards"][1]["fastest"] is None


@pytest.mark.exhaustive
def test_one_device_says_whether_it_trains_in_time():
    options = {"workload": Job("resnet18-imagenet", epochs=2), "search": Search("random", profiles=8)}
    answer = recommend("sim:orin-agx", budget=Budget(deadline_h=20, energy_wh=200), **options)
    [board] = answer.boards[0]
    assert board.feasible
    mode = next(one for one in answer.recommendations[0][0].front if one.power_mode == board.fastest.power_mode)
    epoch_s = mode.time_ms.value / 1000 * (get_workload("resnet18-imagenet").real_samples // 16)
    assert board.fastest.epoch_s.value == pytest.approx(epoch_s, rel=1e-6)
    assert board.fastest.hours.value == pytest.approx(2 * epoch_s / 3600, rel=1e-3)
    assert answer.forecasts()["feasible"].tolist() == [True]
    assert answer.plain()["training"]["boards"][0]["fastest"]["mode"] == board.fastest.power_mode.name
    hopeless = recommend("sim:orin-agx", budget=Budget(deadline_h=0.01), **options)
    assert not hopeless.keeps_limits
    assert "its fastest mode" in hopeless.boards[0][0].why_not


@pytest.mark.parametrize("limit", [{"deadline_h": 6.0}, {"energy_wh": 200.0}])
@pytest.mark.parametrize("sizes", [30000, [16, 30000]])
def test_a_minibatch_larger_than_an_epoch_is_refused_where_the_whole_training_is_limited(limit, sizes):
    job, budget = Job("mobilenetv3-gld23k", sizes, epochs=20), Budget(**limit)
    with pytest.raises(InvalidValueError, match=r"30000 samples .*mobilenetv3-gld23k"):
        recommend("sim:orin-agx", workload=job, budget=budget)
