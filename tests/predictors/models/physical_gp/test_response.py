"""The physical form answers as physics does: faster clocks never slow a minibatch, utilisation costs power."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.models.physical_gp.prior import any_board
from predictors.models.physical_gp.response import (
    PARAMETERS,
    TIME_SCALES,
    ResponseModel,
    by_name,
    features,
    linearised,
    log_response,
)
from predictors.settings import Settings

MODES = [[2, 268_800, 1_300_500, 204_000], [12, 2_201_600, 114_750, 3_199_000], [6, 1_036_800, 624_750, 2_133_000]]


def test_columns_and_parameters_are_contiguous_so_that_the_same_fit_rounds_the_same():
    given = [*_at(), *by_name(np.ones((3, len(PARAMETERS)))).values()]
    assert all(column.flags.c_contiguous for column in given)


def _at(modes=MODES, batch_size=16, task="training"):
    return features(Settings.of(modes, batch_size, task))


@given(
    seed=st.integers(0, 1000),
    which=st.integers(0, 3),
    factor=st.floats(1.01, 4.0),
    place=st.integers(0, len(MODES) - 1),
)
def test_raising_a_setting_never_makes_a_minibatch_slower(seed, which, factor, place):
    belief = any_board()
    theta = belief.mean + belief.sd * np.random.default_rng(seed).normal(size=len(belief.mean))
    # Drawn far out, the crowding of the main process may turn around: physics has it 0 or more.
    theta[PARAMETERS.index("crowd_main")] = abs(theta[PARAMETERS.index("crowd_main")])
    theta[PARAMETERS.index("cpu_memory_slope")] = abs(theta[PARAMETERS.index("cpu_memory_slope")])
    raised = [row[:] for row in MODES]
    raised[place][which] = raised[place][which] * factor
    slow, fast = (ResponseModel(by_name(theta), _at(modes)).times().total[place] for modes in (MODES, raised))
    assert fast <= slow + 1e-9


def test_the_whole_takes_no_less_than_its_parts():
    response = ResponseModel(by_name(any_board().mean), _at())
    parts = response.gpu_times
    assert (response.times().total >= np.maximum(parts.gpu, parts.memory)).all()


def test_rows_of_a_grid_get_what_each_of_them_gets_alone():
    grid = list(
        itertools.product((2, 6, 12), (729_600, 2_201_600), (114_750, 420_750, 1_300_500), (204_000, 3_199_000))
    )
    modes = [mode for mode in grid for _ in range(4)]
    theta = any_board().mean + np.random.default_rng(3).normal(size=(2, len(PARAMETERS)))
    together = log_response(theta, _at(modes), pause=np.array([0.0, 0.3]))
    alone = [log_response(theta, _at([mode]), pause=np.array([0.0, 0.3])) for mode in modes]
    assert np.array_equal(together, np.moveaxis(alone, 0, 2).reshape(2, -1))


def test_the_scales_carry_the_unit_of_time():
    theta = any_board().mean.copy()
    before = log_response(theta, _at())
    theta[: len(TIME_SCALES)] += np.log(7.0)
    after = log_response(theta, _at())
    assert after[:3] - before[:3] == pytest.approx(np.log(7.0))
    assert after[3:] == pytest.approx(before[3:])


def test_a_mode_that_waits_draws_less():
    theta = any_board().mean
    log_time = ResponseModel(by_name(theta), _at()).times().total
    busy, waiting = (log_response(theta, _at(), log_time + more)[3:] for more in (0.0, 1.0))
    assert (waiting < busy).all()


def test_batch_and_task_move_nothing_at_the_unit_batch_of_training():
    slopes = linearised(any_board().mean[None], _at(), np.arange(len(PARAMETERS)))[1][0]
    still = [name for name, column in zip(PARAMETERS, slopes.T) if not column.any()]
    assert still == [name for name in PARAMETERS if name.startswith(("batch_", "inference_"))]


def test_a_pause_hides_what_a_faster_mode_draws():
    theta = any_board().mean
    without, with_pause = (log_response(theta, _at(), pause=np.array(pause)) for pause in (0.0, 0.5))
    assert (with_pause[:3] == without[:3]).all()
    assert (with_pause[3:] < without[3:]).all()
    fastest = without[:3].argmin()
    assert (without - with_pause)[3:].argmax() == fastest


@pytest.mark.parametrize("pause", [0.0, 0.7])
@pytest.mark.parametrize("time_known", [False, True])
def test_derivatives_are_those_of_the_response(time_known, pause):
    theta, at, step = any_board().mean, _at(batch_size=64, task="inference"), 1e-5
    free, log_time, pauses = np.arange(len(PARAMETERS)), np.zeros(3) if time_known else None, np.array([pause])
    slopes = linearised(theta[None], at, free, log_time, pauses)[1][0]
    for place in free:
        moved = step * (free == place)
        above, below = (log_response(theta + sign * moved, at, log_time, pauses[0]) for sign in (1, -1))
        central = (above - below) / (2 * step)
        assert slopes[:, place] == pytest.approx(central, abs=1e-9)
