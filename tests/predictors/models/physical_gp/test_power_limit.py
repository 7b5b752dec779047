"""GPUs under power limits: the form behaves as a GPU does, and the other GPU's table makes few profiles enough."""

from __future__ import annotations

import dataclasses
from typing import List

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from harness.core.measured_tables import load_table
from predictors.evaluation import Target, make_target, mape
from predictors.models.persistence import load_model, save_model
from predictors.models.physical_gp import PhysicalGP, power_limit
from predictors.models.physical_gp.power_limit import PARAMETERS, log_response, settings_of
from predictors.profiles import Profiles, tables_of
from predictors.settings import Settings

THETA = np.array([parameter.mean for parameter in PARAMETERS.values()])
BUSY = THETA + 3 * np.eye(len(THETA))[list(PARAMETERS).index("sample")]  # the GPU is busy nearly all of the time
LIMITS_W = np.arange(80.0, 301.0, 10.0)


def tables(name: str) -> List[Profiles]:
    return [table.complete() for table in tables_of(load_table(name))]


def table_of(name: str, network: str) -> Profiles:
    [table] = [table for table in tables(name) if table.workload.startswith(network)]
    return table


def respond(theta=BUSY, batch_size=64, limit_w=LIMITS_W, gpu_khz=1, greatest_khz=1.0):
    limits = np.atleast_1d(limit_w)
    modes = np.tile([1, 1, gpu_khz, 1], (len(limits), 1))
    rows = Settings.of(modes, batch_size, "training", 1000 * limits)
    return np.exp(log_response(theta, settings_of(rows, greatest_khz)).reshape(2, -1))


def test_a_lower_limit_is_slower_and_is_kept_above_the_least_clock():
    time_ms, power_w = respond()
    assert (np.diff(time_ms) <= 0).all()
    assert (np.diff(power_w) > 0)[LIMITS_W[1:] >= 110].all()
    assert (power_w <= 1.001 * LIMITS_W)[LIMITS_W >= 120].all()


def test_a_limit_that_is_never_reached_changes_nothing():
    idle = THETA - 8 * np.isin(list(PARAMETERS), ["sample", "fixed", "serial"])  # the host takes all the time
    time_ms, power_w = respond(idle)
    assert np.ptp(time_ms) < 1e-3 * time_ms[0]
    assert np.ptp(power_w[5:]) < 0.01 * power_w[-1]


def test_a_locked_clock_is_slower_and_saves_power_and_the_lower_of_clock_and_limit_decides():
    (full_ms, full_w), (half_ms, half_w) = (respond(limit_w=300, gpu_khz=khz, greatest_khz=2e6) for khz in (2e6, 1e6))
    assert half_ms > 1.4 * full_ms
    assert half_w < 0.7 * full_w
    alone = respond(limit_w=100)[0]
    assert respond(limit_w=100, gpu_khz=1.9e6, greatest_khz=2e6)[0] == pytest.approx(alone, rel=0.03)


