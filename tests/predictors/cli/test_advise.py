"""Which approach pays: the arithmetic of the decision guide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError
from predictors.cli.advise import Approach, weigh

SEARCH = Approach("search", 10, 5.0, 0.0, "")
BRUTE_FORCE = Approach("brute force", 4000, 0.0, 0.0, "")


def total_hours(verdicts):
    return {verdict.approach.name: verdict.total_hours for verdict in verdicts}


def test_the_arithmetic_by_hand():
    hours = total_hours(weigh([SEARCH, BRUTE_FORCE], epochs=100, epoch_minutes=6, runs=1, profile_seconds=36))
    assert hours == pytest.approx({"search": 0.1 + 10.5, "brute force": 40 + 10})


def test_a_short_training_pays_for_few_profiles_and_a_long_one_for_all():
    short = weigh([BRUTE_FORCE, SEARCH], epochs=10, epoch_minutes=6, runs=1, profile_seconds=36)
    long = weigh([SEARCH, BRUTE_FORCE], epochs=10_000, epoch_minutes=6, runs=1, profile_seconds=36)
    assert (short[0].approach, long[0].approach) == (SEARCH, BRUTE_FORCE)


@given(st.floats(1, 1e4), st.integers(1, 50))
def test_many_runs_weigh_as_much_as_many_epochs(epochs, runs):
    options = {"epoch_minutes": 3, "profile_seconds": 20}
    many_runs = weigh([SEARCH], epochs=epochs, runs=runs, **options)
    assert many_runs[0].total_hours == pytest.approx(
        weigh([SEARCH], epochs=epochs * runs, runs=1, **options)[0].total_hours
    )


@pytest.mark.parametrize("name", ["epochs", "epoch_minutes", "runs", "profile_seconds"])
def test_a_number_that_is_not_above_0_is_refused(name):
    options = {"epochs": 1.0, "epoch_minutes": 1.0, "runs": 1.0, "profile_seconds": 1.0, name: 0.0}
    with pytest.raises(InvalidValueError, match="above 0"):
        weigh([SEARCH], **options)
