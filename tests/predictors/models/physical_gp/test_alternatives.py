"""What the physical form does not have is learned on a board of no prior, and harms no board that follows the form."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from predictors.evaluation import mape
from predictors.models.physical_gp import PhysicalGP, alternatives
from predictors.models.physical_gp.alternatives import (
    AMPLITUDE,
    OTHER_BOARDS,
    free_covariance,
    free_effects,
    free_variance,
    stack,
)
from predictors.models.physical_gp.posterior import prior_under
from predictors.models.physical_gp.prior import any_board
from predictors.models.physical_gp.response import (
    PARAMETERS,
    UNIT_BATCH,
    Features,
    ResponseModel,
    by_name,
    features,
    log_response,
    traffic_share,
)
from predictors.profiles import Profiles
from predictors.settings import Settings
from tests.predictors.models.physical_gp.made_tables import SPACE, make_table

RUNGS = (
    (4, 1_036_800, 624_750, 665_600),
    (8, 1_651_200, 930_750, 2_133_000),
    (12, 2_201_600, 1_300_500, 3_199_000),
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MEMORY = PARAMETERS.index("memory")
ROWS = Features(
    cores=np.log([2.0, 4.0, 8.0]),
    cpu=np.array([-0.5, 0.0, -0.5]),
    gpu=np.array([-1.0, 0.0, 0.2]),
    memory=np.array([-2.0, 0.0, -2.0]),
    batch=np.zeros(3),
    inference=np.zeros(3),
)


def memory_bound_table(seed, shifts=(0.0, 0.0, 0.0, 0.0), mem_khz=None):
    """A network that waits for memory on a board that multiplies its traffic by exp(shift) at each memory clock.

    Rows have memory clocks of `mem_khz` at random; by default those of `make_table`.
    """
    table = make_table(seed)
    if mem_khz is not None:
        modes = table.modes.copy()
        modes[:, 3] = np.random.default_rng(seed).choice(mem_khz, len(modes))
        table = dataclasses.replace(table, modes=modes)
    at = features(Settings.of(table.modes, int(UNIT_BATCH)))
    clocks_khz, place = np.unique(table.modes[:, 3], return_inverse=True)
    theta = any_board().mean.copy()
    logs = np.empty((2, len(table)))
    for number, shift in enumerate(shifts[: len(clocks_khz)]):
        theta[MEMORY] = any_board().mean[MEMORY] + 1.5 + shift
        here = place == number
        logs[:, here] = log_response(theta, Features(*(column[here] for column in at))).reshape(2, -1)
    noise = 0.01 * np.random.default_rng(seed).normal(size=logs.shape)
    time_ms, power_mw = 1000 * np.exp(logs + noise)
    return dataclasses.replace(table, time_ms=time_ms, power_mw=power_mw)


def paused_table(seed, pause, is_window):
    """A network whose power is an average over pauses after each minibatch, or over a window of fixed length.

    `pause` is the length of either, relative to the typical time. The GPU is off in the rest, whose power is 0.6 times
    the least one.
    """
    table = make_table(seed)
    typical = np.exp(np.log(table.time_ms).mean())
    span = np.maximum(table.time_ms, pause * typical) if is_window else table.time_ms + pause * typical
    duty = table.time_ms / span
    rest_mw = 0.6 * table.power_mw.min()
    return dataclasses.replace(table, power_mw=duty * table.power_mw + (1 - duty) * rest_mw)


def steady_table(seed, floor_slope=None):
    """Inference in three power modes whose power does not depend on the batch size, however long the GPU waits.

    Its time has a floor, the typical time of 16 samples, that falls with the memory clock to the power of
    `floor_slope`; by default it has none.
    """
    rungs = [list(SPACE).index(mode) for mode in RUNGS]
    parts = [make_table(seed, task="inference", batch_size=size).take(rungs) for size in SIZES]
    time_ms = np.concatenate([part.time_ms for part in parts])
    modes = np.tile(parts[0].modes, (len(SIZES), 1))
    if floor_slope is not None:
        floor_ms = 2 * np.median(time_ms) * (modes[:, 3] / modes[:, 3].mean()) ** -floor_slope
        time_ms = np.hypot(time_ms, floor_ms)
    rows = Settings.of(modes, np.repeat(SIZES, len(RUNGS)), "inference")
    return Profiles.at(rows, time_ms, np.tile(parts[-1].power_mw, len(SIZES)))


def errors(table, count=40):
    chosen = np.random.default_rng(1).permutation(len(table))
    few, rest = table.take(chosen[:count]), table.take(chosen[count:])
    prediction = PhysicalGP().fit(few).predict(rest)
    return mape(rest.time_ms, prediction.time_ms), mape(rest.power_mw, prediction.power_mw)


def weigh_only(monkeypatch, *those):
    """Leaves these alternatives of a board of no prior, or the form alone."""
    monkeypatch.setattr(alternatives, "OTHER_BOARDS", those or (alternatives.Alternative(),))


def test_the_share_of_traffic_is_the_derivative_of_the_time():
    theta = any_board().mean[None]
    step = np.zeros(len(PARAMETERS))
    step[MEMORY] = 1e-6
    response = ResponseModel(by_name(theta), ROWS)
    share = traffic_share(response, response.times())[0]
    difference = (log_response(theta + step, ROWS) - log_response(theta - step, ROWS))[0, :3] / 2e-6
    np.testing.assert_allclose(share, difference, rtol=1e-5)


def test_rows_of_one_clock_vary_together_and_those_of_others_do_not():
    effects = free_effects(stack(OTHER_BOARDS[:1]), any_board().mean[None], ROWS)
    time, power = free_covariance(ROWS, ROWS, effects, effects)[0]
    assert time[0, 2] > 0  # one memory clock
    assert time[0, 1] == time[1, 2] == 0
    assert power[0, 2] > 0  # one CPU clock and one memory clock
    np.testing.assert_allclose(free_variance(effects)[0], [np.diag(time), np.diag(power)])
    assert (np.linalg.eigvalsh(time) > -1e-12).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_latencies_of_single_memory_clocks_are_learned(seed, monkeypatch):
    table = memory_bound_table(seed, shifts=(0.3, -0.35, 0.35, -0.2))
    with_values, _ = errors(table)
    weigh_only(monkeypatch)
    without, _ = errors(table)
    assert with_values < 0.6 * without


def test_of_many_memory_clocks_the_lowest_may_be_off_by_a_factor(monkeypatch):
    clocks_khz = (40_800, 102_000, 204_000, 665_600, 1_062_400, 1_600_000, 2_133_000, 3_199_000)
    table = memory_bound_table(0, shifts=(0.9, -0.7, 0.5, 0.0, 0.0, 0.05, -0.05, 0.0), mem_khz=clocks_khz)
    with_alternatives, _ = errors(table)
    monkeypatch.setattr(alternatives, "STRAY_TRAFFIC", ())
    without, _ = errors(table)
    assert with_alternatives < 0.8 * without


@pytest.mark.parametrize("column", [1, 2, 3])
def test_steps_of_all_power_by_one_clock_are_learned(column, monkeypatch):
    table = make_table(1)
    values, place = np.unique(table.modes[:, column], return_inverse=True)
    steps = np.array([0.2, -0.15, 0.15, -0.2, 0.1])[: len(values)]
    table = dataclasses.replace(table, power_mw=table.power_mw * np.exp(steps[place]))
    _, with_steps = errors(table)
    weigh_only(monkeypatch, *(each for each in OTHER_BOARDS if not any(each.free_sd[5:])))
    _, without = errors(table)
    assert with_steps < 0.75 * without


@pytest.mark.parametrize(
    ("pause", "is_window"),
    [
        (0.5, False),
        *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in ((0.5, True), (1.5, False), (1.5, True))),
    ],
)
@pytest.mark.exhaustive
def test_power_that_is_averaged_over_more_than_the_minibatches_is_learned(pause, is_window, monkeypatch):
    tables = [paused_table(seed, pause, is_window) for seed in range(5)]
    with_pauses = [errors(table, 12)[1] for table in tables]
    weigh_only(monkeypatch, *(each for each in OTHER_BOARDS if not each.pause))
    without = [errors(table, 12)[1] for table in tables]
    assert np.mean(with_pauses) < 0.9 * np.mean(without)


def test_intervals_of_paused_power_are_those_of_draws():
    table = paused_table(0, 1.5, False)
    few = table.take(np.random.default_rng(1).permutation(len(table))[:15])
    predictor = PhysicalGP().fit(few.modes, few.time_ms, few.power_mw)
    drawn = predictor.draw(table.modes, 64, 0)
    of_draws = np.hypot(np.log(drawn.power_mw).std(axis=0), drawn.log_power_sd.mean(axis=0))
    ratio = predictor.predict(table.modes).log_power_sd / of_draws
    assert 0.7 < np.median(ratio) < 1.3
    assert np.quantile(ratio, 0.9) < 2


def test_power_far_from_the_form_is_learned(monkeypatch):
    table = make_table(1)
    cpu, gpu = np.log(table.modes[:, 1:3] / 1e6).T
    table = dataclasses.replace(table, power_mw=table.power_mw * np.exp(0.3 * np.sin(2 * gpu) * np.cos(1.5 * cpu)))
    _, with_stray_power = errors(table, 60)
    weigh_only(monkeypatch, *(each for each in OTHER_BOARDS if each.smooth_sd == AMPLITUDE or each.pause))
    _, without = errors(table, 60)
    assert with_stray_power < 0.95 * without


@pytest.mark.exhaustive
def test_a_program_unlike_any_network_is_learned(monkeypatch):
    tables = [make_table(seed, spread=3.0) for seed in (3, 4, 5)]
    with_wide_prior = [errors(table, 8) for table in tables]
    weigh_only(monkeypatch, *(each for each in OTHER_BOARDS if each.prior_width == 1))
    without = [errors(table, 8) for table in tables]
    assert (np.median(with_wide_prior, axis=0) < 0.95 * np.median(without, axis=0)).all()


def test_power_that_waiting_does_not_lower_is_learned(monkeypatch):
    tables = [steady_table(seed) for seed in range(5)]
    with_steady_power = [errors(table, 4)[1] for table in tables]
    monkeypatch.setattr(alternatives, "INFERENCE", ())
    without = [errors(table, 4)[1] for table in tables]
    assert np.mean(with_steady_power) < 0.8 * np.mean(without)


@pytest.mark.parametrize(("parameter", "floor_slope"), [("cpu_memory_slope", 0.8), ("constant", 0.0)])
def test_a_floor_of_the_time_of_inference_is_learned(parameter, floor_slope, monkeypatch):
    tables = [steady_table(seed, floor_slope) for seed in range(10)]
    with_floor = [errors(table, 6)[0] for table in tables]
    others = [each for each in alternatives.INFERENCE if parameter not in {name for name, _, _ in each.own_prior}]
    monkeypatch.setattr(alternatives, "INFERENCE", others)
    without = [errors(table, 6)[0] for table in tables]
    assert np.mean(with_floor) < 0.9 * np.mean(without)


def test_times_of_single_batch_sizes_are_learned(monkeypatch):
    """As where the library has another kernel for each batch size."""
    factors = dict(zip(SIZES, np.exp([0.2, -0.2, 0.3, -0.1, -0.3, 0.2, -0.2, 0.1])))
    tables = []
    for table in map(steady_table, range(5)):
        factor = np.array([factors[size] for size in table.batch_size])
        tables.append(dataclasses.replace(table, time_ms=table.time_ms * factor))
    with_values = [errors(table, 12)[0] for table in tables]
    monkeypatch.setattr(alternatives, "OWN_BATCH_SIZES", 0.0)
    without = [errors(table, 12)[0] for table in tables]
    assert np.mean(with_values) < 0.8 * np.mean(without)


def test_times_that_scatter_from_run_to_run_are_learned(monkeypatch):
    """As those of programs of a fraction of a millisecond, which run at one of two speeds."""
    tables = [steady_table(seed) for seed in range(8)]

    def errors_of_typical_times():
        found = []
        for seed, table in enumerate(tables):
            random = np.random.default_rng(seed)
            scattered = table.time_ms * random.choice([0.8, 1.25], len(table))
            few = dataclasses.replace(table, time_ms=scattered).take(random.permutation(len(table))[:10])
            found.append(mape(table.time_ms, PhysicalGP().fit(few).predict(table).time_ms))
        return np.mean(found)

    with_noise = errors_of_typical_times()
    monkeypatch.setattr(alternatives, "SCATTERED_TIMES", alternatives.NOISE[0])
    without = errors_of_typical_times()
    assert with_noise < 0.95 * without


def test_a_prior_of_its_own_replaces_that_of_its_parameter_alone():
    prior = any_board()
    shared = prior.covariance + 0.1
    alternative = alternatives.Alternative(prior_width=2.0, own_prior=(("constant", -1.0, 0.5),))
    (mean,), (covariance,) = prior_under(stack([alternative]), prior.mean[None], shared[None])
    place = PARAMETERS.index("constant")
    others = np.arange(len(PARAMETERS)) != place
    assert mean[place] == -1.0
    np.testing.assert_array_equal(mean[others], prior.mean[others])
    np.testing.assert_array_equal(covariance[place], 0.25 * ~others)
    np.testing.assert_array_equal(covariance[:, place], 0.25 * ~others)
    np.testing.assert_allclose(covariance[np.ix_(others, others)], 4 * shared[np.ix_(others, others)])


def settings(mem_khz, task="training", batch_size=1):
    modes = np.column_stack([np.full((len(mem_khz), 3), 1e6), mem_khz])
    return Settings.of(modes, batch_size, task)


@pytest.mark.parametrize(("count", "rows", "is_weighed"), [(4, 30, False), (5, 9, False), (5, 10, True)])
def test_stray_traffic_needs_many_memory_clocks_and_rows(count, rows, is_weighed):
    traffic_sd = alternatives.of_other_board(settings(np.resize(np.arange(1.0, count + 1), rows))).free_sd[:, 0]
    assert (len(set(traffic_sd)) > 1) == is_weighed


@pytest.mark.parametrize(("task", "is_weighed"), [("training", False), ("inference", True)])
def test_steady_power_is_of_inference(task, is_weighed):
    own_prior = alternatives.of_other_board(settings([1e6, 2e6], task)).own_prior
    assert (not np.isnan(own_prior).all()) == is_weighed


@pytest.mark.parametrize(
    ("batch_sizes", "task", "is_weighed"),
    [([1, 8], "inference", True), (8, "inference", False), ([1, 8], "training", False)],
)
def test_values_of_single_batch_sizes_need_several_of_inference(batch_sizes, task, is_weighed):
    free_sd = alternatives.of_other_board(settings([1e6, 2e6], task, batch_sizes)).free_sd
    assert free_sd[:, 1].any() == is_weighed


def test_a_clock_that_was_not_profiled_is_less_certain(monkeypatch):
    table = memory_bound_table(0)
    lowest = table.modes[:, 3] == table.modes[:, 3].min()
    few = table.take(np.flatnonzero(~lowest)[::9])

    def widths():
        predictor = PhysicalGP().fit(few.modes, few.time_ms, few.power_mw)
        low, high = predictor.predict(table.modes[lowest]).interval("time_ms", 0.8)
        return np.median(np.log(high / low))

    width = widths()
    weigh_only(monkeypatch)
    assert width > 1.2 * widths()


def test_a_board_of_the_form_alone_is_predicted_as_well(monkeypatch):
    table = make_table(2)
    with_values = errors(table)
    weigh_only(monkeypatch)
    without = errors(table)
    assert all(new < 1.25 * old for new, old in zip(with_values, without))


def test_on_a_board_of_the_prior_the_form_is_alone():
    table = make_table(2).take(slice(0, None, 20))
    fitted = [PhysicalGP(board=board).fit(table.modes, table.time_ms, table.power_mw) for board in ("orin-agx", "tx2")]
    assert [predictor.posterior_.alternatives.free_sd.any() for predictor in fitted] == [False, True]
