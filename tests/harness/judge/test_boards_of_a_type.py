"""Boards of a type that differ: no comparison, no verdict and no noise takes one of them for another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

from harness.__main__ import main
from harness.judge.baseline import Gate
from harness.judge.case_frame import pooled, read_frame
from harness.judge.claims import judge
from harness.judge.sides import read_baseline
from harness.judge.verdict import UNDECIDED
from harness.store.results import ResultsStore
from harness.summary import format_summary
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tools.simulated_campaign import papers_claims

SLOWER_BOARD = 1.1


def profile_of(instance: Optional[str], seed: int) -> Any:
    noise = np.random.default_rng(seed)
    own_ms = 100 * (SLOWER_BOARD if instance == "orin4" else 1.0) * np.exp(0.003 * noise.normal())
    told = {} if instance is None else {"board_instance": instance}
    times_ms = list(own_ms * np.exp(0.01 * noise.normal(size=60)))
    return make_profile(times_ms, case={"device": "orin-agx"}, conditions=told)


def measured(path: Path, *instances: Optional[str], runs: int = 3) -> Path:
    """A results file of some runs on each board."""
    with ResultsStore(path) as store:
        for place, instance in enumerate(instances):
            for run in range(runs):
                store.add(profile_of(instance, 10 * place + run), ENVIRONMENT, f"run {place}-{run}")
    return path


@pytest.fixture
def compare(capsys):
    def compare(*arguments: Any) -> Any:
        code = main(["compare", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return compare


def test_boards_of_a_type_are_devices_of_their_own_and_their_difference_is_no_noise(tmp_path):
    with ResultsStore(measured(tmp_path / "r", "orin3", "orin4")) as store:
        found = {row.device_label: row for row in pooled(read_frame(store)).itertuples()}
    assert set(found) == {"orin-agx@orin3", "orin-agx@orin4"}
    times = {name: one.time for name, one in found.items()}
    assert times["orin-agx@orin4"] / times["orin-agx@orin3"] == pytest.approx(SLOWER_BOARD, rel=0.01)
    assert all(one.run_noise["time"].share < 0.01 for one in found.values())


def test_boards_of_a_type_are_told_apart_in_summary_claims_and_history(tmp_path, capsys):
    path = measured(tmp_path / "r.sqlite", "orin3", "orin4", runs=4)
    with ResultsStore(path, read_only=True) as store:
        table = format_summary([store.profile(record.id) for record in store.records()]).splitlines()
        verdicts = [one for one in judge(pooled(read_frame(store)), papers_claims()) if one.verdict != UNDECIDED]
    assert [line.partition("-lenet")[0] for line in table[2:10]] == ["orin-agx@orin3"] * 4 + ["orin-agx@orin4"] * 4
    assert "orin-agx-lenet" not in "".join(table)
    assert {one.device for one in verdicts} == {"orin-agx@orin3", "orin-agx@orin4"}
    assert main(["history", str(path), "--json"]) == 0  # 10 % between boards is no change of either
    series = json.loads(capsys.readouterr().out)["series"]
    levels = {one["board_instance"]: one["runs"][0]["value"] for one in series if one["unit"] == "ms"}
    assert levels["orin4"] / levels["orin3"] == pytest.approx(SLOWER_BOARD, rel=0.02)


def test_a_single_board_goes_by_its_type(tmp_path):
    with ResultsStore(measured(tmp_path / "r", "orin3")) as store:
        assert set(read_frame(store)["device_label"]) == {"orin-agx"}


def test_another_board_is_compared_only_where_that_is_the_question(tmp_path, compare):
    sides = [measured(tmp_path / name, name) for name in ("orin3", "orin4")]
    code, document = compare(*sides)
    assert code == 2
    assert document["refused"][0]["why"] == ['board_instance: "orin3" -> "orin4"']
    code, document = compare(*sides, "--by", "board_instance")
    assert code == 1
    assert document["overall"][0]["ratio"] == pytest.approx(SLOWER_BOARD, rel=0.01)


def test_a_file_that_does_not_tell_the_board_is_compared_with_one_board_and_not_with_two(tmp_path, compare):
    before = measured(tmp_path / "before", None)
    code, document = compare(before, measured(tmp_path / "one", "orin3"))
    assert (code, document["refused"]) == (0, [])
    code, document = compare(before, measured(tmp_path / "two", "orin3", "orin4"))
    assert code == 2
    assert {one["case"].partition("-lenet")[0] for one in document["refused"]} == {"orin-agx"}
    assert [one.partition("-lenet")[0] for one in document["only_after"]] == ["orin-agx@orin4"]


def test_a_baseline_that_does_not_tell_the_board_speaks_of_this_one(tmp_path):
    results, baseline = measured(tmp_path / "r", None), tmp_path / "b.json"
    main(["baseline", "record", "--results", str(results), "--baseline", str(baseline)])
    assert Gate(read_baseline(baseline)).check(profile_of("orin3", 5))[0].status == "no difference"
    assert Gate(read_baseline(baseline)).check(profile_of("orin4", 5))[0].status == "slower"
