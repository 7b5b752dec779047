"""Which approach pays: the arithmetic of the decision guide, and what its penalties count."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.__main__ import main
from predictors.strategies.advise import RECORDED, read_approaches, rules, weigh

TWO = pd.DataFrame(
    [
        {"name": "search", "profiles": 10, "fitting_s": 0.0, "penalty_pct": 5.0},
        {"name": "brute force", "profiles": 4000, "fitting_s": 0.0, "penalty_pct": 0.0},
    ]
)


def test_the_arithmetic_by_hand():
    costs = weigh(TWO, best_hours=10, profile_seconds=36).set_index("name")
    assert costs["total_hours"].to_dict() == pytest.approx({"search": 0.1 + 10.5, "brute force": 40 + 10})


def test_a_short_training_pays_for_few_profiles_and_a_long_one_for_all():
    cheapest = [weigh(TWO, best_hours=hours, profile_seconds=36)["name"].iloc[0] for hours in (1, 1000)]
    assert cheapest == ["search", "brute force"]


@given(st.floats(1, 1e4), st.integers(1, 50))
def test_a_training_that_takes_longer_never_costs_less(hours, factor):
    one, more = (weigh(TWO, best_hours=best, profile_seconds=20).set_index("name") for best in (hours, hours * factor))
    assert (more["total_hours"] >= one["total_hours"][more.index]).all()


def test_all_penalties_are_of_the_same_tables_and_what_breaks_a_limit_is_paid_for():
    approaches = read_approaches().set_index("name")
    assert set(approaches["origin"].drop("brute force")) == {
        "contest on 3 measured tables of an Orin AGX, baselines/recorded"
    }
    rows = pd.read_csv(RECORDED)
    assert (rows.groupby("name")["target"].nunique() == 3).all()
    over = rows["over_limit_plus1_pct"] > 0
    assert (rows["priced_pct"] == rows["penalty_mean_pct"])[~over].all()
    assert (rows["priced_pct"] > rows["penalty_mean_pct"])[over].all()


def test_what_pays_can_be_had_from_recommend(capsys):
    assert main(["advise", "--epochs", "120", "--epoch-minutes", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "closed-loop, 15 modes"


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ((0, None, None), "4 workers instead of 0"),
        ((8, None, None), "4 workers are as fast as 8"),
        ((None, "hdd", None), "make up for hdd"),
        ((None, None, "lenet-mnist"), "keep the CPU clock high"),
        ((None, None, "bert-squad"), "the GPU clock affects the speed of bert-squad"),
    ],
)
def test_the_papers_rules_speak_of_the_training_that_is_described(described, words):
    first, *_, last = rules(*described)
    assert words in first
    assert "wake it" in last
    assert rules(4, "ssd", None) == rules(None, None, None) == []


@pytest.mark.parametrize("name", ["epochs", "epoch-minutes", "runs", "profile-seconds"])
def test_a_number_that_is_not_above_0_is_refused(name, capsys):
    given = {"epochs": 1, "epoch-minutes": 1, "runs": 1, "profile-seconds": 1, name: 0}
    assert main(["advise", *(word for option, value in given.items() for word in (f"--{option}", str(value)))]) == 2
    assert f"--{name} is 0, expected a number above 0" in capsys.readouterr().err
