"""An evaluation tests on what it says, fits every predictor on the same modes, and tells what it could not run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import predictors.models.registry
from harness.core.errors import DependencyError, InvalidValueError, UnknownNameError
from predictors.contest.trials import Group, TrialPlan, format_results, format_skipped, run_plan
from predictors.evaluation import Target, mape, summarise
from predictors.models.registry import ENTRY_POINTS, MODULES, make_predictor, predictor_class, predictor_names
from predictors.sampling import profiling_seconds
from tests.predictors.plain_predictors import LogLinear, Nothing, made_table

TABLE = made_table(noise=0.1)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    for kind in (LogLinear, Nothing):
        monkeypatch.setitem(predictors.models.registry.MODULES, kind.name, kind.__module__)


@pytest.mark.parametrize("tested", [None, np.array([3, 30])])
def test_the_stricter_protocol_tests_on_the_other_modes_and_the_papers_on_all(tested):
    fitted, every = np.arange(20), np.arange(54) if tested is None else tested
    score = Target(TABLE, tested=tested).judge(LogLinear(), fitted)
    predictor, others = LogLinear(), np.setdiff1d(every, fitted)
    predictor.fit(TABLE.take(fitted).applied())
    predicted = predictor.predict(TABLE)
    assert score["time_mape"] == mape(TABLE.time_ms[others], predicted.time_ms[others])
    assert score["power_mape"] == mape(TABLE.power_mw[others], predicted.power_mw[others])
    assert score["all_modes_time_mape"] == pytest.approx(mape(TABLE.time_ms[every], predicted.time_ms[every]))
    assert score["profiling_seconds"] == profiling_seconds(TABLE.time_ms[:20])
    assert score["n_modes"] == 20


def test_the_odd_slice_is_left_out_of_the_test_where_the_table_has_one():
    slow = TABLE.modes[:, 0] == 2
    time_ms = np.where(slow & (TABLE.modes[:, 1] < 576_000), TABLE.time_ms / 5, TABLE.time_ms)
    measured = dataclasses.replace(TABLE, time_ms=time_ms, provenance="measured")
    score = Target(measured).judge(LogLinear(), np.arange(6, 30))
    assert score["without_slice_time_mape"] < score["time_mape"] / 2
    assert "without_slice_time_mape" not in Target(TABLE).judge(LogLinear(), np.arange(6, 30))


def test_profiles_taken_elsewhere_are_learned_and_those_here_are_tested():
    elsewhere = dataclasses.replace(TABLE, time_ms=2 * TABLE.time_ms)
    assert Target(TABLE, profiled=elsewhere).judge(LogLinear(), np.arange(40))["time_mape"] > 80


def test_coverage_is_near_its_level_for_a_predictor_that_knows_its_noise():
    scores = [Target(made_table(noise=0.1, seed=seed)).judge(LogLinear(), np.arange(27)) for seed in range(20)]
    found = summarise(pd.DataFrame(scores))["coverage"]
    assert 55 < found["time_80"] < 85
    assert 75 < found["power_95"] < 98


def test_what_a_predictor_does_not_answer_is_none_and_the_rest_is_there():
    result = summarise(pd.DataFrame([Target(TABLE).judge(Nothing(), np.arange(20))]))
    assert result["time_mape_median"] is result["energy_mape_median"] is result["coverage"]["time_80"] is None
    assert result["power_mape_median"] > 0


def test_all_modes_leave_a_tenth_to_test_on_and_more_than_there_are_are_refused():
    assert len(Target(TABLE).rows(None, "random", 0)) == 54 - 5
    with pytest.raises(InvalidValueError, match="cannot fit on 55 modes"):
        Target(TABLE).rows(55, "random", 0)


def test_every_predictor_gets_the_same_modes_and_references(monkeypatch):
    seen = {LogLinear: [], Nothing: []}

    def learn(self, rows, time_ms, power_mw, original=LogLinear._learn):
        seen[type(self)].append((rows.modes.tolist(), self.references, self.seed))
        original(self, rows, time_ms, power_mw)

    monkeypatch.setattr(LogLinear, "_learn", learn)
    reference = made_table("bert-squad")
    run_plan(TrialPlan((LogLinear.name, Nothing.name), (Target(TABLE, (reference,)),), (5, 10), repeats=2))
    assert seen[LogLinear] == seen[Nothing]
    assert len(seen[Nothing]) == 4
    assert all(references == (reference,) for _, references, _ in seen[Nothing])


def test_a_plan_gives_a_result_for_each_predictor_target_and_count():
    plan = TrialPlan(
        (LogLinear.name,), (Target(TABLE), Target(made_table("bert-squad"), label="other")), (5, None), repeats=2
    )
    told = []
    found = run_plan(plan, report=lambda done, total, what: told.append((done, total)))
    assert [(one["target"], one["modes"], one["n_modes"]) for one in found.results] == [
        ("lenet-mnist", 5, 5), ("lenet-mnist", "all", 49), ("other", 5, 5), ("other", "all", 49),
    ]  # fmt: skip
    assert told == [(done, 8) for done in range(1, 9)]
    assert found.by_group[Group(LogLinear.name, 1, 5)]["target"] == "other"
    assert {one["provenance"] for one in found.results} == {"simulated"}


@pytest.mark.exhaustive
@pytest.mark.long
def test_several_processes_find_what_one_finds():
    plan = TrialPlan(("physical-gp",), (Target(TABLE),), (8, 500), repeats=2)
    alone, together = (run_plan(plan, jobs) for jobs in (1, 2))
    assert alone.results[0]["time_mape"] == pytest.approx(together.results[0]["time_mape"], rel=1e-3)
    assert alone.skipped == together.skipped


def test_what_cannot_learn_is_skipped_with_the_reason():
    found = run_plan(TrialPlan((LogLinear.name,), (Target(TABLE),), (1, 5, 500), repeats=1))
    assert [one["n_modes"] for one in found.results] == [5]
    assert [one["modes"] for one in found.skipped] == [1, 500]
    text = format_skipped(found.skipped)
    assert "at least 2" in text
    assert "cannot fit on 500 modes" in text


def test_the_table_names_provenance_and_leaves_missing_figures_out():
    text = format_results(run_plan(TrialPlan((Nothing.name,), (Target(TABLE),), (5,), repeats=1)).results)
    assert text.startswith("tested on simulated corpora")
    assert "None" not in text
    assert "nan" not in text


def test_predictors_are_named_with_commas_or_all_at_once():
    assert predictor_names("ridge,nn,ridge") == ["ridge", "nn"]
    assert predictor_names("nn,all")[0] == "nn"
    assert set(predictor_names("all")) == set(MODULES)
    with pytest.raises(UnknownNameError, match=r"available: .*powertrain"):
        predictor_names("nnn")
    with pytest.raises(UnknownNameError, match="available: "):
        predictor_class("nnn")


def test_a_predictor_takes_of_what_is_offered_what_it_has():
    made = make_predictor(LogLinear, seed=5, board="orin-agx", references=(TABLE,))
    assert (made.seed, made.references) == (5, (TABLE,))


def test_a_parameter_that_a_predictor_does_not_have_is_refused_with_the_nearest_name():
    with pytest.raises(InvalidValueError, match=r"log-linear .*'rigde'.*ridge\?"):
        make_predictor(LogLinear, rigde=2.0)


def test_a_package_brings_a_predictor_by_an_entry_point(tmp_path, monkeypatch):
    about = tmp_path / "rivers-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rivers\nVersion: 0.1\n")
    declared = "flat = rivers:Flat\nlost = rivers:Lost\nother = rivers:Flat\nnone = rivers:np\n"
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{declared}")
    (tmp_path / "rivers.py").write_text(
        "import numpy as np\n"
        "from tests.predictors.plain_predictors import LogLinear\n"
        "class Flat(LogLinear):\n"
        "    name = 'flat'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flat = predictor_class("flat")
    assert predictor_names("flat,ridge") == ["flat", "ridge"]
    assert flat().fit(TABLE).predict(TABLE).time_ms == pytest.approx(LogLinear().fit(TABLE).predict(TABLE).time_ms)
    with pytest.raises(DependencyError, match=r"'lost' of package rivers 0\.1 .*rivers:Lost: "):
        predictor_class("lost")
    with pytest.raises(InvalidValueError, match=r"name 'flat'.*'other'"):
        predictor_class("other")
    with pytest.raises(InvalidValueError, match="rivers:np is not a predictor"):
        predictor_class("none")
