"""A further quantity is one line of the table: baselines, single profiles, comparisons and histories have it then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List

import pytest

from harness.__main__ import main
from harness.judge import baseline, compare, history, quantities, sides, tolerances
from harness.judge.quantities import POWER, QUANTITIES
from harness.judge.sides import read_baseline
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

RATE = POWER._replace(
    name="rate", column="samples_per_s", unit="1/s", worse="lower rate", better="higher rate", tolerance=0.2,
    more_is_worse=False, unsure_flags=(), shown_unit="", to_shown=float,
)  # fmt: skip
"""A column that profiles have, under a name of its own."""


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (quantities, sides, baseline, compare, history, tolerances):
        monkeypatch.setattr(module, "QUANTITIES", (*QUANTITIES, RATE))


def profile_of(memory: float = 100.0, rate: float = 50.0) -> Any:
    profile = make_profile(case={"device": "orin-agx"})
    profile.aggregates.update(memory_peak_bytes=memory * 2**20, samples_per_s=rate)
    return profile


def results(path: Path, nights: List[Any]) -> Path:
    with ResultsStore(path) as store:
        for number, profile in enumerate(nights):
            store.add(profile, ENVIRONMENT, f"run{number}")
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "b.json"
    stored = str(results(tmp_path / "before.sqlite", [profile_of()] * 3))
    assert main(["baseline", "record", "--results", stored, "--baseline", str(path)]) == 0
    return path


CHANGES = [
    ({}, "no difference", "no difference"),
    ({"memory": 108.0}, "more memory, within the tolerance of 10 %", "no difference"),
    ({"memory": 130.0}, "more memory", "no difference"),
    ({"memory": 70.0}, "less memory", "no difference"),
    ({"rate": 30.0}, "no difference", "lower rate"),
    ({"rate": 90.0}, "no difference", "higher rate"),
]


@pytest.mark.parametrize(("changes", "memory", "rate"), CHANGES)
def test_a_profile_and_a_results_file_are_held_against_it_with_its_own_threshold(
    tmp_path, recorded, changes, memory, rate, capsys
):
    profile = profile_of(**changes)
    found = {one.figure: one for one in baseline.Gate(read_baseline(recorded)).check(profile)}
    assert (found["peak memory"].status, found["rate"].status) == (memory, rate)
    is_worse = memory == "more memory" or rate == "lower rate"
    assert any(one.is_beyond_limit for one in found.values()) == is_worse
    after = str(results(tmp_path / "after.sqlite", [profile] * 3))
    assert main(["baseline", "check", "--results", after, "--baseline", str(recorded)]) == int(is_worse)
    assert memory in capsys.readouterr().out


def test_compare_and_history_have_it(tmp_path, capsys):
    before = results(tmp_path / "a.sqlite", [profile_of()] * 6)
    after = results(tmp_path / "b.sqlite", [profile_of(130.0)] * 6)
    assert main(["compare", str(before), str(after), "--json"]) == 1
    told = {one["figure"]: one["status"] for one in json.loads(capsys.readouterr().out)["overall"]}
    assert told == {
        "minibatch time": "no difference", "power": "no difference", "peak memory": "more memory",
        "rate": "no difference",
    }  # fmt: skip
    nights = results(tmp_path / "c.sqlite", [profile_of()] * 6 + [profile_of(130.0)] * 6)
    assert main(["history", str(nights), "--json"]) == 1
    series = {one["figure"]: one for one in json.loads(capsys.readouterr().out)["series"]}
    assert (series["peak memory"]["status"], series["peak memory"]["unit"]) == ("more memory", "bytes")