GOALS = {3: (15, 8), 5: (10, 5), 10: (6, 4)}
"""Greatest mean errors over six networks of time and power, in %, by the number of profiles."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("gpu", "other"), [("zeus-v100", "zeus-a40"), ("zeus-a40", "zeus-v100")])
@pytest.mark.parametrize("count", GOALS)
@pytest.mark.long
def test_few_profiles_of_a_gpu_are_enough_with_the_table_of_another(gpu, other, count):
    targets = [make_target(table, tables(other)) for table in tables(gpu)]
    errors = np.mean([errors_of(target, count) for target in targets], axis=0)
    assert errors[0] <= GOALS[count][0]
    assert errors[1] <= GOALS[count][1]


def errors_of(target: Target, count: int) -> np.ndarray:
    """Median errors of time and power over three draws of profiles, on the settings that were not profiled."""
    repeats = []
    for repeat in range(3):
        rows, predictor = target.rows(count, "random", repeat), target.make("physical-gp", repeat)
        predictor.fit(target.profiles(rows).applied())
        figures = target.figures(predictor.predict(target.table), rows)
        repeats.append([figures["time_mape"], figures["power_mape"]])
    return np.median(repeats, axis=0)


RESNET = table_of("zeus-v100", "resnet50")
FEW = RESNET.take(np.arange(0, len(RESNET), 8))


def fitted(table: Profiles = FEW, **parameters) -> PhysicalGP:
    predictor = PhysicalGP(board=table.device, workload=table.workload, **parameters)
    predictor.fit(table.applied())
    return predictor


def test_without_a_reference_the_other_gpu_that_ships_with_the_suite_is_learned_from():
    own, shipped = (fitted(references=references) for references in (tuple(tables("zeus-a40")), ()))
    np.testing.assert_allclose(*(one.predict(RESNET).time_ms for one in (own, shipped)))
    assert "v100" not in {table.device for table in power_limit.shipped_tables() if table.device != FEW.device}


def test_the_same_network_on_another_gpu_is_predicted_without_a_profile():
    none = FEW.take([])
    predictor = fitted(none, references=tuple(tables("zeus-a40")))
    assert mape(RESNET.time_ms, predictor.predict(RESNET).time_ms) < 40
    with pytest.raises(InvalidValueError, match="time of resnet50-imagenet on v100"):
        fitted(none)


def test_without_measured_power_time_is_learned_alone():
    predictor = fitted(dataclasses.replace(FEW, power_mw=np.full(len(FEW), np.nan)))
    prediction = predictor.predict(RESNET)
    assert np.isnan(prediction.power_mw).all()
    assert mape(RESNET.time_ms, prediction.time_ms) < 15


def test_a_saved_model_predicts_the_same(tmp_path):
    predictor = fitted(references=tuple(tables("zeus-a40")[:2]))
    save_model(tmp_path / "m.jw", predictor, {})
    again = load_model(tmp_path / "m.jw").predictor
    np.testing.assert_allclose(*(one.predict(RESNET).power_mw for one in (predictor, again)))


def test_draws_scatter_around_the_prediction_as_its_interval_did_before_it_was_calibrated(monkeypatch):
    monkeypatch.setattr(power_limit, "_spread", lambda *arguments: np.ones(2))
    monkeypatch.setattr(power_limit, "BELIEFS", power_limit.BELIEFS[:1])
    predictor = fitted()
    prediction = predictor.predict(RESNET)
    drawn = predictor.draw(RESNET, 400, 0)
    assert drawn.time_ms.shape == (400, len(RESNET))
    total = np.sqrt(np.log(drawn.time_ms).var(axis=0) + drawn.log_time_sd[0] ** 2)
    assert np.median(total / prediction.log_time_sd) == pytest.approx(1, abs=0.15)
    off = np.log(drawn.time_ms).mean(axis=0) - np.log(prediction.time_ms)
    assert np.abs(off / prediction.log_time_sd).max() < 1.5  # the response is not linear


def test_intervals_of_time_and_power_hold_as_many_observations_as_they_say():
    """With the widths of the fits alone, 88 and 87 % of the V100's lie within intervals of 80 %."""
    held = []
    for table in tables("zeus-v100"):
        target = make_target(table, ())
        for repeat in range(2):
            rows = target.rows(10, "random", repeat)
            prediction = target.make("physical-gp", repeat).fit(target.profiles(rows)).predict(target.table)
            figures = target.figures(prediction, rows)
            held.append((figures["time_80"], figures["power_80"]))
    assert np.mean(held, axis=0) == pytest.approx(80, abs=6)


def test_a_model_with_limits_wants_them_and_one_without_refuses_them():
    predictor = fitted()
    with pytest.raises(InvalidValueError, match=r"with power limits, .*without"):
        predictor.predict(RESNET.modes, batch_size=RESNET.batch_size)
    plain = PhysicalGP().fit([[12, 2_201_600, 1_300_500, 3_199_000]], [50.0], [30_000.0])
    with pytest.raises(InvalidValueError, match=r"without power limits, .*with"):
        plain.predict([[12, 2_201_600, 1_300_500, 3_199_000]], power_limit_mw=100_000)


def test_a_limit_that_never_varied_is_outside_the_profiled_range():
    one_limit = RESNET.take(RESNET.power_limit_mw == 200_000)
    predictor = fitted(one_limit)
    outside = predictor.unprofiled(RESNET)
    assert outside["power_limit_mw"].tolist() == (RESNET.power_limit_mw != 200_000).tolist()


LOCKED_KHZ = np.arange(510_000, 1_410_001, 150_000)
LIMITED_W = (150, 200, 250, 300, 400)
BY_CLOCK = {"bound by bandwidth": 0.0, "half of it follows the clock": 0.5, "follows the clock": 1.0}
"""Share of the work that is inversely proportional to the clock."""


def locked_clocks(follows: float) -> Profiles:
    """A made-up program on a made-up GPU: each locked clock under each power limit, with 0.4 % of noise.

    The voltage rises with the clock from 55 % of the greatest on; a limit lowers the clock until the power keeps it.
    """
    random = np.random.default_rng(round(10 * follows))
    clocks = np.linspace(0.12, 1, 400)
    voltage = 0.65 + 0.35 * np.clip((clocks - 0.55) / 0.45, 0, None)
    relative_time = follows / clocks + 1 - follows
    watts = 70 + 60 * (1 - follows / 2) / relative_time + 260 * (0.5 + follows / 2) * clocks * voltage**2
    modes, limits, times, powers = [], [], [], []
    for limit_w in LIMITED_W:
        for gpu_khz in LOCKED_KHZ:
            allowed = np.flatnonzero((clocks <= gpu_khz / LOCKED_KHZ[-1]) & (watts <= limit_w))[-1]
            modes.append([1, 1, gpu_khz, 1])
            limits.append(1000.0 * limit_w)
            times.append(2500 * relative_time[allowed])
            powers.append(1000 * watts[allowed])
    settings = Settings.of(modes, 16, "training", np.array(limits))
    noise = np.exp(0.004 * random.normal(size=(2, len(modes))))
    table = Profiles.at(settings, times * noise[0], powers * noise[1])
    return dataclasses.replace(table, device="made-up", workload="program", provenance="measured")


