"""The settings of a search: a call refuses those that it does not read."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.errors import InvalidValueError
from predictors.choose import tuning
from predictors.choose.request import Search
from predictors.models.base import refuse_unread, unread_in
from predictors.plans import concurrent


@dataclasses.dataclass(frozen=True, repr=False)
class SearchWithOneMore(Search):
    """The settings after somebody added one, which no call reads yet."""

    patience: int = 0


def test_a_setting_that_was_added_is_refused_until_the_call_names_it():
    given = SearchWithOneMore(profiles=5, patience=3)
    with pytest.raises(InvalidValueError, match="patience="):
        refuse_unread(given, "tuning", *unread_in(SearchWithOneMore, "profiles"))
    refuse_unread(given, "tuning", *unread_in(SearchWithOneMore, "profiles", "patience"))


@pytest.mark.parametrize("unread", [tuning.UNUSED, concurrent.UNUSED], ids=["tuning", "concurrent"])
def test_calls_read_profiles_and_seed_and_no_risk(unread):
    assert "risk" in unread
    assert not {"profiles", "minibatches", "seed"} & set(unread)
