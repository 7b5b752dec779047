"""Samplers choose what was asked, within the budget, and designs make predictors better than chance does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError, UnknownNameError
from predictors.evaluation import mape
from predictors.models.physical_gp import PhysicalGP
from predictors.sampling import SAMPLERS, choose, choose_by_profiling, rows_to_fit
from predictors.settings import Settings
from tests.predictors.models.physical_gp.made_tables import make_table
from tests.predictors.plain_predictors import made_table

TABLE = make_table(20)


def _profile(places):
    return TABLE.time_ms[places], TABLE.power_mw[places]


@pytest.mark.exhaustive
@settings(max_examples=25)
@given(
    sampling=st.sampled_from(sorted(SAMPLERS)),
    count=st.integers(1, 40),
    size=st.integers(40, 400),
    seed=st.integers(0, 99),
)
def test_every_sampler_gives_as_many_different_modes_as_asked(sampling, count, size, seed):
    places = choose(TABLE.modes[:size], count, sampling=sampling, seed=seed)
    assert len(set(places.tolist())) == len(places) == count
    assert places.min() >= 0
    assert places.max() < size
    assert np.array_equal(places, choose(TABLE.modes[:size], count, sampling=sampling, seed=seed))


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_all_modes_can_be_chosen(sampling):
    assert sorted(choose(TABLE.modes[:12], 12, sampling=sampling)) == list(range(12))


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_what_was_profiled_is_not_chosen_again(sampling):
    known = np.arange(0, 400, 2)
    places = choose(TABLE.modes, 30, sampling=sampling, history=TABLE.take(known))
    assert not set(places.tolist()) & set(known.tolist())


@pytest.mark.parametrize(("count", "message"), [(0, "cannot choose 0"), (401, "400 are not profiled yet")])
def test_what_cannot_be_chosen_is_refused(count, message):
    with pytest.raises(InvalidValueError, match=message):
        choose(TABLE.modes, count)


def test_an_unknown_sampler_is_refused_and_the_available_ones_are_listed():
    with pytest.raises(UnknownNameError, match=r"available: random, space-filling, greatest-first, sequential$"):
        choose(TABLE.modes, 5, sampling="guess")


def test_designs_avoid_both_clumps_and_corners():
    corners = {
        tuple(row)
        for row in TABLE.modes.tolist()
        if all(value in (TABLE.modes[:, k].min(), TABLE.modes[:, k].max()) for k, value in enumerate(row))
    }
    chosen = [
        tuple(row)
        for seed in range(5)
        for row in TABLE.modes[choose(TABLE.modes, 10, sampling="sequential", seed=seed)].tolist()
    ]
    assert sum(mode in corners for mode in chosen) < 0.2 * len(chosen)
    for column in TABLE.modes[choose(TABLE.modes, 10, sampling="sequential")].T:
        assert len(np.unique(column)) >= 3


@pytest.mark.exhaustive
@pytest.mark.long
def test_ten_designed_modes_teach_more_than_ten_random_ones():
    def error(table, name, seed):
        places = choose_by_profiling(
            table.modes, 10, lambda these: (table.time_ms[these], table.power_mw[these]), sampling=name, seed=seed
        )
        predictor = PhysicalGP(seed=seed).fit(table.modes[places], table.time_ms[places], table.power_mw[places])
        return mape(table.time_ms, predictor.predict(table.modes).time_ms)

    tables = [make_table(seed) for seed in range(30, 36)]
    designed, random = (
        [error(table, name, seed) for seed, table in enumerate(tables)] for name in ("sequential", "random")
    )
    assert np.median(designed) < np.median(random)


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_profiling_in_rounds_tells_each_round_of_those_before(sampling):
    asked = []

    def profile(places):
        asked.append(places)
        return _profile(places)

    places = choose_by_profiling(TABLE.modes, 12, profile, sampling=sampling)
    assert len(set(places.tolist())) == 12
    assert len(asked) == (7 if sampling == "sequential" else 0)


def test_the_greatest_mode_comes_first():
    modes = TABLE.modes
    for count in (1, 4):
        chosen = choose(modes, count, sampling="greatest-first", seed=1)
        assert modes[chosen[0]].tolist() == modes.max(axis=0).tolist()
        assert len(set(chosen)) == count


@pytest.mark.parametrize("sampling", ["space-filling", "greatest-first"])
def test_several_batch_sizes_are_spread_over_and_the_greatest_mode_comes_at_the_middle_one(sampling):
    modes, sizes = np.repeat(TABLE.modes, 3, axis=0), np.tile([1, 8, 64], len(TABLE.modes))
    chosen = choose(Settings.of(modes, sizes), 6, sampling=sampling, seed=1)
    assert set(sizes[chosen]) == {1, 8, 64}
    if sampling == "greatest-first":
        assert sizes[chosen[0]] == 8


PLAIN_TABLE = made_table(noise=0.1)


def test_rows_are_those_of_their_repeat_target_count_and_seed():
    def drawn(**changes):
        asked = {"table": PLAIN_TABLE, "count": 10, "sampling": "random", "seed": 0, **changes}
        return rows_to_fit(**asked).tolist()

    assert drawn() == drawn()
    assert len(set(drawn())) == 10
    others = [drawn(repeat=1), drawn(seed=1), drawn(table=made_table("bert-squad"))]
    assert all(other != drawn() for other in others)


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_every_sampling_chooses_rows_that_repeat(sampling):
    references = (made_table("bert-squad"),)
    chosen = [rows_to_fit(PLAIN_TABLE, 9, sampling, 0, references, repeat=1).tolist() for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) == 9


def test_several_batch_sizes_are_not_sampled_one_after_the_other():
    both = dataclasses.replace(PLAIN_TABLE, batch_size=np.where(np.arange(54) < 27, 8, 16))
    assert len(rows_to_fit(both, 9, "random", 0)) == 9
    with pytest.raises(InvalidValueError, match="2 batch sizes"):
        rows_to_fit(both, 9, "sequential", 0)
