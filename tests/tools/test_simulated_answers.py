"""What simulated boards answer to figures: the same as asking the model by hand."""

import msgspec
import numpy as np
import pytest

from harness.core.boards import load_board
from harness.core.errors import HarnessError
from harness.judge.published_figures import Condition, PublishedFigure
from harness.simulation.model import Load, cached_share, idle_power_mw, simulate
from harness.simulation.parameters import load_board_parameters, load_workload_parameters
from tools.simulated_answers import BOARD, Boards, answers, find_modes, fitted_parameters

pytestmark = pytest.mark.one_python

RESNET = Condition("orin-agx", "resnet18-imagenet", "default")
LENET = Condition("xavier-agx", "lenet-mnist", "g")


def figure(condition, metric, unit, relation="value", versus=None):
    return PublishedFigure("F1", "001", "1", condition, versus, metric, relation, "=", 1.0, 1.0, unit)


def answer(one, parameters=None, rough=True):
    return answers([one], parameters, rough=rough)[0]


def by_hand(device, workload, modes, **load):
    board = load_board_parameters(device)
    parameters = load_workload_parameters(workload)
    share = cached_share(board, parameters, workers=load.get("workers", 4))
    return simulate(board, parameters, np.array(modes), Load(cached_share=share, **load), rough=False)


def test_an_epoch_is_its_minibatches_the_last_of_which_need_not_be_full_and_energy_is_power_times_time():
    asked = RESNET._replace(batch_size=48)
    metrics = (("epoch_time", "h"), ("minibatch_time", "ms"), ("power", "W"), ("energy", "Wh"))
    hours, minibatch_ms, power_w, energy_wh = (answer(figure(asked, *one), rough=False) for one in metrics)
    response = by_hand("orin-agx", "resnet18-imagenet", find_modes("orin-agx", "default").table, batch_size=48)
    assert minibatch_ms == pytest.approx(float(response.minibatch_time_ms[0]))
    assert hours == pytest.approx(1042 * minibatch_ms / 3.6e6)  # 50,000 / 48 = 1,041.7
    assert energy_wh == pytest.approx(power_w * hours)


def test_a_ratio_is_of_the_condition_to_what_it_is_compared_with():
    without = LENET._replace(workers=0)
    ratio = answer(figure(without, "stall_time", "x", "ratio", LENET), rough=False)
    stalls = [
        float(by_hand("xavier-agx", "lenet-mnist", find_modes("xavier-agx", "g").table, workers=w).stall_ms[0])
        for w in (0, 4)
    ]
    assert ratio == pytest.approx(stalls[0] / stalls[1])
    change = answer(figure(without, "stall_time", "%", "change", LENET), rough=False)
    assert change == pytest.approx(100.0 * (ratio - 1.0))


def test_least_greatest_and_spread_are_over_the_modes_that_are_named():
    some = LENET._replace(power_mode="a,e,g")
    powers = by_hand("xavier-agx", "lenet-mnist", find_modes("xavier-agx", "a,e,g").table).power_mw / 1000.0
    assert answer(figure(some, "power", "W", "least"), rough=False) == pytest.approx(powers.min())
    assert answer(figure(some, "power", "W", "greatest"), rough=False) == pytest.approx(powers.max())
    spread = answer(figure(some, "power", "%", "spread"), rough=False)
    assert spread == pytest.approx(100.0 * (powers.max() - powers.min()) / powers.max())


def test_the_best_mode_within_a_budget_is_the_fastest_that_meets_it():
    condition = RESNET._replace(power_mode="grid:paper within 30 W")
    response = by_hand("orin-agx", "resnet18-imagenet", find_modes("orin-agx", "grid:paper").table)
    within = response.power_mw <= 30_000.0
    best = response.minibatch_time_ms[within].min()
    assert answer(figure(condition, "best_epoch_time", "ms"), rough=False) == pytest.approx(best * 3125.0)
    power_w = answer(figure(condition, "best_power", "W"), rough=False)
    assert power_w == pytest.approx(response.power_mw[response.minibatch_time_ms == best][0] / 1000.0)
    assert power_w <= 30.0


def test_profiling_takes_minibatches_and_settling_of_as_many_modes():
    response = by_hand("orin-agx", "resnet18-imagenet", find_modes("orin-agx", "grid:paper").table)
    seconds = 50 * (41 * float(response.minibatch_time_ms.mean()) / 1000.0 + 2.5)
    condition = RESNET._replace(power_mode="50 of grid:paper")
    assert answer(figure(condition, "profiling_time", "s"), rough=False) == pytest.approx(seconds)


def test_a_cold_epoch_reads_everything():
    cold = LENET._replace(workload="mobilenetv3-gld23k", storage="hdd", workers=0, cache="cold")
    assert answer(figure(cold, "cached_share", "%")) == 0.0
    assert answer(figure(cold._replace(cache="warm"), "cached_share", "%")) == pytest.approx(100.0)


def test_a_figure_of_several_boards_is_their_mean():
    boards = ("xavier-agx", "xavier-nx", "nano")
    each = [answer(figure(Condition(board, "lenet-mnist", "default"), "power", "W"), rough=False) for board in boards]
    every = Condition(",".join(boards), "lenet-mnist", "default")
    assert answer(figure(every, "power", "W"), rough=False) == pytest.approx(np.mean(each))


def test_an_idle_board_trains_nothing():
    idle = Condition("nano", "", "default")
    board, modes = load_board_parameters("nano"), load_board("nano").modes_by_name()
    expected = idle_power_mw(board, modes["MAXN"]) / 1000.0
    assert answer(figure(idle, "baseload_power", "W")) == pytest.approx(expected)


def test_trial_parameters_are_used_in_place_of_the_files():
    fitted = fitted_parameters()
    board = fitted[BOARD, "orin-agx"]
    slow = msgspec.structs.replace(board, flop_efficiency=board.flop_efficiency / 2)
    one = figure(RESNET, "minibatch_compute", "ms")
    assert answer(one, {**fitted, (BOARD, "orin-agx"): slow}, rough=False) > 1.3 * answer(one, rough=False)


@pytest.mark.parametrize(
    ("changes", "metric", "named"),
    [
        ({}, "beauty", "beauty"),
        ({"workload": "chess"}, "power", "chess"),
        ({"device": "thor"}, "power", "thor"),
        ({"power_mode": "many of grid:paper"}, "power", "many of grid:paper"),
        ({"power_mode": "grid:paper within 1 W"}, "best_power", "within 1 W"),
    ],
)
def test_what_is_unknown_makes_no_sense_or_cannot_be_is_named(changes, metric, named):
    with pytest.raises(HarnessError, match=named):
        Boards().values(RESNET._replace(**changes), metric)
