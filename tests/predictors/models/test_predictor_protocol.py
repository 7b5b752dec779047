"""What every predictor refuses and takes, whatever it learns: checked once, in the protocol."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from predictors.forecast import Forecast
from predictors.settings import Settings
from tests.predictors.plain_predictors import SPACE, LogLinear, made_table

TABLE = made_table()
ONE_MODE = Settings.of([[1, 1, 1, 1]])


def fitted(**params):
    return LogLinear(**params).fit(TABLE.modes, TABLE.time_ms, TABLE.power_mw)


def test_a_mode_profiled_twice_counts_once_with_the_median():
    rows = [0, 1, 2, 1, 1]
    times = np.array([10.0, 20.0, 30.0, 22.0, 90.0])
    power = np.full(5, 1000.0)
    repeated = LogLinear(ridge=1e-3).fit(TABLE.modes[rows], times, power)
    once = LogLinear(ridge=1e-3).fit(TABLE.modes[:3], [10.0, 22.0, 30.0], power[:3])
    assert np.array_equal(repeated.weights_, once.weights_)


def test_the_same_mode_at_another_batch_size_or_task_is_another_row():
    modes = TABLE.modes[[0, 0, 0]]
    LogLinear().fit(
        modes, [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], batch_size=[1, 2, 2], task=["training"] * 2 + ["inference"]
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -1.0])
@pytest.mark.parametrize("what", ["time_ms", "power_mw"])
def test_a_figure_that_is_not_above_0_is_refused_by_name(what, wrong):
    figures = {"time_ms": TABLE.time_ms.copy(), "power_mw": TABLE.power_mw.copy()}
    figures[what][3] = wrong
    with pytest.raises(InvalidValueError, match=what):
        LogLinear().fit(TABLE.modes, **figures)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -5.0])
def test_a_mode_that_is_not_above_0_is_refused_by_row_and_setting(wrong):
    modes = TABLE.modes.astype(float)
    modes[4, 2] = wrong
    with pytest.raises(InvalidValueError, match="number 4 has gpu_khz"):
        LogLinear().fit(modes, TABLE.time_ms, TABLE.power_mw)
    with pytest.raises(InvalidValueError, match="number 4 has gpu_khz"):
        fitted().predict(modes)


@pytest.mark.parametrize(
    "modes", [[], [1, 2, 3, 4], [[1, 2, 3]], [[[1, 2, 3, 4]]], [["a", 1, 1, 1]], None, [[1, 2], [3]]]
)
def test_modes_of_another_form_are_refused(modes):
    with pytest.raises(InvalidValueError, match="power modes"):
        fitted().predict(modes)


@pytest.mark.parametrize("size", [[16, 16], [[16] * 54], [16, 8, 4], 0, -1, np.nan, "many"])
def test_batch_sizes_that_do_not_fit_are_refused(size):
    with pytest.raises(InvalidValueError, match="batch_size"):
        fitted().predict(TABLE.modes, batch_size=size)


@pytest.mark.parametrize("task", ["sleeping", ["training"] * 3, ["training"] * 53 + ["rest"]])
def test_tasks_that_do_not_fit_are_refused(task):
    with pytest.raises(InvalidValueError, match="task"):
        fitted().predict(TABLE.modes, task=task)


def test_as_many_figures_as_modes_are_asked_for():
    with pytest.raises(InvalidValueError, match=r"time_ms has shape \(53,\)"):
        LogLinear().fit(TABLE.modes, TABLE.time_ms[1:], TABLE.power_mw)


def test_a_mode_outside_the_space_is_refused_with_the_allowed_values():
    outside = [[2, 499_200, 111_000, 204_000]]
    with pytest.raises(InvalidValueError, match=r"gpu_khz=111000.*allowed: 114750, 420750, 1300500"):
        fitted(space=SPACE).predict(outside)
    with pytest.raises(InvalidValueError, match="gpu_khz=111000"):
        LogLinear(space=SPACE).fit(outside, [1.0], [1.0])
    assert np.isfinite(fitted().predict(outside).time_ms).all()  # without a space any mode is answered


def test_parameters_are_set_by_name_and_unknown_ones_refused():
    assert LogLinear().set_params(ridge=2.0).ridge == 2.0
    with pytest.raises(InvalidValueError, match="no parameter 'width'"):
        LogLinear().set_params(width=3)


def test_intervals_hold_their_share_of_a_normal_distribution():
    one = np.ones(1)
    prediction = Forecast.of_medians(ONE_MODE, 100 * one, 1000 * one, 0.1 * one, 0.2 * one)
    low, high = prediction.interval("time_ms", 0.95)
    assert math.log(high[0] / 100) == pytest.approx(1.959964 * 0.1, rel=1e-5)
    assert low[0] * high[0] == pytest.approx(100**2)
    assert prediction.interval("power_mw", 0.8)[1][0] == pytest.approx(1000 * math.exp(1.281552 * 0.2), rel=1e-5)


def test_intervals_of_few_degrees_of_freedom_are_wider():
    one = np.ones(1)
    normal, heavy = (Forecast.of_medians(ONE_MODE, one, one, one, one, freedom) for freedom in (math.inf, 3.0))
    assert heavy.interval("time_ms", 0.95)[1] > normal.interval("time_ms", 0.95)[1]


@pytest.mark.parametrize("level", [0, 1, -0.5, 80])
def test_an_interval_s_level_is_a_share(level):
    with pytest.raises(InvalidValueError, match="level"):
        fitted().predict(TABLE.modes).interval("time_ms", level)


@given(st.lists(st.tuples(*(st.integers(1, 10**7),) * 4), min_size=1, max_size=8), st.integers(1, 512))
def test_checked_inputs_say_what_was_asked(modes, size):
    rows = Settings.of(modes, size, "inference")
    assert rows.modes.tolist() == [list(map(float, mode)) for mode in modes]
    assert rows.batch_size.tolist() == [size] * len(modes)
    assert rows.inference.all()


figures_or_nan = st.sampled_from([1.0, 2.0, 3.0, 4.0, math.inf, math.nan])


@given(st.lists(st.tuples(figures_or_nan, figures_or_nan, st.booleans()), max_size=12))
def test_each_mode_is_on_the_front_or_not_as_the_whole_front_has_it(rows):
    """With modes of equal figures, of which the first is on the front, and with figures that nobody knows."""
    time_ms, power_mw = (np.array([row[column] for row in rows], dtype=float) for column in (0, 1))
    modes = Settings.of(np.ones((len(rows), 4)))
    outside = {"cpu_khz": np.array([not row[2] for row in rows], dtype=bool)}
    prediction = Forecast.of_medians(modes, time_ms, power_mw, *np.full((2, len(rows)), 0.1))
    prediction = dataclasses.replace(prediction, unprofiled=outside)
    one_by_one = {place for place in range(len(rows)) if prediction.is_on_front(place)}
    assert one_by_one == set(prediction.front().tolist())


TWO_BLAS = """
import numpy, sys
from threadpoolctl import threadpool_info
from predictors.models.base import one_blas_thread

assert "scipy" not in sys.modules
with one_blas_thread():
    pass
import scipy.linalg  # its BLAS is another one than NumPy's
with one_blas_thread():
    inside = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
print(set(inside))
"""


@pytest.mark.exhaustive
def test_every_blas_has_one_thread_for_a_while_also_one_that_was_loaded_late():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    ran = subprocess.run([sys.executable, "-c", TWO_BLAS], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "{1}\n"
