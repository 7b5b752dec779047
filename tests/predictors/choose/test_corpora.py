"""What one measured goes into a model: results files and their frames, and which of their profiles count."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from pathlib import Path
from typing import Any, List

import pandas as pd
import pytest

import jetwatt
from harness.core.errors import HarnessError, StoreError
from harness.core.power_modes import NamedMode, PowerMode
from harness.store.corpora import export
from harness.store.results import ResultsStore
from jetwatt.cli import main
from predictors.choose.corpora import load_tables
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

MODES = [PowerMode(cores, khz, 0, 0) for cores in (1, 2, 4) for khz in (1_000_000, 2_000_000)]
SPEED = {0: 1.0, 2: 1.5}  # by number of workers


def stored(file: Path, *flagged: int) -> Path:
    """Results of six modes with two numbers of workers; those of some modes, by place, were disturbed."""
    with ResultsStore(file) as store:
        for (place, mode), workers in itertools.product(enumerate(MODES), SPEED):
            time_ms = 4e8 / (mode.cpu_cores * mode.cpu_khz * SPEED[workers])
            profile = make_profile(
                [time_ms] * 40,
                power_mw=5_000 + mode.cpu_cores * mode.cpu_khz / 1e3,
                case={"workers": workers, "power_mode": NamedMode(mode.name, mode)},
                conditions={"power_mode": mode._asdict()},
                flags=["disturbed: other processes"] if place in flagged else [],
            )
            store.add(profile, ENVIRONMENT, "run")
        store.add(make_profile(case={"task": "idle", "workload": "none"}), ENVIRONMENT, "run")
    return file


@pytest.fixture
def forms(tmp_path: Path) -> List[Any]:
    """The same results as a file, as what `open_results` returns, and as its frame; two modes were disturbed."""
    file = stored(tmp_path / "r.sqlite", 0, 3)
    return [file, str(file), jetwatt.open_results(file), jetwatt.open_results(file).profiles()]


def notes_of(call: Any) -> List[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.exhaustive
def test_a_model_is_fitted_to_results_in_each_form_and_says_what_is_left_out(forms: List[Any]) -> None:
    for form in forms:
        with pytest.warns(UserWarning, match="lenet-mnist: 4 profiles .*disturbed") as notes:
            model = jetwatt.fit(form, workload="lenet-mnist", predictor="ridge", workers=2)
        assert model.origin["fitted_rows"] == 4
        assert not any("merged" in str(note.message) for note in notes)
        slowest = model.predictor.training_rows_.time_ms.max()
        assert slowest == pytest.approx(4e8 / (2_000_000 * SPEED[2]), rel=1e-3)


@pytest.mark.exhaustive
def test_profiles_with_several_numbers_of_workers_are_merged_and_this_is_the_cause_that_is_named(
    forms: List[Any], tmp_path: Path
) -> None:
    with ResultsStore(forms[0], read_only=True) as store:
        export(store, tmp_path / "c.csv")
    for form in (*forms, tmp_path / "c.csv"):
        notes = notes_of(lambda form=form: jetwatt.fit(form, workload="lenet-mnist", predictor="ridge"))
        [merged] = [note for note in notes if "merged" in note]
        assert says(merged, "lenet-mnist on host", "workers 0 and 2")
        assert merged.endswith("choose some with workers=")
        assert not any("lack a column" in note for note in notes)


def test_other_conditions_that_differ_are_named_too(forms: List[Any]) -> None:
    frame = forms[-1]
    cold = frame.assign(cache="cold", key=frame["key"] + "cold")
    notes = notes_of(
        lambda: jetwatt.fit(pd.concat([frame, cold]), workload="lenet-mnist", workers=0, predictor="ridge")
    )
    [merged] = [note for note in notes if "merged" in note]
    assert says(merged, "cache cold and warm", "merged")
    assert merged.endswith("give a table with some of them only")


@pytest.mark.exhaustive
def test_single_minibatches_come_with_a_results_file_and_what_opens_it(forms: List[Any]) -> None:
    of_file, _, of_opened, of_frame = (load_tables(form)[0] for form in forms)
    assert of_file.entries is not None
    assert of_file == of_opened
    assert of_frame.entries is None
    assert of_frame.time_ms.tolist() == of_file.time_ms.tolist()


@pytest.mark.exhaustive
def test_an_evaluation_takes_results_and_says_what_is_left_out(forms: List[Any]) -> None:
    for form in forms:
        with pytest.warns(UserWarning, match="lenet-mnist: 4 profiles .*disturbed"):
            evaluation = jetwatt.evaluate(
                form,
                target="lenet-mnist",
                predictors="ridge",
                modes=3,
                runs=jetwatt.Runs(repeats=1),
                storage="ssd",
                workers=0,
            )
        assert len(evaluation.table()) == 1


@pytest.mark.exhaustive
def test_other_reasons_are_counted_and_nothing_left_is_refused(tmp_path: Path) -> None:
    file = stored(tmp_path / "r.sqlite")
    [idle] = notes_of(lambda: load_tables(file))
    assert "left out: 1 profile" in idle
    with ResultsStore(file) as store:
        profile = make_profile(
            [300.0] * 40,
            case={"power_mode": NamedMode(MODES[1].name, MODES[1])},
            conditions={"power_mode": MODES[1]._asdict()},
        )
        store.add(profile, ENVIRONMENT, "later")
        store.add(make_profile([], case={"batch_size": 32}, settings={"minibatches": 40}), ENVIRONMENT, "later")
    notes = notes_of(lambda: jetwatt.fit(file, workload="lenet-mnist", workers=0))
    assert any(says(note, "1 profile older") for note in notes)
    assert any("1 profile without a clean minibatch" in note for note in notes)
    nothing = stored(tmp_path / "none.sqlite", *range(len(MODES)))
    with pytest.warns(UserWarning, match="12 profiles flagged"), pytest.raises(
        StoreError, match="no profile that counts"
    ):
        jetwatt.fit(nothing, workload="lenet-mnist")


def test_a_choice_that_no_profile_meets_names_those_that_there_are(forms: List[Any]) -> None:
    for condition, words in (({"workers": 4}, "workers 4; available: 0, 2"), ({"storage": "sd"}, "available: ssd")):
        with pytest.warns(UserWarning, match="left out"), pytest.raises(HarnessError, match=words):
            jetwatt.fit(forms[0], workload="lenet-mnist", **condition)


@pytest.mark.exhaustive
def test_the_commands_select_and_say_the_same_as_the_calls(forms: List[Any], tmp_path: Path, capsys: Any) -> None:
    file, out = str(forms[0]), str(tmp_path / "m.jw")
    evaluated = {"target": "lenet-mnist", "predictors": "ridge", "modes": 3}
    words = [word for name, value in evaluated.items() for word in (f"--{name}", str(value))]
    words += ["--repeats", "1", "--jobs", "1"]
    pairs = (
        (
            ["fit", "--corpus", file, "--target", "lenet-mnist", "--modes", "3", "--out", out],
            lambda: jetwatt.fit(file, workload="lenet-mnist", modes=3),
        ),
        (
            ["fit", "--corpus", file, "--target", "lenet-mnist", "--workers", "2", "--storage", "ssd", "--out", out],
            lambda: jetwatt.fit(file, workload="lenet-mnist", workers=2, storage="ssd"),
        ),
        (
            ["predict", "--model", out, "--board", "xavier-agx", "--out", str(tmp_path / "p.csv")],
            lambda: jetwatt.load(out).predict("xavier-agx"),
        ),
        (
            ["evaluate", "--corpus", file, *words],
            lambda: jetwatt.evaluate(file, runs=jetwatt.Runs(repeats=1), **evaluated),
        ),
        (["prior", "learn", file, "--out", str(tmp_path / "p.toml")], lambda: jetwatt.learn_prior([file])),
        (
            [
                "strategies",
                *f"evaluate --corpus {file} --repeats 1 --profiles 2 --budgets none --goal energy --strategies"
                " random,presets".split(),
            ],
            lambda: jetwatt.evaluate_strategies(
                file,
                runs=jetwatt.Runs(repeats=1),
                profiles=2,
                budgets=jetwatt.BudgetSweep("none", goal="energy"),
                strategies="random,presets",
            ),
        ),
    )
    for command, call in pairs:
        assert main(command) == 0
        printed = [line[len("note: ") :] for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
        warned = [
            note.replace("workers=", "--workers").replace("unprofiled=True", "--unprofiled") for note in notes_of(call)
        ]
        assert printed, command
        assert printed == warned, command


@pytest.mark.exhaustive
def test_a_search_starts_from_results_in_each_form(tmp_path: Path) -> None:
    file = tmp_path / "others.sqlite"
    search = jetwatt.Search(strategy="random", profiles=3)
    keeping = dataclasses.replace(search, results=file)
    jetwatt.recommend("sim:orin-nano", workload="lenet-mnist", power_w=10, search=keeping)
    opened = jetwatt.open_results(file)
    choices = [
        jetwatt.recommend(
            "sim:orin-nano",
            workload="resnet18-imagenet",
            power_w=10,
            search=dataclasses.replace(search, corpus=corpus),
        ).power_mode
        for corpus in (file, opened, opened.profiles())
    ]
    assert len(set(choices)) == 1
    of_another = dataclasses.replace(search, corpus=opened, reference=["yolov8n-coco"])
    with pytest.raises(HarnessError, match="no training of 'yolov8n-coco'"):
        jetwatt.recommend("sim:orin-nano", workload="resnet18-imagenet", power_w=10, search=of_another)