def errors_with_locked_clocks(follows: float, predictor: str) -> np.ndarray:
    """Median errors of the time over five draws, in %, for 3, 5 and 10 profiles."""
    target = make_target(locked_clocks(follows), ())
    medians = []
    for count in (3, 5, 10):
        errors = []
        for repeat in range(5):
            rows, fitting = target.rows(count, "random", repeat), target.make(predictor, repeat)
            fitting.fit(target.profiles(rows))
            errors.append(target.figures(fitting.predict(target.table), rows)["time_mape"])
        medians.append(np.median(errors))
    return np.array(medians)


@pytest.mark.exhaustive
def test_the_time_of_a_program_bound_by_bandwidth_is_seen_to_follow_no_clock():
    assert (errors_with_locked_clocks(0.0, "physical-gp") <= [1.5, 1.0, 0.6]).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("follows", BY_CLOCK.values(), ids=BY_CLOCK)
@pytest.mark.long
def test_neither_ridge_nor_boosted_trees_are_half_a_point_better_under_locked_clocks(follows):
    others = [errors_with_locked_clocks(follows, name) for name in ("ridge", "gbr")]
    assert (errors_with_locked_clocks(follows, "physical-gp") <= np.min(others, axis=0) + 0.5).all()


QUIET_W = np.array([90.0, 88.0, 86.0, 83.0])


def quiet_program(seed: int) -> Profiles:
    """A program whose power falls a little with the batch size and follows no limit, with 1 % of noise."""
    limits_mw = 1000.0 * np.arange(100, 301, 25)
    sizes, limits = (grid.ravel() for grid in np.meshgrid([8, 64, 512, 4096], limits_mw, indexing="ij"))
    settings = Settings.of(np.tile([1, 1, 1, 1], (len(sizes), 1)), sizes, "training", limits)
    noise = np.exp(0.01 * np.random.default_rng(seed).normal(size=(2, len(sizes))))
    table = Profiles.at(settings, (2.5 + 0.0015 * sizes) * noise[0], 1000 * np.repeat(QUIET_W, 9) * noise[1])
    return dataclasses.replace(table, device="made-up", workload="program", provenance="measured")


def errors_of_quiet_programs() -> float:
    targets = [make_target(quiet_program(seed), ()) for seed in range(6)]
    return float(np.mean([errors_of(target, 4)[1] for target in targets]))


def test_power_that_no_limit_lowers_is_learned(monkeypatch):
    with_belief = errors_of_quiet_programs()
    others = tuple(belief for belief in power_limit.BELIEFS if belief.own_prior != power_limit.QUIET)
    monkeypatch.setattr(power_limit, "BELIEFS", others)
    assert with_belief < 0.8 * errors_of_quiet_programs()


@pytest.mark.parametrize(("noise", "expected"), [(0.002, min), (0.12, max)])
def test_how_closely_a_program_follows_the_form_is_learned(noise, expected):
    random = np.random.default_rng(0)
    sizes, limits_w = (grid.ravel() for grid in np.meshgrid([8, 64, 256], [100, 150, 200, 250]))
    settings = Settings.of(np.tile([1, 1, 1, 1], (len(sizes), 1)), sizes, "training", 1000.0 * limits_w)
    response = np.exp(log_response(BUSY, settings_of(settings, 1.0))).reshape(2, -1)
    time_ms, power_w = response * np.exp(noise * random.normal(size=response.shape))
    posterior = fitted(Profiles.at(settings, time_ms, 1000 * power_w)).posterior_
    scales = np.array([fit.belief.scale for fit in posterior.fits])
    assert posterior.weights[scales == expected(scales)].sum() > 0.6


def test_draws_under_locked_clocks_come_from_the_form_with_and_without_the_clock_by_their_weights(monkeypatch):
    table = locked_clocks(0.5)
    few = table.take(np.arange(0, len(table), 6))
    predictor = fitted(few)
    weights = predictor.posterior_.weights
    assert len(weights) == len(power_limit.BELIEFS)
    assert weights.sum() == pytest.approx(1)
    drawn = predictor.draw(table, 400, 0)
    monkeypatch.setattr(power_limit, "BELIEFS", [belief for belief in power_limit.BELIEFS if belief.is_drawn])
    prediction = fitted(few).predict(table)
    np.testing.assert_allclose(drawn.log_time.mean(axis=0), prediction.log_time, atol=0.04)
