"""The predictor learns from few modes, is as sure as it may be, and is not led astray by outliers or references."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from predictors.evaluation import coverage, mape
from predictors.models.physical_gp import PhysicalGP
from predictors.models.physical_gp.prior import Counts, any_board, priors_for
from predictors.models.physical_gp.response import PARAMETERS
from predictors.profiles import Profiles
from tests.predictors.models.physical_gp.made_tables import SPACE, make_table


def _fit(table: Profiles, count: int, seed: int = 0, **params) -> PhysicalGP:
    few = table.take(np.random.default_rng(seed).permutation(len(table))[:count])
    predictor = PhysicalGP(seed=seed, **params)
    return predictor.fit(few.modes, few.time_ms, few.power_mw, batch_size=few.batch_size, task=few.task)


def _errors(predictor: PhysicalGP, table: Profiles):
    found = predictor.predict(table.modes, batch_size=table.batch_size, task=table.task)
    return mape(table.time_ms, found.time_ms), mape(table.power_mw, found.power_mw)


def test_a_network_that_is_counted_needs_no_mode_where_another_on_its_board_is_known():
    reference = make_table(3, workload="known").take(slice(0, None, 4))
    twice = dataclasses.replace(reference, workload="new", time_ms=2 * reference.time_ms)
    counts = {"known": Counts(1e9, 1e7, 100, 1e6, 1e5), "new": Counts(2e9, 2e7, 200, 2e6, 2e5)}
    predictor = _fit(twice, 0, references=(reference,), board="made-board", workload="new", counts=counts)
    time_error, power_error = _errors(predictor, twice)
    assert time_error < 15
    assert power_error < 15
    assert coverage(twice.time_ms, *predictor.predict(twice.modes).interval("time_ms", 0.8)) == 100
    with pytest.raises(InvalidValueError, match="time of new on other-board"):
        _fit(twice, 0, references=(reference,), board="other-board", workload="new", counts=counts)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("count", "time_limit", "power_limit"), [(10, 15.0, 8.0), (50, 5.0, 3.0)])
def test_few_modes_are_enough(count, time_limit, power_limit):
    errors = np.median([_errors(_fit(table, count), table) for table in map(make_table, range(6))], axis=0)
    assert errors[0] < time_limit
    assert errors[1] < power_limit


def test_it_needs_the_modes_it_learns_from():
    table = make_table(1)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    wrong = dataclasses.replace(table, time_ms=shuffled.time_ms, power_mw=shuffled.power_mw)
    right = _errors(_fit(table, 50), table)
    assert all(bad > 3 * good for bad, good in zip(_errors(_fit(wrong, 50), table), right))


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_hold_about_as_many_as_they_say(level):
    held = []
    for seed in range(8):
        table = make_table(seed, noise=0.02)
        found = _fit(table, 30, seed).predict(table.modes)
        held.append(coverage(table.time_ms, *found.interval("time_ms", level)))
        held.append(coverage(table.power_mw, *found.interval("power_mw", level)))
    assert 100 * level - 8 < np.mean(held) < min(100 * level + 12, 100)


def test_more_modes_make_it_surer():
    table = make_table(2)
    few, many = (_fit(table, count).predict(table.modes) for count in (5, 80))
    assert np.median(many.log_time_sd) < np.median(few.log_time_sd)
    assert np.median(many.log_power_sd) < np.median(few.log_power_sd)


def test_in_no_draw_are_few_cores_faster_than_many_however_uncertain_they_are():
    table, count = make_table(3), 32
    predictor = _fit(table, 1)
    by_cores = predictor.draw(table.modes, count, 0).time_ms.reshape(count, len(SPACE.dimensions[0]), -1)
    assert (by_cores[:, 0] < 0.97 * by_cores[:, -1]).mean() < 0.01
    assert (by_cores[:, 0] > 2 * by_cores[:, -1]).mean() > 0.02


def test_draws_hold_what_was_profiled_and_differ_elsewhere_as_much_as_is_uncertain():
    table = make_table(4)
    predictor = _fit(table, 8)
    rows, drawn = predictor.training_rows_, predictor.draw(table.modes, 32, 0)
    at_rows = predictor.draw(rows.modes, 32, 0)
    assert np.abs(np.log(at_rows.time_ms / rows.time_ms)).mean() < 0.02
    assert np.abs(np.log(at_rows.power_mw / rows.power_mw)).mean() < 0.02
    found = predictor.predict(table.modes)
    for figure, own_sd, sd in (
        (drawn.time_ms, drawn.log_time_sd, found.log_time_sd),
        (drawn.power_mw, drawn.log_power_sd, found.log_power_sd),
    ):
        assert 0.6 < np.median(np.hypot(np.log(figure).std(axis=0), own_sd.mean(axis=0)) / sd) < 1.7


@pytest.mark.exhaustive
def test_a_row_that_ran_far_too_fast_does_little_harm():
    table = make_table(3)
    place = np.random.default_rng(0).permutation(len(table))[:30]
    time_ms = table.time_ms[place].copy()
    time_ms[4] /= 6
    spoilt = PhysicalGP().fit(table.modes[place], time_ms, table.power_mw[place])
    assert 4 in spoilt.doubtful()
    assert len(_fit(table, 30).doubtful()) == 0
    assert _errors(spoilt, table)[0] < 2 * _errors(_fit(table, 30), table)[0] + 2


def test_one_mode_is_answered_with_wide_intervals():
    table = make_table(4)
    found = PhysicalGP().fit(table.modes[:1], table.time_ms[:1], table.power_mw[:1]).predict(table.modes)
    assert np.isfinite(found.time_ms).all()
    assert np.isfinite(found.power_mw).all()
    assert found.time_ms[0] == pytest.approx(table.time_ms[0], rel=0.1)
    assert np.median(found.log_time_sd) > 0.2


def test_a_setting_that_never_changed_is_no_obstacle():
    table = make_table(5)
    still = table.take(table.modes[:, 0] == 8)
    found = _fit(still, 20).predict(table.modes)
    known = table.modes[:, 0] == 8
    assert np.isfinite(found.time_ms).all()
    assert found.log_time_sd[known].mean() < found.log_time_sd[~known].mean()


@pytest.mark.exhaustive
def test_a_reference_of_the_board_helps_with_one_mode():
    reference, table = make_table(6, workload="other"), make_table(7)
    alone = np.mean([_errors(_fit(table, 2, seed), table)[1] for seed in range(4)])
    helped = np.mean(
        [_errors(_fit(table, 2, seed, references=(reference,), board=table.device), table)[1] for seed in range(4)]
    )
    assert helped < alone


@pytest.mark.exhaustive
def test_a_board_that_may_be_any_has_alternatives_for_the_evidence():
    here, elsewhere = make_table(8), make_table(9, device="another")
    assert len(priors_for((here, elsewhere), here.device)) == 1
    assert len(priors_for((here, elsewhere))) == 3


def test_a_reference_without_power_tells_of_time():
    table, other = make_table(10), make_table(6, workload="other")
    blind = dataclasses.replace(other, power_mw=np.full(len(other), np.nan))
    here, nowhere = priors_for((blind,), table.device)[0], any_board()
    place = PARAMETERS.index("background")
    assert here.sd[place] < 0.9 * nowhere.sd[place]
    assert here.mean[PARAMETERS.index("core_idle")] == pytest.approx(nowhere.mean[PARAMETERS.index("core_idle")])


@pytest.mark.exhaustive
def test_batch_sizes_are_learned_where_they_differ_and_guessed_where_not():
    sizes = np.random.default_rng(0).choice([1, 4, 16, 64], len(SPACE))
    table = make_table(11, task="inference", batch_size=sizes)
    assert _errors(_fit(table, 80), table)[0] < 8
    single = make_table(11)
    one = _fit(single, 40)
    asked = one.predict(single.modes, batch_size=32)
    assert (asked.time_ms > one.predict(single.modes).time_ms).all()
    assert (asked.log_time_sd > one.predict(single.modes).log_time_sd).mean() > 0.9
    assert (one.predict(single.modes, task="inference").log_power_sd > 0.15).all()
    assert (one.predict(single.modes, task="inference").time_ms < one.predict(single.modes).time_ms).all()


@pytest.mark.exhaustive
@pytest.mark.long
def test_very_many_modes_are_learned_from_a_sample():
    tables = [make_table(13, batch_size=size) for size in (16, 32)]
    modes = np.concatenate([table.modes for table in tables])
    sizes = np.concatenate([table.batch_size for table in tables])
    time_ms, power_mw = (np.concatenate([getattr(one, name) for one in tables]) for name in ("time_ms", "power_mw"))
    predictor = PhysicalGP().fit(modes, time_ms, power_mw, batch_size=sizes)
    assert len(predictor.posterior_.rows) < len(modes)
    assert mape(time_ms, predictor.predict(modes, batch_size=sizes).time_ms) < 3
