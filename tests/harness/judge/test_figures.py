"""Statistics of a frame as anybody calls them: conditions, figures against bounds, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.mode_texts import DEFAULT
from harness.core.power_modes import NamedMode, PowerMode
from harness.judge.case_frame import frame_of_profiles, pooled
from harness.judge.mode_statistics import greatest_over_least
from harness.judge.query import ANY_OTHER
from harness.judge.statistics import over_modes, ratio, value
from harness.judge.verdict import CONFIRMED, CONTRADICTED, UNDECIDED, CaseFigures, Cell, both, exactly
from harness.stats.estimates import Drawn, Estimate
from tests.harness.store.profile_examples import make_profile
from tests.named_modes import mode_on

pytest.importorskip("scipy")

DEVICE = "orin-agx"


def profile(ms=100.0, device=DEVICE, **case):
    names = ("cache", "data_scale", "clocks", "power_limit_w", "switching_ms")
    settings = {name: case.pop(name) for name in names if name in case}
    if "power_mode" in case:
        case["power_mode"] = NamedMode(case["power_mode"], PowerMode(12, 0, 0, 0))
    made = make_profile(list(np.full(60, ms)), case={"device": device, **case})
    asked = dataclasses.replace(made.case, settings=dataclasses.replace(made.case.settings, **settings))
    return dataclasses.replace(made, case=asked)


def framed(*profiles):
    return pooled(frame_of_profiles(profiles))


FRAME = framed(profile(100.0, workers=0), profile(60.0, workers=1), profile(50.0, workers=4), profile(80.0, workers=8))


def found(figures):
    return [round(cell.figure.value, 6) for cell in figures.cells]


def test_a_ratio_is_of_every_two_cases_that_differ_as_named_and_agree_in_everything_else():
    assert found(ratio(FRAME, "time", workers=(0, 4))) == [0.5]
    assert found(ratio(FRAME, "time", workers=(0, [1, 4]))) == [0.6, 0.5]
    assert found(ratio(FRAME, "time", workers=[(0, 1), (4, 8)])) == [0.6, 1.6]
    assert found(ratio(FRAME, "time", workers=(0, ANY_OTHER))) == [0.6, 0.5, 0.8]
    assert found(ratio(FRAME, "time", workers=(0, ANY_OTHER), where=lambda row: row.case.workers < 4)) == [0.6]
    assert found(ratio(FRAME, "time", either=[{"workers": (0, 1)}, {"workers": (0, 8)}])) == [0.6, 0.8]
    other = framed(profile(100.0, workers=0), profile(50.0, workers=4, batch_size=8))
    assert found(ratio(other, "time", workers=(0, 4))) == []
    assert found(ratio(other, "time", workers=(0, 4), batch_size=(16, 8))) == [0.5]
    assert found(ratio(other, "time", workers=(0, 4), batch_size=(16, 8), per_sample=True)) == [1.0]


def test_a_value_is_of_each_case_that_is_as_named_on_each_device_or_on_one():
    assert found(value(FRAME, "time", workers=[0, 8])) == [100.0, 80.0]
    two = framed(profile(100.0), profile(40.0, device="xavier-agx"))
    assert found(value(two, "time")) == [100.0, 40.0]
    assert found(value(two, "time", device="xavier-agx")) == [40.0]
    assert found(value(framed(profile(power_mode="maxn")), "time", power_mode=DEFAULT)) == [100.0]


@pytest.mark.parametrize("setting", ["power_limit_w", "switching_ms"])
def test_cases_under_different_limits_are_no_runs_of_one_case(setting):
    limited = [profile(ms, workers=workers, **{setting: 100.0}) for ms, workers in ((200.0, 0), (120.0, 4))]
    frame = framed(profile(100.0, workers=0), profile(50.0, workers=4), *limited)
    assert found(value(frame, "time", workers=0)) == [100.0, 200.0]
    assert found(ratio(frame, "time", workers=(0, 4))) == [0.5, 0.6]


def test_runs_whose_threads_slept_while_they_waited_are_not_pooled_with_others():
    spinning, sleeping = profile(100.0, workers=0), profile(200.0, workers=0)
    sleeping = dataclasses.replace(sleeping, conditions={**sleeping.conditions, "omp_wait_policy": "PASSIVE"})
    assert found(value(framed(spinning, sleeping), "time")) == [100.0, 200.0]


def test_a_case_on_another_board_is_compared_in_the_default_mode_of_each():
    two = framed(profile(100.0, power_mode="maxn"), profile(200.0, device="xavier-agx", power_mode="maxn"))
    figures = ratio(two, "time", against="orin-agx", power_mode=DEFAULT)
    assert found(figures) == [2.0]
    assert figures.cells[0].cases[-1].device_label == "xavier-agx"
    assert figures.against == "orin-agx"


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"workers": (0, 1, 4)}, "pair"),
        ({"workers": [(0, 1), (1, 4)], "batch_size": [(1, 2), (2, 4), (4, 8)]}, "different numbers of changes"),
        ({"epochs": "lukewarm"}, "lukewarm"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(conditions, named):
    with pytest.raises(InvalidValueError, match=named):
        ratio(FRAME, "time", **conditions)
    with pytest.raises(InvalidValueError, match="warp"):
        value(FRAME, "warp")


def cells(*values, error=0.01):
    return CaseFigures([Cell(str(place), Estimate(one, error, 20)) for place, one in enumerate(values)], "ratio")


def test_figures_held_against_a_bound_are_a_verdict_and_true_where_it_is_confirmed():
    assert cells(0.8, 0.9) < 1
    assert not cells(0.8, 1.2) < 1
    assert (cells(0.8, 1.2) < 1).deciding.verdict == CONTRADICTED
    assert (cells(0.99) < 1).deciding.verdict == UNDECIDED
    assert (cells(0.8) < 1).deciding.verdict == CONFIRMED
    assert cells(1.2) > 1
    assert cells(1.0).within(0.85, 1.15)
    assert not cells(1.0, 1.3).within(0.85, 1.15)
    assert 0.85 < cells(1.0) < 1.15
    assert not 0.85 < cells(1.3) < 1.15
    assert "1.2 (1.17 to 1.23; expected below 1), n = 2, for 1" in repr(cells(0.8, 1.2) < 1)


def test_bounds_may_differ_between_boards():
    nx = {"xavier-nx": (0.9, 1.1)}
    figures = cells(1.05)
    assert not figures.within(0.97, 1.03, on=nx)
    figures.board = "xavier-nx"
    assert figures.within(0.97, 1.03, on=nx)


def test_figures_are_no_truth_and_no_figures_are_no_verdict():
    with pytest.raises(InvalidValueError, match="neither true nor false"):
        bool(cells(1.0))
    with pytest.raises(CannotRunError, match="no profiles of the compared cases"):
        ratio(FRAME, "time", workers=(0, 2)) < 1  # noqa: B015
    with pytest.raises(CannotRunError, match=r"sensor.*orin-agx .*gpu_load"):
        value(FRAME, "gpu_load", device=DEVICE) < 1  # noqa: B015


def test_figures_are_divided_where_their_cases_agree_in_what_neither_named():
    both_sizes = [
        profile(ms, workers=workers, batch_size=size)
        for workers, size, ms in [(0, 8, 40.0), (4, 8, 20.0), (0, 16, 90.0), (4, 16, 30.0)]
    ]
    frame = framed(*both_sizes, profile(10.0, workers=0, batch_size=32))
    small, large = (ratio(frame, "time", workers=(0, 4), batch_size=size) for size in (8, 16))
    assert found(large / small) == [round(1 / 3 / 0.5, 6)]
    assert (large / small).cells[0].figure.error > large.cells[0].figure.error
    by_size = ratio(frame, "time", workers=(0, 4))
    assert found(by_size / by_size) == [1.0, 1.0]
    assert found(ratio(frame, "time", workers=(0, 4)).least_over_greatest()) == [round(1 / 3 / 0.5, 6)]
    assert (by_size / value(frame, "time", batch_size=99)).cells == []


def test_counts_are_subtracted_and_averaged_without_noise():
    row = framed(profile()).iloc[0]
    three, five = (CaseFigures([exactly("points", count, row)], "points") for count in (3.0, 5.0))
    assert found(five - three) == [2.0]
    assert (five - three).cells[0].figure.draws == ()
    two = CaseFigures([*three.cells, *five.cells], "points")
    assert found(two.mean("fronts")) == [4.0]
    noisy = CaseFigures([Cell("one", Drawn(3.0, (2.0, 4.0)), (row,))], "points")
    assert noisy.exact().cells[0].figure == Drawn(3.0, ())


def test_of_two_statistics_both_have_to_hold():
    together = both(cells(0.8), cells(1.2))
    assert (together < 1).deciding.verdict == CONTRADICTED
    assert (together < 1).deciding.n == 2
    missing = CaseFigures([], "power", "no verdict without a sensor")
    with pytest.raises(CannotRunError, match="without a sensor"):
        both(cells(0.8), missing) < 1  # noqa: B015


def test_over_modes_takes_those_that_are_named_and_all_of_the_workloads_where_it_has_to():
    frame = framed(profile(100.0, power_mode="a"), profile(50.0, power_mode="b"))
    named = {"workload": "lenet-mnist", "power_mode": ["a", "b"]}
    assert found(over_modes(frame, greatest_over_least, "time", **named)) == [2.0]
    assert found(over_modes(frame, greatest_over_least, "time", **{**named, "power_mode": ["a", "b", "c"]})) == []
    assert found(over_modes(frame, greatest_over_least, "time", workload="lenet-mnist")) == []  # two say little of all
    several = {**named, "workload": ["lenet-mnist", "resnet18-cifar10"]}
    assert found(over_modes(frame, greatest_over_least, "time", **several)) == [2.0]
    assert found(over_modes(frame, greatest_over_least, "time", complete=True, **several)) == []


def test_conditions_are_those_that_a_case_has():
    assert Case(DEVICE, "lenet-mnist", mode_on(DEVICE), 4, "ssd", 16, CaseSettings()).settings.cache == "warm"
    assert len(value(FRAME, "time", cache="warm", clocks="static", task="training").cells) == 4
    assert value(FRAME, "time", task="inference").cells == []
